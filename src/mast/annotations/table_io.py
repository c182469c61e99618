"""Conversion between annotations and tables: a `Row` has MAST's field names, `ColumnAliases` the format's column names.

Reading: `rows_from` maps columns to fields, the format converts its units, and `rows_to_annotations` builds annotations
from the rows. Writing is the reverse: `annotations_to_rows`, conversion of units, `write_rows`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, cast

from mast.annotations.delimited import Table, format_number, is_number, number, open_table
from mast.annotations.model import Annotations, RecordingMetadata, SourceFile, is_whole, merge_metadata
from mast.errors import AnnotationError
from mast.records import Event, FreeColumns, ReviewedSpan

ColumnAliases = Mapping[str, tuple[str, ...]]
"""Accepted column names of each field, in the order of columns; the first name is written."""

OPTIONAL = frozenset({"score", "origin", "annotator", "reviewed"})
"""Fields whose column is written only if an event has a value."""

NO_TIME = "row without a time"
LOW_UNSET = "low frequency unset or below 0 Hz: set to 0 Hz"
HIGH_UNSET = "high frequency unset: imported without a frequency range"
RENAMED = "free column with the name of a column of the format: not written"
UNTABBED = "tab or line break in a text: replaced by a space"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: its location for messages, its fields by MAST's names, and its other columns; all text."""

    where: str
    fields: dict[str, str]
    free: FreeColumns = ()

    def get(self, field: str) -> str:
        """Return the text of a field, empty if missing."""
        return self.fields.get(field, "")


def rows_from(table: Table, aliases: ColumnAliases, required: Collection[str]) -> list[Row]:
    """Return the rows of a table by field; of several aliases, use the first column that has values."""
    index_of = {name.casefold(): index for index, name in reversed(list(enumerate(table.header)))}
    with_values = {index for _, cells in table.rows for index, cell in enumerate(cells) if cell}
    chosen: dict[str, int] = {}
    for field, names in aliases.items():
        present = [index_of[name.casefold()] for name in names if name.casefold() in index_of]
        if present:
            chosen[field] = next((index for index in present if index in with_values), present[0])
    if "score" in chosen and not all(is_number(cells[chosen["score"]]) for _, cells in table.rows):
        del chosen["score"]  # an annotator's mark such as A or good, not a model's score
    for field in required:
        if field not in chosen:
            raise AnnotationError(
                f"{table.location}: no column for {field}. It may be called {' or '.join(aliases[field])}; "
                f"the columns are {', '.join(table.header)}."
            )
    free = [index for index in range(len(table.header)) if index not in chosen.values()]
    return [
        Row(
            table.where(line),
            {field: cells[index] for field, index in chosen.items()},
            tuple((table.header[index], cells[index]) for index in free if cells[index]),
        )
        for line, cells in table.rows
    ]


def rows_to_annotations(
    rows: Iterable[Row],
    source: SourceFile,
    default_name: str,
    problems: Mapping[str, int] | None = None,
    metadata: Iterable[RecordingMetadata] = (),
) -> Annotations:
    """Build annotations from rows; a row without a recording belongs to `default_name`.

    A recording with an event of origin `expert`, or with a row that has no other value, counts as completely reviewed,
    unless the `reviewed` field says otherwise.
    """
    counts = Counter(problems or {})
    events: list[Event] = []
    spans: dict[str, tuple[ReviewedSpan, ...]] = {}
    for row in rows:
        recording_id = row.get("recording") or default_name
        event = _event(row, recording_id, counts)
        if event:
            events.append(event)
        if row.get("reviewed"):
            spans[recording_id] = parse_spans(row.get("reviewed"), recording_id, row.where)
        elif event.origin == "expert" if event else _is_blank(row):
            spans.setdefault(recording_id, (ReviewedSpan(recording_id),))
        elif not event:
            counts[NO_TIME] += 1
    reviewed = tuple(span for group in spans.values() for span in group)
    return Annotations(tuple(events), reviewed, merge_metadata(metadata), counts, (source,))


def _is_blank(row: Row) -> bool:
    """Return True if a row has a recording but no event."""
    return not any((row.get("start_s"), row.get("end_s"), row.get("label"), row.free))


def _event(row: Row, recording_id: str, problems: Counter[str]) -> Event | None:
    start_s, end_s, low_hz, high_hz, score = (
        number(row.get(field), row.where, field)
        for field in ("start_s", "end_s", "low_hz", "high_hz", "score")
    )
    if start_s is None or end_s is None:
        return None
    low_hz, high_hz = band(low_hz, high_hz, problems)
    try:
        return Event(
            recording_id=recording_id,
            start_s=start_s,
            end_s=end_s,
            low_hz=low_hz,
            high_hz=high_hz,
            label=row.get("label") or None,
            score=score,
            origin=_origin(row, score),
            annotator=row.get("annotator") or None,
            columns=row.free,
        )
    except ValueError as error:
        raise AnnotationError(f"{row.where}: {error}. Correct this row and read the file again.") from None


def band(
    low_hz: float | None, high_hz: float | None, problems: Counter[str]
) -> tuple[float | None, float | None]:
    """Return both frequency limits or neither; a negative limit means unset, and each replaced limit is counted."""
    if high_hz is None or high_hz < 0:
        if low_hz is not None and low_hz >= 0:
            problems[HIGH_UNSET] += 1
        return None, None
    if low_hz is None or low_hz < 0:
        problems[LOW_UNSET] += 1
        return 0.0, high_hz
    return low_hz, high_hz


def _origin(row: Row, score: float | None) -> Literal["expert", "model", "pseudo"]:
    """Return the origin in the row; if missing, `model` for an event with a score, else `expert`."""
    origin = row.get("origin")
    if not origin:
        return "expert" if score is None else "model"
    if origin not in ("expert", "model", "pseudo"):
        raise AnnotationError(f"{row.where}: origin is {origin!r}; it must be expert, model or pseudo.")
    return cast(Literal["expert", "model", "pseudo"], origin)


def annotations_to_rows(annotations: Annotations) -> list[Row]:
    """Return a row for each event, then one for each reviewed recording without events; nothing is lost."""
    spans: dict[str, list[ReviewedSpan]] = {}
    for span in annotations.reviewed:
        spans.setdefault(span.recording_id, []).append(span)
    with_expert = {event.recording_id for event in annotations.events if event.origin == "expert"}
    with_events = {event.recording_id for event in annotations.events}

    def reviewed(recording_id: str) -> str:
        text = format_spans(spans.get(recording_id, ()))
        implied = "all" if recording_id in with_expert or recording_id not in with_events else "none"
        return "" if text == implied else text

    rows = [_row(event, reviewed(event.recording_id)) for event in annotations.events]
    empty = (name for name in spans if name not in with_events)
    return rows + [Row("", {"recording": name, "reviewed": reviewed(name)}) for name in empty]


def _row(event: Event, reviewed: str) -> Row:
    implied = "expert" if event.score is None else "model"
    fields = {
        "recording": event.recording_id,
        "start_s": format_number(event.start_s),
        "end_s": format_number(event.end_s),
        "low_hz": format_number(event.low_hz),
        "high_hz": format_number(event.high_hz),
        "label": event.label or "",
        "score": format_number(event.score),
        "origin": "" if event.origin == implied else event.origin,
        "annotator": event.annotator or "",
        "reviewed": reviewed,
    }
    return Row("", fields, event.columns)


@dataclass(frozen=True, slots=True)
class Columns:
    """Optional columns of a table: fields by MAST's names, and free columns."""

    fields: frozenset[str] = frozenset()
    free: tuple[str, ...] = ()


def required_columns(rows: Sequence[Row], aliases: ColumnAliases) -> Columns:
    """Return the optional columns that these rows need."""
    free = tuple(dict.fromkeys(name for row in rows for name, _ in row.free))
    fields = frozenset(
        field
        for field, names in aliases.items()
        if any(row.get(field) for row in rows)
        or any(name.casefold() in map(str.casefold, names) for name in free)
    )
    return Columns(fields, free)


def write_rows(
    rows: Sequence[Row],
    location: str,
    aliases: ColumnAliases,
    delimiter: str = ",",
    optional: Collection[str] = OPTIONAL,
) -> Counter[str]:
    """Write rows with a format's column names; return counts of everything that was not written."""
    with open_row_writer(location, aliases, required_columns(rows, aliases), delimiter, optional) as table:
        table.add(rows)
    return +table.losses


def write_row_parts(
    parts: Iterable[Sequence[Row]], location: str, aliases: ColumnAliases, columns: Columns
) -> Counter[str]:
    """Write parts of rows into one table with these columns; return counts of everything that was not written."""
    with open_row_writer(location, aliases, columns) as table:
        for rows in parts:
            table.add(rows)
    return +table.losses


@contextmanager
def open_row_writer(
    location: str,
    aliases: ColumnAliases,
    columns: Columns,
    delimiter: str = ",",
    optional: Collection[str] = OPTIONAL,
) -> Iterator[RowWriter]:
    """Open a table with a format's column names and yield a writer that appends rows."""
    losses: Counter[str] = Counter()
    written_fields = [field for field in aliases if field not in optional or field in columns.fields]
    header = [aliases[field][0] for field in written_fields]
    names_in_use = frozenset(name.casefold() for name in header)
    free = [name for name in columns.free if name.casefold() not in names_in_use]
    names = [one_line(name, losses) for name in (*header, *free)]
    with open_table(location, names, delimiter) as add:
        yield RowWriter(
            names, written_fields, free, names_in_use, losses, add, is_tab_separated=delimiter == "\t"
        )


@dataclass(frozen=True)
class RowWriter:
    """Writer of a table; `losses` counts everything that was not written."""

    header: list[str]
    written_fields: list[str]
    free: list[str]
    names_in_use: frozenset[str]
    losses: Counter[str]
    write: Callable[[Iterable[Sequence[str]]], None]
    is_tab_separated: bool

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows."""
        self.write(map(self._cells, rows))

    def _cells(self, row: Row) -> list[str]:
        free_columns = dict(row.free)
        self.losses[RENAMED] += sum(name.casefold() in self.names_in_use for name, _ in row.free)
        texts = [row.get(field) for field in self.written_fields] + [
            free_columns.get(name, "") for name in self.free
        ]
        return [one_line(text, self.losses) for text in texts] if self.is_tab_separated else texts


def one_line(text: str, losses: Counter[str]) -> str:
    """Replace tabs and line breaks by spaces, so that a text fits a tab-separated cell."""
    cell = re.sub(r"[\t\r\n]+", " ", text)
    losses[UNTABBED] += cell != text
    return cell


def format_spans(spans: Iterable[ReviewedSpan]) -> str:
    """Format the reviewed spans of one recording as `all`, `none`, or for example `0..10; 30..`."""
    spans = list(spans)
    if any(is_whole(span) for span in spans):
        return "all"
    return (
        "; ".join(f"{format_number(span.start_s)}..{format_number(span.end_s)}" for span in spans) or "none"
    )


def parse_spans(text: str, recording_id: str, where: str) -> tuple[ReviewedSpan, ...]:
    """Parse the reviewed spans of one recording, as written by `format_spans`."""
    if text.casefold() in ("all", "none"):
        return (ReviewedSpan(recording_id),) if text.casefold() == "all" else ()
    spans = []
    for part in text.split(";"):
        start, dots, end = part.partition("..")
        start_s = number(start, where, "the start of a reviewed span")
        if not dots or start_s is None:
            raise AnnotationError(
                f"{where}: reviewed is {text!r}; write all, none, or spans such as 0..10; 30..60."
            )
        spans.append(ReviewedSpan(recording_id, start_s, number(end, where, "the end of a reviewed span")))
    return tuple(spans)
