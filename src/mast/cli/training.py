"""Commands for training: import, pretrain, train, self-train, evaluate and compare models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mast.cli.options import DetectorFolder, Device, Overrides, RunName, RunsFolder, StudyFile
from mast.cli.progress import progress_bars, training_bar
from mast.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from mast.config import Study
    from mast.training.loop import End
    from mast.training.run_dir import TrainingRun


def import_checkpoint_command(
    file: Annotated[
        Path, typer.Argument(help="Checkpoint of AudioMAE or Bird-MAE: .pth, .ckpt or .safetensors.")
    ],
    out: Annotated[
        str, typer.Option(metavar="FOLDER", help="Output folder of the model, or s3://bucket/prefix.")
    ],
) -> None:
    """Convert a public AudioMAE or Bird-MAE checkpoint.

    No code in the file is executed, and every tensor is listed as imported or ignored.
    """
    if not file.is_file():
        raise StorageError(f"{file}: there is no such file.")
    from mast.models.checkpoint import save_model
    from mast.models.import_checkpoint import import_checkpoint

    imported = import_checkpoint(file)
    description = save_model(out, imported.description, imported.tensors)
    typer.echo(imported.report.summary())
    typer.echo(f"Licence: {description.licence}")
    typer.echo(f"{description.kind} {description.identity} → {out}")


def pretrain(
    study: StudyFile,
    run_name: RunName = "main",
    out: RunsFolder = None,
    device: Device = "auto",
    overrides: Overrides = None,
) -> None:
    """Pretrain an encoder on unlabelled recordings.

    An interrupted run resumes with the same command. Under torchrun or Slurm, training is distributed.
    """
    settings, run = _training_run("pretrain", study, run_name, out, overrides)
    from mast.training.pretrain import pretrain_study

    with training_bar("Pretraining") as on_progress:
        end = pretrain_study(settings, run, device, on_progress)
    _print_outcome(run, end)


def train_synthetic(
    study: StudyFile,
    run_name: RunName = "main",
    out: RunsFolder = None,
    device: Device = "auto",
    overrides: Overrides = None,
) -> None:
    """Train a detector on synthetic calls only.

    Synthetic calls are mixed into unlabelled recordings; annotations are not needed. An interrupted
    run resumes with the same command.
    """
    settings, run = _training_run("train-synthetic", study, run_name, out, overrides)
    from mast.training.synthetic import train_synthetic_study

    with training_bar("Training on synthetic calls") as on_progress:
        end = train_synthetic_study(settings, run, device, on_progress)
    _print_outcome(run, end)


def train(
    study: StudyFile,
    run_name: RunName = "main",
    out: RunsFolder = None,
    device: Device = "auto",
    overrides: Overrides = None,
) -> None:
    """Train a detector on annotated recordings.

    An interrupted run resumes with the same command. Under torchrun or Slurm, training is distributed.
    """
    settings, run = _training_run("train", study, run_name, out, overrides)
    from mast.training.run_dir import run_folder
    from mast.training.supervised import train_study

    pretrained = run_folder(settings.work_dir, "pretrain", "main", out)
    _echo_once(f"Initial weights: {settings.train.init_from or 'random'}.", err=True)
    if settings.train.init_from is None and pretrained.is_finished:
        _echo_once(f"A pretrained model is available: --set train.init_from={pretrained.model}", err=True)
    with training_bar("Training") as on_progress:
        end = train_study(settings, run, device, on_progress)
    _print_outcome(run, end)
    if end == "finished":
        _print_threshold(run)


def self_train(
    study: StudyFile,
    run_name: RunName = "main",
    out: RunsFolder = None,
    device: Device = "auto",
    overrides: Overrides = None,
) -> None:
    """Self-train a detector on unlabelled recordings.

    Runs in rounds. A round is rolled back if validation F1 drops or the detection rate rises too far. An interrupted
    run resumes with the same command.
    """
    settings, run = _training_run("self-train", study, run_name, out, overrides)
    from mast.training.run_dir import run_folder
    from mast.training.selftrain import selftrain_study

    trained = run_folder(settings.work_dir, "train", "main", out)
    teacher = settings.selftrain.teacher or str(trained.model)
    if settings.selftrain.teacher is None and not trained.is_finished:
        raise ConfigError(
            f"{trained.model}: no trained detector to use as first teacher. Run mast train {study}, or specify one with "
            "--set selftrain.teacher=FOLDER."
        )
    with progress_bars() as on_progress:
        result = selftrain_study(settings, run, teacher, device, on_progress)
    for item in result.rounds:
        _echo_once(item.describe())
    if result.stop_reason:
        _echo_once(result.stop_reason)
    _print_outcome(run, result.end)


def evaluate(
    study: StudyFile,
    model: DetectorFolder,
    out: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Output folder. [default: evaluations in the work folder]"),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Split to test on; repeatable. [default: test and all held-out sets]",
        ),
    ] = None,
    retrieval: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Encoder, preferably pretrained: also evaluate retrieval of labels with its embeddings.",
        ),
    ] = None,
    device: Device = "auto",
    overrides: Overrides = None,
) -> None:
    """Evaluate a detector on annotated test data.

    The test data is independent of the training data. Writes an HTML report with metrics, their explanation, and the
    worst errors with spectrograms and audio.
    """
    from mast.config import load_study

    settings = load_study(study, overrides or ())
    from mast.evaluation.evaluate import evaluate_study

    with progress_bars() as on_progress:
        evaluated = evaluate_study(
            settings,
            model,
            out,
            split or (),
            device,
            lambda split_name, done, total: on_progress(f"Testing on {split_name}", done, total),
        )
    typer.echo(evaluated.summary())
    if retrieval:
        from mast.embeddings.evaluate_retrieval import evaluate_retrieval

        typer.echo(evaluate_retrieval(settings, evaluated.folder, retrieval, device).summary())


def compare(
    results: Annotated[
        list[str], typer.Argument(metavar="FOLDER…", help="Two or more folders written by mast evaluate.")
    ],
    out: Annotated[str, typer.Option(metavar="FILE", help="HTML file to write.")] = "comparison.html",
) -> None:
    """Compare detectors on the same test sets.

    Reports the difference of each detector to the first one, with its statistical significance.
    """
    from mast.evaluation.compare import compare as compare_folders
    from mast.evaluation.compare import write_comparison

    comparison = compare_folders(results)
    write_comparison(comparison, out)
    typer.echo(comparison.summary())
    typer.echo(f"Report: {out}")


def _training_run(
    stage: str, study: Path, run_name: str, out: Path | None, overrides: list[str] | None
) -> tuple[Study, TrainingRun]:
    """Return the settings of a study and the training run of one of its stages."""
    from mast.config import load_study
    from mast.training.run_dir import run_folder

    settings = load_study(study, overrides or ())
    return settings, run_folder(settings.work_dir, stage, run_name, out)


def _echo_once(text: str, *, err: bool = False) -> None:
    """Print a text in the first process only."""
    from mast.training.fabric import is_first_process

    if is_first_process():
        typer.echo(text, err=err)


def _print_outcome(run: TrainingRun, end: End) -> None:
    """Print the path of the model or how to resume; exit with 130 after Ctrl-C, so that scripts stop as well."""
    stopped = f"Stopped. The state is saved in {run.folder}; run the same command again to resume."
    _echo_once(f"Finished. Model: {run.model}" if end == "finished" else stopped)
    if end == "interrupted":
        raise typer.Exit(130)


def _print_threshold(run: TrainingRun) -> None:
    """Print the score threshold, how it was chosen, and its F1 on validation."""
    from mast.models.checkpoint import load_model

    description, _ = load_model(str(run.model))
    validation_f1 = description.results.get("validation_f1")
    f1 = f", F1 {validation_f1:.2f}" if isinstance(validation_f1, float) else ""
    _echo_once(
        f"Score threshold {description.thresholds['score']:.2f} ({description.results['threshold']}{f1})."
    )
