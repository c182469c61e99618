"""MAST's plain CSV, and tables of other programs that differ only in their column names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from mast.annotations.delimited import file_name, read_table
from mast.annotations.model import Annotations, SourceFile
from mast.annotations.paths import recording_name_from_table
from mast.annotations.table_io import (
    Columns,
    annotations_to_rows,
    rows_from,
    rows_to_annotations,
    write_row_parts,
    write_rows,
)

SUFFIXES = (".csv", ".tsv")

ALIASES = {
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


def sniff(head: str) -> bool:
    """Return True if a file begins with column names of this format."""
    names = {
        name.strip(' "').casefold()
        for name in _first_line(head).replace(";", ",").replace("\t", ",").split(",")
    }
    return all(names.intersection(ALIASES[field]) for field in ("start_s", "end_s"))


def read(path: str | Path, name: str | None = None) -> Annotations:
    """Read a CSV table; without a recording column, all rows belong to the recording the table is named after."""
    location = str(path)
    rows = rows_from(read_table(location), ALIASES, required=("start_s", "end_s"))
    return rows_to_annotations(
        rows, SourceFile(location, "csv"), recording_name_from_table(name or file_name(location))
    )


def write(annotations: Annotations, path: str | Path) -> Counter[str]:
    """Write all annotations into one CSV table."""
    return write_rows(annotations_to_rows(annotations), str(path), ALIASES)


def write_parts(parts: Iterable[Annotations], path: str | Path, columns: Columns) -> Counter[str]:
    """Write one CSV table from parts of annotations, in order."""
    return write_row_parts(map(annotations_to_rows, parts), str(path), ALIASES, columns)


def _first_line(head: str) -> str:
    return head.lstrip().splitlines()[0] if head.strip() else ""
