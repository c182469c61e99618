"""`embeddings.lance`: a row and a vector for every sound of a run, all by one model; and who is nearest to whom.

Each part of the run is one commit, all or nothing, and its number stands in every row: what is in the table is done.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mast.embeddings.boxes import Pool, Vectors
from mast.errors import StorageError
from mast.events import Embedded, arrow_schema, rows_to_table
from mast.recordings.store import STORY, append_fragments, create_dataset, lance_module, open_dataset
from mast.storage import is_remote

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

EMBEDDINGS = "embeddings.lance"
FORMAT = 2
"""Changes whenever the same sounds and the same model would give other vectors."""

INDEX_FROM = 200_000
"""So many sounds are still compared one by one; with more there is an index."""

PARTITION_ROWS = 1000
"""Sounds in a cell of the index."""

SUB_VECTOR = 8
"""Numbers of a vector that are told in one byte of the index."""

PROBES, REFINE = 24, 20
"""Cells that are looked into for ten sounds, and more for more, and how many times more sounds than asked for are then
compared by their true vectors.

With these, 95 of 100 nearest sounds of a million are found (benchmarks/results/search.json).
"""

BATCH_ROWS = 4096
"""Sounds that are looked at together when all pass by."""

_ROWS_PER_FILE = 1 << 20
_PURPOSE = "A table of vectors"


@dataclass(frozen=True, slots=True)
class Story:
    """What a table tells about itself: the run, the model, where that was, and how its map is read.

    `model` is the identity of the model; `location` may have changed since and is no part of it.
    """

    run: str
    model: str
    pool: Pool
    width: int
    location: str
    format: int = FORMAT


def vector_schema(width: int, story: Story | None = None) -> pa.Schema:
    """The table of sounds with their vectors, and its own story where one is given."""
    import pyarrow as pa

    vector = pa.field("vector", pa.list_(pa.float16(), width), nullable=False)
    told = {STORY: json.dumps(asdict(story))} if story else None
    return arrow_schema(Embedded).append(vector).with_metadata(told)


def vector_batch(rows: Sequence[tuple[Any, ...]], vectors: Vectors) -> pa.RecordBatch:
    """Rows in the order of `Embedded` with their vectors. N, (N, C)"""
    import pyarrow as pa

    columns = [column.combine_chunks() for column in rows_to_table(rows, Embedded).columns]
    told = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    return pa.record_batch([*columns, told], schema=vector_schema(vectors.shape[1]))


def open_vectors(location: str) -> tuple[lance.LanceDataset, Story]:
    """A table and its story."""
    lance_module(_PURPOSE)
    dataset = open_dataset(location)
    if dataset is None:
        raise StorageError(f"{location}: there are no vectors. Make them with mast embed.")
    return dataset, read_story(dataset, location)


def read_story(dataset: lance.LanceDataset, location: str) -> Story:
    """What a table tells about itself; one that is not ours is refused."""
    told = json.loads((dataset.schema.metadata or {}).get(STORY, b"{}"))
    if told.keys() != {field.name for field in fields(Story)}:
        raise StorageError(f"{location} is no table of vectors that MAST has written. Name another one.")
    return Story(**told)


def open_or_create(location: str, story: Story) -> lance.LanceDataset:
    """The table, empty if it is new; one of another run or another model is refused."""
    lance_module(_PURPOSE)
    dataset = open_dataset(location)
    if dataset is None:
        return create_dataset(location, vector_schema(story.width, story))
    _check_same(location, read_story(dataset, location), story)
    return dataset


def _check_same(location: str, before: Story, now: Story) -> None:
    """Refuse to mix what cannot be compared."""
    if before.model != now.model:
        why = f"of model {before.model}, and this is model {now.model}"
    elif before.pool != now.pool:
        why = f"made with --pool {before.pool}, not {now.pool}"
    elif before.run != now.run:
        why = "of another run of mast detect"
    elif before.format != now.format:
        why = "made by another version of MAST"
    else:
        return
    raise StorageError(
        f"{location} has vectors {why}; the two cannot be compared. Give another table with --out, or delete it."
    )


def parts_in(dataset: lance.LanceDataset) -> set[int]:
    """Parts whose sounds are in a table; one of which none could be heard is not, and is tried again."""
    numbers: set[int] = set()
    for batch in dataset.scanner(columns=["part"]).to_batches():
        numbers.update(np.unique(batch["part"].to_numpy()).tolist())
    return numbers


def append(dataset: lance.LanceDataset, fragments: Sequence[str]) -> lance.LanceDataset:
    """The table with a part that was written to its folder: all of it, or nothing."""
    return append_fragments(dataset, fragments, "embed")


def delete_orphans(dataset: lance.LanceDataset) -> None:
    """Delete earlier versions and, where nothing else can be writing, what killed runs have left."""
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=not is_remote(dataset.uri))


def finish(dataset: lance.LanceDataset) -> bool:
    """Few large files instead of one for each part, and an index where it is worth it; tells whether there is one."""
    dataset.optimize.compact_files(target_rows_per_fragment=_ROWS_PER_FILE)
    if has_index(dataset):
        dataset.optimize.optimize_indices()
    elif dataset.count_rows() >= INDEX_FROM:
        build_index(dataset)
    delete_orphans(dataset)
    return has_index(dataset)


def build_index(dataset: lance.LanceDataset) -> None:
    """IVF-PQ over the vectors, about `PARTITION_ROWS` to a cell; and names of sounds in order, to find one by it."""
    width = dataset.schema.field("vector").type.list_size
    dataset.create_index(
        "vector",
        "IVF_PQ",
        metric="cosine",
        num_partitions=max(1, round(dataset.count_rows() / PARTITION_ROWS)),
        num_sub_vectors=max(1, width // SUB_VECTOR),
    )
    dataset.create_scalar_index("event_id", "BTREE")


def has_index(dataset: lance.LanceDataset) -> bool:
    """Whether there is an index over the vectors."""
    return any(index.field_names == ["vector"] for index in dataset.describe_indices())


def nearest(
    dataset: lance.LanceDataset,
    vector: NDArray[np.float16],
    top: int,
    where: str | None = None,
    *,
    exact: bool = False,
) -> pa.Table:
    """Rows of the sounds nearest to a vector, the nearest first, with `_distance`, one less their cosine. (C,)

    Where fewer than `INDEX_FROM` fit the filter, all of these are compared: an index would look past them.
    """
    is_few = where is not None and dataset.count_rows(where) < INDEX_FROM
    query = {"column": "vector", "q": vector, "k": top, "metric": "cosine"}
    if exact or is_few or not has_index(dataset):
        query["use_index"] = False
    else:
        probes = math.ceil(PROBES * max(1.0, math.sqrt(top / 10)))
        query |= {"nprobes": probes, "refine_factor": REFINE}
    columns = [*arrow_schema(Embedded).names, "_distance"]
    return dataset.scanner(columns=columns, nearest=query, filter=where, prefilter=True).to_table()


def batches(dataset: lance.LanceDataset, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows of a table in their order, some at a time; those of a part stand together."""
    yield from dataset.scanner(columns=list(columns), batch_size=BATCH_ROWS, scan_in_order=True).to_batches()


def vectors_in(batch: pa.RecordBatch) -> NDArray[np.float32]:
    """Vectors of some rows of a table. → (B, C)"""
    column = batch.column(batch.schema.get_field_index("vector"))
    flat = column.flatten().to_numpy(zero_copy_only=False)
    vectors: NDArray[np.float32] = flat.reshape(len(batch), -1).astype(np.float32)
    return vectors
