"""What a part reads and writes: its rows of the table of recordings, and its events, their vectors and its status."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from mast import __version__
from mast.detection.folder import EVENTS, STATUS, VECTORS, part_in
from mast.detection.plan import Part
from mast.detection.stitching import Vector
from mast.events import Detected, Event, Heard, arrow_schema, rows_to_table
from mast.models.engines import EngineName
from mast.recordings.scan import PROVENANCE
from mast.storage import open_binary, written_whole

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_ROW_GROUP_EVENTS = 1 << 14
_COLUMNS = [
    *("recording_id", "collection", "path", "site", "status", "faults", "detail"),
    *("frames", "start_utc", "start_local", "utc_offset_min"),
]


@dataclass(frozen=True, slots=True)
class Orders:
    """What everyone who works at a run has to know, in plain values that can be sent anywhere.

    `model` is where the model is, `identity` what it has to be; `threshold` is the least score that is reported;
    `engine` is what the model runs in, so that all who work at the run find the same; where it `embeds`, sounds get
    their vectors at once.
    """

    out: str
    model: str
    identity: str
    fingerprint: str
    roots: dict[str, str]
    expansions: dict[str, float]
    detection: dict[str, float]
    threshold: float
    hop_s: float
    engine: EngineName = "float32"
    embeds: bool = False

    def events(self, number: int) -> str:
        """Where the events of a part are."""
        return part_in(self.out, EVENTS, number)

    def vectors(self, number: int) -> str:
        """Where the vectors of a part's events are, row by row, if sounds get them at once."""
        return part_in(self.out, VECTORS, number)

    def status(self, number: int) -> str:
        """Where it says what became of the recordings of a part."""
        return part_in(self.out, STATUS, number)


class Source(NamedTuple):
    """A row of the table of recordings, as far as it is needed here."""

    recording_id: str
    collection: str
    path: str
    site: str | None
    status: str
    faults: Sequence[str]
    detail: str | None
    frames: int | None
    start_utc: datetime | None
    start_local: datetime | None
    utc_offset_min: int | None


def read_rows(table: str, part: Part) -> list[Source]:
    """The recordings of a part."""
    import pyarrow.parquet as pq

    sources: list[Source] = []
    with open_binary(table) as file:
        rows = pq.ParquetFile(file, pre_buffer=False)
        first_row = 0
        for group in range(rows.num_row_groups):
            stop_row = first_row + rows.metadata.row_group(group).num_rows
            first, stop = max(part.first_row, first_row), min(part.stop_row, stop_row)
            if first < stop:
                here = rows.read_row_group(group, columns=_COLUMNS).slice(first - first_row, stop - first)
                sources += [Source(**row) for row in here.to_pylist()]
            first_row = stop_row
    return sources


class EventsTable:
    """The events of a part and, where there is a file for them, their vectors; rows go out as they come."""

    def __init__(self, model: str, events: pq.ParquetWriter, vectors: pq.ParquetWriter | None) -> None:
        self._model, self._events, self._vectors = model, events, vectors
        self._rows: list[tuple[Any, ...]] = []
        self._vector_rows: list[Vector] = []
        self.count = 0

    def add(self, source: Source, event: Event, vector: Vector | None) -> None:
        """A sound of a recording."""
        since = timedelta(seconds=event.start_s)
        self._rows.append(
            (
                *(source.recording_id, event.start_s, event.end_s, event.low_hz, event.high_hz, event.score),
                source.start_utc and source.start_utc + since,
                source.start_local and source.start_local + since,
                *(source.utc_offset_min, source.site, self._model),
            )
        )
        if vector is not None:
            self._vector_rows.append(vector)
        self.count += 1
        if len(self._rows) == _ROW_GROUP_EVENTS:
            self.flush()

    def flush(self) -> None:
        """Send what has come to the files."""
        if self._rows:
            self._events.write_table(rows_to_table(self._rows, Detected))
        if self._vector_rows and self._vectors is not None:
            self._vectors.write_table(_vector_table(self._vector_rows, len(self._vector_rows[0])))
        self._rows, self._vector_rows = [], []


@contextmanager
def events_table(number: int, orders: Orders, width: int) -> Iterator[EventsTable]:
    """The table of a part's events, and that of their vectors of `width` numbers; both appear when they are complete."""
    with ExitStack() as files:
        file = files.enter_context(written_whole(orders.events(number)))
        events, vectors = files.enter_context(_writer(file, arrow_schema(Detected), orders)), None
        if orders.embeds:
            file = files.enter_context(written_whole(orders.vectors(number)))
            vectors = files.enter_context(_writer(file, _vector_table([], width).schema, orders, "none"))
        table = EventsTable(orders.identity, events, vectors)
        yield table
        table.flush()


def write_status(rows: Sequence[tuple[Any, ...]], number: int, orders: Orders) -> None:
    """What became of the recordings of a part, as values of `Heard`: with this the part is done."""
    with written_whole(orders.status(number)) as file, _writer(file, arrow_schema(Heard), orders) as writer:
        writer.write_table(rows_to_table(rows, Heard))


def _vector_table(vectors: Sequence[Vector], width: int) -> pa.Table:
    """Vectors as a table of one column. N × (C,)"""
    import pyarrow as pa

    values = np.concatenate([np.zeros(0, np.float16), *vectors])
    return pa.table({"vector": pa.FixedSizeListArray.from_arrays(pa.array(values), width)})


def _writer(file: BinaryIO, schema: pa.Schema, orders: Orders, compression: str = "zstd") -> pq.ParquetWriter:
    """A writer whose bytes depend on nothing but the rows, the model, the settings and the version of MAST."""
    import pyarrow.parquet as pq

    story = {"model": orders.identity, "mast_version": __version__, "fingerprint": orders.fingerprint}
    return pq.ParquetWriter(
        file, schema.with_metadata({PROVENANCE: json.dumps(story)}), compression=compression
    )
