"""AdamW over parameter groups, a learning-rate schedule (warm-up, then cosine), and a moving average of the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.swa_utils import AveragedModel

from mast.config import OptimisationSettings


@dataclass(frozen=True, slots=True)
class ParamGroup:
    """Parameters with the same multiple of the learning rate."""

    parameters: tuple[nn.Parameter, ...]
    lr_scale: float = 1.0


def adamw(groups: Iterable[ParamGroup], settings: OptimisationSettings) -> AdamW:
    """Create AdamW with weight decay on matrices and tokens only: vectors (biases, norms) have none, as in AudioMAE."""
    groups_by_decay = []
    for group in groups:
        for decay, is_vector in ((settings.weight_decay, False), (0.0, True)):
            params = [item for item in group.parameters if (item.ndim <= 1) == is_vector]
            if params:
                groups_by_decay.append(
                    {"params": params, "weight_decay": decay, "peak_lr": settings.lr * group.lr_scale}
                )
    return AdamW(groups_by_decay, lr=settings.lr, betas=settings.betas)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Number of steps and the learning rate at each: a linear warm-up from 0, then half a cosine to the minimum rate."""

    steps: int
    warmup_steps: float
    min_factor: float  # of the peak

    @classmethod
    def of(cls, settings: OptimisationSettings, steps_per_epoch: int) -> Schedule:
        """Create the schedule of a stage from its settings."""
        return cls(
            settings.epochs * steps_per_epoch,
            settings.warmup_epochs * steps_per_epoch,
            settings.min_lr / settings.lr,
        )

    def factor(self, step: float) -> float:
        """Return the learning rate at a step as a fraction of the peak rate."""
        if step < self.warmup_steps:
            return step / self.warmup_steps
        done = (step - self.warmup_steps) / max(self.steps - self.warmup_steps, 1e-9)
        return self.min_factor + (1 - self.min_factor) * 0.5 * (1 + math.cos(math.pi * done))

    def apply(self, groups: Sequence[dict[str, Any]], step: int) -> float:
        """Set the learning rate of every group for a step, and return that of the first group.

        The rate follows from the step alone, so a checkpoint does not contain it.
        """
        for group in groups:
            group["lr"] = group["peak_lr"] * self.factor(step)
        return float(groups[0]["lr"])


def make_ema(model: nn.Module, decay: float) -> AveragedModel:
    """Create an exponential moving average of a model's weights and buffers.

    The decay is smaller in the first updates, so the average follows faster then (docs/decisions/0010).
    """

    def average(means: Sequence[Tensor], values: Sequence[Tensor], updates: Tensor | int) -> None:
        current_decay = min(decay, (1 + int(updates)) / (10 + int(updates)))
        for mean, value in zip(means, values, strict=True):
            if mean.is_floating_point():
                mean.lerp_(value.to(mean.dtype), 1 - current_decay)
            else:
                mean.copy_(value)

    with torch.no_grad():
        return AveragedModel(model, multi_avg_fn=average, use_buffers=True)
