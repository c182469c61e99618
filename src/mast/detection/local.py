"""A run on one machine: as many processes as there are cores, each with the model on one thread, each part by one.

What brings a process down, a decoder that crashes or memory that runs out, costs that part's work so far: a new process
does it again. A recording at which processes end again and again is quarantined.
"""

from __future__ import annotations

import json
import queue
import shutil
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import torch

from mast.detection.archive import WHOLE, Archive, Shard
from mast.detection.part import News, Orders
from mast.detection.plan import Part
from mast.detection.tally import Tally, tally_of
from mast.errors import ConfigError, MastError, StorageError
from mast.models.devices import accelerator, best_precision
from mast.recordings.children import Child
from mast.recordings.workers import cores

End = Literal["finished", "stopped", "interrupted"]

MAX_DEATHS, MAX_KILLS = 2, 4
"""A recording at which so many processes have ended is not heard. Who was killed was killed by someone else, such as a
system that is short of memory, and it takes more of these to blame the recording."""

FRUITLESS_DEATHS = 10
"""So many processes that end one after the other, each at its first recording, are not the recordings' fault."""

TRIES, PAUSE_S = 6, 1.0
"""So often a part is begun while a network fails, after pauses that double each time."""

PROCESSES_PER_GPU = 4
"""One process decodes too slowly to keep a GPU busy."""

_LOOK_S = 0.2  # so often progress is told


class Progress(NamedTuple):
    """Where a run is, in seconds of sound; `speed` is hours of sound an hour, 0 before anything is known."""

    done_s: float
    total_s: float
    speed: float

    @property
    def remaining_s(self) -> float | None:
        """How long it will take; None while nothing is known."""
        return (self.total_s - self.done_s) / self.speed if self.speed else None


@dataclass(frozen=True, slots=True)
class Compute:
    """What a run computes on; `warning` tells of something better that cannot be used."""

    kind: str
    precision: str
    processes: int
    gpus: int = 0
    warning: str | None = None

    def told(self) -> str:
        """What it is, for a person to read."""
        plural = "" if self.processes == 1 else "es"
        if self.kind == "cuda":
            name = torch.cuda.get_device_name(0)
            return f"Running on {self.gpus} × {name}, {self.processes} process{plural}, {self.precision}"
        cores_word = "core" if self.processes == 1 else "cores"
        return f"Running on {self.processes} CPU {cores_word}, {self.precision}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended; if it is finished, what came of it, and how many parts are still `missing`, of other shards."""

    out: str
    end: End
    tally: Tally = field(default_factory=Tally)
    missing: int = 0

    @property
    def exit_code(self) -> int:
        """What the command should end with: 0, or 3 where something was quarantined; 130 or 143 if it was stopped."""
        codes: dict[End, int] = {"interrupted": 128 + signal.SIGINT, "stopped": 128 + signal.SIGTERM}
        return codes.get(self.end, 3 if self.tally.quarantined else 0)

    def summary(self) -> str:
        """What came of it, where it is and what to do next, for a person to read."""
        if self.end != "finished":
            return f"Stopped, and kept in {self.out}. The same command goes on from there."
        lines = [self.tally.summary(), f"Sounds: {self.out}/events, every recording: {self.out}/status"]
        if self.missing:
            lines.append(f"{self.missing:,} parts are still to do by other shards.")
        elif self.tally.quarantined:
            lines.append(
                "Next: the status tells which these are. Copy such files from their cards once more, and give them "
                "with another --out; the others are done."
            )
        else:
            lines.append(
                "Next: read both as tables in R, Python or DuckDB; a sound has its clock time and site."
            )
        return "\n".join(lines)


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
    return Compute(kind, best_precision(kind), processes or most, gpus, warning)


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
    end: End = "finished"
    missing = archive.missing(shard)
    parts = (archive.plan.part(int(number)) for number in missing)
    crew = _Crew(archive.orders, compute, parts, min(compute.processes, len(missing)))
    try:
        with _sigterm_raises(), closing(crew.finished()) as finished:
            pace = _Pace(float(archive.plan.seconds[missing].sum()))
            for _ in finished:
                on_progress(pace.progress(crew.heard_s))
    except KeyboardInterrupt:
        end = "interrupted"
    except _Terminated:
        end = "stopped"
    if end != "finished":
        return Outcome(archive.out, end)
    archive.tidy()
    own = (archive.orders.status(int(number)) for number in shard.parts(archive.plan))
    tally = tally_of(own, archive.orders.fingerprint)
    return Outcome(archive.out, end, tally, int((~archive.done()).sum()))


class _Crew:
    """Child processes that hear parts, each led by a thread."""

    def __init__(self, orders: Orders, compute: Compute, parts: Iterator[Part], count: int) -> None:
        self._parts, self._taking = parts, threading.Lock()
        self._ended: queue.SimpleQueue[Part | Exception | None] = queue.SimpleQueue()
        self._heard_s = [0.0] * count  # by each child, of the part that it is at
        self._finished_s = 0.0
        self._over = threading.Event()
        text = json.dumps(asdict(orders))
        self._children = [
            Child(
                "mast.detection.part",
                "detecting",
                (text, compute.kind, str(number % max(compute.gpus, 1))),
            )
            for number in range(count)
        ]

    @property
    def heard_s(self) -> float:
        """Seconds of sound that all have heard."""
        return self._finished_s + sum(self._heard_s)

    def finished(self) -> Generator[Part | None]:
        """Every part when it is done, and None now and then in between."""
        threads = [threading.Thread(target=self._lead, args=(item,)) for item in enumerate(self._children)]
        try:
            for thread in threads:
                thread.start()
            working = len(threads)
            while working:
                try:
                    ended = self._ended.get(timeout=_LOOK_S)
                except queue.Empty:
                    yield None
                    continue
                if isinstance(ended, Exception):
                    raise ended
                if ended is None:
                    working -= 1
                else:
                    self._finished_s += ended.seconds
                    yield ended
        finally:
            self._over.set()
            for child in self._children:
                child.end()
            for thread in threads:
                if thread.ident:
                    thread.join()

    def _lead(self, numbered: tuple[int, Child]) -> None:
        """What a thread does: give its child one part after the other, and a new life when it has ended."""
        number, child = numbered
        try:
            fruitless = 0
            while (part := self._take()) is not None:
                fruitless = self._hear(number, child, part, fruitless)
                self._heard_s[number] = 0.0
                self._ended.put(part)
            self._ended.put(None)
        except Exception as error:  # told by the thread that waits for parts
            self._ended.put(error)

    def _take(self) -> Part | None:
        with self._taking:
            return next(self._parts, None)

    def _hear(self, number: int, child: Child, part: Part, fruitless: int) -> int:
        """Have a part done, whatever ends the child on the way; counts the fruitless deaths in a row."""
        blame, tries = _Blame(), 1
        while True:
            rows: list[int] = []

            def on_news(news: Sequence[Any], rows: list[int] = rows) -> None:
                row, self._heard_s[number] = News(*news)
                rows[:] = [*rows[-1:], row] if rows[-1:] != [row] else rows

            answer = child.ask({"part": part, "crashed": [*blame.crashed.items()]}, on_news)
            if answer is None:
                fruitless = fruitless + 1 if len(rows) < 2 else 0
                if fruitless >= FRUITLESS_DEATHS:
                    raise MastError(
                        f"Detecting processes end again and again ({child.ending}). If memory is short, have fewer of "
                        "them with --workers. What is done is kept: the same command goes on."
                    )
                if rows:
                    blame.count(rows[-1], child.ending)
            elif answer.get("may_pass") and tries < TRIES and not self._over.is_set():
                self._over.wait(PAUSE_S * 2 ** (tries - 1))
                tries += 1
            elif "error" in answer:
                raise StorageError(f"{answer['error']} What is done is kept: the same command goes on.")
            else:
                return 0


class _Blame:
    """Which recordings of a part end the processes that hear them."""

    def __init__(self) -> None:
        self._deaths: Counter[int] = Counter()
        self.crashed: dict[int, str] = {}

    def count(self, row: int, ending: str) -> None:
        """A process has ended at a row."""
        self._deaths[row] += 1
        if self._deaths[row] >= (MAX_KILLS if ending.startswith("SIGKILL") else MAX_DEATHS):
            self.crashed[row] = f"hearing it ended the process {self._deaths[row]} times: {ending}"


class _Pace:
    """How fast it goes, from when the first sound was heard."""

    def __init__(self, total_s: float) -> None:
        self._total_s = total_s
        self._began: tuple[float, float] | None = None  # when, and what was heard by then
        self._heard_s = 0.0

    def progress(self, heard_s: float) -> Progress:
        """Where the run is now."""
        now_s = time.monotonic()
        heard_s = self._heard_s = max(heard_s, self._heard_s)  # who begins a part anew does not go back
        if self._began is None and heard_s:
            self._began = now_s, heard_s
        since_s, first_s = self._began or (now_s, heard_s)
        speed = (heard_s - first_s) / (now_s - since_s) if now_s > since_s else 0.0
        return Progress(heard_s, self._total_s, speed)


class _Terminated(BaseException):
    """SIGTERM, with which Slurm and clouds announce that a machine is taken away."""


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """End as Ctrl-C does, where signals arrive: in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> NoReturn:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
