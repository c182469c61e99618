"""What moves the weights: AdamW over groups of parameters, a warm-up and cosine per step, and a running mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.swa_utils import AveragedModel

from mast.config import Optimisation


@dataclass(frozen=True, slots=True)
class Group:
    """Parameters that learn at the same multiple of the learning rate."""

    parameters: tuple[nn.Parameter, ...]
    multiple: float = 1.0


def adamw(groups: Iterable[Group], settings: Optimisation) -> AdamW:
    """AdamW with weight decay on matrices and tokens alone: vectors (biases and norms) have none, as in AudioMAE."""
    split = []
    for group in groups:
        for decay, is_vector in ((settings.weight_decay, False), (0.0, True)):
            chosen = [item for item in group.parameters if (item.ndim <= 1) == is_vector]
            if chosen:
                split.append(
                    {"params": chosen, "weight_decay": decay, "peak_lr": settings.lr * group.multiple}
                )
    return AdamW(split, lr=settings.lr, betas=settings.betas)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long to learn, in steps, and how fast at each: up from 0, then down half a cosine to the least rate."""

    steps: int
    warmup_steps: float
    least: float  # of the peak

    @classmethod
    def of(cls, settings: Optimisation, steps_per_epoch: int) -> Schedule:
        """The schedule of a stage."""
        return cls(
            settings.epochs * steps_per_epoch,
            settings.warmup_epochs * steps_per_epoch,
            settings.min_lr / settings.lr,
        )

    def factor(self, step: float) -> float:
        """Share of the peak learning rate at a step."""
        if step < self.warmup_steps:
            return step / self.warmup_steps
        done = (step - self.warmup_steps) / max(self.steps - self.warmup_steps, 1e-9)
        return self.least + (1 - self.least) * 0.5 * (1 + math.cos(math.pi * done))

    def apply(self, groups: Sequence[dict[str, Any]], step: int) -> float:
        """Set every group's rate for a step; it follows from the step alone, so nothing needs keeping. → the first"""
        for group in groups:
            group["lr"] = group["peak_lr"] * self.factor(step)
        return float(groups[0]["lr"])


def running_mean(model: nn.Module, decay: float) -> AveragedModel:
    """A copy of a model that follows its weights and buffers; early on it follows faster (docs/decisions/0010)."""

    def average(means: Sequence[Tensor], values: Sequence[Tensor], seen: Tensor | int) -> None:
        kept = min(decay, (1 + int(seen)) / (10 + int(seen)))
        for mean, value in zip(means, values, strict=True):
            if mean.is_floating_point():
                mean.lerp_(value.to(mean.dtype), 1 - kept)
            else:
                mean.copy_(value)

    with torch.no_grad():
        return AveragedModel(model, multi_avg_fn=average, use_buffers=True)
