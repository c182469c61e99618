"""Commands for detection: run a detector on recordings, and report and export the detections."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from mast.cli.options import (
    EXPORTS_HELP,
    DetectorFolder,
    Device,
    EventsFolder,
    MinScore,
    Overrides,
    PrecisionThreshold,
    ReviewDatabaseOption,
    Site,
    Workers,
    Zone,
    existing_model,
    parse_format,
)
from mast.cli.progress import detection_bar, progress_bars
from mast.errors import ConfigError
from mast.version import STARTER


def detect(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH…",
            help="Audio files, folders or s3://bucket/prefix; or one recordings.parquet of mast scan; or one study file.",
        ),
    ],
    model: DetectorFolder = STARTER,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Output folder, may be s3://… [default: events, or events in the study's work folder]",
        ),
    ] = None,
    site: Site = None,
    time_zone: Zone = None,
    min_score: Annotated[
        float | None, typer.Option(help="Minimum score of a detection. [default: the model's threshold]")
    ] = None,
    workers: Workers = None,
    device: Device = "auto",
    precision: Annotated[
        str,
        typer.Option(
            help="auto, float32, bf16, int8 or fastest; int8 may change faint detections. [default: that of the resumed "
            "run; else bf16 if the hardware supports it, or the fastest for 24 hours of audio or more]",
            show_default=False,
        ),
    ] = "auto",
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Process only shard I of N: 3/10 is the third of ten.")
    ] = "1/1",
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="Run on this machine or on a Ray cluster.")
    ] = "local",
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address of the Ray cluster, host:port or auto. [default: RAY_ADDRESS, or a local cluster]",
        ),
    ] = None,
    *,
    embed: Annotated[
        bool,
        typer.Option("--embed", help="Also compute embeddings, for mast search and mast cluster."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what the run would process, and exit.")
    ] = False,
    overrides: Overrides = None,
) -> None:
    """Detect animal sounds in recordings.

    An interrupted run resumes with the same command. A recording that cannot be read is quarantined: its row in the
    status table gives the reason. Exit codes: 0 all recordings processed, 3 finished with quarantined recordings, 1 an
    error, 130 or 143 stopped by a signal.
    """
    from mast.runs.inputs import resolve_inputs

    inputs = resolve_inputs(paths, site, time_zone, overrides or ())
    from functools import partial

    from mast.embeddings.embed import embed_events
    from mast.models.inference_engines import ENGINE_LABELS
    from mast.runs.local import choose_compute, run_local
    from mast.runs.ray import join_cluster, run_ray
    from mast.runs.run import PrecisionRequest, Shard, open_run, plan_run
    from mast.store.audio_store import require_lance
    from mast.study.commands import mast_command

    if ray_address and engine != "ray":
        raise ConfigError(f"--ray-address {ray_address} needs --engine ray: specify both.")
    if embed:
        require_lance("Computing embeddings")
    selected, out = Shard.parse(shard), out or inputs.out
    if inputs.note:
        typer.echo(inputs.note, err=True)
    if dry_run:
        request = PrecisionRequest(precision, "cuda" if device == "cuda" else "cpu", embed)
        with (
            progress_bars() as on_progress,
            plan_run(inputs, model, out, min_score, on_progress, request) as planned,
        ):
            summary = planned.summary(selected)
        typer.echo(summary)
        return
    if engine == "ray":
        cluster = join_cluster(ray_address, device, workers)
        kind, warning, description, run_shard = (
            cluster.kind,
            None,
            cluster.describe(),
            partial(run_ray, cluster=cluster),
        )
    else:
        compute = choose_compute(device, workers)
        kind, warning, description = compute.kind, compute.warning, compute.describe()
        run_shard = partial(run_local, compute=compute)
    with progress_bars() as on_progress:
        run = open_run(inputs, model, out, min_score, on_progress, PrecisionRequest(precision, kind, embed))
    description = f"{description}, {ENGINE_LABELS[run.config.engine]}"
    for line in filter(None, (warning, *run.notes, run.summary(selected), description)):
        typer.echo(line, err=True)
    with detection_bar() as on_pace:
        outcome = run_shard(run, shard=selected, on_progress=on_pace)
    typer.echo(outcome.summary())
    if embed and selected.count > 1:
        typer.echo(f"When all shards have finished: {mast_command('embed', out, '--model', model)}")
    elif embed and not len(run.missing()):
        with progress_bars() as on_progress:
            typer.echo(embed_events(out, model, on_progress=on_progress).summary())
    if step := outcome.next_step():
        typer.echo(step)
    raise typer.Exit(outcome.exit_code)


def models() -> None:
    """List the models that are installed with MAST, with their licences and cards."""
    from mast.models.included import included_models

    for model in included_models():
        typer.echo(model.summary())


def export(
    events: EventsFolder,
    to: Annotated[str, typer.Option(metavar="FORMAT", help=EXPORTS_HELP)],
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Output folder. [default: a folder in EVENTS with the name of the format]"
        ),
    ] = None,
    *,
    combined: Annotated[
        bool | None,
        typer.Option(
            "--combined/--per-recording",
            help="Write one file for all recordings, or one for each recording. [default: depends on the format]",
        ),
    ] = None,
    min_score: MinScore = None,
    precision_threshold: PrecisionThreshold = False,
    reviewed: Annotated[
        bool,
        typer.Option(
            "--reviewed",
            help="Export only events that annotators accepted or drew, with labels and annotators.",
        ),
    ] = False,
    include_unreviewed: Annotated[
        bool,
        typer.Option(
            "--include-unreviewed", help="With --reviewed: also export detections without a verdict."
        ),
    ] = False,
    review_database: ReviewDatabaseOption = None,
) -> None:
    """Export detections for Raven, Audacity, R, Whombat or GBIF.

    Recordings without detections also get a file, and effort.csv lists the processed duration of each recording.
    """
    from mast.outputs.export import export as export_events
    from mast.review.export import export_reviewed

    min_score = _min_score(events, min_score, precision_threshold=precision_threshold)
    if reviewed:
        written = export_reviewed(
            events,
            parse_format("--to", to),
            out,
            combined=combined,
            min_score=min_score,
            include_unreviewed=include_unreviewed,
            location=review_database,
        )
        typer.echo(written.summary())
        return
    if include_unreviewed or review_database:
        raise ConfigError("--include-unreviewed and --review-database need --reviewed: specify it as well.")
    with progress_bars() as on_progress:
        exported = export_events(
            events,
            parse_format("--to", to),
            out,
            combined=combined,
            min_score=min_score,
            on_progress=lambda done, total: on_progress("exporting", done, total),
        )
    typer.echo(exported.summary())


def report(
    events: EventsFolder,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="HTML file to write. [default: report.html in EVENTS]")
    ] = None,
    min_score: MinScore = None,
    *,
    precision_threshold: PrecisionThreshold = False,
) -> None:
    """Write a report of detections by site, day and hour.

    The report is one HTML page with the recording effort, detections per hour by site, day and hour, scores, example
    spectrograms with audio, and faults of recordings.
    """
    from mast.outputs.report import report as report_events

    min_score = _min_score(events, min_score, precision_threshold=precision_threshold)
    with progress_bars() as on_progress:
        written = report_events(
            events, out, min_score, on_progress=lambda done, total: on_progress("adding", done, total)
        )
    typer.echo(written.summary())


def export_model(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Detector: a folder, s3://… or hf://owner/name.",
            callback=existing_model,
        ),
    ],
    to: Annotated[str, typer.Option(metavar="FORMAT", help="Format: onnx or openvino.")],
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Output folder, may be s3://…")],
    precision: Annotated[str, typer.Option(help="Precision: float32, or int8 with openvino.")] = "float32",
    recordings: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH", help="Recordings to measure the deviation on; repeatable. [default: noise]"
        ),
    ] = None,
) -> None:
    """Export a detector to ONNX or OpenVINO.

    Also prints the deviation of the exported model from the float32 model.
    """
    from mast.outputs.export_model import export_model as write_model

    deviation = write_model(model, to, out, precision, recordings or ())
    typer.echo(deviation.summary())
    typer.echo(f"Written: {out}; detector.json describes inputs and outputs.")


def _min_score(events: str, min_score: float | None, *, precision_threshold: bool) -> float | None:
    """Return the minimum score: the specified one, or the threshold that `mast estimate-precision` computed."""
    from mast.review.precision_estimate import read_precision_threshold

    if not precision_threshold:
        return min_score
    if min_score is not None:
        raise ConfigError(
            "--precision-threshold and --min-score both set the minimum score. Specify only one of them."
        )
    return read_precision_threshold(events)
