"""Prepared audio is written in *parts* of about an hour, each by one process, each to one Lance fragment.

A part is a list of recordings, or one span of a recording that is longer than a part.
"""

from __future__ import annotations

import json
import math
import queue
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mast.errors import AudioError, MastError, StorageError
from mast.events import Step, rows_to_table
from mast.recordings.children import Child, Serve, serve_parent
from mast.recordings.decode import Wave, open_audio
from mast.recordings.store import (
    DATA_VERSION,
    Layout,
    lance_module,
    open_dataset,
    storage_options,
    store_schema,
    to_int16,
)

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

PART_S = 3600.0
BLOCK_STEPS = 4
"""Steps decoded at once: enough that the resampler's margins cost little."""

_BATCH_STEPS = 8  # rows handed to Lance at once
_AHEAD = 4  # parts under way or waiting to be committed, for each process
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CRASHED = "reading it crashed the decoder"
_SILENCE = np.zeros(0, np.float32)


class Source(NamedTuple):
    """A recording to prepare; `samples` is its length at the store's rate, `frames` what of the file can be read."""

    recording_id: str
    collection: str
    site: str | None
    location: str
    time_expansion: float
    start_utc_us: int | None
    samples: int
    frames: int


class Span(NamedTuple):
    """Some steps of a recording."""

    source: Source
    first_step: int
    stop_step: int


class Part(NamedTuple):
    """What one process writes at a time."""

    number: int
    spans: tuple[Span, ...]

    def samples(self, layout: Layout) -> int:
        """Length of the part."""
        step = layout.step_samples
        return sum(
            min(span.source.samples, span.stop_step * step) - span.first_step * step for span in self.spans
        )


class Written(NamedTuple):
    """What became of a part: its Lance fragments, and the recordings that broke off in it."""

    part: Part
    fragments: tuple[str, ...]
    broken: tuple[str, ...]


def plan_parts(sources: Iterable[Source], layout: Layout) -> Iterator[Part]:
    """Cut recordings into parts, in their order; a recording longer than a part has parts of its own."""
    most = max(1, round(PART_S * layout.sample_rate_hz / layout.step_samples))
    number, steps = 0, 0
    waiting: list[Span] = []
    for source in sources:
        count = max(1, math.ceil(source.samples / layout.step_samples))
        if waiting and steps + count > most:
            yield Part(number, tuple(waiting))
            number, steps, waiting = number + 1, 0, []
        if count > most:
            for first in range(0, count, most):
                yield Part(number, (Span(source, first, min(first + most, count)),))
                number += 1
        else:
            waiting.append(Span(source, 0, count))
            steps += count
    if waiting:
        yield Part(number, tuple(waiting))


def read_steps(span: Span, layout: Layout) -> Iterator[tuple[int, Wave, str | None]]:
    """Each step of a span with its sound; where the recording breaks, no sound but the reason, and nothing after it.

    Whole steps before the break are kept. The step with the break is not: nobody knows which part of it is sound.
    Where a block of steps breaks, the file is opened anew and read step by step: decoders may be lost after an error.
    """
    step, reason = span.first_step, ""
    for block_steps in (BLOCK_STEPS, 1):
        try:
            for wave in _blocks(span, step, block_steps, layout):
                for at in range(0, len(wave), layout.step_samples):
                    yield step, wave[at : at + layout.step_samples], None
                    step += 1
            return
        except Exception as error:  # one bad file must never end the work, whatever a decoder throws
            reason = str(error).removeprefix(f"{span.source.location}: ")
    yield step, _SILENCE, reason


def _blocks(span: Span, step: int, block_steps: int, layout: Layout) -> Iterator[Wave]:
    """The sound of a span from `step` on, some steps at a time."""
    source = span.source
    end = min(span.stop_step * layout.step_samples, source.samples)
    if not source.samples:
        raise AudioError(f"{source.location}: holds no sound at {layout.sample_rate_hz} Hz.")
    with open_audio(source.location, layout.sample_rate_hz, source.time_expansion, source.frames) as audio:
        for first in range(step * layout.step_samples, end, block_steps * layout.step_samples):
            stop = min(first + block_steps * layout.step_samples, end)
            if stop > audio.samples:
                raise AudioError(
                    f"{source.location}: holds {audio.duration_s:.1f} s of sound, less than when it was scanned. "
                    "Scan again."
                )
            yield audio.read_samples(first, stop)


def batches_of(part: Part, layout: Layout, crashing: Iterable[str] = ()) -> Iterator[pa.RecordBatch]:
    """The rows of a part, a few at a time; of the `crashing` recordings only that they are."""
    rows: list[tuple[Any, ...]] = []
    ends = [0]
    sound = np.empty(_BATCH_STEPS * layout.step_samples, np.int16)
    for span in part.spans:
        crash = span.source.recording_id in crashing
        steps = [(span.first_step, _SILENCE, _CRASHED)] if crash else read_steps(span, layout)
        for step, wave, fault in steps:
            ends.append(ends[-1] + len(wave))
            to_int16(wave, sound[ends[-2] : ends[-1]])
            rows.append(_row(span.source, step, len(wave), part.number, layout, fault))
            if len(rows) == _BATCH_STEPS:
                yield _batch(rows, ends, sound)
                rows, ends, sound = [], [0], np.empty_like(sound)  # Lance may still hold the old one
    if rows:
        yield _batch(rows, ends, sound)


def _row(
    source: Source, step: int, samples: int, part: int, layout: Layout, fault: str | None
) -> tuple[Any, ...]:
    """The values of a `Step`. Time as recorded runs faster than time as heard by the time expansion."""
    start_s = step * layout.step_samples / layout.sample_rate_hz
    start_utc = None
    if source.start_utc_us is not None:
        start_utc = _EPOCH + timedelta(
            microseconds=source.start_utc_us + round(start_s / source.time_expansion * 1e6)
        )
    return (*source[:3], step, start_s, start_utc, samples, part, fault)


def _batch(
    rows: list[tuple[Any, ...]], ends: list[int], sound: np.ndarray[Any, np.dtype[np.int16]]
) -> pa.RecordBatch:
    import pyarrow as pa

    offsets = pa.py_buffer(np.array(ends, np.int64) * 2)
    little = sound if sys.byteorder == "little" else sound.byteswap()
    audio = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(rows), [None, offsets, pa.py_buffer(little)]
    )
    columns = rows_to_table(rows, Step).columns
    return pa.record_batch([*(column.chunk(0) for column in columns), audio], schema=store_schema())


def write_part(location: str, part: Part, layout: Layout, crashing: Iterable[str] = ()) -> Written:
    """Write a part to the store's folder; it belongs to the store once its fragments are committed."""
    import pyarrow as pa

    lance = lance_module()
    broken: list[str] = []

    def watched() -> Iterator[pa.RecordBatch]:
        for batch in batches_of(part, layout, crashing):
            faulty = batch["fault"].is_valid()
            broken.extend(batch["recording_id"].filter(faulty).to_pylist())
            yield batch

    fragments = lance.fragment.write_fragments(
        pa.RecordBatchReader.from_batches(store_schema(), watched()),
        _dataset(location),
        store_schema(),
        data_storage_version=DATA_VERSION,
        storage_options=storage_options(location),
    )
    return Written(part, tuple(json.dumps(fragment.to_json()) for fragment in fragments), tuple(broken))


@cache
def _dataset(location: str) -> lance.LanceDataset:
    """The store, opened once a process."""
    dataset = open_dataset(location)
    if dataset is None:
        raise StorageError(f"{location}: the store is gone.")
    return dataset


class Writers:
    """Processes that write parts; `written` gives what became of them in the parts' order."""

    def __init__(self, location: str, layout: Layout, count: int) -> None:
        self._job = {"store": location, "layout": [layout.sample_rate_hz, layout.step_samples]}
        self._count = count
        self._idle: queue.SimpleQueue[Child] = queue.SimpleQueue()
        self._writers = [Child("mast.recordings.parts", "preparing") for _ in range(count)]
        for writer in self._writers:
            self._idle.put(writer)

    def written(self, parts: Iterable[Part]) -> Generator[Written]:
        """Write all parts, some ahead of the one that is asked for, but never many."""
        ahead: deque[Future[Written]] = deque()
        with ThreadPoolExecutor(self._count) as threads:
            try:
                for part in parts:
                    ahead.append(threads.submit(self._write, part))
                    if len(ahead) >= _AHEAD * self._count:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            finally:
                for future in ahead:
                    future.cancel()
                for writer in self._writers:
                    writer.end()

    def _write(self, part: Part) -> Written:
        writer = self._idle.get()
        try:
            answer = writer.ask({**self._job, "part": part})
            if answer is None:
                tries = [span for span in part.spans if writer.ask({**self._job, "try": span}) is None]
                crashing = [span.source.recording_id for span in tries]
                answer = writer.ask({**self._job, "part": part, "crashing": crashing})
            if answer is None:
                raise MastError("a preparing process ended unexpectedly, twice. Is there enough memory?")
            if "error" in answer:
                raise StorageError(f"{self._job['store']}: cannot be written: {answer['error']}")
            return Written(part, tuple(answer["fragments"]), tuple(answer["broken"]))
        finally:
            self._idle.put(writer)


def serve(jobs: Iterator[bytes], answer: Any) -> None:
    """What a child process does: one job after the other."""
    for line in jobs:
        job = json.loads(line)
        layout = Layout(*job["layout"])
        if "try" in job:
            for _ in read_steps(_span(job["try"]), layout):
                pass
            answer({})
            continue
        number, spans = job["part"]
        part = Part(number, tuple(map(_span, spans)))
        try:
            written = write_part(job["store"], part, layout, job.get("crashing", ()))
            answer({"fragments": written.fragments, "broken": written.broken})
        except (OSError, ValueError, MastError) as error:  # a full disk, a bucket that refuses
            answer({"error": str(error)})


def _span(values: list[Any]) -> Span:
    source, first_step, stop_step = values
    return Span(Source(*source), first_step, stop_step)


def _get_ready() -> Serve:
    lance_module()
    return serve


if __name__ == "__main__":
    serve_parent(_get_ready)
