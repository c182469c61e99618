"""The vectors of one part of a run: decode around its sounds, hear them, write a fragment of the table.

`embed_part` is all that a part needs, whoever calls it. What it writes belongs to nothing until it is committed.
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

from mast.datasets.order import randomness
from mast.detection.folder import VECTORS, part_in
from mast.detection.found import Found, numbers_in, open_found
from mast.detection.part import PassingError, can_be_read, check_reachable, in_words, take_orders, trouble
from mast.embeddings.boxes import BoxEncoder, Cut, Pool, Vectors, cut_chunks, vectors_of
from mast.embeddings.table import open_vectors, vector_batch
from mast.embeddings.whitening import ENOUGH, SAMPLE, measure, read_whitening, write_whitening
from mast.errors import MastError, ModelError, StorageError
from mast.events import BOX, event_id
from mast.models.loading import load_encoder
from mast.recordings.children import NEWS, Answer, Serve, serve_parent
from mast.recordings.decode import open_audio
from mast.recordings.scan import PROVENANCE
from mast.recordings.store import DATA_VERSION, lance_module, storage_options
from mast.storage import exists, join, open_binary

if TYPE_CHECKING:
    import lance

FRAGMENT_EVENTS = 1 << 15
"""Vectors that are held in memory before they are written: a very long recording may have far more."""

SAMPLED_PARTS = 50
"""A whitening is measured on sounds of so many parts, spread evenly over a run."""

KEPT_AT_ONCE = 1 << 10
"""Vectors that were kept before go to the table in portions of so many."""

OUTSIDE = "no sound there any more, or outside the band that the model hears"

_COLUMNS = (*BOX, "score", "start_utc", "start_local", "site")


@dataclass(frozen=True, slots=True)
class Orders:
    """What everyone who works at a table has to know, in plain values; `model` is where it is, `identity` what."""

    events: str
    table: str
    model: str
    identity: str
    pool: Pool


@dataclass(slots=True)
class Written:
    """A part as it lies in the table's folder, and why some of its sounds are not in it."""

    number: int
    fragments: list[str] = field(default_factory=list)
    events: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def open_encoder(orders: Orders, device: str) -> BoxEncoder:
    """The run's model on a device, with the whitening of its table; refused if it is no longer the same."""
    loaded = load_encoder(orders.model)
    if loaded.description.identity != orders.identity:
        raise ModelError(f"{orders.model} is no longer the model {orders.identity}. Put it back.")
    return BoxEncoder(loaded, orders.pool, device, read_whitening(orders.table))


def measure_whitening(found: Found, encoder: BoxEncoder, table: str) -> None:
    """Give a table its whitening: that of some sounds from all over the run, the same whenever it is measured.

    A run that is not finished may have too few so far, and is refused: its vectors would stay as they are forever.
    """
    vectors = [np.zeros((0, encoder.width), np.float16)]
    numbers = np.array(found.numbers, np.int64)
    parts = numbers[np.linspace(0, len(numbers) - 1, min(len(numbers), SAMPLED_PARTS)).astype(int)]
    for number in parts.tolist():
        events = found.events(number).select([*_COLUMNS])
        lots = randomness(number).permutation(len(events))
        own = np.sort(lots[: math.ceil(SAMPLE / len(parts))])
        with suppress(PassingError):  # what cannot be read for now is left to the other parts
            vectors += [heard for heard, _ in _vectors(found, events, own, encoder, Written(number))]
    whitening = measure(np.concatenate(vectors))
    if found.unfinished and not whitening.is_measured:
        raise StorageError(
            f"{found.folder}: {found.unfinished:,} parts of the run are not done yet, and of the others fewer than "
            f"{ENOUGH} sounds can be heard: too few to tell what sets sounds apart. Finish mast detect, then run this "
            "again."
        )
    write_whitening(table, whitening)


def embed_part(
    found: Found,
    number: int,
    encoder: BoxEncoder,
    table: str,
    on_news: Callable[[float], None] = lambda share: None,
) -> Written:
    """Write the vectors of a part's sounds; `on_news` is told which share of them is done."""
    events = found.events(number).select([*_COLUMNS])
    written, waiting = Written(number), list[pa.RecordBatch]()
    dataset, _ = open_vectors(table)

    def flush() -> None:
        written.fragments += _fragments(waiting, dataset)
        waiting.clear()

    for vectors, rows in _vectors(found, events, np.arange(len(events)), encoder, written):
        waiting.append(vector_batch([_row(item, number) for item in events.take(rows).to_pylist()], vectors))
        written.events += len(rows)
        if sum(map(len, waiting)) >= FRAGMENT_EVENTS:
            flush()
        on_news((written.events + written.left_out.total()) / len(events))
    if waiting:
        flush()
    return written


def _fragments(batches: list[pa.RecordBatch], dataset: lance.LanceDataset) -> list[str]:
    """Write rows to the table's folder; they belong to it once they are committed."""
    rows = pa.Table.from_batches(batches)
    options = storage_options(dataset.uri)
    written = lance_module().fragment.write_fragments(
        rows, dataset, rows.schema, data_storage_version=DATA_VERSION, storage_options=options
    )
    return [json.dumps(fragment.to_json()) for fragment in written]


def _row(event: dict[str, Any], part: int) -> tuple[Any, ...]:
    """The values of an `Embedded`."""
    name = event_id(*(event[column] for column in BOX))
    return (name, part, *(event[column] for column in _COLUMNS))


def _vectors(
    found: Found, events: pa.Table, chosen: NDArray[np.int64], encoder: BoxEncoder, written: Written
) -> Iterator[tuple[Vectors, list[int]]]:
    """Vectors of some of a part's sounds and their rows: as `mast detect` has kept them, or else heard again. (n,)"""
    kept = _kept(found, written.number, encoder)
    if kept is None:
        yield from vectors_of(_cuts(found, events, chosen, encoder, written), encoder)
        return
    for first in range(0, len(chosen), KEPT_AT_ONCE):
        rows = chosen[first : first + KEPT_AT_ONCE]
        yield encoder.whitened(kept[rows]), rows.tolist()


def parts_kept(found: Found, encoder: BoxEncoder) -> set[int]:
    """Parts of whose sounds `mast detect` has kept the vectors, as this very encoder would give them."""
    if encoder.pool != "last" or found.model != encoder.description.identity:
        return set()
    return set(numbers_in(join(found.folder, VECTORS)))


def _kept(found: Found, number: int, encoder: BoxEncoder) -> Vectors | None:
    """Vectors of all of a part's sounds that `mast detect` has kept; None where it has not, or of another model."""
    import pyarrow.parquet as pq

    location = part_in(found.folder, VECTORS, number)
    if encoder.pool != "last" or not exists(location):
        return None
    with open_binary(location) as file:
        table = pq.read_table(file)
    if json.loads(table.schema.metadata[PROVENANCE])["model"] != encoder.description.identity:
        return None
    values = table["vector"].combine_chunks()
    vectors: Vectors = values.flatten().to_numpy(zero_copy_only=False).reshape(len(table), encoder.width)
    return vectors


def _cuts(
    found: Found, events: pa.Table, chosen: NDArray[np.int64], encoder: BoxEncoder, written: Written
) -> Iterator[Cut]:
    """Chunks around sounds of the recordings of a part; what cannot be heard is counted, with the reason. (n,)"""
    for recording_id, within in _by_recording(events.take(chosen)):
        rows = chosen[within]
        own = events.take(rows)
        bounds = np.stack(
            [own[name].to_numpy() for name in ("start_s", "low_hz", "end_s", "high_hz")], axis=1
        )
        left = len(rows)
        try:
            for cut in _recording_cuts(found, recording_id, bounds, encoder):
                left -= len(cut.rows)
                yield cut._replace(rows=rows[cut.rows].tolist())
        except Exception as error:  # one bad file must never end the work, whatever a decoder throws
            written.left_out[_reason(error, found, recording_id, encoder.rate_hz)] += left
        else:
            if left:
                written.left_out[OUTSIDE] += left


def _reason(error: Exception, found: Found, recording_id: str, rate_hz: int) -> str:
    """Why a recording cannot be heard; raises where that is not its fault, or was over when it was read again."""
    collection, path = found.split_id(recording_id)
    location, expansion = found.place(collection, path), found.expansions[collection]
    check_reachable(found.roots[collection])
    reason = in_words(error, location)
    if can_be_read(location, rate_hz, expansion, found.cut_short.get(recording_id)):
        raise PassingError(f"{location}: {reason} When it was read again, nothing was wrong.") from None
    return reason


def _recording_cuts(
    found: Found, recording_id: str, bounds: NDArray[np.float64], encoder: BoxEncoder
) -> Iterator[Cut]:
    collection, path = found.split_id(recording_id)
    place, expansion = found.place(collection, path), found.expansions[collection]
    with open_audio(place, encoder.rate_hz, expansion, found.cut_short.get(recording_id)) as audio:
        yield from cut_chunks(audio, bounds, encoder, expansion)


def _by_recording(events: pa.Table) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Each recording with the rows of its events, which stand together."""
    names = events["recording_id"].cast(pa.string()).to_numpy()
    begins = np.flatnonzero(names[1:] != names[:-1]) + 1
    for rows in np.split(np.arange(len(names)), begins):
        if len(rows):
            yield names[rows[0]], rows


def serve(
    orders: Orders, encoder: BoxEncoder, jobs: Iterator[bytes], answer: Callable[[Answer], None]
) -> None:
    """What a child process does: one part after the other."""
    found = open_found(orders.events)
    for line in jobs:
        number = json.loads(line)["part"]
        try:
            written = embed_part(found, number, encoder, orders.table, lambda share: answer({NEWS: share}))
        except (MastError, OSError) as error:
            answer(trouble(error))
        else:
            answer({"written": [written.fragments, written.events, written.left_out]})


def _get_ready() -> Serve:
    values, device = take_orders()
    orders = Orders(**values)
    return partial(serve, orders, open_encoder(orders, device))


if __name__ == "__main__":
    serve_parent(_get_ready)
