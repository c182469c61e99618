"""The verbs of single files: look at a recording, and bring annotations into another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mast.cli.options import FORMATS_HELP, Zone, format_named, seconds_of


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

    span_s = (seconds_of("--from", start), None if end is None else seconds_of("--to", end))
    events = (
        boxes_of(recording, boxes, format_named("--format", format_) if format_ else None) if boxes else ()
    )
    picture = out or Path(Path(recording).name).with_suffix(".png")
    shown = draw(recording, events, picture, span_s=span_s, band_hz=(low_hz, high_hz), time_zone=time_zone)
    counted = f", {shown.boxes} of its {len(events)} boxes" if boxes else ""
    typer.echo(f"{shown.start_s:g} s to {shown.end_s:g} s of {shown.duration_s:g} s{counted} → {picture}")


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
        source, target, format_named("--to", to), format_named("--from", from_) if from_ else None, recordings
    )
    typer.echo(report.summary())
