"""BIRDeep CSV, the raw table and the published one.

Labels are kept unchanged: `unknown` (an animal) and `abiotic noise` in the raw table, `No audio` in the published
one, for boxes around noise. The study's label map assigns their meaning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from mast.annotations.delimited import file_name, format_number, number, read_table
from mast.annotations.model import Annotations, RecordingMetadata, SourceFile, local_start
from mast.annotations.paths import recording_name_from_table
from mast.annotations.table_io import Row, annotations_to_rows, rows_from, rows_to_annotations, write_rows

SUFFIXES = (".csv",)

ALIASES = {
    "recording": ("path",),
    "annotator": ("annotator",),
    "site": ("recorder",),
    "date": ("date",),
    "time": ("time",),
    "duration": ("audio_duration",),
    "start_s": ("start_time",),
    "end_s": ("end_time",),
    "low_hz": ("low_frequency",),
    "high_hz": ("high_frequency",),
    "label": ("specie", "species"),
    "bbox": ("bbox",),
    "score": ("score",),
    "origin": ("event_origin",),
    "reviewed": ("reviewed_s",),
}
OPTIONAL = frozenset({"score", "origin", "reviewed"})
CLOCK_UNREAD = "date or time of a recording: not a valid date and time"
DURATION_UNREAD = "duration of a recording: not a valid duration"
START_CUT = "fraction of a second in the start of a recording: dropped"


def sniff(head: str) -> bool:
    """Return True if a file begins with BIRDeep's column names."""
    first = head.lstrip().partition("\n")[0]
    return "low_frequency" in first and "specie" in first


def read(path: str | Path, name: str | None = None) -> Annotations:
    """Read a BIRDeep table; `bbox` is ignored because it repeats the times and frequencies on another axis."""
    location = str(path)
    rows = [
        _normalise_row(row) for row in rows_from(read_table(location), ALIASES, required=("start_s", "end_s"))
    ]
    problems: Counter[str] = Counter()
    metadata = list(_metadata(rows, problems))
    default_name = recording_name_from_table(name or file_name(location))
    return rows_to_annotations(rows, SourceFile(location, "birdeep"), default_name, problems, metadata)


def _normalise_row(row: Row) -> Row:
    """Remove the space that some file names have before the extension: `AM02_20230511_060000 .WAV`."""
    return replace(
        row, fields={**row.fields, "recording": re.sub(r"\s+(\.\w+)$", r"\1", row.get("recording"))}
    )


def _metadata(rows: list[Row], problems: Counter[str]) -> Iterator[RecordingMetadata]:
    seen = set()
    for row in rows:
        if row.get("recording") and row.get("recording") not in seen:
            seen.add(row.get("recording"))
            yield RecordingMetadata(
                recording_id=row.get("recording"),
                duration_s=_duration(row, problems),
                start_local=_start(row, problems),
                site=row.get("site") or None,
            )


def _start(row: Row, problems: Counter[str]) -> datetime | None:
    digits = re.sub(r"\D", "", row.get("date")) + re.sub(r"\D", "", row.get("time")).ljust(6, "0")
    if not row.get("date") or not row.get("time"):
        return None
    try:
        return datetime.strptime(digits, "%Y%m%d%H%M%S")
    except ValueError:
        problems[CLOCK_UNREAD] += 1
        return None


def _duration(row: Row, problems: Counter[str]) -> float | None:
    """Return the duration in seconds, parsed from `00:01:00` or from a number."""
    text = row.get("duration")
    clock = re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d+)?)", text)
    if clock:
        hours, minutes, seconds = map(Decimal, clock.groups())
        return float(hours * 3600 + minutes * 60 + seconds)
    if ":" in text:
        problems[DURATION_UNREAD] += 1
        return None
    return number(text, row.where, "audio_duration")


def write(annotations: Annotations, path: str | Path) -> Counter[str]:
    """Write a BIRDeep table; the column `bbox` is empty because its axis is not documented."""
    metadata = annotations.metadata_by_recording()
    losses: Counter[str] = Counter()
    described = {name: _describe_recording(item, losses) for name, item in metadata.items()}
    rows = [
        replace(row, fields={**row.fields, **described[row.get("recording")]})
        for row in annotations_to_rows(annotations)
    ]
    return losses + write_rows(rows, str(path), ALIASES, optional=OPTIONAL)


def _describe_recording(metadata: RecordingMetadata, losses: Counter[str]) -> dict[str, str]:
    start = local_start(metadata)
    losses[START_CUT] += bool(start and start.microsecond)
    return {
        "site": metadata.site or "",
        "date": f"{start:%Y/%m/%d}" if start else "",
        "time": f"{start:%H:%M:%S}" if start else "",
        "duration": "" if metadata.duration_s is None else _clock(Decimal(repr(metadata.duration_s))),
    }


def _clock(duration_s: Decimal) -> str:
    hours, remainder_s = divmod(duration_s, 3600)
    minutes, seconds = divmod(remainder_s, 60)
    integer, point, decimals = format_number(seconds).partition(".")
    return f"{int(hours):02}:{int(minutes):02}:{integer.zfill(2)}{point}{decimals}"
