"""The checkpoint of a run: everything that changes during training.

A run that is killed at any moment loses a few minutes of training and resumes from a consistent state.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from mast.errors import TrainingError
from mast.training.run_dir import TrainingRun

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from lightning_fabric.wrappers import _FabricModule, _FabricOptimizer


@dataclass(slots=True)
class State:
    """Training state apart from weights and optimiser: the step, and the best epoch with its loss and weights.

    All random numbers and the position in the training data follow from the step.
    """

    step: int = 0
    best_loss: float = math.inf
    best_epoch: int = -1
    best: dict[str, Tensor] = field(default_factory=dict)


class Checkpointed:
    """Module, optimiser, moving average and state: the contents of a checkpoint."""

    def __init__(
        self, fabric: Fabric, module: _FabricModule, optimiser: _FabricOptimizer, ema: AveragedModel | None
    ) -> None:
        self.fabric, self.module, self.optimiser, self.ema = fabric, module, optimiser, ema
        self.state = State()

    def load(self, run: TrainingRun) -> None:
        """Load the last checkpoint, if the run has one."""
        if not run.last.exists():
            return
        try:
            saved = torch.load(run.last, map_location="cpu", weights_only=True)
        except Exception as error:
            raise TrainingError(
                f"{run.last} cannot be read ({error}). Delete it to start this run again."
            ) from error
        self.module.module.load_state_dict(saved["model"])
        self.optimiser.optimizer.load_state_dict(saved["optimiser"])
        if self.ema is not None:
            self.ema.load_state_dict(saved["mean"])
        if self.scaler:
            self.scaler.load_state_dict(saved["scaler"])
        for name, value in saved["state"].items():
            setattr(self.state, name, value)

    def save(self, run: TrainingRun) -> None:
        """Write the checkpoint to a partial file and rename it; a process killed meanwhile leaves the previous one."""
        if self.fabric.is_global_zero:
            checkpoint = {
                "model": self.module.module.state_dict(),
                "optimiser": self.optimiser.optimizer.state_dict(),
                "mean": self.ema.state_dict() if self.ema is not None else {},
                "scaler": self.scaler.state_dict() if self.scaler else {},
                "state": {entry.name: getattr(self.state, entry.name) for entry in fields(State)},
            }
            partial = run.last.with_suffix(".partial")
            with partial.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(run.last)
        self.fabric.barrier()

    @property
    def scaler(self) -> Any:
        """Gradient scaler of fp16 training, None in other precisions."""
        return getattr(self.fabric.strategy.precision, "scaler", None)
