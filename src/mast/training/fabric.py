"""Set up Fabric for a run: one device, or the processes that torchrun or Slurm has started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from mast.errors import MissingExtraError, TrainingError
from mast.models.devices import best_precision, resolve_device
from mast.training.run_dir import TrainingRun

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def start_fabric(
    precision: str, run: TrainingRun, device: str = "auto", *, partly_frozen: bool = False
) -> Fabric:
    """Start Fabric on `device`, with all processes of torchrun or Slurm, and with TensorBoard logs in the run's folder.

    If the model is `partly_frozen`, DDP does not wait for gradients of frozen parameters.
    """
    try:
        from lightning_fabric import Fabric
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger
        from lightning_fabric.plugins import MixedPrecision
    except ImportError:
        raise MissingExtraError("Training", "train") from None

    class Autocast(MixedPrecision):
        """Mixed precision inside the model only: inputs keep their type, because boxes and targets need float32."""

        def convert_input(self, data: Any) -> Any:
            return data

    kind = resolve_device(device)
    resolved = best_precision(kind) if precision == "auto" else precision
    if resolved == "fp16" and kind == "cpu":
        raise TrainingError("fp16 needs a GPU. On a CPU, set precision of this stage to bf16 or fp32.")
    names: dict[str, Literal["bf16-mixed", "16-mixed"]] = {"bf16": "bf16-mixed", "fp16": "16-mixed"}
    plugins = [Autocast(names[resolved], kind)] if resolved in names else []
    processes, nodes = _processes_and_nodes()
    strategy = "ddp_find_unused_parameters_true" if partly_frozen else "ddp"
    fabric = Fabric(
        accelerator=kind,
        devices=processes,
        num_nodes=nodes,
        strategy=strategy if processes * nodes > 1 else "auto",
        plugins=plugins,  # type: ignore[arg-type]
        loggers=TensorBoardLogger(root_dir=run.folder, name="tensorboard", version=""),
    )
    fabric.launch()
    return fabric


def is_first_process() -> bool:
    """Return whether this is the first of the processes that torchrun or Slurm has started."""
    return int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0) == 0


def _processes_and_nodes() -> tuple[int, int]:
    """Return the number of processes per node and the number of nodes that torchrun or Slurm has started."""
    world = int(os.environ.get("WORLD_SIZE") or os.environ.get("SLURM_NTASKS") or 1)
    nodes = int(os.environ.get("SLURM_NNODES") or 1)
    local = int(os.environ.get("LOCAL_WORLD_SIZE") or world // nodes)
    return local, world // local
