"""Compare shuffled reading by the loader with 2 threads with plain Lance reads of the same rows, on disk and on S3.

    python -m benchmarks.loader                 writes benchmarks/results/loader.json
    python -m benchmarks.loader --rows 64       a small version

Plain Lance reads the same rows in the same order in one process, without further processing. S3 is a server on loopback
if one is installed (tests/s3_server.py); otherwise `ratio_s3` is null. The last part compares the memory of an epoch of a
million rows with that of a thousand.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from benchmarks.results import FOLDER, peak_mb, write_result
from benchmarks.s3 import bucket_on
from mast.config import Chunking, Collection
from mast.datasets.loader import Batch, FixedChunkDataset, iter_batches
from mast.datasets.sampler import BatchSampler
from mast.recordings.scan import scan
from mast.store.audio_store import AudioStore
from mast.store.prepare import prepare

BATCH, WORKERS, ROUNDS = 16, 2, 3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2048, help="blocks of 10.24 s in the store")
    parser.add_argument("--out", type=Path, default=FOLDER / "loader.json")
    parser.add_argument("--memory", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        print(memory_mb(options.memory))
        return
    with tempfile.TemporaryDirectory(prefix="mast-loader-") as temporary:
        folder = Path(temporary)
        store = make_store(folder, options.rows, str(folder / "work"))
        rates = {"local": compare(store)}
        with bucket_on(folder) as bucket:
            if bucket:
                rates["s3"] = compare(make_store(folder, options.rows, bucket))
    write_result(options.out, summary(rates, options.rows), ("torch", "pylance", "numpy"))
    print(options.out.read_text())


def make_store(folder: Path, rows: int, work: str) -> AudioStore:
    """Write noise at 16 kHz, scanned and prepared into `rows` blocks."""
    card = folder / "card"
    card.mkdir(exist_ok=True)
    noise = np.random.default_rng(0).integers(-9000, 9000, 163_840 * min(rows, 64), dtype=np.int16)
    for number in range(rows // min(rows, 64)):
        path = card / f"20240101_{number:06}.wav"
        if not path.exists():
            soundfile.write(path, np.roll(noise, number * 999), 16_000)
    collections = {"card": Collection(root=str(card))}
    scan(collections, f"{work}/recordings.parquet")
    prepare(f"{work}/recordings.parquet", collections, f"{work}/audio.lance", Chunking())
    return AudioStore(f"{work}/audio.lance")


def compare(store: AudioStore) -> dict[str, float]:
    """Return the chunks per second of both, best of alternating rounds over the same shuffled rows."""
    rows = np.arange(len(store))
    chunks = FixedChunkDataset(np.stack([rows, np.zeros_like(rows)], axis=1))
    order = BatchSampler(len(chunks), BATCH, seed=0)
    loader = iter_batches(store, chunks, order, workers=WORKERS)
    list(islice(loader, 4 * WORKERS))  # start workers and warm caches
    best = {"dataset": 0.0, "bare": 0.0, "bare_ranges": 0.0}
    for epoch in range(ROUNDS):
        best["dataset"] = max(best["dataset"], rate(partial(load, loader, order.steps_per_epoch)))
        batches = np.split(order.order(epoch), range(BATCH, len(chunks), BATCH))
        best["bare"] = max(best["bare"], rate(partial(take_blobs, store, batches)))
        best["bare_ranges"] = max(best["bare_ranges"], rate(partial(read_ranges, store, batches)))
    return best


def load(loader: Iterator[Batch], steps: int) -> int:
    return sum(len(batch.audio) for batch in islice(loader, steps))


def take_blobs(store: AudioStore, batches: list[Any]) -> int:
    """Read the same rows with Lance's `take_blobs`."""
    for rows in batches:
        for blob in store.dataset.take_blobs("audio", indices=rows.tolist()):
            if blob is not None:
                blob.read()
                blob.close()
    return sum(map(len, batches))


def read_ranges(store: AudioStore, batches: list[Any]) -> int:
    """Read the same rows with Lance's `read_blob_ranges`, which the loader uses."""
    count = 2 * store.layout.block_samples
    for rows in batches:
        store.dataset.read_blob_ranges("audio", [(int(row), 0, count) for row in rows], selector="indices")
    return sum(map(len, batches))


def rate(work: Callable[[], int]) -> float:
    """Return the chunks per second."""
    start = time.perf_counter()
    return work() / (time.perf_counter() - start)


def summary(rates: dict[str, dict[str, float]], rows: int) -> dict[str, Any]:
    small, large = (measured_memory(count) for count in (1000, 1_000_000))
    result: dict[str, Any] = {"rows": rows, "batch": BATCH, "workers": WORKERS}
    for name in ("local", "s3"):
        by_method = rates.get(name)
        result[f"ratio_{name}"] = round(by_method["dataset"] / by_method["bare"], 3) if by_method else None
        result[f"chunks_per_s_{name}"] = round(by_method["dataset"]) if by_method else None
        result[f"bare_chunks_per_s_{name}"] = round(by_method["bare"]) if by_method else None
        result[f"bare_ranges_chunks_per_s_{name}"] = round(by_method["bare_ranges"]) if by_method else None
    return {**result, "memory_mb_1e3_rows": small, "memory_mb_1e6_rows": large}


def measured_memory(rows: int) -> float:
    command = [sys.executable, "-m", "benchmarks.loader", "--memory", str(rows)]
    return float(
        json.loads(subprocess.run(command, check=True, capture_output=True, cwd=FOLDER.parents[1]).stdout)
    )


def memory_mb(rows: int) -> float:
    """Return the peak memory of this process during an epoch of `rows` rows, without reading audio."""
    locations = np.stack([np.arange(rows), np.zeros(rows, np.int64)], axis=1)
    chunks, order = FixedChunkDataset(locations), BatchSampler(rows, BATCH, seed=0)
    for epoch, examples in islice(order.from_step(0), order.steps_per_epoch):
        chunks.locations(epoch, examples)
    return round(peak_mb())


if __name__ == "__main__":
    main()
