"""What several verbs are given: their options, each told in one place, and the words that stand for values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from mast.errors import ConfigError

if TYPE_CHECKING:
    from mast.config import AnnotationFormat

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="A study file, such as study.yaml.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting: --set spectrogram.high_hz=4000"),
]
Site = Annotated[
    str | None,
    typer.Option(metavar="TEMPLATE", help="Where paths name the site: '{site}/*' or '{site}_*'"),
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
Detector = Annotated[
    str,
    typer.Option("--model", metavar="MODEL", help="A trained detector: a folder, s3://… or hf://owner/name."),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Workers = Annotated[
    int | None, typer.Option(metavar="N", help="Processes at work. [default: as many as cores]")
]

EventsFolder = Annotated[
    str, typer.Argument(metavar="EVENTS", help="The folder that mast detect has written.")
]
LeastScore = Annotated[float | None, typer.Option(help="Leave out sounds that score less.")]
Calibrated = Annotated[
    bool, typer.Option("--calibrated", help="Leave out sounds below the score that mast precision has found.")
]

VectorTable = Annotated[
    str | None,
    typer.Option(
        "--embeddings", metavar="TABLE", help="Where vectors are. [default: embeddings.lance in EVENTS]"
    ),
]
TableModel = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="The model of the vectors. [default: where it was]"),
]
Examples = Annotated[
    str,
    typer.Option(
        metavar="PATH",
        help="Boxes that experts have named: a study file, or annotations of these recordings in any format.",
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
Verdicts = Annotated[
    str | None,
    typer.Option(
        "--verdicts",
        metavar="FILE",
        help="Where verdicts are: a file, or postgresql+psycopg://… [default: where mast review keeps them]",
    ),
]

FORMATS_HELP = "raven, audacity, csv, birdeep, aoef, audubon-core, camtrap-dp or batdetect2"
EXPORTS_HELP = "raven, audacity, csv, aoef, audubon-core or camtrap-dp."


def format_named(option: str, name: str) -> AnnotationFormat:
    """A format by its name, or what names there are."""
    from mast.config import AnnotationFormat

    names: dict[str, AnnotationFormat] = {known: known for known in get_args(AnnotationFormat)}
    if name not in names:
        raise ConfigError(f"{option} {name}: no such format. Use {FORMATS_HELP}.")
    return names[name]


def seconds_of(option: str, text: str) -> float:
    """Seconds of 90, 1:30 or 0:01:30."""
    try:
        parts = [float(part) for part in text.split(":")]
    except ValueError:
        parts = []
    if not 1 <= len(parts) <= 3 or min(parts) < 0:
        raise ConfigError(f"{option} {text}: write seconds, such as 90, or h:mm:ss, such as 0:01:30.")
    return sum((part * 60.0**power for power, part in enumerate(reversed(parts))), 0.0)
