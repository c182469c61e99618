"""Partition an archive into *parts*: one process handles one part at a time, and a killed run repeats unfinished parts.

A part is a range of consecutive rows of the table of recordings. The partition depends on the table alone, so that every
process, shard and machine computes the same one. The plan keeps only the last row and the length of each part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mast.errors import ConfigError
from mast.storage import open_binary
from mast.types import Integers

if TYPE_CHECKING:
    import pyarrow as pa


PART_S = 4 * 3600.0
"""Length of a part of a large archive, in seconds of audio as processed: minutes of work, a few megabytes of events."""

MIN_PARTS, MIN_PART_S = 64, 60.0
"""A small archive gets about MIN_PARTS shorter parts, so that all cores have work; none is shorter than MIN_PART_S."""

OPEN_COST_S = 1.0
"""Minimum cost of a recording: opening it also takes time, and very short recordings must not make a part endless."""

_BATCH_ROWS = 1 << 16
_LENGTH_COLUMNS = ["collection", "status", "duration_s"]


class Part(NamedTuple):
    """Rows `first_row` to `stop_row` of the table of recordings; `seconds` of audio before time expansion."""

    number: int
    first_row: int
    stop_row: int
    seconds: float


@dataclass(frozen=True)
class PartPlan:
    """All parts of an archive: `stop_rows` (P,) are exclusive ends, `seconds` (P,) is the audio in each part.

    `identity` is a hash of the names and lengths of the recordings, in their order.
    """

    stop_rows: Integers
    seconds: NDArray[np.float64]
    part_s: float
    identity: str

    def __len__(self) -> int:
        """Return the number of parts."""
        return len(self.stop_rows)

    @property
    def recordings(self) -> int:
        """Number of recordings."""
        return int(self.stop_rows[-1]) if len(self) else 0

    def part(self, number: int) -> Part:
        """Return the part with a number, counted from 0."""
        first = int(self.stop_rows[number - 1]) if number else 0
        return Part(number, first, int(self.stop_rows[number]), float(self.seconds[number]))


def plan_parts(table: str, expansions: Mapping[str, float]) -> PartPlan:
    """Partition a table of recordings; audio is processed slowed down by the time expansion of its collection."""
    total_ms, names, durations = 0, hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)
    for rows in _batches(table, ["recording_id", *_LENGTH_COLUMNS]):
        costs, lengths = _lengths(rows, expansions)
        total_ms += int(costs.sum())
        names.update(_text(rows["recording_id"]))
        durations.update(lengths.astype("<i8").tobytes())
    part_s = min(PART_S, max(MIN_PART_S, total_ms / 1000 / MIN_PARTS))
    measured = (_lengths(rows, expansions) for rows in _batches(table, _LENGTH_COLUMNS))
    parts = chain.from_iterable(partition_rows(measured, round(part_s * 1000)))
    stop_rows, lengths_ms = np.fromiter(parts, np.int64).reshape(-1, 2).T  # (P,), (P,)
    return PartPlan(stop_rows, lengths_ms / 1000, part_s, names.hexdigest() + durations.hexdigest())


def partition_rows(batches: Iterable[tuple[Integers, Integers]], part_ms: int) -> Iterator[tuple[int, int]]:
    """Yield the exclusive stop row and the length in milliseconds of each part.

    A part takes rows while their cost does not exceed `part_ms`, and at least one row. A batch is the costs and the
    lengths of rows, both (N,), in whole milliseconds, so that sums are the same on every machine.
    """
    first_row = 0  # of the batch
    cost_ms = length_ms = 0  # of the part that is still open
    for costs, lengths in batches:
        costs_before, lengths_before = (
            np.concatenate([[0], np.cumsum(values)]) for values in (costs, lengths)
        )
        at, cost_at, length_at = 0, -cost_ms, -length_ms
        while True:
            fitting = int(np.searchsorted(costs_before, cost_at + part_ms, side="right")) - 1
            is_empty = cost_at == costs_before[at]
            stop = max(fitting, at + is_empty)
            if stop >= len(costs):
                break
            yield first_row + stop, int(lengths_before[stop]) - length_at
            at, cost_at, length_at = stop, int(costs_before[stop]), int(lengths_before[stop])
        cost_ms, length_ms = int(costs_before[-1]) - cost_at, int(lengths_before[-1]) - length_at
        first_row += len(costs)
    if cost_ms:
        yield first_row, length_ms


def _batches(table: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield columns of a table of recordings in batches of rows."""
    import pyarrow.parquet as pq

    with open_binary(table) as file:
        yield from pq.ParquetFile(file, pre_buffer=False).iter_batches(_BATCH_ROWS, columns=columns)


def _lengths(rows: pa.RecordBatch, expansions: Mapping[str, float]) -> tuple[Integers, Integers]:
    """Return the processing cost and the length of rows in ms; quarantined recordings have length 0. → (N,), (N,)"""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_processed = pc.not_equal(rows["status"], "quarantined")
    seconds = pc.if_else(is_processed, pc.coalesce(rows["duration_s"], 0.0), 0.0).to_numpy(
        zero_copy_only=False
    )
    collection = pc.index_in(rows["collection"], pa.array([*expansions], pa.string()))
    if collection.null_count:
        raise ConfigError(
            "The table has recordings of a collection that its metadata does not describe. Scan again."
        )
    expansion = np.array([*expansions.values()], np.float64)[collection.to_numpy()]
    costs_s = np.maximum(seconds * expansion, OPEN_COST_S)
    return np.rint(costs_s * 1000).astype(np.int64), np.rint(seconds * 1000).astype(np.int64)


def _text(column: pa.Array) -> memoryview:
    """Return the bytes of a text column, each value followed by a zero byte, without creating Python strings."""
    import pyarrow as pa
    import pyarrow.compute as pc

    joined = pc.binary_join_element_wise(column.cast(pa.string()), "", "\0")
    _, offsets, data = joined.buffers()
    ends = np.frombuffer(offsets, np.int32)[joined.offset :]
    return memoryview(data)[ends[0] : ends[len(joined)]]
