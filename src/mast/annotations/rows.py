"""Every text format is one table under other names: a `Row` has our names, `Spellings` are the format's.

Reading: a table's columns become fields by their spellings, the format adjusts what it counts differently, and
`collect` makes annotations of the rows. Writing goes the same way back: `rows_of`, adjust, `write_rows`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, cast

from mast.annotations.tables import Annotations, RecordingFacts, Source, is_whole, join_facts
from mast.annotations.text import Table, is_number, number, open_table, plain
from mast.errors import AnnotationError
from mast.events import Event, FreeColumns, Reviewed

Spellings = Mapping[str, tuple[str, ...]]
"""For each field, in the order of columns: the names it may have; the first one is written."""

OPTIONAL = frozenset({"score", "origin", "annotator", "reviewed"})
"""Fields whose column is written only where an event needs it."""

NO_TIME = "row without a time"
LOW_UNSET = "low frequency unset or below 0 Hz: taken as 0 Hz"
HIGH_UNSET = "high frequency unset: kept without a frequency range"
RENAMED = "free column named like one of the format's own: left out"
UNTABBED = "tab or line break in a text: written as a space"


@dataclass(frozen=True, slots=True)
class Row:
    """One line: where it stands, its fields by our names, and the columns we have no name for; all text."""

    where: str
    fields: dict[str, str]
    free: FreeColumns = ()

    def get(self, field: str) -> str:
        """Text of a field, empty where there is none."""
        return self.fields.get(field, "")


def rows_from(table: Table, spellings: Spellings, needed: Collection[str]) -> list[Row]:
    """A table's rows by our field names; of several spellings the first with any value counts."""
    at = {name.casefold(): index for index, name in reversed(list(enumerate(table.header)))}
    filled = {index for _, cells in table.rows for index, cell in enumerate(cells) if cell}
    chosen: dict[str, int] = {}
    for field, names in spellings.items():
        present = [at[name.casefold()] for name in names if name.casefold() in at]
        if present:
            chosen[field] = next((index for index in present if index in filled), present[0])
    if "score" in chosen and not all(is_number(cells[chosen["score"]]) for _, cells in table.rows):
        del chosen["score"]  # somebody's mark such as A or good, not a model's score
    for field in needed:
        if field not in chosen:
            raise AnnotationError(
                f"{table.location}: no column tells {field}. It may be called {' or '.join(spellings[field])}; "
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


def collect(
    rows: Iterable[Row],
    source: Source,
    own_name: str,
    problems: Mapping[str, int] | None = None,
    facts: Iterable[RecordingFacts] = (),
) -> Annotations:
    """Annotations of a table's rows; a row without a recording belongs to `own_name`.

    A recording with an expert's event counts as reviewed from end to end, and so does one whose row holds nothing
    else, unless the `reviewed` field says otherwise.
    """
    counts = Counter(problems or {})
    events: list[Event] = []
    spans: dict[str, tuple[Reviewed, ...]] = {}
    for row in rows:
        recording_id = row.get("recording") or own_name
        event = _event(row, recording_id, counts)
        if event:
            events.append(event)
        if row.get("reviewed"):
            spans[recording_id] = spans_from(row.get("reviewed"), recording_id, row.where)
        elif event.origin == "expert" if event else _is_blank(row):
            spans.setdefault(recording_id, (Reviewed(recording_id),))
        elif not event:
            counts[NO_TIME] += 1
    reviewed = tuple(span for group in spans.values() for span in group)
    return Annotations(tuple(events), reviewed, join_facts(facts), counts, (source,))


def _is_blank(row: Row) -> bool:
    """Whether a row names a recording and nothing more."""
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
    """Both limits or neither; below zero means unset, and a limit that had to be made up is counted."""
    if high_hz is None or high_hz < 0:
        if low_hz is not None and low_hz >= 0:
            problems[HIGH_UNSET] += 1
        return None, None
    if low_hz is None or low_hz < 0:
        problems[LOW_UNSET] += 1
        return 0.0, high_hz
    return low_hz, high_hz


def _origin(row: Row, score: float | None) -> Literal["expert", "model", "pseudo"]:
    """What the row says; otherwise an event with a score is a model's."""
    said = row.get("origin")
    if not said:
        return "expert" if score is None else "model"
    if said not in ("expert", "model", "pseudo"):
        raise AnnotationError(f"{row.where}: origin is {said!r}; it is expert, model or pseudo.")
    return cast(Literal["expert", "model", "pseudo"], said)


def rows_of(annotations: Annotations) -> list[Row]:
    """A row for every event, then one for every reviewed recording without events; where nothing is lost."""
    spans: dict[str, list[Reviewed]] = {}
    for span in annotations.reviewed:
        spans.setdefault(span.recording_id, []).append(span)
    experts = {event.recording_id for event in annotations.events if event.origin == "expert"}
    named = {event.recording_id for event in annotations.events}

    def reviewed(recording_id: str) -> str:
        text = spans_text(spans.get(recording_id, ()))
        implied = "all" if recording_id in experts or recording_id not in named else "none"
        return "" if text == implied else text

    rows = [_row(event, reviewed(event.recording_id)) for event in annotations.events]
    empty = (name for name in spans if name not in named)
    return rows + [Row("", {"recording": name, "reviewed": reviewed(name)}) for name in empty]


def _row(event: Event, reviewed: str) -> Row:
    implied = "expert" if event.score is None else "model"
    fields = {
        "recording": event.recording_id,
        "start_s": plain(event.start_s),
        "end_s": plain(event.end_s),
        "low_hz": plain(event.low_hz),
        "high_hz": plain(event.high_hz),
        "label": event.label or "",
        "score": plain(event.score),
        "origin": "" if event.origin == implied else event.origin,
        "annotator": event.annotator or "",
        "reviewed": reviewed,
    }
    return Row("", fields, event.columns)


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns that a table is to have beside those it always has: optional fields by our names, and free columns."""

    fields: frozenset[str] = frozenset()
    free: tuple[str, ...] = ()


def columns_needed(rows: Sequence[Row], spellings: Spellings) -> Columns:
    """The columns without which a table could not hold these rows."""
    free = tuple(dict.fromkeys(name for row in rows for name, _ in row.free))
    fields = frozenset(
        field
        for field, names in spellings.items()
        if any(row.get(field) for row in rows)
        or any(name.casefold() in map(str.casefold, names) for name in free)
    )
    return Columns(fields, free)


def write_rows(
    rows: Sequence[Row],
    location: str,
    spellings: Spellings,
    delimiter: str = ",",
    optional: Collection[str] = OPTIONAL,
) -> Counter[str]:
    """Write rows under a format's names; what could not be written is counted."""
    with open_rows(location, spellings, columns_needed(rows, spellings), delimiter, optional) as table:
        table.add(rows)
    return +table.losses


def write_row_parts(
    parts: Iterable[Sequence[Row]], location: str, spellings: Spellings, columns: Columns
) -> Counter[str]:
    """Write rows that come part by part into one table of these columns; what could not be written is counted."""
    with open_rows(location, spellings, columns) as table:
        for rows in parts:
            table.add(rows)
    return +table.losses


@contextmanager
def open_rows(
    location: str,
    spellings: Spellings,
    columns: Columns,
    delimiter: str = ",",
    optional: Collection[str] = OPTIONAL,
) -> Iterator[RowTable]:
    """A table under a format's names that takes rows as they come."""
    losses: Counter[str] = Counter()
    shown = [field for field in spellings if field not in optional or field in columns.fields]
    header = [spellings[field][0] for field in shown]
    taken = frozenset(name.casefold() for name in header)
    kept = [name for name in columns.free if name.casefold() not in taken]
    names = [one_line(name, losses) for name in (*header, *kept)]
    with open_table(location, names, delimiter) as add:
        yield RowTable(names, shown, kept, taken, losses, add, one_lined=delimiter == "\t")


@dataclass(frozen=True)
class RowTable:
    """A table that is being written; `losses` count what could not be."""

    header: list[str]
    shown: list[str]
    kept: list[str]
    taken: frozenset[str]
    losses: Counter[str]
    write: Callable[[Iterable[Sequence[str]]], None]
    one_lined: bool

    def add(self, rows: Iterable[Row]) -> None:
        """Write some more rows."""
        self.write(map(self._cells, rows))

    def _cells(self, row: Row) -> list[str]:
        own = dict(row.free)
        self.losses[RENAMED] += sum(name.casefold() in self.taken for name, _ in row.free)
        texts = [row.get(field) for field in self.shown] + [own.get(name, "") for name in self.kept]
        return [one_line(text, self.losses) for text in texts] if self.one_lined else texts


def one_line(text: str, losses: Counter[str]) -> str:
    """Text that fits a cell between tabs."""
    fitted = re.sub(r"[\t\r\n]+", " ", text)
    losses[UNTABBED] += fitted != text
    return fitted


def spans_text(spans: Iterable[Reviewed]) -> str:
    """Reviewed spans of one recording as `all`, `none`, or such as `0..10; 30..`."""
    spans = list(spans)
    if any(is_whole(span) for span in spans):
        return "all"
    return "; ".join(f"{plain(span.start_s)}..{plain(span.end_s)}" for span in spans) or "none"


def spans_from(text: str, recording_id: str, where: str) -> tuple[Reviewed, ...]:
    """Reviewed spans of one recording, as `spans_text` writes them."""
    if text.casefold() in ("all", "none"):
        return (Reviewed(recording_id),) if text.casefold() == "all" else ()
    spans = []
    for part in text.split(";"):
        start, dots, end = part.partition("..")
        start_s = number(start, where, "the start of a reviewed span")
        if not dots or start_s is None:
            raise AnnotationError(
                f"{where}: reviewed is {text!r}; write all, none, or spans such as 0..10; 30..60"
            )
        spans.append(Reviewed(recording_id, start_s, number(end, where, "the end of a reviewed span")))
    return tuple(spans)
