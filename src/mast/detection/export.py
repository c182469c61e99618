"""What a run has found, in the files of other programs; events stream through, however many there are.

A table of effort goes with every export: counts of sounds mean nothing without the hours that were heard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mast.annotations import camtrap_dp
from mast.annotations.files import keep_only, place_below
from mast.annotations.formats import STREAMED
from mast.annotations.rows import Columns
from mast.annotations.tables import Annotations, by_recording, facts_of
from mast.annotations.text import file_name, listed, open_table, plain
from mast.config import AnnotationFormat
from mast.detection.found import Found, open_found
from mast.errors import ConfigError
from mast.events import BOX, Event, Heard, Recording, event_id, from_table
from mast.recordings.clocks import length
from mast.storage import join

if TYPE_CHECKING:
    import pyarrow as pa

EFFORT = "effort.csv"
EFFORT_COLUMNS = (
    *("recording", "site", "start_utc", "start_local", "utc_offset_min", "duration_s"),
    *("effort_s", "events", "status", "reason"),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a format is written: the end of its file names, without which it is a folder; and its further columns.

    `combined` tells whether a file may hold many recordings, or only one; where both are possible, the usual first.
    """

    ending: str
    combined: tuple[bool, ...]
    columns: Columns = Columns()  # noqa: RUF009  # frozen


SHAPES: dict[AnnotationFormat, Shape] = {
    "raven": Shape(
        ".Table.1.selections.txt",
        (False, True),
        Columns(frozenset({"score", "low_hz", "high_hz"}), ("site", "start_utc", "start_local", "model")),
    ),
    "audacity": Shape(".txt", (False,)),
    "csv": Shape(
        ".csv",
        (True, False),
        Columns(frozenset({"score"}), ("site", "start_utc", "start_local", "utc_offset_min", "model")),
    ),
    "aoef": Shape(".json", (True, False)),
    "audubon-core": Shape(
        ".csv", (True, False), Columns(frozenset({"score", "annotator"}), ("site", "start_local"))
    ),
    "camtrap-dp": Shape("", (True,)),
}


TOLD_BY_ANNOTATOR = ("aoef", "audubon-core", "camtrap-dp")
"""Formats that have a place for who has found a sound, rather than a column for the model."""

Labels = Callable[[int], Mapping[str, str]]
"""`labels(part)`: what events of a part are called, by their identity."""


@dataclass
class Exported:
    """What was written where; `losses` count what the format cannot hold.

    `changed` counts tables of earlier exports that are still there, for somebody has worked on them.
    """

    format: AnnotationFormat
    out: str
    unfinished: int
    files: int = 0
    changed: int = 0
    recordings: int = 0
    unheard: int = 0
    heard_s: float = 0.0
    events: int = 0
    losses: Counter[str] = field(default_factory=Counter)

    def summary(self) -> str:
        """The account for a person to read."""
        lines = [f"{self.events:,} sounds in {self.recordings:,} recordings, {length(self.heard_s)} heard"]
        if self.unheard:
            lines.append(f"{self.unheard:,} recordings could not be heard: {EFFORT} says why")
        if self.unfinished:
            lines.append(f"{self.unfinished:,} parts of the run are not done yet, and not in here")
        lines += listed(f"Not kept in {self.format}:", self.losses)
        lines += still_there(self.changed)
        return "\n".join([*lines, f"Written: {self.out} ({self.files:,} {self.format}, and {EFFORT})"])


def still_there(changed: int) -> list[str]:
    """A line on tables of earlier exports that were changed, if there are any."""
    return [f"{changed:,} tables of an earlier export were changed since, and stay"] if changed else []


def export(
    events: str,
    to: AnnotationFormat,
    out: str | None = None,
    *,
    combined: bool | None = None,
    min_score: float | None = None,
    labels: Labels | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Exported:
    """Write the events of a run into a folder, one file for each recording or one over all of them.

    Tables of an earlier export of this run into the same folder are removed, unless somebody has changed them.
    With `labels` only events that have one there, and recordings with such; else all, with their tentative names.
    """
    shape = _shape(to)
    folder = out or join(events, to)
    place = file_or_folder(to, combined, folder)
    found = open_found(events, min_score)
    result = Exported(to, folder, found.unfinished)
    with open_table(join(folder, EFFORT), EFFORT_COLUMNS) as add_effort:
        parts = _parts(found, to, min_score, labels, result, add_effort, on_progress)
        if place != folder or not shape.ending:
            result.losses += STREAMED[to].write_parts(parts, place, shape.columns)
            names = names_of(to, place)
            result.files = 1
        else:
            names = [name for part in parts for name in _write_each(part, to, shape, result)]
    result.changed = keep_only([EFFORT, *names], folder, found.fingerprint)
    return result


def _shape(to: AnnotationFormat) -> Shape:
    if to not in SHAPES:
        raise ConfigError(f"--to {to}: events are exported to {', '.join(SHAPES)}; for others, mast convert.")
    return SHAPES[to]


def file_or_folder(to: AnnotationFormat, combined: bool | None, folder: str) -> str:  # noqa: FBT001
    """Where in a folder sounds are written: one file over all recordings, or the folder for a file of each."""
    shape = _shape(to)
    return join(folder, f"events{shape.ending}") if _is_one(to, shape, combined) and shape.ending else folder


def names_of(to: AnnotationFormat, place: str) -> list[str]:
    """Names of what is written over all recordings: one file, or those of a package."""
    return [file_name(place)] if SHAPES[to].ending else [*camtrap_dp.FILES]


def _is_one(to: AnnotationFormat, shape: Shape, combined: bool | None) -> bool:  # noqa: FBT001
    if combined is None or combined in shape.combined:
        return shape.combined[0] if combined is None else combined
    raise ConfigError(
        f"--combined: a file for {to} belongs to one recording. Leave it out."
        if combined
        else f"--per-recording: {to} is one package of all recordings. Leave it out."
    )


def _write_each(part: Annotations, to: AnnotationFormat, shape: Shape, result: Exported) -> Iterator[str]:
    """A file for every recording that was heard, also where nothing was found: that is effort, too. → their names"""
    for recording_id, own in by_recording(part).items():
        if own.heard:
            name = place_below(recording_id, shape.ending)
            result.losses += STREAMED[to].write_parts([own], join(result.out, name), shape.columns)
            result.files += 1
            yield name


def _parts(
    found: Found,
    to: AnnotationFormat,
    min_score: float | None,
    labels: Labels | None,
    result: Exported,
    add_effort: Callable[[Iterable[Sequence[str]]], None],
    on_progress: Callable[[int, int], None],
) -> Iterator[Annotations]:
    """Annotations of every part, each counted, and its effort written, as it passes."""
    for done, part in enumerate(found.parts(min_score), start=1):
        recordings: list[Recording] = from_table(part.recordings, Recording)
        given = (labels or found.names)(part.number)
        events = list(events_for(to, found, part.events, given, only_named=labels is not None))
        counts = Counter(event.recording_id for event in events)
        heard = [_counted(item, counts[item.recording_id]) for item in from_table(part.status, Heard)]
        add_effort(map(_effort, recordings, heard))
        listened = [
            item
            for item in heard
            if (counts[item.recording_id] if labels else item.effort_s > 0 or item.status != "quarantined")
        ]
        result.events += len(events)
        result.recordings += len(listened)
        result.unheard += 0 if labels else len(heard) - len(listened)
        result.heard_s += sum(item.effort_s for item in heard)
        facts = (
            replace(facts_of(item), location=found.place(item.collection, item.path))
            for item in recordings
            if item.status != "quarantined" and (counts[item.recording_id] or not labels)
        )
        yield Annotations(events=tuple(events), recordings=tuple(facts), heard=tuple(listened))
        on_progress(done, len(found.numbers))


def _counted(item: Heard, events: int) -> Heard:
    """The status of a recording of which so many events are written."""
    status = item.status if events or item.status == "quarantined" else "empty"
    return replace(item, events=events, status=status)


def _effort(recording: Recording, heard: Heard) -> list[str]:
    return [
        recording.recording_id,
        recording.site or "",
        clock_text(recording.start_utc),
        clock_text(recording.start_local),
        plain(recording.utc_offset_min),
        plain(recording.duration_s),
        plain(round(heard.effort_s, 6)),
        str(heard.events),
        heard.status,
        heard.reason or "",
    ]


def events_for(
    to: AnnotationFormat,
    found: Found,
    events: pa.Table,
    given: Mapping[str, str],
    *,
    only_named: bool = False,
) -> Iterator[Event]:
    """A run's events as a format holds them best, in their order; no digits that mean nothing.

    `given` are their names, by the identity of an event.
    """
    columns, told_model = SHAPES[to].columns.free, f"MAST {found.version}, model {found.model}"
    for row in events.to_pylist():
        score = round(row["score"], 6)
        name = given.get(event_id(*(row[column] for column in BOX))) if given else None
        if only_named and name is None:
            continue
        yield Event(
            recording_id=row["recording_id"],
            start_s=round(row["start_s"], 6),
            end_s=round(row["end_s"], 6),
            low_hz=round(row["low_hz"], 3),
            high_hz=round(row["high_hz"], 3),
            label=_track_label(name, score) if to == "audacity" else name,
            score=None if to == "audacity" else score,
            origin="model",
            annotator=told_model if to in TOLD_BY_ANNOTATOR else None,
            columns=tuple((column, _text(row[column])) for column in columns),
        )


def _track_label(name: str | None, score: float) -> str:
    """The only text that a label track has."""
    return f"{name} {score:.2f}" if name else f"{score:.2f}"


def _text(value: Any) -> str:
    return clock_text(value) if isinstance(value, datetime) else "" if value is None else str(value)


def clock_text(moment: datetime | None) -> str:
    """ISO 8601 to the millisecond: with a Z in UTC, without a zone by the recorder's clock."""
    return "" if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
