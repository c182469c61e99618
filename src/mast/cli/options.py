"""Arguments and options that several commands share, and parsers of their values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from mast.errors import ConfigError

if TYPE_CHECKING:
    from mast.config import AnnotationFormat


def _existing_run(events: str) -> str:
    """Return the folder of a run; raise StorageError before torch is imported if it contains none."""
    from mast.runs.layout import require_run

    require_run(events)
    return events


def existing_model(location: str | None) -> str | None:
    """Return the location of a model; raise StorageError before torch is imported if it is a folder without one."""
    from mast.models.location import require_model

    if location is not None:
        require_model(location)
    return location


def _existing_source(source: str) -> str:
    """Return a run or a study file; raise an error before torch is imported if it is neither."""
    from mast.config import load_study
    from mast.runs.layout import require_run

    if source.endswith((".yaml", ".yml")):
        load_study(Path(source))
    else:
        require_run(source)
    return source


StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="Study file, such as study.yaml.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting: --set spectrogram.high_hz=4000"),
]
Site = Annotated[
    str | None,
    typer.Option(metavar="TEMPLATE", help="Position of the site in paths: '{site}/*' or '{site}_*'"),
]
Zone = Annotated[
    str | None,
    typer.Option(
        "--time-zone", metavar="ZONE", help="Time zone of recorders that do not store one: Europe/Madrid"
    ),
]

RunName = Annotated[str, typer.Option(metavar="NAME", help="Name of the run; a new name starts a new run.")]
RunsFolder = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Folder of runs. [default: runs in the work folder]"),
]
ModelFolder = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Model: a name of mast models, a folder, s3://… or hf://owner/name.",
        callback=existing_model,
    ),
]
DetectorFolder = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Detector: a name of mast models, a folder, s3://… or hf://owner/name.",
        callback=existing_model,
    ),
]
Device = Annotated[str, typer.Option(help="Device: auto, cpu or cuda.")]
Workers = Annotated[
    int | None, typer.Option(metavar="N", help="Number of worker processes. [default: number of CPU cores]")
]

EventsFolder = Annotated[
    str,
    typer.Argument(metavar="EVENTS", help="Folder written by mast detect.", callback=_existing_run),
]
MinScore = Annotated[float | None, typer.Option(help="Exclude detections with a lower score.")]
PrecisionThreshold = Annotated[
    bool,
    typer.Option(
        "--precision-threshold",
        help="Exclude detections below the score threshold computed by mast estimate-precision.",
    ),
]

VectorTable = Annotated[
    str | None,
    typer.Option(
        "--embeddings", metavar="TABLE", help="Embedding table. [default: embeddings.lance in EVENTS]"
    ),
]
TableModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Model of the embeddings. [default: its original path]",
        callback=existing_model,
    ),
]
Examples = Annotated[
    str,
    typer.Option(
        metavar="PATH",
        help="Labelled examples: a study file, or annotations of these recordings in any format.",
    ),
]

ReviewedFolder = Annotated[
    str, typer.Argument(metavar="EVENTS", help="Folder written by mast detect, or a study's work folder.")
]
Reviewed = Annotated[
    str,
    typer.Argument(
        metavar="EVENTS|STUDY",
        help="Folder written by mast detect, or a study file.",
        callback=_existing_source,
    ),
]
Database = Annotated[
    str | None,
    typer.Option(
        metavar="DATABASE",
        help="Database: a file, or postgresql+psycopg://user@host/name. "
        "[default: review.sqlite in EVENTS or the work folder]",
    ),
]
ReviewDatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--review-database",
        metavar="FILE",
        help="Database with the verdicts: a file, or postgresql+psycopg://… [default: as for mast review]",
    ),
]

FORMATS_HELP = "raven, audacity, csv, birdeep, aoef, audubon-core, camtrap-dp or batdetect2"
EXPORTS_HELP = "raven, audacity, csv, aoef, audubon-core or camtrap-dp."


def parse_format(option: str, name: str) -> AnnotationFormat:
    """Parse the name of an annotation format; raise ConfigError with the valid names."""
    from mast.config import AnnotationFormat

    formats: dict[str, AnnotationFormat] = {value: value for value in get_args(AnnotationFormat)}
    if name not in formats:
        raise ConfigError(f"{option} {name}: no such format. Use {FORMATS_HELP}.")
    return formats[name]


def parse_seconds(option: str, text: str) -> float:
    """Parse a time such as 90, 1:30 or 0:01:30 to seconds."""
    try:
        parts = [float(part) for part in text.split(":")]
    except ValueError:
        parts = []
    if not 1 <= len(parts) <= 3 or min(parts) < 0:
        raise ConfigError(f"{option} {text}: write seconds, such as 90, or h:mm:ss, such as 0:01:30.")
    return sum((part * 60.0**power for power, part in enumerate(reversed(parts))), 0.0)
