"""The command line: one thin function a verb. Heavy imports wait until a verb needs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from mast.errors import ConfigError, MastError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from mast.config import AnnotationFormat, Collection
    from mast.recordings.scan import OnProgress, Stage

app = typer.Typer(
    name="mast",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Find animal sounds in field recordings, each as a box in time and frequency, from few expert labels.",
)

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting: --set spectrogram.high_hz=4000"),
]
Zone = Annotated[
    str | None,
    typer.Option("--time-zone", metavar="ZONE", help="Zone of clocks that do not say theirs: Europe/Madrid"),
]
FORMATS_HELP = "raven, audacity, csv, birdeep, aoef, audubon-core, camtrap-dp or batdetect2"


def main() -> None:
    """Run `mast`; an error a person can put right is one message and exit code 1."""
    try:
        app()
    except MastError as error:
        typer.secho(str(error), err=True, fg="red")
        raise SystemExit(1) from None


@app.callback(invoke_without_command=True)
def about(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)
    ] = False,
) -> None:
    """What `mast` does without a verb."""
    if version:
        from mast import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.command()
def example(
    folder: Annotated[Path, typer.Argument(help="A new folder.")] = Path("example"),
) -> None:
    """Write a small made-up card to try things on.

    It holds calls at three sites with an expert's boxes, and the faults that come home on real cards.
    """
    from mast.example import write_example

    files = write_example(folder)
    typer.echo(f"{files} sound files in {folder / 'card'}, an expert's boxes in {folder / 'boxes'}")


@app.command()
def scan(
    sources: Annotated[
        list[str], typer.Argument(metavar="FOLDER…", help="Folders or s3://bucket/prefix; or one study file.")
    ],
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where the table goes. [default: recordings.parquet]")
    ] = None,
    site: Annotated[
        str | None,
        typer.Option(metavar="TEMPLATE", help="Where paths name the site: '{site}/*' or '{site}_*'"),
    ] = None,
    time_zone: Zone = None,
    overrides: Overrides = None,
) -> None:
    """Find and audit recordings.

    Writes a table of all recordings, faulty ones included, and tells what is on the cards: hours per site, gaps,
    clock and time-zone trouble, duplicates, clipped or silent files, and what to do about each fault. With a study
    file, its expert boxes are read and checked as well.
    """
    from mast.recordings.scan import collections_from_folders

    if [source for source in sources if source.lower().endswith((".yaml", ".yml"))]:
        if len(sources) > 1 or out or site or time_zone:
            raise ConfigError("With a study file, folders, --out, --site and --time-zone stand in the file.")
        _scan_study(Path(sources[0]), overrides or [])
        return
    if overrides:
        raise ConfigError(
            "--set changes the settings of a study file; give one, such as mast scan study.yaml."
        )
    _scan(collections_from_folders(sources, site, time_zone), out or "recordings.parquet")


@app.command()
def show(
    recording: Annotated[str, typer.Argument(help="A sound file, or s3://bucket/key.")],
    boxes: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Annotations to draw, in any format.")
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help=f"Format of the table: {FORMATS_HELP}.")
    ] = None,
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="Start, as seconds or h:mm:ss.")] = "0",
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="End. [default: a minute after the start]")
    ] = None,
    low_hz: Annotated[float, typer.Option("--low", metavar="HZ", help="Lower limit of the picture.")] = 0.0,
    high_hz: Annotated[
        float | None, typer.Option("--high", metavar="HZ", help="Upper limit. [default: all there is]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PNG, PDF or SVG. [default: the recording's name.png]")
    ] = None,
    time_zone: Zone = None,
) -> None:
    """Draw a spectrogram with its boxes.

    Axes are kHz, seconds into the recording, and the recorder's own clock where it is known.
    """
    from mast.pictures.show import boxes_of
    from mast.pictures.show import show as draw

    span_s = (_seconds("--from", start), None if end is None else _seconds("--to", end))
    events = boxes_of(recording, boxes, _format("--format", format_) if format_ else None) if boxes else ()
    picture = out or Path(Path(recording).name).with_suffix(".png")
    shown = draw(recording, events, picture, span_s=span_s, band_hz=(low_hz, high_hz), time_zone=time_zone)
    counted = f", {shown.boxes} of its {len(events)} boxes" if boxes else ""
    typer.echo(f"{shown.start_s:g} s to {shown.end_s:g} s of {shown.duration_s:g} s{counted} → {picture}")


@app.command()
def convert(
    source: Annotated[str, typer.Argument(help="An annotation file, or a folder of them.")],
    target: Annotated[str, typer.Argument(help="The file or folder to write.")],
    to: Annotated[str, typer.Option(metavar="FORMAT", help=f"{FORMATS_HELP}.")],
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="FORMAT", help="Format of the source. [default: as it looks]"),
    ] = None,
    recordings: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="recordings.parquet of a scan: adds durations and clock times."),
    ] = None,
) -> None:
    """Convert annotations to another format.

    What the other format cannot hold is counted and told, never lost silently.
    """
    from mast.annotations import convert as convert_annotations

    report = convert_annotations(
        source, target, _format("--to", to), _format("--from", from_) if from_ else None, recordings
    )
    typer.echo(report.summary())


@app.command()
def config(
    study: Annotated[
        Path | None, typer.Argument(help="A study file; without one, the defaults are shown.")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Print a study's settings, checked.

    Every default is filled in; a wrong name or value is refused with the right one.
    """
    from mast.config import dump_study, load_study

    typer.echo(dump_study(load_study(study, overrides or ())), nl=False)


def _scan(collections: Mapping[str, Collection], out: str) -> None:
    """Scan with progress on the terminal, then tell what was found."""
    from rich.console import Console

    from mast.recordings.scan import scan
    from mast.recordings.summary import render, summarise

    with _progress() as on_progress:
        result = scan(collections, out, on_progress)
    Console().print(render(summarise(result.location)))
    typer.echo(f"\nThe whole table: {result.location}")


def _scan_study(path: Path, overrides: list[str]) -> None:
    """Scan a study's collections and read its expert boxes into its work folder."""
    from mast.annotations.study import read_expertise
    from mast.config import load_study
    from mast.events import Annotation, Reviewed, read_column, write_table
    from mast.storage import join

    study = load_study(path, overrides)
    if not study.collections:
        raise ConfigError(
            f"{path}: no collections. Name at least one folder of recordings under collections."
        )
    table = join(study.work, "recordings.parquet")
    _scan(study.collections, table)
    if study.annotations:
        expertise = read_expertise(study, read_column(table, "recording_id"))
        write_table(expertise.annotations, Annotation, join(study.work, "annotations.parquet"))
        write_table(expertise.reviewed, Reviewed, join(study.work, "reviewed.parquet"))
        typer.echo(expertise.summary())


@contextmanager
def _progress() -> Iterator[OnProgress]:
    """Bars for the stages of a scan, the remaining time once it can be known; gone when done."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    words = {
        "finding": "Finding files",
        "reading": "Reading them",
        "comparing": "Comparing possible duplicates",
    }
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def on_progress(stage: Stage, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(words[stage], total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield on_progress


def _format(option: str, name: str) -> AnnotationFormat:
    """A format by its name, or what names there are."""
    from mast.config import AnnotationFormat

    names: dict[str, AnnotationFormat] = {known: known for known in get_args(AnnotationFormat)}
    if name not in names:
        raise ConfigError(f"{option} {name}: no such format. Use {FORMATS_HELP}.")
    return names[name]


def _seconds(option: str, text: str) -> float:
    """Seconds of 90, 1:30 or 0:01:30."""
    try:
        parts = [float(part) for part in text.split(":")]
    except ValueError:
        parts = []
    if not 1 <= len(parts) <= 3 or min(parts) < 0:
        raise ConfigError(f"{option} {text}: write seconds, such as 90, or h:mm:ss, such as 0:01:30.")
    return sum((part * 60.0**power for power, part in enumerate(reversed(parts))), 0.0)
