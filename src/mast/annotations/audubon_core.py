"""Audubon Core regions of interest (`ac:RegionOfInterest`) as CSV: one row per box, with media times and clock times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mast.annotations.delimited import file_name, number, read_table
from mast.annotations.model import Annotations, RecordingMetadata, SourceFile
from mast.annotations.paths import recording_name_from_table
from mast.annotations.table_io import (
    Columns,
    Row,
    annotations_to_rows,
    rows_from,
    rows_to_annotations,
    write_row_parts,
    write_rows,
)
from mast.errors import AnnotationError

SUFFIXES = (".csv",)

ALIASES = {
    "recording": ("ac:isROIOf", "isROIOf"),
    "start_s": ("ac:startTime", "startTime"),
    "end_s": ("ac:endTime", "endTime"),
    "start_clock": ("ac:startTimestamp", "startTimestamp"),
    "end_clock": ("ac:endTimestamp", "endTimestamp"),
    "low_hz": ("ac:freqLow", "freqLow"),
    "high_hz": ("ac:freqHigh", "freqHigh"),
    "speed": ("ac:mediaSpeed", "mediaSpeed"),
    "label": ("dwc:verbatimIdentification", "dwc:scientificName", "scientificName"),
    "annotator": ("dwc:identifiedBy", "identifiedBy"),
    "score": ("score",),
    "origin": ("event_origin",),
    "reviewed": ("reviewed_s",),
}
SLOWED = "media with another playback speed: times and frequencies are kept unchanged"


def sniff(head: str) -> bool:
    """Return True if a file begins with Audubon Core's column names."""
    return "isROIOf" in head.lstrip().partition("\n")[0]


def read(path: str | Path, name: str | None = None) -> Annotations:
    """Read regions of interest; the start of each recording is computed from the clock times."""
    location = str(path)
    rows = rows_from(read_table(location), ALIASES, required=("recording", "start_s", "end_s"))
    slowed = sum(number(row.get("speed"), row.where, "ac:mediaSpeed") not in (None, 1.0) for row in rows)
    problems = {SLOWED: slowed} if slowed else {}
    default_name = recording_name_from_table(name or file_name(location))
    return rows_to_annotations(
        rows, SourceFile(location, "audubon-core"), default_name, problems, _start_times(rows, default_name)
    )


def _start_times(rows: list[Row], default_name: str) -> Iterator[RecordingMetadata]:
    for row in rows:
        start_s = number(row.get("start_s"), row.where, "ac:startTime")
        if start_s is not None and row.get("start_clock"):
            try:
                clock = datetime.fromisoformat(row.get("start_clock")) - timedelta(seconds=start_s)
            except (ValueError, OverflowError):
                raise AnnotationError(
                    f"{row.where}: {row.get('start_clock')!r} is not an ISO 8601 time such as 2023-05-10T07:30:00Z."
                ) from None
            if clock.tzinfo is not None:
                yield RecordingMetadata(row.get("recording") or default_name, start_utc=clock.astimezone(UTC))


def write(annotations: Annotations, path: str | Path) -> Counter[str]:
    """Write regions of interest; clock times are empty if the start of the recording is unknown."""
    return write_rows(_rows(annotations), str(path), ALIASES)


def write_parts(parts: Iterable[Annotations], path: str | Path, columns: Columns) -> Counter[str]:
    """Write one table from parts of annotations, in order."""
    return write_row_parts(map(_rows, parts), str(path), ALIASES, columns)


def _rows(annotations: Annotations) -> list[Row]:
    metadata = annotations.metadata_by_recording()
    return [
        _with_clock(row, metadata[row.get("recording")].start_utc) for row in annotations_to_rows(annotations)
    ]


def _with_clock(row: Row, start_utc: datetime | None) -> Row:
    def clock(field: str) -> str:
        if start_utc is None or not row.get(field):
            return ""
        try:
            moment = start_utc + timedelta(seconds=float(row.get(field)))
        except OverflowError:  # beyond year 9999; the seconds are still written
            return ""
        return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")

    times = {"start_clock": clock("start_s"), "end_clock": clock("end_s")}
    return replace(row, fields={**row.fields, **times, "speed": "1" if row.get("start_s") else ""})
