"""Process a run on one machine, by default with one single-threaded process per core; each part runs in one process."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from mast.errors import ConfigError
from mast.models.devices import resolve_device
from mast.runs.outcome import Outcome, RunProgress, execute
from mast.runs.plan import Part
from mast.runs.run import ALL_SHARDS, DetectionRun, Shard
from mast.runs.supervisor import PROCESSES_PER_GPU, WorkerSupervisor
from mast.wording import counted
from mast.workers.pool import Job, Result, Supervisor, WorkerPool, available_cores


@dataclass(frozen=True, slots=True)
class ComputeResources:
    """Device and number of processes of a run; `warning` describes a faster device that cannot be used."""

    kind: str
    processes: int
    gpus: int = 0
    warning: str | None = None

    def describe(self) -> str:
        """Return a text description for the user."""
        if self.kind == "cuda":
            name = torch.cuda.get_device_name(0)
            return f"Running on {self.gpus} × {name}, {counted(self.processes, 'process', 'processes')}"
        return f"Running on {counted(self.processes, 'CPU core')}"


def choose_compute(device: str = "auto", processes: int | None = None) -> ComputeResources:
    """Choose the requested device, or the fastest available one, and the number of processes."""
    if processes is not None and processes < 1:
        raise ConfigError(f"--workers {processes}: specify 1 or more.")
    with warnings.catch_warnings(record=True) as caught:  # torch warns about a GPU that it cannot use
        warnings.simplefilter("always")
        kind = resolve_device(device)
    gpus = torch.cuda.device_count() if kind == "cuda" else 0
    default = min(available_cores(), gpus * PROCESSES_PER_GPU) if gpus else available_cores()
    warning = None
    if kind == "cpu" and device == "auto" and (gpu := _is_gpu_available()):
        reason = str(caught[0].message).splitlines()[0] if caught else "torch does not detect it"
        if torch.version.cuda is None and not caught:
            reason = "this torch was installed without CUDA"
        warning = f"There is {gpu}, but it cannot be used: {reason}. Everything runs on the CPU, which is much slower."
    return ComputeResources(kind, processes or default, gpus, warning)


def _is_gpu_available() -> str | None:
    """Return the kind of GPU of this machine, or None; torch need not support it."""
    if Path("/proc/driver/nvidia/gpus").exists() or shutil.which("nvidia-smi"):
        return "an NVIDIA GPU"
    if sys.platform == "darwin" and torch.backends.mps.is_available():
        return "an Apple GPU"
    return None


def run_local(
    run: DetectionRun,
    compute: ComputeResources,
    shard: Shard = ALL_SHARDS,
    on_progress: Callable[[RunProgress], None] = lambda progress: None,
) -> Outcome:
    """Process the missing parts of a shard; Ctrl-C and SIGTERM stop the run, and the same call resumes it."""
    missing = run.missing(shard)
    parts = (run.plan.part(int(number)) for number in missing)
    pool = worker_pool(WorkerSupervisor, asdict(run.config), compute, len(missing))
    total_s = float(run.plan.seconds[missing].sum())
    return execute(run, shard, _processed_s(pool, parts), total_s, on_progress)


def worker_pool(
    supervisor: Callable[[str, str, str], Supervisor[Job, Result]],
    config: dict[str, Any],
    compute: ComputeResources,
    jobs: int,
) -> WorkerPool[Job, Result]:
    """Return a pool of one worker per process of `compute`, but at most `jobs`; several workers share a GPU."""
    count = min(compute.processes, jobs)
    gpus = [str(number % max(compute.gpus, 1)) for number in range(count)]
    return WorkerPool([supervisor(json.dumps(config), compute.kind, gpu) for gpu in gpus])


def _processed_s(pool: WorkerPool[Part, Part], parts: Iterator[Part]) -> Generator[float]:
    """Process all parts; yield the seconds processed so far, at least every 0.2 s."""
    with closing(pool.run(parts)) as finished:
        for _ in finished:
            yield pool.progress
