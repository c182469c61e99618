"""Tables of a part: read its rows of the table of recordings, write its events, their vectors and its status."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from mast.models.inference_engines import EngineName
from mast.recordings.scan import PROVENANCE
from mast.records import DetectedEvent, Event, RecordingStatus, arrow_schema, rows_to_table
from mast.runs.layout import EVENTS, STATUS, VECTORS, part_in
from mast.runs.plan import Part
from mast.storage import atomic_write, open_binary
from mast.types import Floats16
from mast.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_ROW_GROUP_EVENTS = 1 << 14
_COLUMNS = [
    *("recording_id", "collection", "path", "site", "status", "faults", "detail"),
    *("frames", "start_utc", "start_local", "utc_offset_min"),
]


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Configuration that every worker of a run needs, in plain values that can be sent as JSON.

    `model` is the path of the model and `identity` its expected hash. `threshold` is the minimum score of a reported
    event. `engine` is the inference engine, fixed so that all workers return the same detections. With `embeds`, each
    event gets its embedding vector during detection.
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
        """Return the path of the events of a part."""
        return part_in(self.out, EVENTS, number)

    def vectors(self, number: int) -> str:
        """Return the path of the vectors of a part's events, in the same row order; written if the run `embeds`."""
        return part_in(self.out, VECTORS, number)

    def status(self, number: int) -> str:
        """Return the path of the status of a part's recordings."""
        return part_in(self.out, STATUS, number)


class RecordingRow(NamedTuple):
    """Row of the table of recordings, with the columns that a worker needs."""

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


def read_rows(table: str, part: Part) -> list[RecordingRow]:
    """Read the recordings of a part; only the row groups that contain them."""
    import pyarrow.parquet as pq

    recordings: list[RecordingRow] = []
    with open_binary(table) as file:
        rows = pq.ParquetFile(file, pre_buffer=False)
        first_row = 0
        for group in range(rows.num_row_groups):
            stop_row = first_row + rows.metadata.row_group(group).num_rows
            first, stop = max(part.first_row, first_row), min(part.stop_row, stop_row)
            if first < stop:
                selected = rows.read_row_group(group, columns=_COLUMNS).slice(first - first_row, stop - first)
                recordings += [RecordingRow(**row) for row in selected.to_pylist()]
            first_row = stop_row
    return recordings


class EventsTable:
    """Writer of the events of a part and, if it has a file for them, of their vectors; rows are written in row groups."""

    def __init__(self, model: str, events: pq.ParquetWriter, vectors: pq.ParquetWriter | None) -> None:
        self._model, self._events, self._vectors = model, events, vectors
        self._rows: list[tuple[Any, ...]] = []
        self._vector_rows: list[Floats16] = []
        self.count = 0

    def add(self, recording: RecordingRow, event: Event, vector: Floats16 | None) -> None:
        """Add an event of a recording."""
        offset = timedelta(seconds=event.start_s)
        self._rows.append(
            (
                *(
                    recording.recording_id,
                    event.start_s,
                    event.end_s,
                    event.low_hz,
                    event.high_hz,
                    event.score,
                ),
                recording.start_utc and recording.start_utc + offset,
                recording.start_local and recording.start_local + offset,
                *(recording.utc_offset_min, recording.site, self._model),
            )
        )
        if vector is not None:
            self._vector_rows.append(vector)
        self.count += 1
        if len(self._rows) == _ROW_GROUP_EVENTS:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows to the files."""
        if self._rows:
            self._events.write_table(rows_to_table(self._rows, DetectedEvent))
        if self._vector_rows and self._vectors is not None:
            self._vectors.write_table(_vector_table(self._vector_rows, len(self._vector_rows[0])))
        self._rows, self._vector_rows = [], []


@contextmanager
def events_table(number: int, config: RunConfig, width: int) -> Iterator[EventsTable]:
    """Open the tables of a part's events and of their vectors (`width` numbers each); both files appear when complete."""
    with ExitStack() as files:
        file = files.enter_context(atomic_write(config.events(number)))
        events, vectors = files.enter_context(_writer(file, arrow_schema(DetectedEvent), config)), None
        if config.embeds:
            file = files.enter_context(atomic_write(config.vectors(number)))
            vectors = files.enter_context(_writer(file, _vector_table([], width).schema, config, "none"))
        table = EventsTable(config.identity, events, vectors)
        yield table
        table.flush()


def write_status(rows: Sequence[tuple[Any, ...]], number: int, config: RunConfig) -> None:
    """Write the status of a part's recordings, rows of `RecordingStatus` values; this file marks the part as done."""
    with (
        atomic_write(config.status(number)) as file,
        _writer(file, arrow_schema(RecordingStatus), config) as writer,
    ):
        writer.write_table(rows_to_table(rows, RecordingStatus))


def _vector_table(vectors: Sequence[Floats16], width: int) -> pa.Table:
    """Return vectors as a table of one column. N × (C,) → (N, C)"""
    import pyarrow as pa

    values = np.concatenate([np.zeros(0, np.float16), *vectors])
    return pa.table({"vector": pa.FixedSizeListArray.from_arrays(pa.array(values), width)})


def _writer(
    file: BinaryIO, schema: pa.Schema, config: RunConfig, compression: str = "zstd"
) -> pq.ParquetWriter:
    """Return a writer whose output depends only on the rows, the model, the settings and the version of MAST."""
    import pyarrow.parquet as pq

    metadata = {"model": config.identity, "mast_version": __version__, "fingerprint": config.fingerprint}
    return pq.ParquetWriter(
        file, schema.with_metadata({PROVENANCE: json.dumps(metadata)}), compression=compression
    )
