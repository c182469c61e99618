"""The records a sound becomes on its way: `Recording`, `Chunk`, `Event`, `Heard` …; each is also its table's schema."""

from __future__ import annotations

import hashlib
import math
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from mast.storage import open_binary, written_whole

if TYPE_CHECKING:
    import pyarrow as pa

UtcTime = Annotated[datetime, "UTC"]
LocalTime = Annotated[datetime, "what the recorder's clock showed, no zone"]
Repeated = Annotated[str, "the same in many rows, and kept once"]
FreeColumns = tuple[tuple[str, str], ...]
Status = Literal["ok", "suspect", "quarantined"]
Origin = Literal["expert", "model", "pseudo"]
Kind = Literal["animal", "noise", "ignored"]


@dataclass(frozen=True, slots=True)
class Recording:
    """One audio file as found: what it is, when and where it was made and how that is known, what is wrong with it.

    `recording_id` is the collection's name, a slash, and `path`, the file's path below the collection's root.
    `start_utc` is None where the clock's zone is unknown; `start_local` is what the clock showed.
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
    clipped_share: float | None = None
    content_hash: int | None = None
    duplicate_of: str | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A span of a recording, `start_s` on; only the first `filled_s` seconds hold sound, the rest is padding."""

    recording_id: str
    index: int
    start_s: float
    filled_s: float


@dataclass(frozen=True, slots=True)
class Step:
    """A row of the prepared audio: step `step` of a recording, from `start_s` on as heard; the sound stands beside it.

    `start_utc` is the instant it was recorded. `fault` says why a recording ends here, with no samples in this row.
    """

    recording_id: str
    collection: str
    site: str | None
    step: int
    start_s: float
    start_utc: UtcTime | None
    samples: int
    part: int
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One sound as a box; `low_hz` and `high_hz` are None where the source only gives times.

    `columns` are the source's own further columns, kept as text in their order.
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
        """Refuse boxes that are none."""
        if not (math.isfinite(self.start_s) and math.isfinite(self.end_s) and self.start_s <= self.end_s):
            raise ValueError(f"an event cannot last from {self.start_s} s to {self.end_s} s")
        if (self.low_hz is None) != (self.high_hz is None):
            raise ValueError("an event has both a lower and an upper frequency, or neither")
        if (
            self.low_hz is not None
            and self.high_hz is not None
            and not 0 <= self.low_hz <= self.high_hz < math.inf
        ):
            raise ValueError(f"an event cannot reach from {self.low_hz} Hz to {self.high_hz} Hz")


@dataclass(frozen=True, slots=True)
class Annotation(Event):
    """An event as a study understands it: what its label means, and the file it came from."""

    kind: Kind = "animal"
    source: str = ""

    @classmethod
    def of(cls, event: Event, kind: Kind, source: str) -> Self:
        """The event with its meaning and origin."""
        values = {field.name: getattr(event, field.name) for field in fields(Event)}
        return cls(**values, kind=kind, source=source)


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A span an annotator looked at completely, whether or not anything was found; None ends with the recording."""

    recording_id: str
    start_s: float = 0.0
    end_s: float | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What became of a recording: a row of `prepared.parquet`. A failed one may still have steps before its break."""

    recording_id: str
    status: Literal["ok", "failed"]
    reason: str | None
    steps: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Detected:
    """A sound that a model has found: a row of `events/`. Seconds and Hz are the recording's own.

    `start_utc` and `start_local` are the sound's start: the instant, and what the recorder's clock showed, which was
    `utc_offset_min` ahead of UTC; None where that is not known. `model` is the identity of the model.
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
class Embedded:
    """A sound that a model has found, of part `part` of its run, as an encoder hears it: a row of `embeddings.lance`.

    Its vector stands beside it; everything else is as in `Detected`.
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
class EventName:
    """What examples say a sound is: a row of `names/`. `label` is None where they do not agree, or are too far.

    `nearest` is the name of the nearest example, and `similarity` their cosine, also where that is not enough.
    """

    event_id: str
    label: str | None
    confidence: float
    nearest: str
    similarity: float


@dataclass(frozen=True, slots=True)
class EventCluster:
    """Which group of like sounds a sound is in: a row of `clusters/`; None where it is in none.

    `novelty` is how unlike it is to the nearest example that experts have named: one less their cosine.
    """

    event_id: str
    cluster: int | None
    novelty: float


@dataclass(frozen=True, slots=True)
class Heard:
    """What became of a recording when sounds were looked for: a row of `status/`.

    It is ok, or empty where nothing was found in it. A quarantined one could not be heard, or not to its end, for
    `reason`; what was heard before that counts. `effort_s` is how much was heard, in the recording's own seconds.
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
    """A chunk and what it is for; `start_s` and `filled_s` are seconds as heard, after time expansion.

    `split` is train, val, test, the name of a held-out set, guard (left out) or unlabelled; `pool` is the held-out set
    that its recording belongs to, or in-domain. Clock times are those of the chunk's start, None where no clock can be
    trusted. `boxes` counts the experts' animal boxes in it.
    """

    recording_id: str
    index: int
    start_s: float
    filled_s: float
    split: str
    pool: str
    site: str | None
    start_utc: UtcTime | None
    start_local: LocalTime | None
    boxes: int


BOX = ("recording_id", "start_s", "end_s", "low_hz", "high_hz")
"""Columns of which a sound's name follows."""


def event_id(recording_id: str, start_s: float, end_s: float, low_hz: float, high_hz: float) -> str:
    """The name of a sound: 20 letters that follow from its recording and its box, on whatever machine.

    Counted are microseconds and thousandths of a Hz, which exported tables keep as well.
    """
    words = f"{recording_id}\0{start_s:.6f} {end_s:.6f} {low_hz:.3f} {high_hz:.3f}"
    return hashlib.blake2b(words.encode("utf-8", "surrogateescape"), digest_size=10).hexdigest()


@cache
def arrow_schema(record: type) -> pa.Schema:
    """Arrow schema of a record class, read off its fields."""
    import pyarrow as pa

    hints = get_type_hints(record, include_extras=True)
    return pa.schema([_arrow_field(field.name, hints[field.name]) for field in fields(record)])


def to_table(records: Iterable[Any], record: type) -> pa.Table:
    """Records of one class as an Arrow table."""
    names = [field.name for field in fields(record)]
    return rows_to_table([tuple(getattr(item, name) for name in names) for item in records], record)


def rows_to_table(rows: Sequence[tuple[Any, ...]], record: type) -> pa.Table:
    """Rows in the order of a record's fields as an Arrow table."""
    import pyarrow as pa

    schema = arrow_schema(record)
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def from_table(table: pa.Table, record: type[Any]) -> list[Any]:
    """Records of one class from an Arrow table with at least its columns."""
    hints = get_type_hints(record, include_extras=True)
    columns = []
    for field in fields(record):
        column = table[field.name].to_pylist()
        if get_origin(hints[field.name]) is tuple:
            column = [tuple(item) for item in column]
        columns.append(column)
    return [record(*row) for row in zip(*columns, strict=True)]


def write_table(records: Iterable[Any], record: type, location: str) -> None:
    """Write records of one class as a Parquet file, which appears when it is complete."""
    import pyarrow.parquet as pq

    with written_whole(location) as file:
        pq.write_table(to_table(records, record), file, compression="zstd")


def read_column(location: str, column: str) -> Iterator[Any]:
    """Values of one column of a Parquet file, streamed."""
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
