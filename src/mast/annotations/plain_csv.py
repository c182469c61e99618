"""MAST's plain CSV, and the tables of other programs that differ from it only in the names of their columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from mast.annotations.files import recording_named_by
from mast.annotations.rows import Columns, collect, rows_from, rows_of, write_row_parts, write_rows
from mast.annotations.tables import Annotations, Source
from mast.annotations.text import file_name, read_table

SUFFIXES = (".csv", ".tsv")

SPELLINGS = {
    "recording": (
        "recording",
        "recording_id",
        "filename",
        "file",
        "filepath",
        "path",
        "audio",
        "begin path",
        "begin file",
    ),
    "start_s": (
        "start_s",
        "start (s)",
        "start time (s)",
        "start_time_seconds",
        "begin time (s)",
        "start_time",
        "start",
        "onset",
    ),
    "end_s": ("end_s", "end (s)", "end time (s)", "end_time_seconds", "end_time", "end", "offset"),
    "low_hz": ("low_hz", "low freq (hz)", "low_freq", "low_frequency", "freq_low", "min_freq"),
    "high_hz": ("high_hz", "high freq (hz)", "high_freq", "high_frequency", "freq_high", "max_freq"),
    "label": (
        "label",
        "annotation",
        "species",
        "scientific name",
        "scientific_name",
        "species ebird code",
        "ebird_code",
        "common name",
        "class",
    ),
    "score": ("score", "confidence", "probability"),
    "origin": ("origin",),
    "annotator": ("annotator",),
    "reviewed": ("reviewed_s",),
}


def fits(head: str) -> bool:
    """Whether a file begins with column names of this table."""
    names = {
        name.strip(' "').casefold()
        for name in _first_line(head).replace(";", ",").replace("\t", ",").split(",")
    }
    return all(names.intersection(SPELLINGS[field]) for field in ("start_s", "end_s"))


def read(path: str | Path, name: str | None = None) -> Annotations:
    """Read a CSV table; without a column for recordings it is about the one it is named after."""
    location = str(path)
    rows = rows_from(read_table(location), SPELLINGS, needed=("start_s", "end_s"))
    return collect(rows, Source(location, "csv"), recording_named_by(name or file_name(location)))


def write(annotations: Annotations, path: str | Path) -> Counter[str]:
    """Write everything into one CSV table."""
    return write_rows(rows_of(annotations), str(path), SPELLINGS)


def write_parts(parts: Iterable[Annotations], path: str | Path, columns: Columns) -> Counter[str]:
    """Write one CSV table of annotations that come part by part."""
    return write_row_parts(map(rows_of, parts), str(path), SPELLINGS, columns)


def _first_line(head: str) -> str:
    return head.lstrip().splitlines()[0] if head.strip() else ""
