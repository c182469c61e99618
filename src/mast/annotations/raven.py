"""Raven selection tables: one for a recording, or one over a sequence of files.

Over a sequence, Begin and End Time count from the start of the first file and every file advances them, also one
without selections; File Offset counts within the file that Begin File and Begin Path name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from mast.annotations.files import is_one_file, places_below, recording_named_by
from mast.annotations.rows import OPTIONAL as OPTIONAL_FIELDS
from mast.annotations.rows import Columns, Row, collect, open_rows, rows_from, rows_of, write_rows
from mast.annotations.tables import Annotations, RecordingFacts, Source, by_recording, is_whole
from mast.annotations.text import decimal, file_name, plain, read_table
from mast.errors import AnnotationError
from mast.events import Event, Reviewed
from mast.storage import join

SUFFIXES = (".txt", ".tsv")
ENDING = ".Table.1.selections.txt"

SPELLINGS = {
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
CLIPPED = "frequency above half the sample rate: lowered to it"
EMPTY_LOST = "reviewed recording without selections: a sequence's table cannot name it"
SPANS_LOST = "reviewed part of a recording without selections: its empty table counts as wholly reviewed"
NAME_CHANGED = "name of a recording without selections: changed to fit a file name"


def fits(head: str) -> bool:
    """Whether a file begins with Raven's column names."""
    first = head.lstrip().partition("\n")[0]
    return "Begin Time (s)" in first and "\t" in first


def read(path: str | Path, name: str | None = None) -> Annotations:
    """Read a selection table; one without rows means that its recording was reviewed and nothing was found."""
    location = str(path)
    table = read_table(location, "\t")
    rows = rows_from(table, SPELLINGS, needed=("start_s", "end_s"))
    own_name = recording_named_by(name or file_name(location))
    once = _each_selection_once(rows)
    problems = {REPEATED: len(rows) - len(once)} if len(rows) > len(once) else {}
    placed = [_within_its_file(row) for row in _checked(once, location)]
    models = {spelling.casefold() for spelling in SPELLINGS["score"]}
    if not rows and not models.intersection(map(str.casefold, table.header)):
        placed = [Row(location, {"recording": own_name})]
    return collect(placed, Source(location, "raven"), own_name, problems)


def _each_selection_once(rows: Iterable[Row]) -> list[Row]:
    """One row a selection; of its views the spectrogram's, for a waveform's may have no frequencies."""
    same = ("file", "recording", "selection", "channel", "start_s", "end_s")
    kept: list[Row] = []
    views: dict[tuple[str, ...], dict[str, int]] = {}
    for row in rows:
        seen = views.setdefault(tuple(row.get(field) for field in same), {})
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


def _checked(rows: list[Row], location: str) -> list[Row]:
    """Rows that tell where in their file they are; each under the fullest name of its file."""
    named = [
        replace(row, fields={**row.fields, "recording": row.get("recording") or row.get("file")})
        for row in rows
    ]
    files = {row.get("recording") for row in named}
    lost = next((row for row in named if not row.get("offset_s")), None)
    if lost and len(files) > 1:
        raise AnnotationError(
            f"{lost.where}: the table speaks of {len(files)} files but does not say where in its file this selection "
            f"lies. Add the column 'File Offset (s)' in Raven (View > Configure Selection Table) and save {location} "
            "again."
        )
    return named


def _within_its_file(row: Row) -> Row:
    """Times from the start of the file, not of the sequence."""
    start_s, end_s, offset_s = (
        decimal(row.get(field), row.where, SPELLINGS[field][0]) for field in ("start_s", "end_s", "offset_s")
    )
    fields = {**row.fields}
    if start_s is not None and end_s is not None and offset_s is not None:
        fields |= {"start_s": plain(offset_s), "end_s": plain(offset_s + (end_s - start_s))}
    channel = (("Channel", row.get("channel")),) if row.get("channel") not in ("", "1") else ()
    return replace(row, fields=fields, free=channel + row.free)


def write(annotations: Annotations, path: str | Path) -> Counter[str]:
    """Write one table over all recordings as a sequence, or into a folder one table for each recording."""
    location = str(path)
    if is_one_file(location):
        return _write_sequence(annotations, location)
    losses: Counter[str] = Counter()
    parts = by_recording(annotations)
    parts = {name: part for name, part in parts.items() if part.events or part.reviewed}
    places = places_below(parts, ENDING)
    for name, part in parts.items():
        rows = _rows(part, {name: Decimal(0)}, losses)
        losses += write_rows(rows, join(location, places[name]), SPELLINGS, "\t", OPTIONAL)
        if not rows:
            losses[SPANS_LOST] += not any(is_whole(span) for span in part.reviewed)
            losses[NAME_CHANGED] += recording_named_by(places[name]) != name
    return +losses


def _write_sequence(annotations: Annotations, location: str) -> Counter[str]:
    losses: Counter[str] = Counter()
    rows = _rows(annotations, _Sequence(location).begins(annotations), losses)
    losses += write_rows(rows, location, SPELLINGS, "\t", OPTIONAL)
    named = {event.recording_id for event in annotations.events}
    alone = (
        len(annotations.recording_ids()) == 1 and not named and _names_itself(annotations.reviewed, location)
    )
    empty = {span.recording_id for span in annotations.reviewed} - named
    losses[EMPTY_LOST] += 0 if alone else len(empty)
    return +losses


def _names_itself(reviewed: tuple[Reviewed, ...], location: str) -> bool:
    """Whether an empty table says by its own name which recording was reviewed, and all of it was."""
    return any(
        is_whole(span) and span.recording_id == recording_named_by(file_name(location)) for span in reviewed
    )


def write_parts(parts: Iterable[Annotations], path: str | Path, columns: Columns) -> Counter[str]:
    """Write one table over recordings that come part by part, in the order of their file sequence."""
    losses: Counter[str] = Counter()
    sequence, selections = _Sequence(str(path)), 0
    with open_rows(str(path), SPELLINGS, columns, "\t", OPTIONAL) as table:
        for part in parts:
            table.add(_rows(part, sequence.begins(part), losses, selections))
            selections += len(part.events)
    return +(losses + table.losses)


class _Sequence:
    """Where recordings begin in the sequence of all of them, which may come some at a time."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._at: Decimal | None = Decimal(0)

    def begins(self, annotations: Annotations) -> dict[str, Decimal]:
        """Where each of the next recordings begins, as far as that is known."""
        begins: dict[str, Decimal] = {}
        named = {event.recording_id for event in annotations.events}
        for name, item in annotations.facts().items():
            if self._at is not None:
                begins[name] = self._at
                self._at = None if item.duration_s is None else self._at + Decimal(repr(item.duration_s))
            elif name in named:
                raise AnnotationError(
                    f"{self._location}: one Raven table over several recordings needs the duration of each. Give "
                    "them with --recordings recordings.parquet, or name a folder to write one table for each "
                    "recording."
                )
        return begins


def _rows(
    annotations: Annotations, begins: dict[str, Decimal], losses: Counter[str], before: int = 0
) -> list[Row]:
    """Rows of a table that has `before` selections already."""
    facts = annotations.facts()
    events = [_below_nyquist(event, facts[event.recording_id], losses) for event in annotations.events]
    rows = rows_of(replace(annotations, events=tuple(events)))[: len(events)]
    return [
        _placed(row, number, begins[row.get("recording")], facts[row.get("recording")].location)
        for number, row in enumerate(rows, start=before + 1)
    ]


def _below_nyquist(event: Event, facts: RecordingFacts, losses: Counter[str]) -> Event:
    if facts.sample_rate_hz is None or event.low_hz is None or event.high_hz is None:
        return event
    nyquist_hz = facts.sample_rate_hz / 2
    if event.high_hz <= nyquist_hz:
        return event
    losses[CLIPPED] += 1
    return replace(event, low_hz=min(event.low_hz, nyquist_hz), high_hz=nyquist_hz)


def _placed(row: Row, selection: int, begin_s: Decimal, location: str | None) -> Row:
    channel = dict(row.free).get("Channel", "1")
    fields = {
        **row.fields,
        "selection": str(selection),
        "view": "Spectrogram 1",
        "channel": channel,
        "start_s": plain(begin_s + Decimal(row.get("start_s"))),
        "end_s": plain(begin_s + Decimal(row.get("end_s"))),
        "file": file_name(row.get("recording")),
        "recording": location or row.get("recording"),
        "offset_s": row.get("start_s"),
    }
    return replace(row, fields=fields, free=tuple(item for item in row.free if item[0] != "Channel"))
