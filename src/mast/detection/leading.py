"""Having parts heard by a child process, whatever brings that down on the way.

What ends a process, a decoder that crashes or memory that runs out, costs that part's work so far: a new process does
it again. A recording at which processes end again and again is quarantined. Every engine leads its processes so, which
makes them end with the same files. Nothing here needs torch: only the child does.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

from mast.detection.plan import Part
from mast.errors import MastError, StorageError
from mast.recordings.children import Child

MAX_DEATHS, MAX_KILLS = 2, 4
"""A recording at which so many processes have ended is not heard. Who was killed was killed by someone else, such as a
system that is short of memory, and it takes more of these to blame the recording."""

FRUITLESS_DEATHS = 10
"""So many processes that end one after the other, each at its first recording, are not the recordings' fault."""

TRIES, PAUSE_S = 6, 1.0
"""So often a part is begun while a network fails, after pauses that double each time."""

PROCESSES_PER_GPU = 4
"""One process decodes too slowly to keep a GPU busy."""


class Leader:
    """Leads one child process; `orders` are a run's, as JSON, and `gpu` is the one to use where `device` is cuda."""

    def __init__(self, orders: str, device: str, gpu: int = 0) -> None:
        self._child = Child("mast.detection.part", "detecting", (orders, device, str(gpu)))
        self._over = threading.Event()
        self._fruitless = 0  # deaths in a row
        self.heard_s = 0.0
        """Seconds of sound that have been heard of the part that is under way."""

    def hear(self, part: Part) -> None:
        """Have a part done."""
        blame, tries = _Blame(), 1
        while True:
            rows: list[int] = []  # the last two that were begun

            def on_news(news: Sequence[Any], rows: list[int] = rows) -> None:
                row, self.heard_s = news
                rows[:] = [*rows[-1:], row] if rows[-1:] != [row] else rows

            answer = self._child.ask({"part": part, "crashed": [*blame.crashed.items()]}, on_news)
            if answer is None:
                self._count_death(fruitless=len(rows) < 2)
                if rows:
                    blame.count(rows[-1], self._child.ending)
            elif answer.get("may_pass") and tries < TRIES and not self._over.is_set():
                self._over.wait(PAUSE_S * 2 ** (tries - 1))
                tries += 1
            elif "error" in answer:
                raise StorageError(f"{answer['error']} What is done is kept: the same command goes on.")
            else:
                self._fruitless, self.heard_s = 0, 0.0
                return

    def end(self) -> None:
        """Stop for good, also from another thread while a part is under way."""
        self._over.set()
        self._child.end()

    def _count_death(self, *, fruitless: bool) -> None:
        self._fruitless = self._fruitless + 1 if fruitless else 0
        if self._fruitless >= FRUITLESS_DEATHS:
            raise MastError(
                f"Detecting processes end again and again ({self._child.ending}). If memory is short, have fewer of "
                "them with --workers. What is done is kept: the same command goes on."
            )


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
