"""Embed one part of a run: decode audio around its events, encode it, write a fragment of the table.

`embed_part` does all of this for any caller. Its fragments belong to no table until they are committed.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mast.audio.reader import open_audio
from mast.datasets.sampler import make_rng
from mast.embeddings.box_encoder import BoxEncoder, EncodedChunk, Layers, encode_chunks, pool_boxes
from mast.embeddings.vector_table import open_vectors, vector_batch
from mast.embeddings.whitening import MIN_SAMPLES, SAMPLE, fit_whitening, read_whitening, write_whitening
from mast.errors import MastError, ModelError, StorageError
from mast.models.loading import load_encoder
from mast.recordings.scan import PROVENANCE
from mast.records import BOX_COLUMNS, event_id
from mast.runs.layout import VECTORS, part_in
from mast.runs.results import DetectionResults, open_results, part_numbers
from mast.runs.worker import (
    TransientError,
    can_be_read,
    check_reachable,
    describe_error,
    error_response,
    read_worker_args,
)
from mast.storage import exists, join, open_binary
from mast.store.audio_store import DATA_VERSION, require_lance, storage_options
from mast.types import Floats16
from mast.wording import counted
from mast.workers.process import PROGRESS, Answer, Serve, worker_main

if TYPE_CHECKING:
    import lance

FRAGMENT_EVENTS = 1 << 15
"""Number of vectors held in memory before they are written: a very long recording may have many more events."""

SAMPLED_PARTS = 50
"""Maximum number of parts, evenly spaced over a run, whose events are sampled to measure the whitening."""

BATCH_VECTORS = 1 << 10
"""Number of stored vectors written to the table at a time."""

OUTSIDE = "no audio there any more, or outside the model's frequency band"

_COLUMNS = (*BOX_COLUMNS, "score", "start_utc", "start_local", "site")


@dataclass(frozen=True, slots=True)
class EmbedConfig:
    """Configuration of every worker of a table, in plain values; `model` is the location of the model."""

    events: str
    table: str
    model: str
    identity: str
    layers: Layers


@dataclass(slots=True)
class EmbeddedPart:
    """The fragments of a part in the table's folder, and the number of excluded events by reason."""

    number: int
    fragments: list[str] = field(default_factory=list)
    events: int = 0
    excluded: Counter[str] = field(default_factory=Counter)


def open_encoder(config: EmbedConfig, device: str) -> BoxEncoder:
    """Load the model on a device with the whitening of its table; raise `ModelError` if the model has changed."""
    loaded = load_encoder(config.model)
    if loaded.description.identity != config.identity:
        raise ModelError(f"{config.model} is no longer the model {config.identity}. Restore that model.")
    return BoxEncoder(loaded, config.layers, device, read_whitening(config.table))


def fit_table_whitening(results: DetectionResults, encoder: BoxEncoder, table: str) -> None:
    """Measure the whitening on a fixed random sample of events from all over the run, and write it to the table.

    Raise `StorageError` if an unfinished run has too few events so far: its vectors would stay unwhitened forever.
    """
    vectors = [np.zeros((0, encoder.width), np.float16)]
    numbers = np.array(results.numbers, np.int64)
    parts = numbers[np.linspace(0, len(numbers) - 1, min(len(numbers), SAMPLED_PARTS)).astype(int)]
    for number in parts.tolist():
        events = results.events(number).select([*_COLUMNS])
        order = make_rng(number).permutation(len(events))
        chosen = np.sort(order[: math.ceil(SAMPLE / len(parts))])
        with suppress(TransientError):  # the sample does without recordings that are unreadable for now
            vectors += [
                batch for batch, _ in _vectors(results, events, chosen, encoder, EmbeddedPart(number))
            ]
    whitening = fit_whitening(np.concatenate(vectors))
    if results.unfinished and not whitening.is_measured:
        raise StorageError(
            f"{results.folder}: {counted(results.unfinished, 'part of the run is', 'parts of the run are')} not "
            f"finished, and the others have fewer than {MIN_SAMPLES} readable events: too few to measure the whitening "
            "of the vectors. Finish mast detect, then run this command again."
        )
    write_whitening(table, whitening)


def embed_part(
    results: DetectionResults,
    number: int,
    encoder: BoxEncoder,
    table: str,
    on_progress: Callable[[float], None] = lambda fraction: None,
) -> EmbeddedPart:
    """Write the vectors of a part's events; call `on_progress` with the fraction of them that is done."""
    events = results.events(number).select([*_COLUMNS])
    written, waiting = EmbeddedPart(number), list[pa.RecordBatch]()
    dataset, _ = open_vectors(table)

    def flush() -> None:
        written.fragments += _fragments(waiting, dataset)
        waiting.clear()

    for vectors, rows in _vectors(results, events, np.arange(len(events)), encoder, written):
        waiting.append(vector_batch([_row(item, number) for item in events.take(rows).to_pylist()], vectors))
        written.events += len(rows)
        if sum(map(len, waiting)) >= FRAGMENT_EVENTS:
            flush()
        on_progress((written.events + written.excluded.total()) / len(events))
    if waiting:
        flush()
    return written


def _fragments(batches: list[pa.RecordBatch], dataset: lance.LanceDataset) -> list[str]:
    """Write rows to the table's folder; return the fragments to commit, as JSON."""
    rows = pa.Table.from_batches(batches)
    options = storage_options(dataset.uri)
    written = require_lance().fragment.write_fragments(
        rows, dataset, rows.schema, data_storage_version=DATA_VERSION, storage_options=options
    )
    return [json.dumps(fragment.to_json()) for fragment in written]


def _row(event: dict[str, Any], part: int) -> tuple[Any, ...]:
    """Return the values of an `EmbeddedEvent`."""
    name = event_id(*(event[column] for column in BOX_COLUMNS))
    return (name, part, *(event[column] for column in _COLUMNS))


def _vectors(
    results: DetectionResults,
    events: pa.Table,
    chosen: NDArray[np.int64],
    encoder: BoxEncoder,
    written: EmbeddedPart,
) -> Iterator[tuple[Floats16, list[int]]]:
    """Yield vectors and rows of a part's events `chosen` (n,): stored by `mast detect --embed`, or computed now."""
    stored = _stored_vectors(results, written.number, encoder)
    if stored is None:
        yield from pool_boxes(_encode_events(results, events, chosen, encoder, written), encoder)
        return
    for first in range(0, len(chosen), BATCH_VECTORS):
        rows = chosen[first : first + BATCH_VECTORS]
        yield encoder.whiten(stored[rows]), rows.tolist()


def finished_parts(results: DetectionResults, encoder: BoxEncoder) -> set[int]:
    """Return the parts for which `mast detect --embed` stored vectors of exactly this encoder and these layers."""
    if encoder.layers != "last" or results.model != encoder.description.identity:
        return set()
    return set(part_numbers(join(results.folder, VECTORS)))


def _stored_vectors(results: DetectionResults, number: int, encoder: BoxEncoder) -> Floats16 | None:
    """Read the vectors that `mast detect --embed` stored for a part; None without them, or if of another model."""
    import pyarrow.parquet as pq

    location = part_in(results.folder, VECTORS, number)
    if encoder.layers != "last" or not exists(location):
        return None
    with open_binary(location) as file:
        table = pq.read_table(file)
    if json.loads(table.schema.metadata[PROVENANCE])["model"] != encoder.description.identity:
        return None
    values = table["vector"].combine_chunks()
    vectors: Floats16 = values.flatten().to_numpy(zero_copy_only=False).reshape(len(table), encoder.width)
    return vectors


def _encode_events(
    results: DetectionResults,
    events: pa.Table,
    chosen: NDArray[np.int64],
    encoder: BoxEncoder,
    written: EmbeddedPart,
) -> Iterator[EncodedChunk]:
    """Yield chunks around the events `chosen` (n,) of a part; count unreadable events by reason in `written`."""
    for recording_id, within in _by_recording(events.take(chosen)):
        rows = chosen[within]
        recording_events = events.take(rows)
        bounds = np.stack(
            [recording_events[name].to_numpy() for name in ("start_s", "low_hz", "end_s", "high_hz")], axis=1
        )
        remaining = len(rows)
        try:
            for chunk in _recording_chunks(results, recording_id, bounds, encoder):
                remaining -= len(chunk.rows)
                yield chunk._replace(rows=rows[chunk.rows].tolist())
        except Exception as error:  # a corrupt file must not stop the run, whatever the decoder raises
            written.excluded[_reason(error, results, recording_id, encoder.rate_hz)] += remaining
        else:
            if remaining:
                written.excluded[OUTSIDE] += remaining


def _reason(error: Exception, results: DetectionResults, recording_id: str, rate_hz: int) -> str:
    """Return why a recording is unreadable; raise if its drive is gone, or if a second read succeeds."""
    collection, path = results.split_id(recording_id)
    location, expansion = results.location(collection, path), results.expansions[collection]
    check_reachable(results.roots[collection])
    reason = describe_error(error, location)
    if can_be_read(location, rate_hz, expansion, results.cut_short.get(recording_id)):
        raise TransientError(f"{location}: {reason} A second read succeeded.") from None
    return reason


def _recording_chunks(
    results: DetectionResults, recording_id: str, bounds: NDArray[np.float64], encoder: BoxEncoder
) -> Iterator[EncodedChunk]:
    collection, path = results.split_id(recording_id)
    location, expansion = results.location(collection, path), results.expansions[collection]
    with open_audio(location, encoder.rate_hz, expansion, results.cut_short.get(recording_id)) as audio:
        yield from encode_chunks(audio, bounds, encoder, expansion)


def _by_recording(events: pa.Table) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield each recording with the rows of its events, which are adjacent."""
    names = events["recording_id"].cast(pa.string()).to_numpy()
    starts = np.flatnonzero(names[1:] != names[:-1]) + 1
    for rows in np.split(np.arange(len(names)), starts):
        if len(rows):
            yield names[rows[0]], rows


def serve(
    config: EmbedConfig, encoder: BoxEncoder, jobs: Iterator[bytes], answer: Callable[[Answer], None]
) -> None:
    """Embed one part after the other, as a worker process."""
    results = open_results(config.events)
    for line in jobs:
        number = json.loads(line)["part"]
        try:
            written = embed_part(
                results, number, encoder, config.table, lambda fraction: answer({PROGRESS: fraction})
            )
        except (MastError, OSError) as error:
            answer(error_response(error))
        else:
            answer({"written": [written.fragments, written.events, written.excluded]})


def _get_ready() -> Serve:
    values, device = read_worker_args()
    config = EmbedConfig(**values)
    return partial(serve, config, open_encoder(config, device))


if __name__ == "__main__":
    worker_main(_get_ready)
