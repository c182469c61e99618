"""A run on one machine: as many processes as there are cores, each with the model on one thread, each part by one."""

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

from mast.detection.archive import WHOLE, Archive, Shard
from mast.detection.leading import PROCESSES_PER_GPU, Leader
from mast.detection.part_tables import Orders
from mast.detection.plan import Part
from mast.detection.running import Outcome, Progress, carry_out
from mast.errors import ConfigError
from mast.models.devices import accelerator
from mast.recordings.crew import work_off
from mast.recordings.workers import cores


@dataclass(frozen=True, slots=True)
class Compute:
    """What a run computes on; `warning` tells of something better that cannot be used."""

    kind: str
    processes: int
    gpus: int = 0
    warning: str | None = None

    def told(self) -> str:
        """What it is, for a person to read."""
        plural = "" if self.processes == 1 else "es"
        if self.kind == "cuda":
            name = torch.cuda.get_device_name(0)
            return f"Running on {self.gpus} × {name}, {self.processes} process{plural}"
        cores_word = "core" if self.processes == 1 else "cores"
        return f"Running on {self.processes} CPU {cores_word}"


def choose_compute(device: str = "auto", processes: int | None = None) -> Compute:
    """The device asked for, or the best there is, and how many processes work on it."""
    if processes is not None and processes < 1:
        raise ConfigError(f"--workers {processes}: give 1 or more.")
    with warnings.catch_warnings(record=True) as caught:  # torch's own words about a GPU that it cannot use
        warnings.simplefilter("always")
        kind = accelerator(device)
    gpus = torch.cuda.device_count() if kind == "cuda" else 0
    most = min(cores(), gpus * PROCESSES_PER_GPU) if gpus else cores()
    warning = None
    if kind == "cpu" and device == "auto" and (gpu := _gpu_here()):
        why = str(caught[0].message).splitlines()[0] if caught else "torch does not see it"
        if torch.version.cuda is None and not caught:
            why = "this torch was installed without CUDA"
        warning = (
            f"There is {gpu}, but it cannot be used: {why}. Everything runs on the processor, far slower."
        )
    return Compute(kind, processes or most, gpus, warning)


def _gpu_here() -> str | None:
    """A GPU that the system has, whatever torch says."""
    if Path("/proc/driver/nvidia/gpus").exists() or shutil.which("nvidia-smi"):
        return "an NVIDIA GPU"
    if sys.platform == "darwin" and torch.backends.mps.is_available():
        return "an Apple GPU"
    return None


def run_local(
    archive: Archive,
    compute: Compute,
    shard: Shard = WHOLE,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Outcome:
    """Do what is missing of a shard; Ctrl-C and SIGTERM end it, and the same call goes on later."""
    missing = archive.missing(shard)
    parts = (archive.plan.part(int(number)) for number in missing)
    crew = _Crew(archive.orders, compute, parts, min(compute.processes, len(missing)))
    total_s = float(archive.plan.seconds[missing].sum())
    return carry_out(archive, shard, crew.hearing(), total_s, on_progress)


class _Crew:
    """Leaders of processes that hear parts, each in a thread."""

    def __init__(self, orders: Orders, compute: Compute, parts: Iterator[Part], count: int) -> None:
        self._parts = parts
        self._finished_s = 0.0
        text = json.dumps(asdict(orders))
        self._leaders = [Leader(text, compute.kind, number % max(compute.gpus, 1)) for number in range(count)]

    @property
    def heard_s(self) -> float:
        """Seconds of sound that all have heard."""
        return self._finished_s + sum(leader.heard_s for leader in self._leaders)

    def hearing(self) -> Generator[float]:
        """Have all parts done; gives the seconds heard so far, now and then."""
        with closing(self.finished()) as finished:
            for _ in finished:
                yield self.heard_s

    def finished(self) -> Generator[Part | None]:
        """Every part when it is done, and None now and then in between."""
        hands = [partial(_hear, leader) for leader in self._leaders]
        with closing(work_off(self._parts, hands, self._end)) as parts:
            for part in parts:
                self._finished_s += part.seconds if part else 0.0
                yield part

    def _end(self) -> None:
        for leader in self._leaders:
            leader.end()


def _hear(leader: Leader, part: Part) -> Part:
    leader.hear(part)
    return part
