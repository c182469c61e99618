"""The verbs of a study: what recordings there are, what experts drew in them, and how sound is shared out."""

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


def example(
    folder: Annotated[Path, typer.Argument(help="A new folder.")] = Path("example"),
) -> None:
    """Write a small made-up card to try things on.

    It holds calls at three sites with an expert's boxes, and the faults that come home on real cards.
    """
    from mast.example import write_example

    files = write_example(folder)
    typer.echo(f"{files} sound files in {folder / 'card'}, an expert's boxes in {folder / 'boxes'}")


def scan(
    sources: Annotated[
        list[str], typer.Argument(metavar="FOLDER…", help="Folders or s3://bucket/prefix; or one study file.")
    ],
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where the table goes. [default: recordings.parquet]")
    ] = None,
    site: Site = None,
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


def init(
    recordings: Annotated[str, typer.Argument(help="Folder of recordings, or s3://bucket/prefix.")],
    boxes: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="An expert's tables: a file or a folder, in any format."),
    ] = None,
    site: Site = None,
    time_zone: Zone = None,
    noise: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="A label of other sounds; may be given again.")
    ] = None,
    ignored: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="A label that counts as neither; may be given again."),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Settings to begin from: laptop, paper, or trial to see every command work in minutes.",
        ),
    ] = "laptop",
    out: Annotated[Path, typer.Option(metavar="FILE", help="The study file to write.")] = Path("study.yaml"),
) -> None:
    """Write a first study file.

    Looks at the recordings and tables first, and asks for what they do not tell if a person is there to answer.
    """
    from mast.config import load_study
    from mast.recordings.metadata import Naming
    from mast.storage import written_whole
    from mast.study.commands import mast_command
    from mast.study.draft import Answers, look_at_recordings, look_at_tables, write_draft

    if out.exists():
        raise ConfigError(f"{out} is already there. Name another file with --out.")
    load_study(None, [f"preset={preset}"])  # refuses one that there is not, before anything is asked
    seen = look_at_recordings(recordings, Naming(site, time_zone))
    if not seen.recordings:
        raise ConfigError(f"{recordings}: no recordings in this folder, nor below it. Is it the right one?")
    typer.echo(seen.summary())
    if seen.without_zone and time_zone is None:
        time_zone = _asked("These clocks do not say their time zone. Which is it (such as Europe/Madrid)?")
    if seen.without_site and site is None:
        site = _asked("Where do paths name the site (such as {site}/*)?")
    boxes = boxes or _asked("Where are an expert's tables (a file or folder)?")
    tables = look_at_tables(boxes) if boxes else None
    if tables:
        typer.echo(tables.summary())
    answers = Answers(recordings, site, time_zone, tables, tuple(noise or ()), tuple(ignored or ()), preset)
    with written_whole(str(out)) as file:
        file.write(write_draft(answers, out).encode())
    typer.echo(f"Written: {out}. Read it, change what is not right, then: {mast_command('scan', out)}")


def status(study: StudyFile, overrides: Overrides = None) -> None:
    """Tell what a study has, what is out of date, and what to run next."""
    from rich.console import Console

    from mast.config import load_study
    from mast.review.next import next_in_round
    from mast.study.commands import mast_command
    from mast.study.products import look, next_step, not_scanned, render

    settings = load_study(study, overrides or ())
    found = look(settings)
    Console().print(render(found))
    if note := not_scanned(settings, str(study)):
        typer.echo(note)
    verb = next_step(found)
    command = mast_command(verb, study) if verb else next_in_round(settings, str(study))
    typer.echo(f"Next: {command}" if command else "Everything is made and up to date.")


def splits(study: StudyFile, overrides: Overrides = None) -> None:
    """Share sound out for training and testing.

    Contiguous stretches of time, days and sites are kept apart, so that no test hears what training heard.
    """
    from rich.console import Console

    from mast.config import load_study
    from mast.datasets.split_summary import render, split_study
    from mast.study.products import inputs_of, remember

    settings = load_study(study, overrides or ())
    inputs = inputs_of(settings, "splits.parquet")
    Console().print(render(split_study(settings)))
    remember(settings, "splits.parquet", inputs)


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


def prepare(study: StudyFile, overrides: Overrides = None) -> None:
    """Bring all sound into one store for training, and measure it.

    May be stopped at any moment and goes on with the same command.
    """
    from mast.config import load_study
    from mast.datasets.preparing import prepare_study

    settings = load_study(study, overrides or ())
    with progress_bars() as on_progress:
        report = prepare_study(settings, on_progress)
    typer.echo(report)


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

    with progress_bars() as on_progress:
        result = scan(collections, out, on_progress)
    Console().print(render(summarise(result.location)))
    typer.echo(f"\nThe whole table: {result.location}")


def _scan_study(path: Path, overrides: list[str]) -> None:
    """Scan a study's collections and read its expert boxes into its work folder."""
    from mast.config import load_study
    from mast.storage import join
    from mast.study.products import has_experts, remember

    study = load_study(path, overrides)
    if not study.collections:
        raise ConfigError(
            f"{path}: no collections. Name at least one folder of recordings under collections."
        )
    _scan(study.collections, join(study.work, "recordings.parquet"))
    remember(study, "recordings.parquet")
    if has_experts(study):
        read_experts(study)


def read_experts(study: Study) -> None:
    """Read a study's expert boxes, and what its reviews have come to, into its work folder."""
    from mast.annotations.study import read_expertise
    from mast.datasets.split_table import existing
    from mast.events import Annotation, Reviewed, read_column, write_table
    from mast.storage import join
    from mast.study.products import inputs_of, remember

    inputs = inputs_of(study, "annotations.parquet")
    expertise = read_expertise(study, read_column(existing(study, "recordings.parquet"), "recording_id"))
    write_table(expertise.annotations, Annotation, join(study.work, "annotations.parquet"))
    write_table(expertise.reviewed, Reviewed, join(study.work, "reviewed.parquet"))
    remember(study, "annotations.parquet", inputs)
    typer.echo(expertise.summary())


def _asked(question: str) -> str | None:
    """An answer, where a person is there to give one; an empty one is none."""
    if not sys.stdin.isatty():
        return None
    answer: str = typer.prompt(question + " Leave empty if you do not know", default="", show_default=False)
    return answer.strip() or None
