"""What a run computes on: one device, or those that torchrun or Slurm has started processes for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from mast.errors import MissingExtraError, TrainingError
from mast.models.devices import accelerator, best_precision
from mast.training.run import Run

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def start_fabric(precision: str, run: Run, device: str = "auto", *, partly_frozen: bool = False) -> Fabric:
    """Fabric on the device asked for, with as many processes as were started; logs for TensorBoard in the run.

    Where a model is `partly_frozen`, processes do not wait for gradients that no one has.
    """
    try:
        from lightning_fabric import Fabric
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger
        from lightning_fabric.plugins import MixedPrecision
    except ImportError:
        raise MissingExtraError("Training", "train") from None

    class Autocast(MixedPrecision):
        """Mixed precision inside the model alone: what goes in keeps its own, for boxes and targets need it."""

        def convert_input(self, data: Any) -> Any:
            return data

    kind = accelerator(device)
    chosen = best_precision(kind) if precision == "auto" else precision
    if chosen == "fp16" and kind == "cpu":
        raise TrainingError("fp16 needs a GPU. On a CPU, use --set precision=bf16 or fp32 of this stage.")
    names: dict[str, Literal["bf16-mixed", "16-mixed"]] = {"bf16": "bf16-mixed", "fp16": "16-mixed"}
    plugins = [Autocast(names[chosen], kind)] if chosen in names else []
    processes, nodes = _processes_and_nodes()
    many = "ddp_find_unused_parameters_true" if partly_frozen else "ddp"
    fabric = Fabric(
        accelerator=kind,
        devices=processes,
        num_nodes=nodes,
        strategy=many if processes * nodes > 1 else "auto",
        plugins=plugins,  # type: ignore[arg-type]
        loggers=TensorBoardLogger(root_dir=run.folder, name="tensorboard", version=""),
    )
    fabric.launch()
    return fabric


def is_first_process() -> bool:
    """Whether this process speaks for all that torchrun or Slurm has started."""
    return int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0) == 0


def _processes_and_nodes() -> tuple[int, int]:
    """How many processes a node, and how many nodes, torchrun or Slurm has started."""
    world = int(os.environ.get("WORLD_SIZE") or os.environ.get("SLURM_NTASKS") or 1)
    nodes = int(os.environ.get("SLURM_NNODES") or 1)
    local = int(os.environ.get("LOCAL_WORLD_SIZE") or world // nodes)
    return local, world // local
