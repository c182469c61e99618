"""Nearest sounds by the index of `mast search`, against comparing with all, and against FAISS in the same run.

    python -m benchmarks.search                 writes benchmarks/results/search.json
    python -m benchmarks.search --small         a small version

Vectors are made up, as wide as those of the small encoder, so that they lie as real ones do: in groups of very uneven
size, as species are, around a common mean, as a network's outputs are, and with far fewer directions in which they
differ than numbers: `DIRECTIONS` shared by all, and a little noise in every number. Queries are drawn from the same
groups and are not in the table. FAISS has one thread; Lance takes one to search its index, and all to build it and to
compare with all. The same table is then asked where it lies on a real S3 server on loopback, if one is installed
(tests/s3_server.py): `s3_first_ms` is to open it and search once, `s3_median_ms` a search after that.
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
from mast.embeddings import table as tables
from mast.embeddings.table import Story, build_index, nearest, open_vectors, vector_schema
from mast.events import Embedded, arrow_schema
from mast.models.encoder import SIZES
from mast.recordings.store import DATA_VERSION

if TYPE_CHECKING:
    import lance

Vectors = NDArray[np.float16]
Neighbours = NDArray[np.int64]

WIDTH = SIZES["small"].width
S3_FIGURES = ("s3_recall_at_10", "s3_first_ms", "s3_median_ms")
TOP, QUERIES, BLOCK = 10, 200, 100_000
DIRECTIONS, GROUPS, SPREAD, NOISE, COMMON = 24, 2000, 0.35, 0.02, 1.0
"""Directions in which sounds differ; kinds of sounds; how much one kind differs in itself, of how much kinds differ;
noise in every number, and the length of what all have in common, in the same unit."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--small", action="store_true", help="4,000 vectors")
    parser.add_argument("--out", type=Path, default=FOLDER / "search.json")
    options = parser.parse_args()
    count = 4000 if options.small else options.vectors
    vectors, queries = made_up(count, QUERIES // 10 if options.small else QUERIES)
    with tempfile.TemporaryDirectory(prefix="mast-search-") as folder:
        figures = {"vectors": count, "width": WIDTH, "queries": len(queries), **shape()}
        place = Path(folder) / tables.EMBEDDINGS
        truth, found = measured(vectors, queries, place)
        figures |= found | dict.fromkeys(S3_FIGURES)
        with bucket_on(Path(folder)) as bucket:
            if bucket:
                figures |= on_s3(place, queries, truth, f"{bucket}/{tables.EMBEDDINGS}")
    write_result(options.out, figures, ("pylance", "faiss-cpu", "numpy"))
    print(options.out.read_text())


def shape() -> dict[str, float]:
    """How the index is built and searched, and how vectors are made up."""
    return {
        "partition_rows": tables.PARTITION_ROWS,
        "sub_vector": tables.SUB_VECTOR,
        "probes": tables.PROBES,
        "refine": tables.REFINE,
        "directions": DIRECTIONS,
        "groups": GROUPS,
    }


def made_up(count: int, queries: int, seed: int = 0) -> tuple[Vectors, Vectors]:
    """Vectors of a table, and others to ask for. → (N, C), (Q, C)"""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((WIDTH, DIRECTIONS + 1)))[0].T.astype(np.float32)  # (D + 1, C)
    middles = rng.standard_normal((GROUPS, DIRECTIONS), np.float32)
    stretch = rng.gamma(2.0, SPREAD / 2, (GROUPS, DIRECTIONS)).astype(np.float32)
    shares = 1 / np.arange(1, GROUPS + 1)
    blocks = []
    for first in range(0, count + queries, BLOCK):
        size = min(BLOCK, count + queries - first)
        group = rng.choice(GROUPS, size, p=shares / shares.sum())
        places = middles[group] + stretch[group] * rng.standard_normal((size, DIRECTIONS), np.float32)
        common = np.full((size, 1), COMMON * np.sqrt(DIRECTIONS), np.float32)
        found = np.concatenate([places, common], axis=1) @ basis  # (B, C)
        found += NOISE * rng.standard_normal(found.shape, np.float32)
        blocks.append((found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float16))
    every = np.concatenate(blocks)
    return every[:count], every[count:]


def measured(vectors: Vectors, queries: Vectors, place: Path) -> tuple[Neighbours, dict[str, Any]]:
    """The true neighbours of all queries, and recall and speed of all ways to search on a disk and in memory."""
    truth, flat_ms, product = faiss_figures(vectors, queries)
    dataset = write_vectors(vectors, place)
    exact, exact_ms = asked(lambda query: _names(nearest(dataset, query, TOP, exact=True)), queries[:20])
    table_bytes = size_of(place)
    start_s = time.perf_counter()
    build_index(dataset)
    build_s = time.perf_counter() - start_s
    asked(lambda query: _names(nearest(dataset, query, TOP)), queries)  # caches warm
    found, median_ms = asked(lambda query: _names(nearest(dataset, query, TOP)), queries)
    return truth, {
        "recall_at_10": recall(found, truth),
        "median_ms": median_ms,
        "build_s": round(build_s, 1),
        "bytes_per_event": round(size_of(place) / len(vectors)),
        "index_bytes_per_event": round((size_of(place) - table_bytes) / len(vectors)),
        "exact_recall_at_10": recall(exact, truth[: len(exact)]),
        "exact_median_ms": exact_ms,
        "faiss_flat_median_ms": flat_ms,
        **product,
    }


def on_s3(place: Path, queries: Vectors, truth: Neighbours, location: str) -> dict[str, Any]:
    """The same where the table is on an S3 server: searches by one who has just opened it, and the later ones."""
    upload(place, location)
    start_s = time.perf_counter()
    dataset, _ = open_vectors(location)
    first, _ = asked(lambda query: _names(nearest(dataset, query, TOP)), queries[:1])
    first_ms = 1000 * (time.perf_counter() - start_s)
    found, median_ms = asked(lambda query: _names(nearest(dataset, query, TOP)), queries[1:])
    figures = recall([*first, *found], truth), round(first_ms, 2), median_ms
    return dict(zip(S3_FIGURES, figures, strict=True))


def _names(rows: pa.Table) -> NDArray[np.int64]:
    return np.array([int(name) for name in rows["event_id"].to_pylist()])


def faiss_figures(vectors: Vectors, queries: Vectors) -> tuple[Neighbours, float, dict[str, Any]]:
    """True neighbours and the time of comparing with all; and an index of the same shape, refined in the same way.

    Of vectors of unit length those with the least distance have the greatest cosine; by products alone, FAISS would fill
    its cells unevenly.
    """
    import faiss

    faiss.omp_set_num_threads(1)
    plain, asking = vectors.astype(np.float32), queries.astype(np.float32)
    flat = faiss.IndexFlatL2(WIDTH)
    flat.add(plain)
    truth, flat_ms = asked(lambda query: flat.search(query[None], TOP)[1][0], asking)
    cells = max(1, round(len(vectors) / tables.PARTITION_ROWS))
    start_s = time.perf_counter()
    middles = faiss.IndexFlatL2(WIDTH)
    inner = faiss.IndexIVFPQ(middles, WIDTH, cells, WIDTH // tables.SUB_VECTOR, 8)
    inner.train(plain[:: max(1, len(plain) // (256 * max(cells, 256)))])
    inner.add(plain)
    build_s = time.perf_counter() - start_s
    inner.nprobe = tables.PROBES
    refined = faiss.IndexRefine(inner, flat)
    refined.k_factor = tables.REFINE
    found, median_ms = asked(lambda query: refined.search(query[None], TOP)[1][0], asking)
    figures = {
        "faiss_ivf_pq_recall_at_10": recall(found, truth),
        "faiss_ivf_pq_median_ms": median_ms,
        "faiss_ivf_pq_build_s": round(build_s, 1),
    }
    return np.stack(truth), flat_ms, figures


def asked(
    search: Callable[[Any], NDArray[np.int64]], queries: NDArray[Any]
) -> tuple[list[NDArray[np.int64]], float]:
    """Answers to all queries, one after the other, and the median time of one in ms."""
    found, times_ms = [], []
    for query in queries:
        start_s = time.perf_counter()
        found.append(search(query))
        times_ms.append(1000 * (time.perf_counter() - start_s))
    return found, round(statistics.median(times_ms), 2)


def recall(found: Any, truth: Any) -> float:
    """Share of the true neighbours that are found."""
    hits = [len(set(own.tolist()) & set(true.tolist())) for own, true in zip(found, truth, strict=True)]
    return round(sum(hits) / (TOP * len(hits)), 4)


def write_vectors(vectors: Vectors, place: Path) -> lance.LanceDataset:
    """A table as `mast embed` leaves it; sounds are named by their number."""
    import lance

    shutil.rmtree(place, ignore_errors=True)
    schema = vector_schema(WIDTH, Story("benchmark", "none", "last", WIDTH, "none"))
    reader = pa.RecordBatchReader.from_batches(
        schema, (_batch(vectors, first, schema) for first in range(0, len(vectors), BLOCK))
    )
    return lance.write_dataset(reader, str(place), data_storage_version=DATA_VERSION)  # type: ignore[arg-type]


def _batch(vectors: Vectors, first: int, schema: pa.Schema) -> pa.RecordBatch:
    own = vectors[first : first + BLOCK]
    number = np.arange(first, first + len(own))
    start_s = number % 3600.0
    start_us = pa.array(number * 1_000_000)
    columns = {
        "event_id": pa.array([f"{item:020}" for item in number.tolist()]),
        "part": pa.array(number // 10_000),
        "recording_id": pa.array([f"card/site/{item // 100:08}.WAV" for item in number.tolist()]),
        "start_s": pa.array(start_s),
        "end_s": pa.array(start_s + 0.5),
        "low_hz": pa.array(np.full(len(own), 1000.0)),
        "high_hz": pa.array(np.full(len(own), 4000.0)),
        "score": pa.array(number % 97 / 97),
        "start_utc": start_us.cast(arrow_schema(Embedded).field("start_utc").type),
        "start_local": start_us.cast(arrow_schema(Embedded).field("start_local").type),
        "site": pa.array([f"site {item % 50}" for item in (number // 10_000).tolist()]),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(own.ravel()), WIDTH),
    }
    return pa.record_batch([columns[name] for name in schema.names], schema=schema)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
