"""Progress of long commands: bars on a terminal, lines in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import typer

from mast.wording import counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from mast.runs.outcome import RunProgress as Pace
    from mast.training.loop import Progress

STAGES = {
    "finding": "Finding files",
    "reading": "Reading files",
    "comparing": "Comparing possible duplicates",
    "preparing": "Preparing audio (s)",
    "measuring": "Computing normalisation (s)",
    "mapping": "Computing embeddings (chunks)",
    "sampling": "Computing embeddings of a sample",
    "embedding": "Computing embeddings (parts)",
    "labelling": "Labelling (events)",
    "clustering": "Clustering events",
    "collecting statistics": "Collecting statistics of clusters (events)",
    "writing page": "Writing the page",
    "indexing": "Building the index",
    "exporting": "Writing (parts)",
    "adding": "Reading results (parts)",
}
FIRST_LOG_S, LOG_EVERY_S = 60.0, 300.0
"""Seconds until the first progress line in a log, and between later ones."""

STARTING = "starting"


@contextmanager
def progress_bars() -> Iterator[Callable[[str, float, float | None], None]]:
    """Show a transient bar with the remaining time for each stage; write progress lines if stderr is not a terminal."""
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
        TextColumn("{task.description}", table_column=Column()),  # long texts wrap
        BarColumn(),
        TextColumn("{task.completed:,.0f}"),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    is_due = _log_timer(console)
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
def training_bar(title: str) -> Iterator[Callable[[Progress], None]]:
    """Show a bar with the loss, the speed in hours of audio per hour, and the remaining time."""
    from mast.training.fabric import is_first_process

    with _paced_bar(title, silent=not is_first_process()) as show:

        def on_progress(progress: Progress) -> None:
            is_last = progress.step == progress.steps  # validation and writing the model take a while
            left = "finishing" if is_last else f"{timedelta(seconds=round(progress.remaining_s))} left"
            speed = f"{counted(round(progress.hours_per_hour), 'hour')} of audio per hour"
            pace = f"epoch {progress.epoch + 1}, loss {progress.loss:.3f}, {speed}, {left}"
            show(progress.step, progress.steps, pace)

        yield on_progress


@contextmanager
def detection_bar() -> Iterator[Callable[[Pace], None]]:
    """Show a bar with the speed in hours of audio per hour and the remaining time."""
    from mast.recordings.clocks import format_duration

    with _paced_bar("Detecting") as show:

        def on_pace(progress: Pace) -> None:
            pace = STARTING
            if progress.remaining_s is not None:
                done = f"{format_duration(progress.done_s)} of {format_duration(progress.total_s)}"
                left = timedelta(seconds=round(progress.remaining_s))
                pace = f"{done}, {counted(round(progress.speed), 'hour')} of audio per hour, {left} left"
            show(progress.done_s, progress.total_s, pace)

        yield on_pace


@contextmanager
def _paced_bar(title: str, *, silent: bool = False) -> Iterator[Callable[[float, float, str], None]]:
    """Show a bar and yield a function that updates its progress, total and text; in a log, write lines at intervals.

    Long texts wrap.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.table import Column

    console = Console(stderr=True, quiet=silent)
    is_due = _log_timer(console)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[pace]}", table_column=Column()),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(title, total=None, pace=STARTING)

        def show(done: float, total: float, pace: str) -> None:
            bars.update(task, completed=done, total=total, pace=pace)
            if is_due():
                typer.echo(f"{title}: {bars.tasks[0].percentage:.0f}%, {pace}", err=True)

        yield show


def _log_timer(console: Console) -> Callable[[], bool]:
    """Return a fast function that is True when the next log line is due; it is always False on a terminal."""
    is_log = not console.is_terminal and not console.quiet
    next_s = time.monotonic() + FIRST_LOG_S

    def is_due() -> bool:
        nonlocal next_s
        if not is_log or time.monotonic() < next_s:
            return False
        next_s = time.monotonic() + LOG_EVERY_S
        return True

    return is_due
