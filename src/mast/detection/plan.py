"""How an archive is cut into *parts*: what one process does at a time, and what a killed run has to do again.

A part is some rows of the table of recordings, in its order. The cut follows from the table alone, so that every
process, shard and machine cuts alike; of each part no more is kept than where it ends and how long it is.
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

if TYPE_CHECKING:
    import pyarrow as pa

Integers = NDArray[np.int64]

PART_S = 4 * 3600.0
"""Length of a part of a large archive, as heard: minutes of work, and a few megabytes of events."""

MIN_PARTS, MIN_PART_S = 64, 60.0
"""A small archive is cut finer, into about this many parts, so that all cores have work; but none below a minute."""

OPENING_S = 1.0
"""A recording counts as no shorter than this: opening it takes its time, too, and a part has to end some day."""

_BATCH_ROWS = 1 << 16
_MEASURED = ["collection", "status", "duration_s"]


class Part(NamedTuple):
    """Rows `first_row` to `stop_row` of the table of recordings; `seconds` of sound by their own clock."""

    number: int
    first_row: int
    stop_row: int
    seconds: float


@dataclass(frozen=True)
class Plan:
    """All parts of an archive: the row after the last of each (P,), and the seconds of sound in each (P,).

    `identity` is that of the recordings behind it: their names and lengths, in their order.
    """

    stop_rows: Integers
    seconds: NDArray[np.float64]
    part_s: float
    identity: str

    def __len__(self) -> int:
        """Number of parts."""
        return len(self.stop_rows)

    @property
    def recordings(self) -> int:
        """Number of recordings."""
        return int(self.stop_rows[-1]) if len(self) else 0

    def part(self, number: int) -> Part:
        """One part, by its number from 0."""
        first = int(self.stop_rows[number - 1]) if number else 0
        return Part(number, first, int(self.stop_rows[number]), float(self.seconds[number]))


def plan_parts(table: str, expansions: Mapping[str, float]) -> Plan:
    """Cut a table of recordings into parts; sound is heard slowed down by its collection's time expansion."""
    total_ms, names, times = 0, hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)
    for rows in _batches(table, ["recording_id", *_MEASURED]):
        costs, lengths = _lengths(rows, expansions)
        total_ms += int(costs.sum())
        names.update(_text(rows["recording_id"]))
        times.update(lengths.astype("<i8").tobytes())
    part_s = min(PART_S, max(MIN_PART_S, total_ms / 1000 / MIN_PARTS))
    measured = (_lengths(rows, expansions) for rows in _batches(table, _MEASURED))
    parts = chain.from_iterable(cut(measured, round(part_s * 1000)))
    stop_rows, lengths_ms = np.fromiter(parts, np.int64).reshape(-1, 2).T  # (P,), (P,)
    return Plan(stop_rows, lengths_ms / 1000, part_s, names.hexdigest() + times.hexdigest())


def cut(batches: Iterable[tuple[Integers, Integers]], part_ms: int) -> Iterator[tuple[int, int]]:
    """Row after the last, and length, of each part: as many rows as cost no more than `part_ms`, but at least one.

    Batches are what rows cost, and their lengths; whole milliseconds, so that sums are the same everywhere.
    """
    first_row = 0  # of the batch
    cost_ms = length_ms = 0  # of the part that is still open
    for costs, lengths in batches:
        costs_before, lengths_before = (np.concatenate([[0], np.cumsum(item)]) for item in (costs, lengths))
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
    """Some columns of a table of recordings, some rows at a time."""
    import pyarrow.parquet as pq

    with open_binary(table) as file:
        yield from pq.ParquetFile(file, pre_buffer=False).iter_batches(_BATCH_ROWS, columns=columns)


def _lengths(rows: pa.RecordBatch, expansions: Mapping[str, float]) -> tuple[Integers, Integers]:
    """What rows cost to hear, and their lengths, in milliseconds; what is quarantined has no length. → (N,), (N,)"""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_heard = pc.not_equal(rows["status"], "quarantined")
    seconds = pc.if_else(is_heard, pc.coalesce(rows["duration_s"], 0.0), 0.0).to_numpy(zero_copy_only=False)
    collection = pc.index_in(rows["collection"], pa.array([*expansions], pa.string()))
    if collection.null_count:
        raise ConfigError("The table has recordings of a collection that it does not describe. Scan again.")
    expansion = np.array([*expansions.values()], np.float64)[collection.to_numpy()]
    costs_s = np.maximum(seconds * expansion, OPENING_S)
    return np.rint(costs_s * 1000).astype(np.int64), np.rint(seconds * 1000).astype(np.int64)


def _text(column: pa.Array) -> memoryview:
    """The bytes of a column of text, a zero after each; no Python string is made of any."""
    import pyarrow as pa
    import pyarrow.compute as pc

    joined = pc.binary_join_element_wise(column.cast(pa.string()), "", "\0")
    _, offsets, data = joined.buffers()
    ends = np.frombuffer(offsets, np.int32)[joined.offset :]
    return memoryview(data)[ends[0] : ends[len(joined)]]
