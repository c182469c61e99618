"""Record classes of all tables: `Recording`, `Event`, `RecordingStatus` …; the fields define the Arrow schema."""

from __future__ import annotations

import hashlib
import math
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from mast.storage import atomic_write, open_binary

if TYPE_CHECKING:
    import pyarrow as pa

UtcTime = Annotated[datetime, "UTC"]
LocalTime = Annotated[datetime, "time on the recorder's clock, without time zone"]
Repeated = Annotated[str, "dictionary-encoded: repeated in many rows, stored once"]
FreeColumns = tuple[tuple[str, str], ...]
Status = Literal["ok", "suspect", "quarantined"]
Origin = Literal["expert", "model", "pseudo"]
Kind = Literal["animal", "noise", "ignored"]


@dataclass(frozen=True, slots=True)
class Recording:
    """One audio file: its format, start time and site with their sources, and its faults.

    `recording_id` is the name of the collection, a slash, and `path`, the path of the file below the collection's root.
    `start_utc` is None if the time zone of the clock is unknown; `start_local` is the time on the clock.
    """

    recording_id: str
    collection: str
    path: str
    size_bytes: int
    modified_utc: UtcTime | None
    status: Status
    faults: tuple[str, ...] = ()
    detail: str | None = None
    container: str | None = None
    encoding: str | None = None
    sample_rate_hz: int | None = None
    channels: int | None = None
    frames: int | None = None
    duration_s: float | None = None
    start_utc: UtcTime | None = None
    start_local: LocalTime | None = None
    utc_offset_min: int | None = None
    start_source: str | None = None
    zone_source: str | None = None
    site: str | None = None
    site_source: str | None = None
    device: str | None = None
    device_source: str | None = None
    gain: str | None = None
    gain_source: str | None = None
    comment: str | None = None
    peak: float | None = None
    clipped_fraction: float | None = None
    content_hash: int | None = None
    duplicate_of: str | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A span of a recording from `start_s`; the first `audio_s` seconds are audio, the rest is padding."""

    recording_id: str
    index: int
    start_s: float
    audio_s: float


@dataclass(frozen=True, slots=True)
class AudioBlock:
    """A row of the prepared audio: block `block` of a recording; the samples are another column of the table.

    `start_s` is the start in the recording in seconds, after time expansion; `start_utc` is the time of recording.
    `fault` is the reason why the recording ends at this row, which then has no samples.
    """

    recording_id: str
    collection: str
    site: str | None
    block: int
    start_s: float
    start_utc: UtcTime | None
    samples: int
    part: int
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A box in time and frequency; `low_hz` and `high_hz` are None if the source only has times.

    `columns` are the other columns of the source, stored as text in their order.
    """

    recording_id: str
    start_s: float
    end_s: float
    low_hz: float | None = None
    high_hz: float | None = None
    label: str | None = None
    score: float | None = None
    origin: Origin = "expert"
    annotator: str | None = None
    columns: FreeColumns = ()

    def __post_init__(self) -> None:
        """Raise ValueError if the bounds are not a box."""
        if not (math.isfinite(self.start_s) and math.isfinite(self.end_s) and self.start_s <= self.end_s):
            raise ValueError(f"an event cannot last from {self.start_s} s to {self.end_s} s")
        if (self.low_hz is None) != (self.high_hz is None):
            raise ValueError("an event must have both a low and a high frequency, or neither")
        if (
            self.low_hz is not None
            and self.high_hz is not None
            and not 0 <= self.low_hz <= self.high_hz < math.inf
        ):
            raise ValueError(f"an event cannot extend from {self.low_hz} Hz to {self.high_hz} Hz")


@dataclass(frozen=True, slots=True)
class Annotation(Event):
    """An event with the kind that the study's label map assigns to its label, and its source file."""

    kind: Kind = "animal"
    source: str = ""

    @classmethod
    def of(cls, event: Event, kind: Kind, source: str) -> Self:
        """Return an annotation from an event, its kind and its source file."""
        values = {field.name: getattr(event, field.name) for field in fields(Event)}
        return cls(**values, kind=kind, source=source)


@dataclass(frozen=True, slots=True)
class ReviewedSpan:
    """A span that an annotator reviewed completely, with or without events; `end_s` None is the end of the recording."""

    recording_id: str
    start_s: float = 0.0
    end_s: float | None = None


@dataclass(frozen=True, slots=True)
class PreparedRecording:
    """Result of preparing a recording: a row of `prepared.parquet`. If failed, it may have steps before the fault."""

    recording_id: str
    status: Literal["ok", "failed"]
    reason: str | None
    steps: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DetectedEvent:
    """A detection: a row of `events/`. Seconds and Hz are those of the recording, before time expansion.

    `start_utc` and `start_local` are the start of the event in UTC and on the recorder's clock, which was
    `utc_offset_min` minutes ahead of UTC; None if unknown. `model` is the identity of the model.
    """

    recording_id: Repeated
    start_s: float
    end_s: float
    low_hz: float
    high_hz: float
    score: float
    start_utc: UtcTime | None
    start_local: LocalTime | None
    utc_offset_min: int | None
    site: Repeated | None
    model: Repeated


@dataclass(frozen=True, slots=True)
class EmbeddedEvent:
    """A detection of part `part` of its run, with its embedding: a row of `embeddings.lance`.

    The vector is another column of the table; the other fields are as in `DetectedEvent`.
    """

    event_id: str
    part: int
    recording_id: str
    start_s: float
    end_s: float
    low_hz: float
    high_hz: float
    score: float
    start_utc: UtcTime | None
    start_local: LocalTime | None
    site: str | None


@dataclass(frozen=True, slots=True)
class EventLabel:
    """Label assigned to a detection by reference examples: a row of `labels/`.

    `label` is None if the nearest examples disagree or are too far. `nearest` is the label of the nearest example, and
    `similarity` their cosine similarity; both are set even if no label is assigned.
    """

    event_id: str
    label: str | None
    confidence: float
    nearest: str
    similarity: float


@dataclass(frozen=True, slots=True)
class EventCluster:
    """Cluster of a detection: a row of `clusters/`; `cluster` is None if it belongs to no cluster.

    `novelty` is the cosine distance (1 - cosine similarity) to the nearest labelled example.
    """

    event_id: str
    cluster: int | None
    novelty: float


@dataclass(frozen=True, slots=True)
class RecordingStatus:
    """Result of detection on a recording: a row of `status/`.

    The status is ok, or empty if there are no detections. A quarantined recording could not be processed, or not to its
    end, because of `reason`; detections before that point are kept. `effort_s` is the processed duration, in seconds of
    the recording.
    """

    recording_id: str
    status: Literal["ok", "empty", "quarantined"]
    reason: str | None
    effort_s: float
    events: int
    site: str | None
    start_utc: UtcTime | None


@dataclass(frozen=True, slots=True)
class SplitChunk:
    """A chunk with its split; `start_s` and `audio_s` are seconds after time expansion.

    `split` is train, val, test, the name of a held-out set, guard (excluded) or unlabelled; `domain` is the held-out set
    of its recording, or in-domain. Clock times are those of the start of the chunk, None if no clock is reliable.
    `boxes` is the number of annotated animal boxes in it.
    """

    recording_id: str
    index: int
    start_s: float
    audio_s: float
    split: str
    domain: str
    site: str | None
    start_utc: UtcTime | None
    start_local: LocalTime | None
    boxes: int


BOX_COLUMNS = ("recording_id", "start_s", "end_s", "low_hz", "high_hz")
"""Columns that determine the id of an event."""


def event_id(recording_id: str, start_s: float, end_s: float, low_hz: float, high_hz: float) -> str:
    """Return the id of an event: 20 hexadecimal digits, a hash of its recording and box, equal on every machine.

    Bounds are rounded to microseconds and thousandths of a Hz, as in exported tables.
    """
    key = f"{recording_id}\0{start_s:.6f} {end_s:.6f} {low_hz:.3f} {high_hz:.3f}"
    return hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=10).hexdigest()


@cache
def arrow_schema(record: type) -> pa.Schema:
    """Return the Arrow schema of a record class, derived from its fields."""
    import pyarrow as pa

    hints = get_type_hints(record, include_extras=True)
    return pa.schema([_arrow_field(field.name, hints[field.name]) for field in fields(record)])


def to_table(records: Iterable[Any], record: type) -> pa.Table:
    """Convert records of one class to an Arrow table."""
    names = [field.name for field in fields(record)]
    return rows_to_table([tuple(getattr(item, name) for name in names) for item in records], record)


def rows_to_table(rows: Sequence[tuple[Any, ...]], record: type) -> pa.Table:
    """Convert rows, with values in the order of a record's fields, to an Arrow table."""
    import pyarrow as pa

    schema = arrow_schema(record)
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def from_table(table: pa.Table, record: type[Any]) -> list[Any]:
    """Convert an Arrow table to records of one class; the table may have more columns."""
    hints = get_type_hints(record, include_extras=True)
    columns = []
    for field in fields(record):
        column = table[field.name].to_pylist()
        if get_origin(hints[field.name]) is tuple:
            column = [tuple(item) for item in column]
        columns.append(column)
    return [record(*row) for row in zip(*columns, strict=True)]


def write_table(records: Iterable[Any], record: type, location: str) -> None:
    """Write records of one class to a Parquet file; the file appears when it is complete."""
    import pyarrow.parquet as pq

    with atomic_write(location) as file:
        pq.write_table(to_table(records, record), file, compression="zstd")


def read_column(location: str, column: str) -> Iterator[Any]:
    """Yield the values of one column of a Parquet file, without loading the whole file."""
    import pyarrow.parquet as pq

    with open_binary(location) as file:
        for batch in pq.ParquetFile(file).iter_batches(columns=[column]):
            yield from batch.column(0).to_pylist()


def _arrow_field(name: str, hint: Any) -> pa.Field:
    import pyarrow as pa

    nullable = get_origin(hint) in (Union, types.UnionType)
    if nullable:
        hint = next(item for item in get_args(hint) if item is not type(None))
    if get_origin(hint) is Literal:
        hint = str
    arrow = {
        str: pa.string(),
        Repeated: pa.dictionary(pa.int32(), pa.string()),
        int: pa.int64(),
        float: pa.float64(),
        UtcTime: pa.timestamp("us", tz="UTC"),
        LocalTime: pa.timestamp("us"),
        FreeColumns: pa.map_(pa.string(), pa.string()),
        tuple[str, ...]: pa.list_(pa.string()),
    }[hint]
    return pa.field(name, arrow, nullable=nullable)
