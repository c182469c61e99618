"""`embeddings.lance`: a table with one row and one vector per event of a run, all by one model, and vector search in it.

Each part of the run is one atomic commit, and every row holds the part's number: a part in the table is complete.
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

from mast.embeddings.box_encoder import Layers
from mast.errors import StorageError
from mast.records import EmbeddedEvent, arrow_schema, rows_to_table
from mast.storage import is_remote
from mast.store.audio_store import METADATA_KEY, append_fragments, create_dataset, open_dataset, require_lance
from mast.types import Floats16

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

EMBEDDINGS = "embeddings.lance"
FORMAT = 2
"""Version of the table; increased whenever the same events and the same model would give other vectors."""

INDEX_FROM = 200_000
"""Number of events from which a table gets an index; below it, a search compares the query with every event."""

PARTITION_ROWS = 1000
"""Number of events in a cell of the index."""

SUB_VECTOR = 8
"""Number of vector components that one byte of the index encodes."""

PROBES, REFINE = 24, 20
"""Number of cells searched for the top 10 (more for a larger top), and the multiple of the requested number of events
that is then re-ranked by the full vectors.

With these values a search finds 95 of the 100 nearest among a million events (benchmarks/results/search.json).
"""

BATCH_ROWS = 4096
"""Number of rows in a batch of a full scan."""

_ROWS_PER_FILE = 1 << 20
_PURPOSE = "A table of vectors"


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """Metadata of a table: the fingerprint of the run, the model, its location, the layers and the vector width.

    `model` identifies the model; `location` is only where it was, and may have changed since.
    """

    run: str
    model: str
    layers: Layers
    width: int
    location: str
    format: int = FORMAT


def vector_schema(width: int, metadata: TableMetadata | None = None) -> pa.Schema:
    """Return the schema of events with vectors of `width` components, with the table's metadata if given."""
    import pyarrow as pa

    vector = pa.field("vector", pa.list_(pa.float16(), width), nullable=False)
    schema_metadata = {METADATA_KEY: json.dumps(asdict(metadata))} if metadata else None
    return arrow_schema(EmbeddedEvent).append(vector).with_metadata(schema_metadata)


def vector_batch(rows: Sequence[tuple[Any, ...]], vectors: Floats16) -> pa.RecordBatch:
    """Combine N rows, in the field order of `EmbeddedEvent`, with their vectors (N, C)."""
    import pyarrow as pa

    columns = [column.combine_chunks() for column in rows_to_table(rows, EmbeddedEvent).columns]
    vector_column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    return pa.record_batch([*columns, vector_column], schema=vector_schema(vectors.shape[1]))


def open_vectors(location: str) -> tuple[lance.LanceDataset, TableMetadata]:
    """Open a table of vectors; return it with its metadata."""
    require_lance(_PURPOSE)
    dataset = open_dataset(location)
    if dataset is None:
        raise StorageError(f"{location}: there are no vectors. Create them with mast embed.")
    return dataset, read_metadata(dataset, location)


def read_metadata(dataset: lance.LanceDataset, location: str) -> TableMetadata:
    """Read the metadata of a table; raise `StorageError` if MAST did not write the table."""
    schema_metadata = json.loads((dataset.schema.metadata or {}).get(METADATA_KEY, b"{}"))
    if schema_metadata.keys() != {field.name for field in fields(TableMetadata)}:
        raise StorageError(f"{location} is not a table of vectors written by MAST. Specify another one.")
    return TableMetadata(**schema_metadata)


def open_or_create(location: str, metadata: TableMetadata) -> lance.LanceDataset:
    """Open the table, or create an empty one; raise `StorageError` if it belongs to another run or model."""
    require_lance(_PURPOSE)
    dataset = open_dataset(location)
    if dataset is None:
        return create_dataset(location, vector_schema(metadata.width, metadata))
    _check_same(location, read_metadata(dataset, location), metadata)
    return dataset


def _check_same(location: str, existing: TableMetadata, current: TableMetadata) -> None:
    """Raise `StorageError` if vectors of `current` are not comparable with those in the table."""
    if existing.model != current.model:
        difference = f"of model {existing.model}, and this is model {current.model}"
    elif existing.layers != current.layers:
        difference = f"created with --layers {existing.layers}, not {current.layers}"
    elif existing.run != current.run:
        difference = "of another run of mast detect"
    elif existing.format != current.format:
        difference = "created by another version of MAST"
    else:
        return
    raise StorageError(
        f"{location} has vectors {difference}; the two are not comparable. Specify another table with --out, "
        "or delete it."
    )


def parts_in(dataset: lance.LanceDataset) -> set[int]:
    """Return the numbers of the parts with rows in a table.

    A part without any readable event has no rows, so it is processed again.
    """
    numbers: set[int] = set()
    for batch in dataset.scanner(columns=["part"]).to_batches():
        numbers.update(np.unique(batch["part"].to_numpy()).tolist())
    return numbers


def append(dataset: lance.LanceDataset, fragments: Sequence[str]) -> lance.LanceDataset:
    """Commit the fragments of a part to the table atomically; return the new version of the table."""
    return append_fragments(dataset, fragments, "embed")


def delete_orphans(dataset: lance.LanceDataset) -> None:
    """Delete earlier versions and, on a local disk with no other writer, files left by killed processes."""
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=not is_remote(dataset.uri))


def compact_and_index(dataset: lance.LanceDataset) -> bool:
    """Merge the files of all parts into a few large ones and index a large table; return whether it has an index."""
    dataset.optimize.compact_files(target_rows_per_fragment=_ROWS_PER_FILE)
    if has_index(dataset):
        dataset.optimize.optimize_indices()
    elif dataset.count_rows() >= INDEX_FROM:
        build_index(dataset)
    delete_orphans(dataset)
    return has_index(dataset)


def build_index(dataset: lance.LanceDataset) -> None:
    """Build an IVF-PQ index on the vectors, about `PARTITION_ROWS` per cell, and a B-tree on the event ids."""
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
    """Return whether the vectors have an index."""
    return any(index.field_names == ["vector"] for index in dataset.describe_indices())


def nearest(
    dataset: lance.LanceDataset,
    vector: NDArray[np.float16],
    top: int,
    where: str | None = None,
    *,
    exact: bool = False,
) -> pa.Table:
    """Return the rows nearest to a vector (C,), nearest first, with `_distance`: one minus the cosine.

    Where fewer than `INDEX_FROM` rows match the filter `where`, all of them are compared, because the index would miss
    them.
    """
    is_small = where is not None and dataset.count_rows(where) < INDEX_FROM
    query = {"column": "vector", "q": vector, "k": top, "metric": "cosine"}
    if exact or is_small or not has_index(dataset):
        query["use_index"] = False
    else:
        probes = math.ceil(PROBES * max(1.0, math.sqrt(top / 10)))
        query |= {"nprobes": probes, "refine_factor": REFINE}
    columns = [*arrow_schema(EmbeddedEvent).names, "_distance"]
    return dataset.scanner(columns=columns, nearest=query, filter=where, prefilter=True).to_table()


def batches(dataset: lance.LanceDataset, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table in order, in batches; the rows of a part are adjacent."""
    yield from dataset.scanner(columns=list(columns), batch_size=BATCH_ROWS, scan_in_order=True).to_batches()


def vectors_in(batch: pa.RecordBatch) -> NDArray[np.float32]:
    """Return the vectors of a batch of rows. → (B, C)"""
    column = batch.column(batch.schema.get_field_index("vector"))
    flat = column.flatten().to_numpy(zero_copy_only=False)
    vectors: NDArray[np.float32] = flat.reshape(len(batch), -1).astype(np.float32)
    return vectors
