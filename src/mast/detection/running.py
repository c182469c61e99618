"""How a run goes and how it ends, whichever engine does its parts: Ctrl-C and SIGTERM leave what can be gone on with."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

from mast.detection.tally import Tally, tally_of
from mast.study.commands import mast_command

if TYPE_CHECKING:
    from mast.detection.archive import Archive, Shard

End = Literal["finished", "stopped", "interrupted"]


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
        """What came of it and where it is, for a person to read."""
        if self.end != "finished":
            return f"Stopped, and kept in {self.out}. The same command goes on from there."
        lines = [self.tally.summary(), f"Sounds: {self.out}/events, every recording: {self.out}/status"]
        if self.missing:
            lines.append(f"{self.missing:,} parts are still to do by other shards.")
        elif self.tally.quarantined:
            lines.append(
                "The status tells which were quarantined. Copy such files from their cards once more, and give them "
                "with another --out; the others are done."
            )
        return "\n".join(lines)

    def next_step(self) -> str | None:
        """What to do when all of it is done."""
        if self.end != "finished" or self.missing:
            return None
        report, review = (mast_command(verb, self.out) for verb in ("report", "review"))
        return f"Next: {report} tells what was heard, {review} lets you check it."


def carry_out(
    archive: Archive,
    shard: Shard,
    hearing: Generator[float],
    total_s: float,
    on_progress: Callable[[Progress], None],
) -> Outcome:
    """See a run to its end: `hearing` does what is missing of a shard, and gives the seconds heard, of `total_s`."""
    end: End = "finished"
    pace = Pace(total_s)
    try:
        with _sigterm_raises(), closing(hearing):
            for heard_s in hearing:
                on_progress(pace.progress(heard_s))
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


class Pace:
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
