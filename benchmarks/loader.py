"""Shuffled chunks through the dataset with 2 threads, against bare Lance takes of the same rows, on disk and on S3.

    python -m benchmarks.loader                 writes benchmarks/results/loader.json
    python -m benchmarks.loader --rows 64       a small version

Bare Lance reads the same rows in the same order in one process and does nothing with them. S3 is a real server on
loopback where one is installed (tests/s3_server.py); without it `ratio_s3` is null. A last part holds the memory of an
order of a million rows against that of a thousand.
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
from mast.datasets.loading import Batch, FixedChunks, batches
from mast.datasets.order import Order
from mast.recordings.prepare import prepare
from mast.recordings.scan import scan
from mast.recordings.store import AudioStore

BATCH, WORKERS, ROUNDS = 16, 2, 3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2048, help="steps of 10.24 s in the store")
    parser.add_argument("--out", type=Path, default=FOLDER / "loader.json")
    parser.add_argument("--memory", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        print(memory_mb(options.memory))
        return
    with tempfile.TemporaryDirectory(prefix="mast-loader-") as temporary:
        folder = Path(temporary)
        made = make_store(folder, options.rows, str(folder / "work"))
        figures = {"local": compare(made)}
        with bucket_on(folder) as bucket:
            if bucket:
                figures["s3"] = compare(make_store(folder, options.rows, bucket))
    write_result(options.out, summed_up(figures, options.rows), ("torch", "pylance", "numpy"))
    print(options.out.read_text())


def make_store(folder: Path, rows: int, work: str) -> AudioStore:
    """Noise at 16 kHz, scanned and prepared into `rows` steps."""
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
    """Chunks a second of both, best of alternating rounds over the same shuffled rows."""
    rows = np.arange(len(store))
    chunks = FixedChunks(np.stack([rows, np.zeros_like(rows)], axis=1))
    order = Order(len(chunks), BATCH, seed=0)
    loader = batches(store, chunks, order, workers=WORKERS)
    list(islice(loader, 4 * WORKERS))  # workers start, caches warm
    best = {"dataset": 0.0, "bare": 0.0, "bare_ranges": 0.0}
    for epoch in range(ROUNDS):
        best["dataset"] = max(best["dataset"], rate(partial(loaded, loader, order.steps_per_epoch)))
        lots = np.split(order.order(epoch), range(BATCH, len(chunks), BATCH))
        best["bare"] = max(best["bare"], rate(partial(taken, store, lots)))
        best["bare_ranges"] = max(best["bare_ranges"], rate(partial(ranged, store, lots)))
    return best


def loaded(loader: Iterator[Batch], steps: int) -> int:
    return sum(len(batch.sound) for batch in islice(loader, steps))


def taken(store: AudioStore, lots: list[Any]) -> int:
    """Lance's own way to the same bytes."""
    for rows in lots:
        for blob in store.dataset.take_blobs("audio", indices=rows.tolist()):
            if blob is not None:
                blob.read()
                blob.close()
    return sum(map(len, lots))


def ranged(store: AudioStore, lots: list[Any]) -> int:
    """Lance's other way, which the dataset uses."""
    count = 2 * store.layout.step_samples
    for rows in lots:
        store.dataset.read_blob_ranges("audio", [(int(row), 0, count) for row in rows], selector="indices")
    return sum(map(len, lots))


def rate(work: Callable[[], int]) -> float:
    """Chunks a second."""
    start = time.perf_counter()
    return work() / (time.perf_counter() - start)


def summed_up(figures: dict[str, dict[str, float]], rows: int) -> dict[str, Any]:
    small, large = (measured_memory(count) for count in (1000, 1_000_000))
    result: dict[str, Any] = {"rows": rows, "batch": BATCH, "workers": WORKERS}
    for name in ("local", "s3"):
        found = figures.get(name)
        result[f"ratio_{name}"] = round(found["dataset"] / found["bare"], 3) if found else None
        result[f"chunks_per_s_{name}"] = round(found["dataset"]) if found else None
        result[f"bare_chunks_per_s_{name}"] = round(found["bare"]) if found else None
        result[f"bare_ranges_chunks_per_s_{name}"] = round(found["bare_ranges"]) if found else None
    return {**result, "memory_mb_1e3_rows": small, "memory_mb_1e6_rows": large}


def measured_memory(rows: int) -> float:
    command = [sys.executable, "-m", "benchmarks.loader", "--memory", str(rows)]
    return float(
        json.loads(subprocess.run(command, check=True, capture_output=True, cwd=FOLDER.parents[1]).stdout)
    )


def memory_mb(rows: int) -> float:
    """Peak memory of a process that goes through an epoch of so many rows, without their sound."""
    places = np.stack([np.arange(rows), np.zeros(rows, np.int64)], axis=1)
    chunks, order = FixedChunks(places), Order(rows, BATCH, seed=0)
    for epoch, examples in islice(order.from_step(0), order.steps_per_epoch):
        chunks.places(epoch, examples)
    return round(peak_mb())


if __name__ == "__main__":
    main()
