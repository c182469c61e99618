"""Process a run on one machine, by default with one single-threaded process per core; each part runs in one process."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

from mast.errors import ConfigError
from mast.models.devices import resolve_device
from mast.recordings.probe_pool import available_cores
from mast.runs.outcome import Outcome, RunProgress, execute
from mast.runs.plan import Part
from mast.runs.run import ALL_SHARDS, DetectionRun, Shard
from mast.runs.supervisor import PROCESSES_PER_GPU, WorkerSupervisor
from mast.runs.tables import RunConfig
from mast.workers.pool import map_unordered


@dataclass(frozen=True, slots=True)
class ComputeResources:
    """Device and number of processes of a run; `warning` describes a faster device that cannot be used."""

    kind: str
    processes: int
    gpus: int = 0
    warning: str | None = None

    def describe(self) -> str:
        """Return a text description for the user."""
        plural = "" if self.processes == 1 else "es"
        if self.kind == "cuda":
            name = torch.cuda.get_device_name(0)
            return f"Running on {self.gpus} × {name}, {self.processes} process{plural}"
        cores_word = "core" if self.processes == 1 else "cores"
        return f"Running on {self.processes} CPU {cores_word}"


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
    pool = _WorkerPool(run.config, compute, parts, min(compute.processes, len(missing)))
    total_s = float(run.plan.seconds[missing].sum())
    return execute(run, shard, pool.run(), total_s, on_progress)


class _WorkerPool:
    """Pool of worker supervisors, each in its own thread."""

    def __init__(
        self, config: RunConfig, compute: ComputeResources, parts: Iterator[Part], count: int
    ) -> None:
        self._parts = parts
        self._finished_s = 0.0
        text = json.dumps(asdict(config))
        self._supervisors = [
            WorkerSupervisor(text, compute.kind, number % max(compute.gpus, 1)) for number in range(count)
        ]

    @property
    def processed_s(self) -> float:
        """Seconds of audio processed by all workers."""
        return self._finished_s + sum(supervisor.processed_s for supervisor in self._supervisors)

    def run(self) -> Generator[float]:
        """Process all parts; yield the seconds processed so far, at least every 0.2 s."""
        with closing(self.finished()) as finished:
            for _ in finished:
                yield self.processed_s

    def finished(self) -> Generator[Part | None]:
        """Yield each part when it is finished, and None about every 0.2 s in between."""
        workers = [partial(_process, supervisor) for supervisor in self._supervisors]
        with closing(map_unordered(self._parts, workers, self._stop)) as parts:
            for part in parts:
                self._finished_s += part.seconds if part else 0.0
                yield part

    def _stop(self) -> None:
        for supervisor in self._supervisors:
            supervisor.stop()


def _process(supervisor: WorkerSupervisor, part: Part) -> Part:
    supervisor.process(part)
    return part
