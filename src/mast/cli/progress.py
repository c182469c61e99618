"""What long work shows while it goes on: bars for a person who watches, lines for a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
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
LOG_EVERY_S = 300.0
"""So often a long job that nobody watches writes a line to its log."""


@contextmanager
def progress_bars() -> Iterator[Callable[[str, float, float | None], None]]:
    """Bars for the stages of long work, the remaining time once it can be known; gone when done."""
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

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}"),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def on_progress(stage: str, done: float, total: float | None) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(STAGES.get(stage) or escape(stage), total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield on_progress


@contextmanager
def training_bar(what: str) -> Iterator[Callable[[Progress], None]]:
    """A bar with the loss, the speed in hours of sound an hour, and the time that remains."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bars

    from mast.training.devices import is_first_process

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[pace]}"),
    )
    console = Console(stderr=True, quiet=not is_first_process())
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task(what, total=None, pace="starting")

        def on_progress(progress: Progress) -> None:
            remaining = timedelta(seconds=round(progress.remaining_s))
            speed = f"{progress.hours_per_hour:,.0f} hours of sound an hour"
            pace = f"epoch {progress.epoch + 1}, loss {progress.loss:.3f}, {speed}, {remaining} left"
            bars.update(task, completed=progress.step, total=progress.steps, pace=pace)

        yield on_progress


@contextmanager
def detecting_bar() -> Iterator[Callable[[Pace], None]]:
    """A bar with the speed in hours of sound an hour and the time that remains; in a log, a line every few minutes."""
    import time

    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bars

    from mast.detection.tally import length

    console = Console(stderr=True)
    columns = (TextColumn("Detecting"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[pace]}"))
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task("", total=None, pace="starting")
        told_s = time.monotonic()

        def on_pace(progress: Pace) -> None:
            nonlocal told_s
            done = f"{length(progress.done_s)} of {length(progress.total_s)}"
            pace = "starting"
            if progress.remaining_s is not None:
                left = timedelta(seconds=round(progress.remaining_s))
                pace = f"{done}, {progress.speed:,.0f} hours of sound an hour, {left} left"
            bars.update(task, completed=progress.done_s, total=progress.total_s, pace=pace)
            if not console.is_terminal and time.monotonic() - told_s >= LOG_EVERY_S:
                told_s = time.monotonic()
                typer.echo(pace, err=True)

        yield on_pace
