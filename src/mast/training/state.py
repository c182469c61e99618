"""The state of a run: all that changes as it goes on, kept so that a kill at any moment costs minutes and no sense."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from mast.errors import TrainingError
from mast.training.run import Run

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from lightning_fabric.wrappers import _FabricModule, _FabricOptimizer


@dataclass(slots=True)
class State:
    """What changes beside the weights: how far the run is, and the best it has seen.

    All random numbers and the place in the sound follow from the step.
    """

    step: int = 0
    best_loss: float = math.inf
    best_epoch: int = -1
    best: dict[str, Tensor] = field(default_factory=dict)


class Parts:
    """Everything that a checkpoint holds."""

    def __init__(
        self, fabric: Fabric, module: _FabricModule, optimiser: _FabricOptimizer, mean: AveragedModel | None
    ) -> None:
        self.fabric, self.module, self.optimiser, self.mean = fabric, module, optimiser, mean
        self.state = State()

    def load(self, run: Run) -> None:
        """Go on from the last checkpoint, if there is one."""
        if not run.last.exists():
            return
        try:
            kept = torch.load(run.last, map_location="cpu", weights_only=True)
        except Exception as error:
            raise TrainingError(
                f"{run.last} cannot be read ({error}). Delete it to begin this run anew."
            ) from error
        self.module.module.load_state_dict(kept["model"])
        self.optimiser.optimizer.load_state_dict(kept["optimiser"])
        if self.mean is not None:
            self.mean.load_state_dict(kept["mean"])
        if self.scaler:
            self.scaler.load_state_dict(kept["scaler"])
        for name, value in kept["state"].items():
            setattr(self.state, name, value)

    def save(self, run: Run) -> None:
        """Write the checkpoint under another name and rename it: whoever is killed meanwhile leaves the one before."""
        if self.fabric.is_global_zero:
            kept = {
                "model": self.module.module.state_dict(),
                "optimiser": self.optimiser.optimizer.state_dict(),
                "mean": self.mean.state_dict() if self.mean is not None else {},
                "scaler": self.scaler.state_dict() if self.scaler else {},
                "state": {item.name: getattr(self.state, item.name) for item in fields(State)},
            }
            partial = run.last.with_suffix(".partial")
            with partial.open("wb") as file:
                torch.save(kept, file)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(run.last)
        self.fabric.barrier()

    @property
    def scaler(self) -> Any:
        """What keeps small gradients of fp16 from vanishing, where it is used."""
        return getattr(self.fabric.strategy.precision, "scaler", None)
