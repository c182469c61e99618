"""The verbs of learning: models to start from, the four ways to teach them, and how good they have become."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mast.cli.options import Detector, Device, Overrides, RunName, RunsFolder, StudyFile
from mast.cli.progress import progress_bars, training_bar
from mast.errors import ConfigError

if TYPE_CHECKING:
    from mast.config import Study
    from mast.training.loop import End
    from mast.training.run import Run


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
    from mast.training.pretrain import pretrain_study

    settings, run = _run_of("pretrain", study, name, out, overrides)
    with training_bar("Pretraining") as on_progress:
        end = pretrain_study(settings, run, device, on_progress)
    _tell_end(run, end)


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
    from mast.training.rehearse import rehearse_study

    settings, run = _run_of("rehearse", study, name, out, overrides)
    with training_bar("Rehearsing") as on_progress:
        end = rehearse_study(settings, run, device, on_progress)
    _tell_end(run, end)


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
    from mast.training.finetune import train_study
    from mast.training.run import run_folder

    settings, run = _run_of("train", study, name, out, overrides)
    pretrained = run_folder(settings.work, "pretrain", "main", out)
    _tell(f"Starting from {settings.train.start or 'random weights'}.", err=True)
    if settings.train.start is None and pretrained.is_finished:
        _tell(f"There is a pretrained model: --set train.start={pretrained.model}", err=True)
    with training_bar("Training") as on_progress:
        end = train_study(settings, run, device, on_progress)
    _tell_end(run, end)
    if end == "finished":
        _tell_threshold(run)


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
    from mast.training.run import run_folder
    from mast.training.selftrain import selftrain_study

    settings, run = _run_of("selftrain", study, name, out, overrides)
    trained = run_folder(settings.work, "train", "main", out)
    teacher = settings.selftrain.start or str(trained.model)
    if settings.selftrain.start is None and not trained.is_finished:
        raise ConfigError(
            f"{trained.model}: no detector to be the first teacher. Run mast train {study}, or name one with "
            "--set selftrain.start=FOLDER."
        )
    with progress_bars() as on_progress:
        taught = selftrain_study(settings, run, teacher, device, on_progress)
    for item in taught.rounds:
        _tell(item.told())
    if taught.unsure:
        _tell(taught.unsure)
    _tell_end(run, taught.end)


def evaluate(
    study: StudyFile,
    model: Detector,
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
    with progress_bars() as on_progress:
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


def _run_of(
    stage: str, study: Path, name: str, out: Path | None, overrides: list[str] | None
) -> tuple[Study, Run]:
    """A study's settings, and the run of one of its stages."""
    from mast.config import load_study
    from mast.training.run import run_folder

    settings = load_study(study, overrides or ())
    return settings, run_folder(settings.work, stage, name, out)


def _tell(text: str, *, err: bool = False) -> None:
    """Say something, once for all processes."""
    from mast.training.devices import is_first_process

    if is_first_process():
        typer.echo(text, err=err)


def _tell_end(run: Run, end: End) -> None:
    """Where the model is, or how to go on; Ctrl-C ends with its usual code, so that a script stops as well."""
    stopped = f"Stopped, and kept in {run.folder}. The same command goes on from there."
    _tell(f"Finished. Model: {run.model}" if end == "finished" else stopped)
    if end == "interrupted":
        raise typer.Exit(130)


def _tell_threshold(run: Run) -> None:
    """From which score on boxes are reported, why, and how well that does."""
    from mast.models.checkpoint import load_model

    known, _ = load_model(str(run.model))
    reached = known.results.get("validation_f1")
    f1 = f", F1 {reached:.2f}" if isinstance(reached, float) else ""
    _tell(f"Score threshold {known.thresholds['score']:.2f} ({known.results['threshold']}{f1}).")
