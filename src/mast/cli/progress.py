"""What long work shows while it goes on: bars for a person who watches, lines for a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from mast.detection.running import Progress as Pace
    from mast.training.loop import Progress

STAGES = {
    "finding": "Finding files",
    "reading": "Reading them",
    "comparing": "Comparing possible duplicates",
    "preparing": "Preparing sound (s)",
    "measuring": "Measuring it (s)",
    "mapping": "Listening (chunks)",
    "sampling": "Listening to a sample",
    "embedding": "Listening (parts)",
    "naming": "Naming (sounds)",
    "grouping": "Grouping sounds",
    "adding sounds": "Adding up (sounds)",
    "drawing": "Drawing the page",
    "indexing": "Putting vectors in order",
    "exporting": "Writing (parts)",
    "adding": "Adding up (parts)",
}
FIRST_LOG_S, LOG_EVERY_S = 60.0, 300.0
"""When a long job that nobody watches writes its first line to a log, and how often from then on."""

STARTING = "starting"


@contextmanager
def progress_bars() -> Iterator[Callable[[str, float, float | None], None]]:
    """Bars for the stages of long work, the remaining time once it can be known; gone when done. In a log, lines."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", table_column=Column()),  # too long a text goes on in the next line
        BarColumn(),
        TextColumn("{task.completed:,.0f}"),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    is_due = _log(console)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def on_progress(stage: str, done: float, total: float | None) -> None:
            name = STAGES.get(stage, stage)
            if stage not in tasks:
                tasks[stage] = bars.add_task(escape(name), total=total)
            bars.update(tasks[stage], completed=done, total=total)
            if is_due():
                left_s = next(item.time_remaining for item in bars.tasks if item.id == tasks[stage])
                left = f", {timedelta(seconds=round(left_s))} left" if left_s else ""
                typer.echo(f"{name}: {done:,.0f}{f' of {total:,.0f}' if total else ''}{left}", err=True)

        yield on_progress


@contextmanager
def training_bar(what: str) -> Iterator[Callable[[Progress], None]]:
    """A bar with the loss, the speed in hours of sound an hour, and the time that remains."""
    from mast.training.devices import is_first_process

    with _paced_bar(what, quiet=not is_first_process()) as show:

        def on_progress(progress: Progress) -> None:
            is_last = progress.step == progress.steps  # what follows takes a while: validation, and writing
            left = "finishing" if is_last else f"{timedelta(seconds=round(progress.remaining_s))} left"
            speed = f"{progress.hours_per_hour:,.0f} hours of sound an hour"
            pace = f"epoch {progress.epoch + 1}, loss {progress.loss:.3f}, {speed}, {left}"
            show(progress.step, progress.steps, pace)

        yield on_progress


@contextmanager
def detecting_bar() -> Iterator[Callable[[Pace], None]]:
    """A bar with the speed in hours of sound an hour and the time that remains."""
    from mast.recordings.clocks import length

    with _paced_bar("Detecting") as show:

        def on_pace(progress: Pace) -> None:
            pace = STARTING
            if progress.remaining_s is not None:
                done = f"{length(progress.done_s)} of {length(progress.total_s)}"
                left = timedelta(seconds=round(progress.remaining_s))
                pace = f"{done}, {progress.speed:,.0f} hours of sound an hour, {left} left"
            show(progress.done_s, progress.total_s, pace)

        yield on_pace


@contextmanager
def _paced_bar(what: str, *, quiet: bool = False) -> Iterator[Callable[[float, float, str], None]]:
    """A bar that takes what is done, how much there is, and a text; in a log, that text as a line every few minutes.

    Too long a text goes on in the next line.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.table import Column

    console = Console(stderr=True, quiet=quiet)
    is_due = _log(console)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[pace]}", table_column=Column()),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(what, total=None, pace=STARTING)

        def show(done: float, total: float, pace: str) -> None:
            bars.update(task, completed=done, total=total, pace=pace)
            if is_due():
                typer.echo(f"{what}: {bars.tasks[0].percentage:.0f}%, {pace}", err=True)

        yield show


def _log(console: Console) -> Callable[[], bool]:
    """What says every few minutes that a line is due, where there is a log and no terminal; asked often, it is cheap."""
    is_log = not console.is_terminal and not console.quiet
    next_s = time.monotonic() + FIRST_LOG_S

    def is_due() -> bool:
        nonlocal next_s
        if not is_log or time.monotonic() < next_s:
            return False
        next_s = time.monotonic() + LOG_EVERY_S
        return True

    return is_due
