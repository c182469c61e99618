"""Commands for the data of a study: scan recordings, read annotations, split, sample and prepare."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mast.cli.options import Overrides, Site, StudyFile, Zone
from mast.cli.progress import progress_bars
from mast.errors import ConfigError

if TYPE_CHECKING:
    from mast.config import Collection, Study


def example_data(
    folder: Annotated[Path, typer.Argument(help="New folder to write.")] = Path("example"),
) -> None:
    """Write synthetic recordings and annotations to try MAST.

    The data holds calls at three sites with annotations, and common faults of memory cards.
    """
    from mast.example_data import write_example

    files = write_example(folder)
    typer.echo(f"{files} audio files in {folder / 'card'}, annotations in {folder / 'boxes'}")


def scan(
    sources: Annotated[
        list[str], typer.Argument(metavar="FOLDER…", help="Folders or s3://bucket/prefix; or one study file.")
    ],
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Table to write. [default: recordings.parquet]")
    ] = None,
    site: Site = None,
    time_zone: Zone = None,
    overrides: Overrides = None,
) -> None:
    """Scan folders for recordings and check them for faults.

    Writes a table of all recordings, including faulty ones, and prints hours per site, gaps, clock and time zone errors,
    duplicates, clipped or silent files, and a remedy for each fault. With a study file, also reads and checks its
    annotations.
    """
    from mast.recordings.scan import collections_from_folders

    if [source for source in sources if source.lower().endswith((".yaml", ".yml"))]:
        if len(sources) > 1 or out or site or time_zone:
            raise ConfigError(
                "With a study file, do not specify folders, --out, --site or --time-zone: set them in the file."
            )
        _scan_study(Path(sources[0]), overrides or [])
        return
    if overrides:
        raise ConfigError(
            "--set changes the settings of a study file; specify one, such as mast scan study.yaml."
        )
    _scan(collections_from_folders(sources, site, time_zone), out or "recordings.parquet")


def init(
    recordings: Annotated[str, typer.Argument(help="Folder of recordings, or s3://bucket/prefix.")],
    annotations: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="Annotations: a file or a folder, in any format."),
    ] = None,
    site: Site = None,
    time_zone: Zone = None,
    noise: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="Label of noise; repeatable.")
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="Label that is neither animal nor noise; repeatable."),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Initial settings: starter, laptop, paper, or trial to run every command in minutes.",
        ),
    ] = "laptop",
    out: Annotated[Path, typer.Option(metavar="FILE", help="Study file to write.")] = Path("study.yaml"),
) -> None:
    """Create a study file for a folder of recordings.

    Reads the recordings and annotations first. On a terminal, prompts for missing information.
    """
    from mast.config import load_study
    from mast.recordings.metadata import NamingScheme
    from mast.storage import atomic_write
    from mast.study.commands import mast_command
    from mast.study.scaffold import Answers, look_at_tables, preview_recordings, write_draft

    if out.exists():
        raise ConfigError(f"{out} already exists. Specify another file with --out.")
    load_study(None, [f"preset={preset}"])  # raises ConfigError for an unknown preset before any prompt
    preview = preview_recordings(recordings, NamingScheme(site, time_zone))
    if not preview.recordings:
        raise ConfigError(f"{recordings}: no recordings in this folder or its subfolders. Check the path.")
    typer.echo(preview.summary())
    if preview.without_zone and time_zone is None:
        time_zone = _prompt(
            "The recorders do not store a time zone. Which time zone (such as Europe/Madrid)?"
        )
    if preview.without_site and site is None:
        site = _prompt("Which part of the path is the site (such as {site}/*)?")
    annotations = annotations or _prompt("Where are the annotations (a file or folder)?")
    tables = look_at_tables(annotations) if annotations else None
    if tables:
        typer.echo(tables.summary())
    answers = Answers(recordings, site, time_zone, tables, tuple(noise or ()), tuple(ignore or ()), preset)
    with atomic_write(str(out)) as file:
        file.write(write_draft(answers, out).encode())
    typer.echo(f"Written: {out}. Check and edit it, then run: {mast_command('scan', out)}")


def status(study: StudyFile, overrides: Overrides = None) -> None:
    """Show the state of a study and the next command."""
    from rich.console import Console

    from mast.config import load_study
    from mast.review.next_step import next_command
    from mast.study.artifacts import artifact_status, next_step, not_scanned, render
    from mast.study.commands import mast_command

    settings = load_study(study, overrides or ())
    artifacts = artifact_status(settings)
    Console().print(render(artifacts))
    if note := not_scanned(settings, str(study)):
        typer.echo(note)
    step = next_step(artifacts)
    command = mast_command(step, study) if step else next_command(settings, str(study))
    typer.echo(f"Next: {command}" if command else "Everything is up to date.")


def split(study: StudyFile, overrides: Overrides = None) -> None:
    """Split recordings for training and testing.

    Contiguous periods, days and sites stay in one split, so that training and test data are independent.
    """
    from rich.console import Console

    from mast.config import load_study

    settings = load_study(study, overrides or ())
    from mast.datasets.split_summary import render, split_study
    from mast.study.artifacts import inputs_of, record_inputs

    inputs = inputs_of(settings, "splits.parquet")
    Console().print(render(split_study(settings)))
    record_inputs(settings, "splits.parquet", inputs)


def sample(
    study: StudyFile,
    hours: Annotated[float, typer.Option(min=0.001, help="Hours of audio to annotate.")] = 1.0,
    strategy: Annotated[
        str, typer.Option(help="Sampling: time-balanced, random or sequential.")
    ] = "time-balanced",
    out: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Output folder of audio clips. [default: in the work folder]"),
    ] = None,
    import_: Annotated[
        Path | None,
        typer.Option(
            "--import", metavar="FOLDER", help="Import the annotations drawn in this folder of clips."
        ),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Sample recordings to annotate in Raven or Audacity."""
    from mast.config import load_study

    settings = load_study(study, overrides or ())
    from mast.datasets.annotation_sampling import import_annotations, parse_strategy, sample_study

    if import_:
        typer.echo(import_annotations(import_))
        return
    typer.echo(sample_study(settings, hours, parse_strategy(strategy), folder=out).summary())


def prepare(study: StudyFile, overrides: Overrides = None) -> None:
    """Resample audio for training and compute normalisation.

    An interrupted run resumes with the same command.
    """
    from mast.config import load_study

    settings = load_study(study, overrides or ())
    from mast.datasets.prepare import prepare_study

    with progress_bars() as on_progress:
        report = prepare_study(settings, on_progress)
    typer.echo(report)


def show_config(
    study: Annotated[
        Path | None, typer.Argument(help="Study file; without it, the defaults are printed.")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Print all settings of a study, with defaults.

    Unknown names and invalid values are errors; the message suggests a correction.
    """
    from mast.config import dump_study, load_study

    typer.echo(dump_study(load_study(study, overrides or ())), nl=False)


def _scan(collections: Mapping[str, Collection], out: str) -> None:
    """Scan with a progress bar, then print the summary."""
    from rich.console import Console

    from mast.recordings.scan import scan
    from mast.recordings.scan_summary import render, summarise

    with progress_bars() as on_progress:
        result = scan(collections, out, on_progress)
    Console().print(render(summarise(result.location)))
    typer.echo(f"\nTable of all recordings: {result.location}")


def _scan_study(path: Path, overrides: list[str]) -> None:
    """Scan a study's collections and write its annotations to its work folder."""
    from mast.config import load_study
    from mast.storage import join
    from mast.study.artifacts import has_annotations, record_inputs

    study = load_study(path, overrides)
    if not study.collections:
        raise ConfigError(f"{path}: no collections. Add at least one folder of recordings under collections.")
    _scan(study.collections, join(study.work_dir, "recordings.parquet"))
    record_inputs(study, "recordings.parquet")
    if has_annotations(study):
        read_study_annotations_table(study)


def read_study_annotations_table(study: Study) -> None:
    """Read a study's annotations and applied reviews, and write them to its work folder."""
    from mast.annotations.study_annotations import read_study_annotations
    from mast.datasets.split_table import require_artifact
    from mast.records import Annotation, ReviewedSpan, read_column, write_table
    from mast.storage import join
    from mast.study.artifacts import inputs_of, record_inputs

    inputs = inputs_of(study, "annotations.parquet")
    study_annotations = read_study_annotations(
        study, read_column(require_artifact(study, "recordings.parquet"), "recording_id")
    )
    write_table(study_annotations.annotations, Annotation, join(study.work_dir, "annotations.parquet"))
    write_table(study_annotations.reviewed, ReviewedSpan, join(study.work_dir, "reviewed.parquet"))
    record_inputs(study, "annotations.parquet", inputs)
    typer.echo(study_annotations.summary())


def _prompt(question: str) -> str | None:
    """Prompt for an answer on a terminal; return None if there is no terminal or the answer is empty."""
    if not sys.stdin.isatty():
        return None
    answer: str = typer.prompt(question + " Leave empty if unknown", default="", show_default=False)
    return answer.strip() or None
