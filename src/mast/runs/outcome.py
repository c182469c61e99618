"""Execute a run with either backend, and report its progress and outcome; it can be resumed after Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

from mast.runs.stats import RunStats, read_run_stats
from mast.study.commands import mast_command
from mast.wording import counted

if TYPE_CHECKING:
    from mast.runs.run import DetectionRun, Shard

End = Literal["finished", "stopped", "interrupted"]


class RunProgress(NamedTuple):
    """Progress of a run in seconds of audio; `speed` is hours of audio per hour, 0 until it has been measured."""

    done_s: float
    total_s: float
    speed: float

    @property
    def remaining_s(self) -> float | None:
        """Estimated seconds until the run ends, or None until the speed has been measured."""
        return (self.total_s - self.done_s) / self.speed if self.speed else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a run; `stats` and the number of parts `missing` from other shards are set if the run finished."""

    out: str
    end: End
    stats: RunStats = field(default_factory=RunStats)
    missing: int = 0

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 0, or 3 if a recording was quarantined; 130 or 143 if a signal stopped the run."""
        codes: dict[End, int] = {"interrupted": 128 + signal.SIGINT, "stopped": 128 + signal.SIGTERM}
        return codes.get(self.end, 3 if self.stats.quarantined else 0)

    def summary(self) -> str:
        """Return a text summary for the user: the statistics, and the paths of the results."""
        if self.end != "finished":
            return f"Stopped. Finished parts are kept in {self.out}; run the same command again to resume."
        lines = [
            self.stats.summary(),
            f"Events: {self.out}/events; status of every recording: {self.out}/status",
        ]
        if self.missing:
            lines.append(f"{counted(self.missing, 'part')} of other shards still to process.")
        elif self.stats.quarantined:
            lines.append(
                "The status tables list the quarantined recordings. Copy these files from their cards again, and process "
                "them with another --out; all others are done."
            )
        return "\n".join(lines)

    def next_step(self) -> str | None:
        """Return a hint about the next commands if the whole run is finished."""
        if self.end != "finished" or self.missing:
            return None
        report, review = (mast_command(command, self.out) for command in ("report", "review"))
        return f"Next: {report} summarises the events, {review} opens them for review."


def execute(
    run: DetectionRun,
    shard: Shard,
    progress: Generator[float],
    total_s: float,
    on_progress: Callable[[RunProgress], None],
) -> Outcome:
    """Execute a run: `progress` processes the missing parts of a shard, and yields the seconds processed of `total_s`."""
    end: End = "finished"
    meter = ThroughputMeter(total_s)
    try:
        with _sigterm_raises(), closing(progress):
            for processed_s in progress:
                on_progress(meter.progress(processed_s))
    except KeyboardInterrupt:
        end = "interrupted"
    except _Terminated:
        end = "stopped"
    if end != "finished":
        return Outcome(run.out, end)
    run.clean_up()
    locations = (run.config.status(int(number)) for number in shard.parts(run.plan))
    stats = read_run_stats(locations, run.config.fingerprint)
    return Outcome(run.out, end, stats, int((~run.done()).sum()))


class ThroughputMeter:
    """Meter of a run's throughput, from the moment when the first audio was processed."""

    def __init__(self, total_s: float) -> None:
        self._total_s = total_s
        self._started: tuple[float, float] | None = None  # monotonic time, and seconds processed by then
        self._processed_s = 0.0

    def progress(self, processed_s: float) -> RunProgress:
        """Return the progress after `processed_s` seconds of audio."""
        now_s = time.monotonic()
        # a worker that repeats a part does not move the progress back
        processed_s = self._processed_s = max(processed_s, self._processed_s)
        if self._started is None and processed_s:
            self._started = now_s, processed_s
        since_s, first_s = self._started or (now_s, processed_s)
        speed = (processed_s - first_s) / (now_s - since_s) if now_s > since_s else 0.0
        return RunProgress(processed_s, self._total_s, speed)


class _Terminated(BaseException):
    """Exception for SIGTERM, which Slurm and clouds send before they take a machine away."""


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Raise `_Terminated` on SIGTERM within the context; only in the main thread, where Python delivers signals."""
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
