"""The verbs of archives: find the sounds of any number of recordings, and hand them on."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from mast.cli.options import (
    EXPORTS_HELP,
    Calibrated,
    Detector,
    Device,
    EventsFolder,
    LeastScore,
    Overrides,
    Site,
    Verdicts,
    Workers,
    Zone,
    format_named,
)
from mast.cli.progress import detecting_bar, progress_bars
from mast.errors import ConfigError


def detect(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH…",
            help="Files, folders, s3://bucket/prefix; or one recordings.parquet of mast scan; or one study file.",
        ),
    ],
    model: Detector,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Where events go, also s3://… [default: events, or events in the study's work folder]",
        ),
    ] = None,
    site: Site = None,
    time_zone: Zone = None,
    min_score: Annotated[
        float | None, typer.Option(help="Least score of a sound. [default: the model's own]")
    ] = None,
    workers: Workers = None,
    device: Device = "auto",
    precision: Annotated[
        str,
        typer.Option(
            help="auto, float32, bf16, int8 or fastest; int8 may differ in faint sounds. [default: as the run began, "
            "else bf16 where the hardware computes in it, or the fastest for 24 hours of sound and more]",
            show_default=False,
        ),
    ] = "auto",
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Do only every N-th part: 3/10 is the third of ten.")
    ] = "1/1",
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="This machine, or a Ray cluster.")
    ] = "local",
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="The Ray cluster, host:port or auto. [default: RAY_ADDRESS, or one of this machine alone]",
        ),
    ] = None,
    *,
    embed: Annotated[
        bool,
        typer.Option(
            "--embed", help="Keep how each sound sounds as well, for mast search and mast discover."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what there is to do, and stop.")] = False,
    overrides: Overrides = None,
) -> None:
    """Find the animal sounds in recordings, however many.

    May be stopped at any moment and goes on with the same command. A recording that cannot be read becomes a row with
    a reason. Exit codes: 0 all heard, 3 all done but some quarantined, 1 an error, 130 or 143 stopped by a signal.
    """
    from functools import partial

    from mast.detection.archive import Asked, Shard, open_archive, preview
    from mast.detection.cluster import join_cluster, run_ray
    from mast.detection.inputs import look_at
    from mast.detection.local import choose_compute, run_local
    from mast.embeddings.embed import embed_events
    from mast.models.engines import TOLD
    from mast.recordings.store import lance_module
    from mast.study.commands import mast_command

    if ray_address and engine != "ray":
        raise ConfigError(f"--ray-address {ray_address} is for --engine ray: give both.")
    if embed:
        lance_module("Keeping how sounds sound")
    own, given = Shard.parse(shard), look_at(paths, site, time_zone, overrides or ())
    out = out or given.out
    if given.note:
        typer.echo(given.note, err=True)
    if dry_run:
        asked = Asked(precision, "cuda" if device == "cuda" else "cpu", embed)
        with (
            progress_bars() as on_progress,
            preview(given, model, out, min_score, on_progress, asked) as planned,
        ):
            told = planned.summary(own)
        typer.echo(told)
        return
    if engine == "ray":
        cluster = join_cluster(ray_address, device, workers)
        kind, warning, where, run = cluster.kind, None, cluster.told(), partial(run_ray, cluster=cluster)
    else:
        compute = choose_compute(device, workers)
        kind, warning, where = compute.kind, compute.warning, compute.told()
        run = partial(run_local, compute=compute)
    with progress_bars() as on_progress:
        archive = open_archive(given, model, out, min_score, on_progress, Asked(precision, kind, embed))
    told = f"{where}, {TOLD[archive.orders.engine]}"
    for line in filter(None, (warning, *archive.notes, archive.summary(own), told)):
        typer.echo(line, err=True)
    with detecting_bar() as on_pace:
        outcome = run(archive, shard=own, on_progress=on_pace)
    typer.echo(outcome.summary())
    if embed and own.count > 1:
        typer.echo(f"When all shards are done: {mast_command('embed', out, '--model', model)}")
    elif embed and not len(archive.missing()):
        with progress_bars() as on_progress:
            typer.echo(embed_events(out, model, on_progress=on_progress).summary())
    if step := outcome.next_step():
        typer.echo(step)
    raise typer.Exit(outcome.exit_code)


def export(
    events: EventsFolder,
    to: Annotated[str, typer.Option(metavar="FORMAT", help=EXPORTS_HELP)],
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Where files go. [default: a folder in EVENTS, named as the format]"
        ),
    ] = None,
    *,
    combined: Annotated[
        bool | None,
        typer.Option(
            "--combined/--per-recording",
            help="One file over all recordings, or one for each. [default: as is usual for the format]",
        ),
    ] = None,
    min_score: LeastScore = None,
    calibrated: Calibrated = False,
    reviewed: Annotated[
        bool,
        typer.Option("--reviewed", help="Only what people accepted or drew, with labels and annotators."),
    ] = False,
    and_unseen: Annotated[
        bool, typer.Option("--and-unseen", help="With --reviewed: also sounds nobody has decided about.")
    ] = False,
    verdicts: Verdicts = None,
) -> None:
    """Write the sounds that were found for Raven, Audacity, R, Whombat or GBIF.

    A recording in which nothing was found has its file, too, and effort.csv tells how much of each was heard.
    """
    from mast.detection.export import export as export_events
    from mast.review.export import export_reviewed

    min_score = _least_score(events, min_score, calibrated=calibrated)
    if reviewed:
        written = export_reviewed(
            events,
            format_named("--to", to),
            out,
            combined=combined,
            min_score=min_score,
            and_unseen=and_unseen,
            location=verdicts,
        )
        typer.echo(written.summary())
        return
    if and_unseen or verdicts:
        raise ConfigError("--and-unseen and --verdicts are for --reviewed: give that as well.")
    with progress_bars() as on_progress:
        exported = export_events(
            events,
            format_named("--to", to),
            out,
            combined=combined,
            min_score=min_score,
            on_progress=lambda done, total: on_progress("exporting", done, total),
        )
    typer.echo(exported.summary())


def report(
    events: EventsFolder,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="The page to write. [default: report.html in EVENTS]")
    ] = None,
    min_score: LeastScore = None,
    *,
    calibrated: Calibrated = False,
) -> None:
    """Tell on one page what was heard, where and when.

    Effort, sounds an hour by site, day and hour, scores, examples to look at and listen to, and faults.
    """
    from mast.detection.report import report as report_events

    min_score = _least_score(events, min_score, calibrated=calibrated)
    with progress_bars() as on_progress:
        told = report_events(
            events, out, min_score, on_progress=lambda done, total: on_progress("adding", done, total)
        )
    typer.echo(told.summary())


def export_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder, s3://… or hf://owner/name.")],
    to: Annotated[str, typer.Option(metavar="FORMAT", help="onnx or openvino.")],
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where the files go, also s3://…")],
    precision: Annotated[str, typer.Option(help="float32, or int8 with openvino.")] = "float32",
    recordings: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Recordings to measure on; may be given again. [default: noise]"),
    ] = None,
) -> None:
    """Write a detector for other programs, and tell how far it then is from its own float32."""
    from mast.detection.export_model import export_model as write_model

    deviation = write_model(model, to, out, precision, recordings or ())
    typer.echo(deviation.summary())
    typer.echo(f"Written: {out}; detector.json tells what goes in and what comes out.")


def _least_score(events: str, min_score: float | None, *, calibrated: bool) -> float | None:
    """From which score on sounds are asked for: as given, or as `mast precision` has found."""
    from mast.review.precision import calibrated_score

    if not calibrated:
        return min_score
    if min_score is not None:
        raise ConfigError(
            "--calibrated and --min-score both say which sounds are left out. Give one of them."
        )
    return calibrated_score(events)
