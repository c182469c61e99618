"""Audubon Core regions of interest (`ac:RegionOfInterest`) as CSV: one row a box, times in the media and by the clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mast.annotations.files import recording_named_by
from mast.annotations.rows import Columns, Row, collect, rows_from, rows_of, write_row_parts, write_rows
from mast.annotations.tables import Annotations, RecordingFacts, Source
from mast.annotations.text import file_name, number, read_table
from mast.errors import AnnotationError

SUFFIXES = (".csv",)

SPELLINGS = {
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
SLOWED = "media played at another speed: its times and frequencies are taken as they stand"


def fits(head: str) -> bool:
    """Whether a file begins with Audubon Core's column names."""
    return "isROIOf" in head.lstrip().partition("\n")[0]


def read(path: str | Path, name: str | None = None) -> Annotations:
    """Read regions of interest; the clock times tell when each recording started."""
    location = str(path)
    rows = rows_from(read_table(location), SPELLINGS, needed=("recording", "start_s", "end_s"))
    slowed = sum(number(row.get("speed"), row.where, "ac:mediaSpeed") not in (None, 1.0) for row in rows)
    problems = {SLOWED: slowed} if slowed else {}
    own_name = recording_named_by(name or file_name(location))
    return collect(rows, Source(location, "audubon-core"), own_name, problems, _starts(rows, own_name))


def _starts(rows: list[Row], own_name: str) -> Iterator[RecordingFacts]:
    for row in rows:
        start_s = number(row.get("start_s"), row.where, "ac:startTime")
        if start_s is not None and row.get("start_clock"):
            try:
                clock = datetime.fromisoformat(row.get("start_clock")) - timedelta(seconds=start_s)
            except (ValueError, OverflowError):
                raise AnnotationError(
                    f"{row.where}: {row.get('start_clock')!r} is no ISO 8601 time such as 2023-05-10T07:30:00Z."
                ) from None
            if clock.tzinfo is not None:
                yield RecordingFacts(row.get("recording") or own_name, start_utc=clock.astimezone(UTC))


def write(annotations: Annotations, path: str | Path) -> Counter[str]:
    """Write regions of interest; clock times stay empty where a recording's start is unknown."""
    return write_rows(_rows(annotations), str(path), SPELLINGS)


def write_parts(parts: Iterable[Annotations], path: str | Path, columns: Columns) -> Counter[str]:
    """Write one table of regions that come part by part."""
    return write_row_parts(map(_rows, parts), str(path), SPELLINGS, columns)


def _rows(annotations: Annotations) -> list[Row]:
    facts = annotations.facts()
    return [_with_clock(row, facts[row.get("recording")].start_utc) for row in rows_of(annotations)]


def _with_clock(row: Row, start_utc: datetime | None) -> Row:
    def clock(field: str) -> str:
        if start_utc is None or not row.get(field):
            return ""
        try:
            moment = start_utc + timedelta(seconds=float(row.get(field)))
        except OverflowError:  # past the calendar; the seconds still tell
            return ""
        return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")

    times = {"start_clock": clock("start_s"), "end_clock": clock("end_s")}
    return replace(row, fields={**row.fields, **times, "speed": "1" if row.get("start_s") else ""})
