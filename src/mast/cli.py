"""The command line: one thin function a verb. Heavy imports wait until a verb needs them."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from mast.errors import ConfigError, MastError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from mast.config import AnnotationFormat, Collection, Study
    from mast.detection.running import Progress as Pace
    from mast.training.loop import End, Progress
    from mast.training.run import Run

app = typer.Typer(
    name="mast",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Find animal sounds in field recordings, each as a box in time and frequency, from few expert labels.",
)

users_app = typer.Typer(no_args_is_help=True, help="Say who may review, and in which role.")
app.add_typer(users_app, name="users")

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting: --set spectrogram.high_hz=4000"),
]
Zone = Annotated[
    str | None,
    typer.Option("--time-zone", metavar="ZONE", help="Zone of clocks that do not say theirs: Europe/Madrid"),
]
RunName = Annotated[str, typer.Option(metavar="NAME", help="Name of the run; another name begins another.")]
RunsFolder = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Where runs are kept. [default: runs in the work folder]"),
]
ModelFolder = Annotated[
    str, typer.Option("--model", metavar="MODEL", help="A folder, s3://… or hf://owner/name.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Examples = Annotated[
    str,
    typer.Option(
        metavar="PATH",
        help="Boxes that experts have named: a study file, or annotations of these recordings in any format.",
    ),
]
TableModel = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="The model of the vectors. [default: where it was]"),
]
VectorTable = Annotated[
    str | None,
    typer.Option(
        "--embeddings", metavar="TABLE", help="Where vectors are. [default: embeddings.lance in EVENTS]"
    ),
]
Reviewed = Annotated[
    str,
    typer.Argument(metavar="EVENTS|STUDY", help="The folder that mast detect has written, or a study file."),
]
Database = Annotated[
    str | None,
    typer.Option(
        metavar="DATABASE",
        help="A file, or postgresql+psycopg://user@host/name. [default: review.sqlite beside what is reviewed]",
    ),
]
StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="A study file, such as study.yaml.")]
EventsFolder = Annotated[
    str, typer.Argument(metavar="EVENTS", help="The folder that mast detect has written.")
]
Calibrated = Annotated[
    bool, typer.Option("--calibrated", help="Leave out sounds below the score that mast precision has found.")
]
Verdicts = Annotated[
    str | None,
    typer.Option(
        "--verdicts",
        metavar="FILE",
        help="Where verdicts are: a file, or postgresql+psycopg://… [default: review.sqlite in EVENTS]",
    ),
]
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

FORMATS_HELP = "raven, audacity, csv, birdeep, aoef, audubon-core, camtrap-dp or batdetect2"
EXPORTS_HELP = "raven, audacity, csv, aoef, audubon-core or camtrap-dp."


def main() -> None:
    """Run `mast`; an error a person can put right is one message and exit code 1."""
    try:
        app()
    except MastError as error:
        message = str(error)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            message = (
                "The disk is full. Make room, or set TMPDIR to a folder that has some, and run it again."
            )
        elif "AWS Error" in str(error):  # from wherever a bucket is used
            message = f"{error}. Check the bucket, the AWS_ variables and the network, and run it again."
        else:
            raise
    else:
        return
    typer.secho(message, err=True, fg="red")
    raise SystemExit(1)


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
def init(
    recordings: Annotated[str, typer.Argument(help="Folder of recordings, or s3://bucket/prefix.")],
    boxes: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="An expert's tables: a file or a folder, in any format."),
    ] = None,
    site: Annotated[
        str | None, typer.Option(metavar="TEMPLATE", help="Where paths name the site: '{site}/*'")
    ] = None,
    time_zone: Zone = None,
    noise: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="A label of other sounds; may be given again.")
    ] = None,
    ignored: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="A label that counts as neither; may be given again."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The study file to write.")] = Path("study.yaml"),
) -> None:
    """Write a first study file.

    Looks at the recordings and tables first, and asks for what they do not tell if a person is there to answer.
    """
    from mast.recordings.metadata import Naming
    from mast.storage import written_whole
    from mast.study.draft import Answers, look_at_recordings, look_at_tables, write_draft

    if out.exists():
        raise ConfigError(f"{out} is already there. Name another file with --out.")
    seen = look_at_recordings(recordings, Naming(site, time_zone))
    typer.echo(seen.summary())
    if seen.without_zone and time_zone is None:
        time_zone = _asked("These clocks do not say their time zone. Which is it (such as Europe/Madrid)?")
    if seen.without_site and site is None:
        site = _asked("Where do paths name the site (such as {site}/*)?")
    boxes = boxes or _asked("Where are an expert's tables (a file or folder)?")
    tables = look_at_tables(boxes) if boxes else None
    if tables:
        typer.echo(tables.summary())
    answers = Answers(recordings, site, time_zone, tables, tuple(noise or ()), tuple(ignored or ()))
    with written_whole(str(out)) as file:
        file.write(write_draft(answers, out).encode())
    typer.echo(f"Written: {out}. Read it, change what is not right, then: mast scan {out}")


@app.command()
def status(study: StudyFile, overrides: Overrides = None) -> None:
    """Tell what a study has, what is out of date, and what to run next."""
    from rich.console import Console

    from mast.config import load_study
    from mast.review.next import next_in_round
    from mast.study.products import look, next_step, render

    settings = load_study(study, overrides or ())
    found = look(settings)
    Console().print(render(found))
    verb = next_step(found)
    command = f"mast {verb} {study}" if verb else next_in_round(settings, str(study))
    typer.echo(f"Next: {command}" if command else "Everything is made and up to date.")


@app.command()
def splits(study: StudyFile, overrides: Overrides = None) -> None:
    """Share sound out for training and testing.

    Contiguous stretches of time, days and sites are kept apart, so that no test hears what training heard.
    """
    from rich.console import Console

    from mast.config import load_study
    from mast.datasets.split_summary import render, split_study
    from mast.study.products import remember

    settings = load_study(study, overrides or ())
    Console().print(render(split_study(settings)))
    remember(settings, "splits.parquet")


@app.command()
def budget(
    study: StudyFile,
    hours: Annotated[float, typer.Option(min=0.001, help="How much sound an expert will listen to.")] = 1.0,
    strategy: Annotated[str, typer.Option(help="time-balanced, random or sequential.")] = "time-balanced",
    out: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Where the cut files go. [default: below the work folder]"),
    ] = None,
    collect: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Bring back the boxes drawn in such a folder.")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Propose what to annotate next, ready to open in Raven or Audacity."""
    from mast.config import load_study
    from mast.datasets.budget import budget_study, collect_study, strategy_named

    settings = load_study(study, overrides or ())
    if collect:
        typer.echo(collect_study(collect))
        return
    typer.echo(budget_study(settings, hours, strategy_named(strategy), folder=out).summary())


@app.command()
def prepare(study: StudyFile, overrides: Overrides = None) -> None:
    """Bring all sound into one store for training, and measure it.

    May be stopped at any moment and goes on with the same command.
    """
    from mast.config import load_study
    from mast.datasets.preparing import prepare_study

    settings = load_study(study, overrides or ())
    with _progress() as on_progress:
        report = prepare_study(settings, on_progress)
    typer.echo(report)


@app.command("import")
def import_(
    file: Annotated[
        Path, typer.Argument(help="A checkpoint of AudioMAE or Bird-MAE: .pth, .ckpt or .safetensors.")
    ],
    out: Annotated[
        str, typer.Option(metavar="FOLDER", help="Where the model goes: a folder, or s3://bucket/prefix.")
    ],
) -> None:
    """Bring a public checkpoint into MAST's format.

    Nothing in the file is run, and every tensor is accounted for.
    """
    from mast.models.checkpoint import save_model
    from mast.models.importing import import_checkpoint

    imported = import_checkpoint(file)
    description = save_model(out, imported.description, imported.tensors)
    typer.echo(imported.account.summary())
    typer.echo(f"Licence: {description.licence}")
    typer.echo(f"{description.kind} {description.identity} → {out}")


@app.command()
def pretrain(
    study: StudyFile,
    name: RunName = "main",
    out: RunsFolder = None,
    device: Device = "auto",
    overrides: Overrides = None,
) -> None:
    """Teach an encoder to hear, from unlabelled sound.

    May be stopped at any moment and goes on with the same command. Under torchrun or Slurm it learns on many devices.
    """
    from mast.config import load_study
    from mast.training.pretrain import pretrain_study
    from mast.training.run import run_folder

    settings = load_study(study, overrides or ())
    run = run_folder(settings.work, "pretrain", name, out)
    with _training_bar("Pretraining") as on_progress:
        end = pretrain_study(settings, run, device, on_progress)
    _tell_end(run, end)


@app.command()
def rehearse(
    study: StudyFile,
    name: RunName = "main",
    out: RunsFolder = None,
    device: Device = "auto",
    overrides: Overrides = None,
) -> None:
    """Teach a detector to find made-up calls laid over the unlabelled recordings, before it sees any label.

    May be stopped at any moment and goes on with the same command.
    """
    from mast.config import load_study
    from mast.training.rehearse import rehearse_study
    from mast.training.run import run_folder

    settings = load_study(study, overrides or ())
    run = run_folder(settings.work, "rehearse", name, out)
    with _training_bar("Rehearsing") as on_progress:
        end = rehearse_study(settings, run, device, on_progress)
    _tell_end(run, end)


@app.command()
def train(
    study: StudyFile,
    name: RunName = "main",
    out: RunsFolder = None,
    device: Device = "auto",
    overrides: Overrides = None,
) -> None:
    """Teach a detector to find animal sounds, from the experts' boxes.

    May be stopped at any moment and goes on with the same command. Under torchrun or Slurm it learns on many devices.
    """
    from mast.config import load_study
    from mast.training.finetune import train_study
    from mast.training.run import run_folder

    settings = load_study(study, overrides or ())
    run = run_folder(settings.work, "train", name, out)
    pretrained = run_folder(settings.work, "pretrain", "main", out)
    typer.echo(f"Starting from {settings.train.start or 'random weights'}.", err=True)
    if settings.train.start is None and pretrained.is_finished:
        typer.echo(f"There is a pretrained model: --set train.start={pretrained.model}", err=True)
    with _training_bar("Training") as on_progress:
        end = train_study(settings, run, device, on_progress)
    _tell_end(run, end)
    if end == "finished":
        _tell_threshold(run)


@app.command()
def selftrain(
    study: StudyFile,
    name: RunName = "main",
    out: RunsFolder = None,
    device: Device = "auto",
    overrides: Overrides = None,
) -> None:
    """Let a trained detector teach itself on the unlabelled recordings, in rounds.

    A round that makes it worse on validation, or lets it draw boxes everywhere, is taken back. May be stopped at any
    moment and goes on with the same command.
    """
    from mast.config import load_study
    from mast.training.run import run_folder
    from mast.training.selftrain import selftrain_study

    settings = load_study(study, overrides or ())
    run = run_folder(settings.work, "selftrain", name, out)
    trained = run_folder(settings.work, "train", "main", out)
    teacher = settings.selftrain.start or str(trained.model)
    if settings.selftrain.start is None and not trained.is_finished:
        raise ConfigError(
            f"{trained.model}: no detector to be the first teacher. Run mast train {study}, or name one with "
            "--set selftrain.start=FOLDER."
        )
    with _progress() as on_progress:
        taught = selftrain_study(settings, run, teacher, device, on_progress)
    for item in taught.rounds:
        typer.echo(item.told())
    _tell_end(run, taught.end)


@app.command("map")
def map_(
    study: StudyFile,
    model: ModelFolder,
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="PNG, PDF or SVG. [default: chunk_map.png in the work folder]"),
    ] = None,
    chunks: Annotated[
        int, typer.Option(min=16, help="Chunks on the map, spread over all recordings.")
    ] = 2000,
    device: Device = "auto",
    overrides: Overrides = None,
) -> None:
    """Draw sound by how alike it is to a model, coloured by site, hour and expert boxes."""
    from functools import partial

    from mast.config import load_study
    from mast.embeddings.chunk_map import map_study

    settings = load_study(study, overrides or ())
    with _progress() as on_progress:
        result = map_study(
            settings, model, out, chunks, device=device, on_progress=partial(on_progress, "mapping")
        )
    typer.echo(result.summary())


@app.command()
def evaluate(
    study: StudyFile,
    model: Annotated[
        str, typer.Option(metavar="FOLDER", help="A trained detector: a folder, s3://… or hf://owner/name.")
    ],
    out: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Where results go. [default: evaluations in the work folder]"),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A split to test on; may be given again. [default: test and all held-out sets]",
        ),
    ] = None,
    retrieval: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="An encoder, best a pretrained one: tell also whether it tells names apart."
        ),
    ] = None,
    device: Device = "auto",
    overrides: Overrides = None,
) -> None:
    """Tell how well a detector finds what experts drew.

    Tests it on sound it never learned from, and writes a page with the numbers, what they mean, and the worst mistakes
    to look at and listen to.
    """
    from mast.config import load_study
    from mast.detection.evaluate import evaluate_study

    settings = load_study(study, overrides or ())
    with _progress() as on_progress:
        evaluated = evaluate_study(
            settings,
            model,
            out,
            split or (),
            device,
            lambda name, done, total: on_progress(f"Testing on {name}", done, total),
        )
    typer.echo(evaluated.summary())
    if retrieval:
        from mast.embeddings.retrieval import retrieve

        typer.echo(retrieve(settings, evaluated.folder, retrieval, device).summary())


@app.command()
def compare(
    results: Annotated[
        list[str], typer.Argument(metavar="FOLDER…", help="Folders that mast evaluate wrote, two or more.")
    ],
    out: Annotated[str, typer.Option(metavar="FILE", help="The page to write.")] = "comparison.html",
) -> None:
    """Compare detectors on the same test sets.

    Tells by how much each is better or worse than the first, and whether that could be chance.
    """
    from mast.evaluation.compare import compare as compare_folders
    from mast.evaluation.compare import write_comparison

    comparison = compare_folders(results)
    write_comparison(comparison, out)
    typer.echo(comparison.summary())
    typer.echo(f"Report: {out}")


@app.command()
def detect(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH…",
            help="Files, folders, s3://bucket/prefix; or one recordings.parquet of mast scan; or one study file.",
        ),
    ],
    model: Annotated[
        str, typer.Option(metavar="MODEL", help="A trained detector: a folder, s3://… or hf://owner/name.")
    ],
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Where events go, also s3://… [default: events, or events in the study's work folder]",
        ),
    ] = None,
    site: Annotated[
        str | None,
        typer.Option(metavar="TEMPLATE", help="Where paths name the site: '{site}/*' or '{site}_*'"),
    ] = None,
    time_zone: Zone = None,
    min_score: Annotated[
        float | None, typer.Option(help="Least score of a sound. [default: the model's own]")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Processes at work. [default: as many as cores]")
    ] = None,
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

    if ray_address and engine != "ray":
        raise ConfigError(f"--ray-address {ray_address} is for --engine ray: give both.")
    if embed:
        lance_module("Keeping how sounds sound")
    own, given = Shard.parse(shard), look_at(paths, site, time_zone, overrides or ())
    out = out or given.out
    if dry_run:
        asked = Asked(precision, "cuda" if device == "cuda" else "cpu", embed)
        with _progress() as on_progress, preview(given, model, out, min_score, on_progress, asked) as planned:
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
    with _progress() as on_progress:
        archive = open_archive(given, model, out, min_score, on_progress, Asked(precision, kind, embed))
    told = f"{where}, {TOLD[archive.orders.engine]}"
    for line in filter(None, (warning, *archive.notes, archive.summary(own), told)):
        typer.echo(line, err=True)
    with _detecting_bar() as on_pace:
        outcome = run(archive, shard=own, on_progress=on_pace)
    typer.echo(outcome.summary())
    if embed and own.count > 1:
        typer.echo(f"When all shards are done: mast embed {out} --model {model}")
    elif embed and not len(archive.missing()):
        with _progress() as on_progress:
            typer.echo(embed_events(out, model, on_progress=on_progress).summary())
    raise typer.Exit(outcome.exit_code)


@app.command("export-model")
def export_model_(
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
    from mast.detection.export_model import export_model

    deviation = export_model(model, to, out, precision, recordings or ())
    typer.echo(deviation.summary())
    typer.echo(f"Written: {out}; detector.json tells what goes in and what comes out.")


@app.command()
def export(
    events: Annotated[str, typer.Argument(metavar="EVENTS", help="The folder that mast detect has written.")],
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
    min_score: Annotated[float | None, typer.Option(help="Leave out sounds that score less.")] = None,
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
            _format("--to", to),
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
    with _progress() as on_progress:
        exported = export_events(
            events,
            _format("--to", to),
            out,
            combined=combined,
            min_score=min_score,
            on_progress=lambda done, total: on_progress("exporting", done, total),
        )
    typer.echo(exported.summary())


@app.command()
def report(
    events: Annotated[str, typer.Argument(metavar="EVENTS", help="The folder that mast detect has written.")],
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="The page to write. [default: report.html in EVENTS]")
    ] = None,
    min_score: Annotated[float | None, typer.Option(help="Leave out sounds that score less.")] = None,
    *,
    calibrated: Calibrated = False,
) -> None:
    """Tell on one page what was heard, where and when.

    Effort, sounds an hour by site, day and hour, scores, examples to look at and listen to, and faults.
    """
    from mast.detection.report import report as report_events

    min_score = _least_score(events, min_score, calibrated=calibrated)
    with _progress() as on_progress:
        told = report_events(
            events, out, min_score, on_progress=lambda done, total: on_progress("adding", done, total)
        )
    typer.echo(told.summary())


@app.command()
def embed(
    events: Annotated[str, typer.Argument(metavar="EVENTS", help="The folder that mast detect has written.")],
    model: Annotated[
        str,
        typer.Option(
            metavar="MODEL", help="A pretrained encoder, or a detector: a folder, s3://… or hf://owner/name."
        ),
    ],
    pool: Annotated[
        str,
        typer.Option(help="What a box is read from: the encoder's last block, or its last three (blocks)."),
    ] = "last",
    out: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="Where vectors go. [default: embeddings.lance in EVENTS]"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Processes at work. [default: as many as cores]")
    ] = None,
    device: Device = "auto",
) -> None:
    """Write down how every sound that was found sounds to a model, to search for those that are alike.

    May be stopped at any moment and goes on with the same command, also after mast detect has found more.
    """
    from mast.detection.local import choose_compute
    from mast.embeddings.boxes import pool_named
    from mast.embeddings.embed import embed_events

    chosen, compute = pool_named(pool), choose_compute(device, workers)
    for line in filter(None, (compute.warning, compute.told())):
        typer.echo(line, err=True)
    with _progress() as on_progress:
        result = embed_events(events, model, chosen, out, compute, on_progress)
    typer.echo(result.summary())


@app.command()
def search(
    events: Annotated[str, typer.Argument(metavar="EVENTS", help="The folder that mast detect has written.")],
    like: Annotated[
        tuple[str, str, str, float, float] | None,
        typer.Option(
            metavar="RECORDING START END LOW HIGH",
            help="A box: a recording as the events name it, or a sound file; seconds or h:mm:ss; Hz.",
        ),
    ] = None,
    like_event: Annotated[
        str | None, typer.Option(metavar="ID", help="A sound by its name, from an earlier search.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="The model of the vectors, for --like. [default: where it was]"),
    ] = None,
    site: Annotated[
        list[str] | None, typer.Option(metavar="SITE", help="Only of this site; may be given again.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option("--from", metavar="TIME", help="Only from this day or moment on, in UTC."),
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--to", metavar="TIME", help="Only before this day or moment, in UTC.")
    ] = None,
    low_hz: Annotated[
        float | None, typer.Option("--low", metavar="HZ", help="Only sounds that reach no lower.")
    ] = None,
    high_hz: Annotated[
        float | None, typer.Option("--high", metavar="HZ", help="Only sounds that reach no higher.")
    ] = None,
    min_score: Annotated[float | None, typer.Option(help="Leave out sounds that score less.")] = None,
    top: Annotated[int, typer.Option(metavar="N", help="How many sounds.")] = 24,
    *,
    exact: Annotated[
        bool, typer.Option("--exact", help="Compare with every sound, also where there is an index.")
    ] = False,
    table: VectorTable = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The page to write. [default: alike-….html in EVENTS]"),
    ] = None,
    device: Device = "auto",
) -> None:
    """Find the sounds most like a given one.

    Writes a page to look at and listen to, the most similar first, and a table of the same name in CSV.
    """
    from mast.detection.found import open_found
    from mast.embeddings.neighbours import Wanted, box_query, event_query, neighbours
    from mast.embeddings.sheet import write_sheet
    from mast.embeddings.table import EMBEDDINGS
    from mast.events import Event
    from mast.storage import join

    if (like is None) == (like_event is None):
        raise ConfigError("Give either a box with --like or the name of a sound with --like-event.")
    wanted = Wanted(tuple(site or ()), since, until, low_hz, high_hz, min_score)
    found, location = open_found(events, min_score), table or join(events, EMBEDDINGS)
    if like is not None:
        recording, start, end, low, high = like
        try:
            box = Event(recording, _seconds("--like", start), _seconds("--like", end), low, high)
        except ValueError as error:
            raise ConfigError(f"--like: {error}.") from None
        query = box_query(found, location, box, model, device)
    else:
        query = event_query(found, location, like_event or "")
    alike = neighbours(location, query, wanted, top, exact=exact)
    typer.echo(write_sheet(found, query, alike, wanted, out).summary())


@app.command()
def name(
    events: Annotated[str, typer.Argument(metavar="EVENTS", help="The folder that mast detect has written.")],
    examples: Examples,
    neighbours: Annotated[int, typer.Option(metavar="N", help="Nearest examples that vote.")] = 5,
    max_wrong: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of wrong names among those given, at most.")
    ] = 0.1,
    model: TableModel = None,
    table: VectorTable = None,
    device: Device = "auto",
) -> None:
    """Give sounds the names of the examples that they are most like, and none where that is not sure.

    How sure a name must be is measured on the examples, each named by those of other recordings.
    """
    from mast.embeddings.examples import open_known
    from mast.embeddings.names import name_events

    known = open_known(events, examples, table, model, device)
    with _progress() as on_progress:
        named = name_events(
            known, neighbours, max_wrong, lambda done, total: on_progress("naming", done, total)
        )
    typer.echo(named.summary())


@app.command()
def discover(
    events: Annotated[str, typer.Argument(metavar="EVENTS", help="The folder that mast detect has written.")],
    examples: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Boxes that experts have named: a study file, or annotations of these recordings. [default: none]",
        ),
    ] = None,
    least: Annotated[int, typer.Option(metavar="N", help="Sounds that make a group, at least.")] = 5,
    take: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS", help="Write these groups for an expert, such as 3,7, and nothing else."
        ),
    ] = None,
    to: Annotated[str, typer.Option(metavar="FORMAT", help=f"With --take: {EXPORTS_HELP}")] = "raven",
    out: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="The page, or with --take the folder. [default: in clusters of EVENTS]"
        ),
    ] = None,
    model: TableModel = None,
    table: VectorTable = None,
    device: Device = "auto",
) -> None:
    """Group sounds that are alike, and show first what nobody has named.

    Groups are ordered by how unlike they are to the examples, on how many days and at how many sites they were heard.
    """
    from mast.embeddings.discover import discover as group
    from mast.embeddings.discover import take as write_groups
    from mast.embeddings.discover_page import check_umap, write_page
    from mast.embeddings.examples import open_known
    from mast.embeddings.table import EMBEDDINGS, open_vectors
    from mast.storage import join

    if take is not None:
        try:
            numbers = [int(word) for word in take.split(",")]
        except ValueError:
            raise ConfigError(f"--take {take}: give numbers of groups, such as 3,7.") from None
        typer.echo(write_groups(events, numbers, _format("--to", to), out).summary())
        return
    check_umap()
    known = open_known(events, examples, table, model, device) if examples else None
    with _progress() as on_progress:
        discovered = group(events, known, table, least, on_progress=on_progress)
        on_progress("drawing", 0, None)
        page = write_page(discovered, open_vectors(table or join(events, EMBEDDINGS))[0], out)
    typer.echo(f"{discovered.summary()}\nLook and listen: {page}")


@app.command()
def precision(
    events: EventsFolder,
    asked: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of sounds that have to be animals.")
    ] = 0.9,
    verdicts: Verdicts = None,
) -> None:
    """Tell how many of the sounds found are animals, and from which score on enough of them are.

    From the verdicts on sounds drawn by lot, the queue audit of mast review. Writes precision.json, which mast export
    and mast report use with --calibrated, and precision.png.
    """
    from rich.console import Console

    from mast.review.precision import PICTURE, measure_precision, render
    from mast.storage import join

    told = measure_precision(events, asked, verdicts)
    Console().print(render(told))
    typer.echo(f"{told.summary()}\nPicture: {join(events, PICTURE)}")


@app.command()
def agreement(events: EventsFolder, verdicts: Verdicts = None) -> None:
    """Tell how far people agree who decided about the same sounds or reviewed the same minutes."""
    from rich.console import Console

    from mast.review.agreement import measure_agreement, render

    found = measure_agreement(events, verdicts)
    Console().print(render(found))
    typer.echo("\n".join(item.sentences() for item in found))


@app.command()
def labels(
    study: StudyFile, events: EventsFolder, verdicts: Verdicts = None, overrides: Overrides = None
) -> None:
    """Take what people decided about a run into the study, for the next training.

    What was reviewed from end to end is shared out anew for training and tests; held-out sets stay apart.
    """
    from mast.config import load_study
    from mast.datasets.split_summary import split_study
    from mast.datasets.split_table import SPLITS_TABLE
    from mast.review.labels import write_labels
    from mast.study.products import remember

    settings = load_study(study, overrides or ())
    typer.echo(write_labels(settings, events, verdicts).summary())
    _read_experts(settings)
    split_study(settings)
    remember(settings, SPLITS_TABLE)
    typer.echo(f"Next: mast status {study}")


@app.command()
def review(
    source: Reviewed,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; others can only come in with users.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the page; 0 takes a free one.")
    ] = 8642,
    database: Database = None,
    min_score: Annotated[float | None, typer.Option(help="Leave out sounds that score less.")] = None,
    proxy: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The reverse proxy that people come through.")
    ] = None,
    trust_header: Annotated[
        str | None,
        typer.Option(metavar="HEADER", help="In which the proxy says who is there, such as X-Remote-User."),
    ] = None,
    *,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Check, correct and add sounds in the browser.

    Look and listen, accept, reject, name, draw and move boxes; every verdict is kept at once, and who gave it.
    """
    from mast.review.serving import Gate, open_browser, serve

    def on_start(address: str) -> None:
        typer.echo(f"Review: {address}  (Ctrl-C ends it; every verdict is kept at once)")
        if browser:
            open_browser(address)

    serve(source, database, Gate(host, proxy, trust_header), port, min_score, on_start)


@users_app.command("add")
def users_add(
    source: Reviewed,
    name: Annotated[str, typer.Argument(help="A name to sign in with.")],
    role: Annotated[str, typer.Option(help="annotator, reviewer or admin.")] = "annotator",
    database: Database = None,
    *,
    password: Annotated[
        bool, typer.Option(help="Ask for a password; not where a proxy says who is there.")
    ] = True,
) -> None:
    """Let someone review; from the first one on, everyone signs in.

    An annotator decides, but does not overrule a reviewer. An admin also lets people in from the page.
    """
    from mast.review.serving import add_user, opened

    with opened(source, database) as store:
        user = add_user(store, name, role, _password() if password else None)
    typer.echo(f"{user.name} may review as {user.role}.")


@users_app.command("list")
def users_list(source: Reviewed, database: Database = None) -> None:
    """Tell who may review."""
    from mast.review.serving import opened, users

    with opened(source, database) as store:
        known = users(store)
    for user in known:
        typer.echo(f"{user.name}\t{user.role}")
    if not known:
        typer.echo("Nobody has to sign in: the page only answers on this machine.")


@users_app.command("remove")
def users_remove(
    source: Reviewed, name: Annotated[str, typer.Argument(help="Who.")], database: Database = None
) -> None:
    """Let someone review no more; what they decided stays."""
    from mast.review.serving import opened, remove_user

    with opened(source, database) as store:
        remove_user(store, name)
    typer.echo(f"{name} may review no more.")


@users_app.command("password")
def users_password(
    source: Reviewed, name: Annotated[str, typer.Argument(help="Who.")], database: Database = None
) -> None:
    """Give someone a new password."""
    from mast.review.serving import change_password, opened

    with opened(source, database) as store:
        change_password(store, name, _password())
    typer.echo(f"{name} has a new password, and signs in with it.")


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
    from mast.annotations.study import label_tables
    from mast.config import load_study
    from mast.storage import join
    from mast.study.products import remember

    study = load_study(path, overrides)
    if not study.collections:
        raise ConfigError(
            f"{path}: no collections. Name at least one folder of recordings under collections."
        )
    _scan(study.collections, join(study.work, "recordings.parquet"))
    remember(study, "recordings.parquet")
    if study.annotations or label_tables(study):
        _read_experts(study)


def _read_experts(study: Study) -> None:
    """Read a study's expert boxes, and what its reviews have come to, into its work folder."""
    from mast.annotations.study import read_expertise
    from mast.datasets.split_table import existing
    from mast.events import Annotation, Reviewed, read_column, write_table
    from mast.storage import join
    from mast.study.products import remember

    expertise = read_expertise(study, read_column(existing(study, "recordings.parquet"), "recording_id"))
    write_table(expertise.annotations, Annotation, join(study.work, "annotations.parquet"))
    write_table(expertise.reviewed, Reviewed, join(study.work, "reviewed.parquet"))
    remember(study, "annotations.parquet")
    typer.echo(expertise.summary())


@contextmanager
def _progress() -> Iterator[Callable[[str, float, float | None], None]]:
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
def _training_bar(what: str) -> Iterator[Callable[[Progress], None]]:
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
def _detecting_bar() -> Iterator[Callable[[Pace], None]]:
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


def _tell_end(run: Run, end: End) -> None:
    """Where the model is, or how to go on; Ctrl-C ends with its usual code, so that a script stops as well."""
    from mast.training.devices import is_first_process

    if is_first_process():
        stopped = f"Stopped, and kept in {run.folder}. The same command goes on from there."
        typer.echo(f"Finished. Model: {run.model}" if end == "finished" else stopped)
    if end == "interrupted":
        raise typer.Exit(130)


def _tell_threshold(run: Run) -> None:
    """From which score on boxes are reported, why, and how well that does."""
    from mast.models.checkpoint import load_model

    known, _ = load_model(str(run.model))
    reached = known.results.get("validation_f1")
    f1 = f", F1 {reached:.2f}" if isinstance(reached, float) else ""
    typer.echo(f"Score threshold {known.thresholds['score']:.2f} ({known.results['threshold']}{f1}).")


def _asked(question: str) -> str | None:
    """An answer, where a person is there to give one; an empty one is none."""
    if not sys.stdin.isatty():
        return None
    answer: str = typer.prompt(question + " Leave empty if you do not know", default="", show_default=False)
    return answer.strip() or None


def _password() -> str:
    """A password from a person, twice and unseen; or one line from another program."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    typed: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    return typed


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
