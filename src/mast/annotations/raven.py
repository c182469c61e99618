"""Raven selection tables: one for each recording, or one over a sequence of files.

Over a sequence, Begin and End Time are seconds from the start of the first file, and every file advances them, also
one without selections; File Offset is seconds from the start of the file in Begin File and Begin Path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from mast.annotations.delimited import decimal, file_name, format_number, read_table
from mast.annotations.model import Annotations, RecordingMetadata, SourceFile, by_recording, is_whole
from mast.annotations.paths import is_one_file, recording_name_from_table, table_paths
from mast.annotations.table_io import OPTIONAL as OPTIONAL_FIELDS
from mast.annotations.table_io import (
    Columns,
    Row,
    annotations_to_rows,
    open_row_writer,
    rows_from,
    rows_to_annotations,
    write_rows,
)
from mast.errors import AnnotationError
from mast.records import Event, ReviewedSpan
from mast.storage import join

SUFFIXES = (".txt", ".tsv")
ENDING = ".Table.1.selections.txt"

ALIASES = {
    "selection": ("Selection",),
    "view": ("View",),
    "channel": ("Channel",),
    "start_s": ("Begin Time (s)",),
    "end_s": ("End Time (s)",),
    "low_hz": ("Low Freq (Hz)",),
    "high_hz": ("High Freq (Hz)",),
    "file": ("Begin File",),
    "recording": ("Begin Path", "Begin File"),
    "offset_s": ("File Offset (s)",),
    "label": (
        "Annotation",
        "Species",
        "Label",
        "Common Name",
        "Scientific Name",
        "Species Code",
        "Class",
        "Type",
    ),
    "score": ("Score", "Confidence"),
    "origin": ("Event Origin",),
    "annotator": ("Annotator",),
    "reviewed": ("Reviewed (s)",),
}
OPTIONAL = OPTIONAL_FIELDS | {"low_hz", "high_hz"}
REPEATED = "selection repeated for another view: read once"
CLIPPED = "frequency above half the sample rate: clipped to it"
EMPTY_LOST = "reviewed recording without selections: a table over a sequence cannot list it"
SPANS_LOST = "reviewed part of a recording without selections: its empty table means a complete review"
NAME_CHANGED = "name of a recording without selections: changed to a valid file name"


def sniff(head: str) -> bool:
    """Return True if a file begins with Raven's column names."""
    first = head.lstrip().partition("\n")[0]
    return "Begin Time (s)" in first and "\t" in first


def read(path: str | Path, name: str | None = None) -> Annotations:
    """Read a selection table; a table without rows means that its recording was reviewed and has no events."""
    location = str(path)
    table = read_table(location, "\t")
    rows = rows_from(table, ALIASES, required=("start_s", "end_s"))
    default_name = recording_name_from_table(name or file_name(location))
    unique = _drop_repeated_selections(rows)
    problems = {REPEATED: len(rows) - len(unique)} if len(rows) > len(unique) else {}
    file_rows = [_to_file_time(row) for row in _check_rows(unique, location)]
    score_columns = {name.casefold() for name in ALIASES["score"]}
    if not rows and not score_columns.intersection(map(str.casefold, table.header)):
        file_rows = [Row(location, {"recording": default_name})]
    return rows_to_annotations(file_rows, SourceFile(location, "raven"), default_name, problems)


def _drop_repeated_selections(rows: Iterable[Row]) -> list[Row]:
    """Return one row per selection, preferably of the spectrogram view: waveform views may lack frequencies."""
    key = ("file", "recording", "selection", "channel", "start_s", "end_s")
    kept: list[Row] = []
    views: dict[tuple[str, ...], dict[str, int]] = {}
    for row in rows:
        seen = views.setdefault(tuple(row.get(field) for field in key), {})
        view = row.get("view")
        if not seen or view in seen:
            seen[view] = len(kept)
            kept.append(row)
        else:
            index = next(iter(seen.values()))
            seen[view] = index
            if view.startswith("Spectrogram") and not kept[index].get("view").startswith("Spectrogram"):
                kept[index] = row
    return kept


def _check_rows(rows: list[Row], location: str) -> list[Row]:
    """Return rows with the longest available name of their file; raise AnnotationError if File Offset is missing."""
    with_file = [
        replace(row, fields={**row.fields, "recording": row.get("recording") or row.get("file")})
        for row in rows
    ]
    files = {row.get("recording") for row in with_file}
    without_offset = next((row for row in with_file if not row.get("offset_s")), None)
    if without_offset and len(files) > 1:
        raise AnnotationError(
            f"{without_offset.where}: the table covers {len(files)} files but has no file offset for this selection. "
            f"Add the column 'File Offset (s)' in Raven (View > Configure Selection Table) and save {location} again."
        )
    return with_file


def _to_file_time(row: Row) -> Row:
    """Convert times from the start of the sequence to times from the start of the file."""
    start_s, end_s, offset_s = (
        decimal(row.get(field), row.where, ALIASES[field][0]) for field in ("start_s", "end_s", "offset_s")
    )
    fields = {**row.fields}
    if start_s is not None and end_s is not None and offset_s is not None:
        fields |= {"start_s": format_number(offset_s), "end_s": format_number(offset_s + (end_s - start_s))}
    channel = (("Channel", row.get("channel")),) if row.get("channel") not in ("", "1") else ()
    return replace(row, fields=fields, free=channel + row.free)


def write(annotations: Annotations, path: str | Path) -> Counter[str]:
    """Write one table over all recordings as a sequence, or a folder with one table for each recording."""
    location = str(path)
    if is_one_file(location):
        return _write_sequence(annotations, location)
    losses: Counter[str] = Counter()
    parts = by_recording(annotations)
    parts = {name: part for name, part in parts.items() if part.events or part.reviewed}
    paths = table_paths(parts, ENDING)
    for name, part in parts.items():
        rows = _rows(part, {name: Decimal(0)}, losses)
        losses += write_rows(rows, join(location, paths[name]), ALIASES, "\t", OPTIONAL)
        if not rows:
            losses[SPANS_LOST] += not any(is_whole(span) for span in part.reviewed)
            losses[NAME_CHANGED] += recording_name_from_table(paths[name]) != name
    return +losses


def _write_sequence(annotations: Annotations, location: str) -> Counter[str]:
    losses: Counter[str] = Counter()
    rows = _rows(annotations, _Sequence(location).start_times(annotations), losses)
    losses += write_rows(rows, location, ALIASES, "\t", OPTIONAL)
    with_events = {event.recording_id for event in annotations.events}
    is_stored = (
        len(annotations.recording_ids()) == 1
        and not with_events
        and _names_its_recording(annotations.reviewed, location)
    )
    empty = {span.recording_id for span in annotations.reviewed} - with_events
    losses[EMPTY_LOST] += 0 if is_stored else len(empty)
    return +losses


def _names_its_recording(reviewed: tuple[ReviewedSpan, ...], location: str) -> bool:
    """Return True if the file name of an empty table is that of a completely reviewed recording."""
    return any(
        is_whole(span) and span.recording_id == recording_name_from_table(file_name(location))
        for span in reviewed
    )


def write_parts(parts: Iterable[Annotations], path: str | Path, columns: Columns) -> Counter[str]:
    """Write one table from parts of annotations, in the order of their file sequence."""
    losses: Counter[str] = Counter()
    sequence, selections = _Sequence(str(path)), 0
    with open_row_writer(str(path), ALIASES, columns, "\t", OPTIONAL) as table:
        for part in parts:
            table.add(_rows(part, sequence.start_times(part), losses, selections))
            selections += len(part.events)
    return +(losses + table.losses)


class _Sequence:
    """Start times of recordings in the sequence of all recordings; parts of the sequence are added in order."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._end_s: Decimal | None = Decimal(0)

    def start_times(self, annotations: Annotations) -> dict[str, Decimal]:
        """Return the start of each further recording in seconds, for as long as all durations are known."""
        start_times: dict[str, Decimal] = {}
        with_events = {event.recording_id for event in annotations.events}
        for name, item in annotations.metadata_by_recording().items():
            if self._end_s is not None:
                start_times[name] = self._end_s
                self._end_s = (
                    None if item.duration_s is None else self._end_s + Decimal(repr(item.duration_s))
                )
            elif name in with_events:
                raise AnnotationError(
                    f"{self._location}: one Raven table over several recordings needs the duration of each. Pass "
                    "--recordings recordings.parquet, or name a folder to write one table for each recording."
                )
        return start_times


def _rows(
    annotations: Annotations, start_times: dict[str, Decimal], losses: Counter[str], before: int = 0
) -> list[Row]:
    """Return rows for a table that already has `before` selections."""
    metadata = annotations.metadata_by_recording()
    events = [_below_nyquist(event, metadata[event.recording_id], losses) for event in annotations.events]
    rows = annotations_to_rows(replace(annotations, events=tuple(events)))[: len(events)]
    return [
        _selection_row(
            row, number, start_times[row.get("recording")], metadata[row.get("recording")].location
        )
        for number, row in enumerate(rows, start=before + 1)
    ]


def _below_nyquist(event: Event, metadata: RecordingMetadata, losses: Counter[str]) -> Event:
    if metadata.sample_rate_hz is None or event.low_hz is None or event.high_hz is None:
        return event
    nyquist_hz = metadata.sample_rate_hz / 2
    if event.high_hz <= nyquist_hz:
        return event
    losses[CLIPPED] += 1
    return replace(event, low_hz=min(event.low_hz, nyquist_hz), high_hz=nyquist_hz)


def _selection_row(row: Row, selection: int, file_start_s: Decimal, location: str | None) -> Row:
    channel = dict(row.free).get("Channel", "1")
    fields = {
        **row.fields,
        "selection": str(selection),
        "view": "Spectrogram 1",
        "channel": channel,
        "start_s": format_number(file_start_s + Decimal(row.get("start_s"))),
        "end_s": format_number(file_start_s + Decimal(row.get("end_s"))),
        "file": file_name(row.get("recording")),
        "recording": location or row.get("recording"),
        "offset_s": row.get("start_s"),
    }
    return replace(row, fields=fields, free=tuple(item for item in row.free if item[0] != "Channel"))
