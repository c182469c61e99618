"""Process parts in a worker process, and restart the process when it crashes.

A crash, such as a failing decoder or memory that runs out, costs the work on the current part: a new process repeats
that part. A recording that crashes processes repeatedly is quarantined. Both backends use this supervisor, so they
produce identical files. Only the worker process imports torch; this module does not need it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mast.errors import MastError, StorageError
from mast.runs.plan import Part
from mast.workers.pool import Supervisor

MAX_CRASHES, MAX_KILLS = 2, 4
"""Crashes and SIGKILLs at one recording after which it is quarantined. SIGKILL comes from outside the process, such as
from a system that is short of memory, so more of them are needed to blame the recording."""

MAX_IDLE_CRASHES = 10
"""Consecutive crashes, each at the first recording of a process, after which the run stops: recordings are not the
cause."""

MAX_ATTEMPTS, PAUSE_S = 6, 1.0
"""Attempts at a part while a network fails, and the pause after the first one; the pause doubles each time."""

PROCESSES_PER_GPU = 4
"""Number of worker processes for each GPU: one process decodes too slowly to keep a GPU busy."""


class WorkerSupervisor(Supervisor[Part, Part]):
    """Supervisor of one worker process; its arguments are a `RunConfig` as JSON, the device and the index of the GPU.

    Its progress is in seconds of audio.
    """

    module, purpose = "mast.runs.worker", "detecting"
    _idle_crashes = 0  # consecutive crashes

    def run(self, part: Part) -> Part:
        """Process a part; return it when its files are complete."""
        crashes, attempts, before_s = _CrashCounter(), 1, self.progress
        while True:
            rows: list[int] = []  # last two rows that were started

            def on_progress(progress: Sequence[Any], rows: list[int] = rows) -> None:
                row, processed_s = progress
                self.progress = before_s + processed_s
                rows[:] = [*rows[-1:], row] if rows[-1:] != [row] else rows

            answer = self.process.call({"part": part, "crashed": [*crashes.quarantined.items()]}, on_progress)
            if answer is None:
                self._count_crash(idle=len(rows) < 2)
                if rows:
                    crashes.count(rows[-1], self.process.ending)
            elif (
                answer.get("is_transient")
                and attempts < MAX_ATTEMPTS
                and self.process.pause(PAUSE_S * 2 ** (attempts - 1))
            ):
                attempts += 1
            elif "error" in answer:
                raise StorageError(
                    f"{answer['error']} Finished parts are kept; run the same command again to resume."
                )
            else:
                self._idle_crashes, self.progress = 0, before_s + part.seconds
                return part

    def _count_crash(self, *, idle: bool) -> None:
        self._idle_crashes = self._idle_crashes + 1 if idle else 0
        if self._idle_crashes >= MAX_IDLE_CRASHES:
            raise MastError(
                f"Worker processes crash repeatedly ({self.process.ending}). If memory is short, use fewer processes "
                "with --workers. Finished parts are kept; run the same command again to resume."
            )


class _CrashCounter:
    """Count of crashes by recording of a part; `quarantined` maps rows to reasons."""

    def __init__(self) -> None:
        self._crashes: Counter[int] = Counter()
        self.quarantined: dict[int, str] = {}

    def count(self, row: int, ending: str) -> None:
        """Count a crash at a row, and quarantine the row when it has too many."""
        self._crashes[row] += 1
        if self._crashes[row] >= (MAX_KILLS if ending.startswith("SIGKILL") else MAX_CRASHES):
            self.quarantined[row] = f"crashed the worker process {self._crashes[row]}×: {ending}"
