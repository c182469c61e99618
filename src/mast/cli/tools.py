"""Commands for single files: plot a recording and convert annotations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mast.cli.options import FORMATS_HELP, Zone, parse_format, parse_seconds
from mast.errors import AudioError
from mast.wording import counted


def plot(
    recording: Annotated[str, typer.Argument(help="Audio file, or s3://bucket/key.")],
    annotations: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Annotations to plot, in any format.")
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help=f"Format of the annotations: {FORMATS_HELP}."),
    ] = None,
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="Start, in seconds or h:mm:ss.")] = "0",
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="End. [default: one minute after the start]")
    ] = None,
    low_hz: Annotated[float, typer.Option("--low", metavar="HZ", help="Lower frequency limit.")] = 0.0,
    high_hz: Annotated[
        float | None,
        typer.Option("--high", metavar="HZ", help="Upper frequency limit. [default: half the sample rate]"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="PNG, PDF or SVG file to write. [default: name of the recording, .png]"
        ),
    ] = None,
    time_zone: Zone = None,
) -> None:
    """Plot a spectrogram with annotations.

    Axes are kHz, seconds from the start of the recording, and the time on the recorder's clock if known.
    """
    from mast.storage import exists

    if not exists(recording):
        raise AudioError(f"{recording}: there is no such file.")
    from mast.plotting.plot_recording import plot_recording, read_boxes

    span_s = (parse_seconds("--from", start), None if end is None else parse_seconds("--to", end))
    events = (
        read_boxes(recording, annotations, parse_format("--format", format_) if format_ else None)
        if annotations
        else ()
    )
    figure = out or Path(Path(recording).name).with_suffix(".png")
    plotted = plot_recording(
        recording, events, figure, span_s=span_s, band_hz=(low_hz, high_hz), time_zone=time_zone
    )
    counts = f", {plotted.boxes} of its {counted(len(events), 'box', 'boxes')}" if annotations else ""
    typer.echo(f"{plotted.start_s:g} s to {plotted.end_s:g} s of {plotted.duration_s:g} s{counts} → {figure}")


def convert(
    source: Annotated[str, typer.Argument(help="Annotation file, or folder of annotation files.")],
    target: Annotated[str, typer.Argument(help="File or folder to write.")],
    to: Annotated[str, typer.Option(metavar="FORMAT", help=f"Format to write: {FORMATS_HELP}.")],
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="FORMAT", help="Format of the source. [default: detected]"),
    ] = None,
    recordings: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="recordings.parquet of a scan; adds durations and clock times."),
    ] = None,
) -> None:
    """Convert annotations to another format.

    Prints counts of everything that the target format cannot store.
    """
    from mast.annotations import convert as convert_annotations

    report = convert_annotations(
        source, target, parse_format("--to", to), parse_format("--from", from_) if from_ else None, recordings
    )
    typer.echo(report.summary())
