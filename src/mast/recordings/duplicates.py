"""Find files with the same content: candidates by size and fingerprint, confirmed by reading them in full.

The first path in table order counts as the original. Memory does not grow with the number of recordings: DuckDB spills
to disk, and the duplicates are merged into the table batch by batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast.storage import join, open_binary

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

MEMORY = "128MB"
_READ_BYTES = 1 << 20
_THREADS = 4
_FETCH_ROWS = 256
_PART_ROWS = 4096

_CANDIDATES = """
    SELECT file_row_number, recording_id, collection, path, size_bytes, content_hash
    FROM read_parquet($table, file_row_number = true)
    SEMI JOIN (
        SELECT size_bytes, content_hash FROM read_parquet($table)
        WHERE content_hash IS NOT NULL GROUP BY ALL HAVING count(*) > 1
    ) USING (size_bytes, content_hash)
    ORDER BY size_bytes, content_hash, file_row_number
"""


def connect(folder: Path) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB database with at most 128 MB of memory that spills to `folder`."""
    import duckdb

    connection = duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": str(folder), "threads": 2})
    connection.execute("SET enable_progress_bar = false")
    return connection


def find_duplicates(
    table: Path, roots: Mapping[str, str], folder: Path, on_compared: Callable[[int], None]
) -> Path | None:
    """Write the row of every duplicate in `table` and the id of its original to a file, sorted by row.

    Return the file, or None if there are no duplicates.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("row", pa.int64()), ("duplicate_of", pa.string())])
    unordered, ordered = folder / "unordered.parquet", folder / "duplicates.parquet"
    count = 0
    with connect(folder) as database, pq.ParquetWriter(unordered, schema) as writer:
        for pairs in _confirmed(database.execute(_CANDIDATES, {"table": str(table)}), roots, on_compared):
            count += len(pairs)
            writer.write_table(pa.table([list(column) for column in zip(*pairs, strict=True)], schema=schema))
    if not count:
        return None
    with connect(folder) as database:
        database.execute(
            f"COPY (FROM read_parquet('{_quoted(unordered)}') ORDER BY row) TO '{_quoted(ordered)}'"
        )
    return ordered


def mark_duplicates(table: Path, duplicates: Path) -> Iterator[pa.Table]:
    """Yield the table in batches, with its duplicates marked."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    marks = chain.from_iterable(
        zip(*(column.to_pylist() for column in batch.columns), strict=True)
        for batch in pq.ParquetFile(duplicates).iter_batches(batch_size=_FETCH_ROWS)
    )
    mark = next(marks, None)
    start = 0
    for batch in pq.ParquetFile(table, pre_buffer=False).iter_batches(batch_size=_PART_ROWS):
        batch_marks: dict[int, str] = {}
        while mark is not None and mark[0] < start + batch.num_rows:
            batch_marks[mark[0] - start] = mark[1]
            mark = next(marks, None)
        part = pa.Table.from_batches([batch])
        yield _with_marks(part, batch_marks) if batch_marks else part
        start += batch.num_rows


def _confirmed(
    candidates: duckdb.DuckDBPyConnection, roots: Mapping[str, str], on_compared: Callable[[int], None]
) -> Iterator[list[tuple[int, str]]]:
    """Yield (row, id of the original) of the candidates whose bytes are identical to an earlier candidate."""
    key: tuple[int, int] | None = None
    first: dict[bytes, str] = {}
    compared = 0
    with ThreadPoolExecutor(_THREADS) as threads:
        while rows := candidates.fetchmany(_FETCH_ROWS):
            pairs = []
            digests = threads.map(partial(_content_digest, roots), rows)
            for (row, recording_id, _, _, *this_key), digest in zip(rows, digests, strict=True):
                if tuple(this_key) != key:
                    key, first = (this_key[0], this_key[1]), {}
                if (
                    digest is not None
                    and (original := first.setdefault(digest, recording_id)) != recording_id
                ):
                    pairs.append((row, original))
            compared += len(rows)
            on_compared(compared)
            if pairs:
                yield pairs


def _content_digest(roots: Mapping[str, str], candidate: tuple[Any, ...]) -> bytes | None:
    """Return a hash of the file's complete content; None if the file is no longer readable."""
    _, _, collection, path, *_ = candidate
    digest = hashlib.blake2b(digest_size=16)
    try:
        with open_binary(join(roots[collection], path)) as file:
            while data := file.read(_READ_BYTES):
                digest.update(data)
    except OSError:
        return None
    return digest.digest()


def _with_marks(part: pa.Table, marks: Mapping[int, str]) -> pa.Table:
    import pyarrow as pa

    columns = {name: part[name].to_pylist() for name in ("status", "faults", "duplicate_of")}
    for index, original in marks.items():
        columns["status"][index] = "suspect"
        columns["faults"][index] = [*columns["faults"][index], "duplicate"]
        columns["duplicate_of"][index] = original
    for name, values in columns.items():
        field = part.schema.field(name)
        part = part.set_column(part.schema.get_field_index(name), field, pa.array(values, field.type))
    return part


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
