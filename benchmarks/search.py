"""Compare the index of `mast search` with exact search and with FAISS.

    python -m benchmarks.search                 writes benchmarks/results/search.json
    python -m benchmarks.search --small         a small version

Vectors are synthetic, with the width of the small encoder's, and distributed like real ones: in clusters of very uneven
size, like species, around a common mean, like a network's outputs, and with far fewer directions of variation than
dimensions: `DIRECTIONS` shared by all, and a little noise in every dimension. Queries are sampled from the same clusters
and are not in the table. FAISS has one thread; Lance uses one to search its index, and all to build it and for exact
search. The same table is then searched on an S3 server on loopback, if one is installed (tests/s3_server.py):
`s3_first_ms` is the time to open it and search once, `s3_median_ms` that of later searches.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.results import FOLDER, write_result
from benchmarks.s3 import bucket_on, upload
from mast.embeddings import vector_table as tables
from mast.embeddings.vector_table import TableMetadata, build_index, nearest, open_vectors, vector_schema
from mast.models.encoder import SIZES
from mast.records import EmbeddedEvent, arrow_schema
from mast.store.audio_store import DATA_VERSION

if TYPE_CHECKING:
    import lance

Vectors = NDArray[np.float16]
Neighbours = NDArray[np.int64]

WIDTH = SIZES["small"].width
S3_METRICS = ("s3_recall_at_10", "s3_first_ms", "s3_median_ms")
TOP, QUERIES, BLOCK = 10, 200, 100_000
DIRECTIONS, GROUPS, SPREAD, NOISE, COMMON = 24, 2000, 0.35, 0.02, 1.0
"""Directions of variation; number of clusters; spread within a cluster relative to the spread of clusters; noise in every
dimension, and the length of the common mean, in the same unit."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--small", action="store_true", help="4,000 vectors")
    parser.add_argument("--out", type=Path, default=FOLDER / "search.json")
    options = parser.parse_args()
    count = 4000 if options.small else options.vectors
    vectors, queries = synthetic_vectors(count, QUERIES // 10 if options.small else QUERIES)
    with tempfile.TemporaryDirectory(prefix="mast-search-") as folder:
        metrics = {"vectors": count, "width": WIDTH, "queries": len(queries), **shape()}
        table = Path(folder) / tables.EMBEDDINGS
        neighbours, local = measure(vectors, queries, table)
        metrics |= local | dict.fromkeys(S3_METRICS)
        with bucket_on(Path(folder)) as bucket:
            if bucket:
                metrics |= on_s3(table, queries, neighbours, f"{bucket}/{tables.EMBEDDINGS}")
    write_result(options.out, metrics, ("pylance", "faiss-cpu", "numpy"))
    print(options.out.read_text())


def shape() -> dict[str, float]:
    """Return the parameters of the index, and of the synthetic vectors."""
    return {
        "partition_rows": tables.PARTITION_ROWS,
        "sub_vector": tables.SUB_VECTOR,
        "probes": tables.PROBES,
        "refine": tables.REFINE,
        "directions": DIRECTIONS,
        "groups": GROUPS,
    }


def synthetic_vectors(count: int, queries: int, seed: int = 0) -> tuple[Vectors, Vectors]:
    """Sample the vectors of a table, and queries. → (N, C), (Q, C)"""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((WIDTH, DIRECTIONS + 1)))[0].T.astype(np.float32)  # (D + 1, C)
    centres = rng.standard_normal((GROUPS, DIRECTIONS), np.float32)
    stretch = rng.gamma(2.0, SPREAD / 2, (GROUPS, DIRECTIONS)).astype(np.float32)
    weights = 1 / np.arange(1, GROUPS + 1)
    blocks = []
    for first in range(0, count + queries, BLOCK):
        size = min(BLOCK, count + queries - first)
        group = rng.choice(GROUPS, size, p=weights / weights.sum())
        positions = centres[group] + stretch[group] * rng.standard_normal((size, DIRECTIONS), np.float32)
        common = np.full((size, 1), COMMON * np.sqrt(DIRECTIONS), np.float32)
        sampled = np.concatenate([positions, common], axis=1) @ basis  # (B, C)
        sampled += NOISE * rng.standard_normal(sampled.shape, np.float32)
        blocks.append((sampled / np.linalg.norm(sampled, axis=1, keepdims=True)).astype(np.float16))
    vectors = np.concatenate(blocks)
    return vectors[:count], vectors[count:]


def measure(vectors: Vectors, queries: Vectors, table: Path) -> tuple[Neighbours, dict[str, Any]]:
    """Return the exact neighbours of all queries, and recall and speed of every search method on disk and in memory."""
    neighbours, flat_ms, product = faiss_metrics(vectors, queries)
    dataset = write_vectors(vectors, table)
    exact, exact_ms = run_queries(
        lambda query: _names(nearest(dataset, query, TOP, exact=True)), queries[:20]
    )
    table_bytes = size_of(table)
    start_s = time.perf_counter()
    build_index(dataset)
    build_s = time.perf_counter() - start_s
    run_queries(lambda query: _names(nearest(dataset, query, TOP)), queries)  # warm the caches
    results, median_ms = run_queries(lambda query: _names(nearest(dataset, query, TOP)), queries)
    return neighbours, {
        "recall_at_10": recall(results, neighbours),
        "median_ms": median_ms,
        "build_s": round(build_s, 1),
        "bytes_per_event": round(size_of(table) / len(vectors)),
        "index_bytes_per_event": round((size_of(table) - table_bytes) / len(vectors)),
        "exact_recall_at_10": recall(exact, neighbours[: len(exact)]),
        "exact_median_ms": exact_ms,
        "faiss_flat_median_ms": flat_ms,
        **product,
    }


def on_s3(table: Path, queries: Vectors, neighbours: Neighbours, location: str) -> dict[str, Any]:
    """Return recall and speed with the table on an S3 server: of the first search after opening it, and of later ones."""
    upload(table, location)
    start_s = time.perf_counter()
    dataset, _ = open_vectors(location)
    first, _ = run_queries(lambda query: _names(nearest(dataset, query, TOP)), queries[:1])
    first_ms = 1000 * (time.perf_counter() - start_s)
    later, median_ms = run_queries(lambda query: _names(nearest(dataset, query, TOP)), queries[1:])
    values = recall([*first, *later], neighbours), round(first_ms, 2), median_ms
    return dict(zip(S3_METRICS, values, strict=True))


def _names(rows: pa.Table) -> NDArray[np.int64]:
    return np.array([int(name) for name in rows["event_id"].to_pylist()])


def faiss_metrics(vectors: Vectors, queries: Vectors) -> tuple[Neighbours, float, dict[str, Any]]:
    """Return the exact neighbours, the time of exact search, and the metrics of an index with the same parameters.

    For vectors of unit length the smallest distance is the largest cosine; with inner products, FAISS would fill its
    cells unevenly.
    """
    import faiss

    faiss.omp_set_num_threads(1)
    table32, queries32 = vectors.astype(np.float32), queries.astype(np.float32)
    flat = faiss.IndexFlatL2(WIDTH)
    flat.add(table32)
    neighbours, flat_ms = run_queries(lambda query: flat.search(query[None], TOP)[1][0], queries32)
    cells = max(1, round(len(vectors) / tables.PARTITION_ROWS))
    start_s = time.perf_counter()
    quantizer = faiss.IndexFlatL2(WIDTH)
    inner = faiss.IndexIVFPQ(quantizer, WIDTH, cells, WIDTH // tables.SUB_VECTOR, 8)
    inner.train(table32[:: max(1, len(table32) // (256 * max(cells, 256)))])
    inner.add(table32)
    build_s = time.perf_counter() - start_s
    inner.nprobe = tables.PROBES
    refined = faiss.IndexRefine(inner, flat)
    refined.k_factor = tables.REFINE
    results, median_ms = run_queries(lambda query: refined.search(query[None], TOP)[1][0], queries32)
    index_metrics = {
        "faiss_ivf_pq_recall_at_10": recall(results, neighbours),
        "faiss_ivf_pq_median_ms": median_ms,
        "faiss_ivf_pq_build_s": round(build_s, 1),
    }
    return np.stack(neighbours), flat_ms, index_metrics


def run_queries(
    search: Callable[[Any], NDArray[np.int64]], queries: NDArray[Any]
) -> tuple[list[NDArray[np.int64]], float]:
    """Run the queries one by one; return their results and the median time of a query in ms."""
    results, times_ms = [], []
    for query in queries:
        start_s = time.perf_counter()
        results.append(search(query))
        times_ms.append(1000 * (time.perf_counter() - start_s))
    return results, round(statistics.median(times_ms), 2)


def recall(results: Any, neighbours: Any) -> float:
    """Return the fraction of the exact neighbours in the results."""
    hits = [
        len(set(result.tolist()) & set(exact.tolist()))
        for result, exact in zip(results, neighbours, strict=True)
    ]
    return round(sum(hits) / (TOP * len(hits)), 4)


def write_vectors(vectors: Vectors, location: Path) -> lance.LanceDataset:
    """Write a table as `mast embed` does; the ids of events are numbers."""
    import lance

    shutil.rmtree(location, ignore_errors=True)
    schema = vector_schema(WIDTH, TableMetadata("benchmark", "none", "last", WIDTH, "none"))
    reader = pa.RecordBatchReader.from_batches(
        schema, (_batch(vectors, first, schema) for first in range(0, len(vectors), BLOCK))
    )
    return lance.write_dataset(reader, str(location), data_storage_version=DATA_VERSION)  # type: ignore[arg-type]


def _batch(vectors: Vectors, first: int, schema: pa.Schema) -> pa.RecordBatch:
    block = vectors[first : first + BLOCK]
    number = np.arange(first, first + len(block))
    start_s = number % 3600.0
    start_us = pa.array(number * 1_000_000)
    columns = {
        "event_id": pa.array([f"{value:020}" for value in number.tolist()]),
        "part": pa.array(number // 10_000),
        "recording_id": pa.array([f"card/site/{value // 100:08}.WAV" for value in number.tolist()]),
        "start_s": pa.array(start_s),
        "end_s": pa.array(start_s + 0.5),
        "low_hz": pa.array(np.full(len(block), 1000.0)),
        "high_hz": pa.array(np.full(len(block), 4000.0)),
        "score": pa.array(number % 97 / 97),
        "start_utc": start_us.cast(arrow_schema(EmbeddedEvent).field("start_utc").type),
        "start_local": start_us.cast(arrow_schema(EmbeddedEvent).field("start_local").type),
        "site": pa.array([f"site {value % 50}" for value in (number // 10_000).tolist()]),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(block.ravel()), WIDTH),
    }
    return pa.record_batch([columns[name] for name in schema.names], schema=schema)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
