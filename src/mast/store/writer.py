"""Write prepared audio in *parts* of about an hour, each by one process to one Lance fragment.

A part is a list of recordings, or one span of a recording that is longer than a part.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mast.audio.reader import open_audio
from mast.errors import AudioError, MastError, StorageError
from mast.records import AudioBlock, rows_to_table
from mast.store.audio_store import (
    DATA_VERSION,
    StoreLayout,
    open_dataset,
    require_lance,
    storage_options,
    store_schema,
    to_int16,
)
from mast.types import Floats32
from mast.workers.pool import Supervisor
from mast.workers.process import Serve, worker_main

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

PART_S = 3600.0
BLOCKS_PER_READ = 4
"""Blocks decoded at once: enough that the resampler's margins cost little."""

_BATCH_BLOCKS = 8  # rows per Arrow record batch
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CRASHED = "reading it crashed the decoder"
_SILENCE = np.zeros(0, np.float32)


class Source(NamedTuple):
    """A recording to prepare; `samples` is its length at the store's rate, `frames` the number of readable frames."""

    recording_id: str
    collection: str
    site: str | None
    location: str
    time_expansion: float
    start_utc_us: int | None
    samples: int
    frames: int


class BlockSpan(NamedTuple):
    """Consecutive blocks of a recording."""

    source: Source
    first_block: int
    stop_block: int


class StorePart(NamedTuple):
    """Unit of work that one process writes."""

    number: int
    spans: tuple[BlockSpan, ...]

    def samples(self, layout: StoreLayout) -> int:
        """Return the length of the part in samples."""
        block_samples = layout.block_samples
        return sum(
            min(span.source.samples, span.stop_block * block_samples) - span.first_block * block_samples
            for span in self.spans
        )


class WrittenPart(NamedTuple):
    """Result of a part: its Lance fragments, and the recordings with a decoding error in it."""

    part: StorePart
    fragments: tuple[str, ...]
    corrupt: tuple[str, ...]


def plan_parts(sources: Iterable[Source], layout: StoreLayout) -> Iterator[StorePart]:
    """Group recordings into parts, in order; a recording longer than a part is split into several parts."""
    max_blocks = max(1, round(PART_S * layout.sample_rate_hz / layout.block_samples))
    number, blocks = 0, 0
    pending: list[BlockSpan] = []
    for source in sources:
        count = max(1, math.ceil(source.samples / layout.block_samples))
        if pending and blocks + count > max_blocks:
            yield StorePart(number, tuple(pending))
            number, blocks, pending = number + 1, 0, []
        if count > max_blocks:
            for first in range(0, count, max_blocks):
                yield StorePart(number, (BlockSpan(source, first, min(first + max_blocks, count)),))
                number += 1
        else:
            pending.append(BlockSpan(source, 0, count))
            blocks += count
    if pending:
        yield StorePart(number, tuple(pending))


def read_blocks(span: BlockSpan, layout: StoreLayout) -> Iterator[tuple[int, Floats32, str | None]]:
    """Yield (block number, audio, error) for each block of a span; a decoding error gives one last, empty block.

    Complete blocks before the error are kept. The block with the error is not, because its valid part is unknown. If a
    read of several blocks fails, the file is opened again and read block by block: a decoder may be unusable after an
    error.
    """
    block, reason = span.first_block, ""
    for blocks_per_read in (BLOCKS_PER_READ, 1):
        try:
            for wave in _read_from(span, block, blocks_per_read, layout):
                for at in range(0, len(wave), layout.block_samples):
                    yield block, wave[at : at + layout.block_samples], None
                    block += 1
            return
        except Exception as error:  # no exception of a decoder may end the run
            reason = str(error).removeprefix(f"{span.source.location}: ")
    yield block, _SILENCE, reason


def _read_from(span: BlockSpan, block: int, blocks_per_read: int, layout: StoreLayout) -> Iterator[Floats32]:
    """Yield the audio of a span from `block`, `blocks_per_read` blocks at a time."""
    source = span.source
    end = min(span.stop_block * layout.block_samples, source.samples)
    if not source.samples:
        raise AudioError(f"{source.location}: contains no audio at {layout.sample_rate_hz} Hz.")
    with open_audio(source.location, layout.sample_rate_hz, source.time_expansion, source.frames) as audio:
        for first in range(block * layout.block_samples, end, blocks_per_read * layout.block_samples):
            stop = min(first + blocks_per_read * layout.block_samples, end)
            if stop > audio.samples:
                raise AudioError(
                    f"{source.location}: contains {audio.duration_s:.1f} s of audio, less than when it was scanned. "
                    "Scan again."
                )
            yield audio.read_samples(first, stop)


def batches_of(
    part: StorePart, layout: StoreLayout, crashing: Iterable[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part in batches; a `crashing` recording gives only one row with its fault."""
    rows: list[tuple[Any, ...]] = []
    ends = [0]
    buffer = np.empty(_BATCH_BLOCKS * layout.block_samples, np.int16)
    for span in part.spans:
        crash = span.source.recording_id in crashing
        blocks = [(span.first_block, _SILENCE, _CRASHED)] if crash else read_blocks(span, layout)
        for block, wave, fault in blocks:
            ends.append(ends[-1] + len(wave))
            to_int16(wave, buffer[ends[-2] : ends[-1]])
            rows.append(_row(span.source, block, len(wave), part.number, layout, fault))
            if len(rows) == _BATCH_BLOCKS:
                yield _batch(rows, ends, buffer)
                rows, ends, buffer = [], [0], np.empty_like(buffer)  # Lance may still use the old buffer
    if rows:
        yield _batch(rows, ends, buffer)


def _row(
    source: Source, block: int, samples: int, part: int, layout: StoreLayout, fault: str | None
) -> tuple[Any, ...]:
    """Return the values of an `AudioBlock`. Real time is expanded time divided by `time_expansion`."""
    start_s = block * layout.block_samples / layout.sample_rate_hz
    start_utc = None
    if source.start_utc_us is not None:
        start_utc = _EPOCH + timedelta(
            microseconds=source.start_utc_us + round(start_s / source.time_expansion * 1e6)
        )
    return (*source[:3], block, start_s, start_utc, samples, part, fault)


def _batch(
    rows: list[tuple[Any, ...]], ends: list[int], buffer: np.ndarray[Any, np.dtype[np.int16]]
) -> pa.RecordBatch:
    import pyarrow as pa

    offsets = pa.py_buffer(np.array(ends, np.int64) * 2)
    little_endian = buffer if sys.byteorder == "little" else buffer.byteswap()
    audio = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(rows), [None, offsets, pa.py_buffer(little_endian)]
    )
    columns = rows_to_table(rows, AudioBlock).columns
    return pa.record_batch([*(column.chunk(0) for column in columns), audio], schema=store_schema())


def write_part(
    location: str, part: StorePart, layout: StoreLayout, crashing: Iterable[str] = ()
) -> WrittenPart:
    """Write a part to the store's folder; it becomes part of the store when its fragments are committed."""
    import pyarrow as pa

    lance = require_lance()
    corrupt: list[str] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in batches_of(part, layout, crashing):
            faulty = batch["fault"].is_valid()
            corrupt.extend(batch["recording_id"].filter(faulty).to_pylist())
            yield batch

    fragments = lance.fragment.write_fragments(
        pa.RecordBatchReader.from_batches(store_schema(), batches()),
        _dataset(location),
        store_schema(),
        data_storage_version=DATA_VERSION,
        storage_options=storage_options(location),
    )
    return WrittenPart(part, tuple(json.dumps(fragment.to_json()) for fragment in fragments), tuple(corrupt))


@cache
def _dataset(location: str) -> lance.LanceDataset:
    """Open the store, once per process."""
    dataset = open_dataset(location)
    if dataset is None:
        raise StorageError(f"{location}: the store no longer exists.")
    return dataset


class WriteSupervisor(Supervisor[StorePart, WrittenPart]):
    """Supervisor of one process that writes parts."""

    module, purpose = "mast.store.writer", "preparing"

    def __init__(self, location: str, layout: StoreLayout) -> None:
        super().__init__()
        self._job = {"store": location, "layout": [layout.sample_rate_hz, layout.block_samples]}

    def run(self, part: StorePart) -> WrittenPart:
        """Write a part, without the spans that crash the process."""
        answer = self.process.call({**self._job, "part": part})
        if answer is None:
            crashed = [span for span in part.spans if self.process.call({**self._job, "try": span}) is None]
            crashing = [span.source.recording_id for span in crashed]
            answer = self.process.call({**self._job, "part": part, "crashing": crashing})
        if answer is None:
            raise MastError(
                "a preparing process ended unexpectedly twice. Check that there is enough memory."
            )
        if "error" in answer:
            raise StorageError(f"{self._job['store']}: cannot be written: {answer['error']}")
        return WrittenPart(part, tuple(answer["fragments"]), tuple(answer["broken"]))


def serve(jobs: Iterator[bytes], answer: Any) -> None:
    """Process jobs in a child process, one by one."""
    for line in jobs:
        job = json.loads(line)
        layout = StoreLayout(*job["layout"])
        if "try" in job:
            for _ in read_blocks(_span(job["try"]), layout):
                pass
            answer({})
            continue
        number, spans = job["part"]
        part = StorePart(number, tuple(map(_span, spans)))
        try:
            written = write_part(job["store"], part, layout, job.get("crashing", ()))
            answer({"fragments": written.fragments, "broken": written.corrupt})
        except (
            OSError,
            ValueError,
            MastError,
        ) as error:  # for example a full disk, or a bucket without write permission
            answer({"error": str(error)})


def _span(values: list[Any]) -> BlockSpan:
    source, first_block, stop_block = values
    return BlockSpan(Source(*source), first_block, stop_block)


def _get_ready() -> Serve:
    require_lance()
    return serve


if __name__ == "__main__":
    worker_main(_get_ready)
