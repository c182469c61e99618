"""Compare `mast prepare` with plain decoding and resampling, and a killed run with an uninterrupted run.

    python -m benchmarks.prepare              writes benchmarks/results/prepare.json
    python -m benchmarks.prepare --small      a small version

Plain is `soundfile.read` and `soxr.resample` of complete files in the same number of processes, without storing the
audio. Both sides start new processes, alternately, from a warm cache; the best round counts, in wall-clock time and
in processor time, which depends less on other programs. Then one store is written without interruption and another
with SIGKILLs, and every row of the two is compared.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr

from benchmarks.results import FOLDER, write_result

RATE_HZ, FILE_RATE_HZ = 16_000, 48_000
PACKAGES = ("mast-bioacoustics", "pylance", "numpy", "pyarrow", "soundfile", "soxr")


@dataclass(frozen=True)
class Size:
    """Extent of the benchmark; every file represents `copies` recordings, so that hours of audio need few gigabytes."""

    files: int
    file_s: float
    copies: int
    rounds: int
    kills: int
    part_s: float
    processes: int


FULL = Size(files=96, file_s=300, copies=2, rounds=4, kills=10, part_s=300, processes=2)
SMALL = Size(files=24, file_s=12, copies=2, rounds=1, kills=2, part_s=12, processes=1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="a few seconds instead of a few minutes")
    parser.add_argument("--out", type=Path, default=FOLDER / "prepare.json")
    parser.add_argument("--child", choices=("bare", "prepare"), help=argparse.SUPPRESS)
    parser.add_argument("--arguments", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        (bare_child if options.child == "bare" else prepare_child)(*options.arguments)
        return
    with tempfile.TemporaryDirectory(prefix="mast-bench-") as temporary:
        metrics = measure(Path(temporary), SMALL if options.small else FULL)
    write_result(options.out, metrics, PACKAGES)
    print(json.dumps(metrics, indent=2))
    if not metrics["stores_equal"]:
        sys.exit("the store of the killed run differs")


def measure(folder: Path, size: Size) -> dict[str, Any]:
    """Write noise, measure the times, kill runs and compare the stores."""
    make_card(folder, size)
    bare: list[tuple[float, float]] = []
    prepared: list[tuple[float, float]] = []
    outputs: list[bytes] = []
    for _ in range(size.rounds):
        bare.append(timed(lambda: run_bare(folder, size.processes)))
        shutil.rmtree(folder / "audio.lance", ignore_errors=True)
        prepared.append(
            timed(
                lambda: outputs.append(
                    run_prepare(folder, "audio.lance", size.processes, 3600).communicate()[0]
                )
            )
        )
    parent_mb, child_mb = map(float, outputs[-1].split()[-2:])
    chunks_per_s = read_speed(folder / "audio.lance")
    shutil.rmtree(folder / "audio.lance")
    equal = compare_killed(folder, size)
    audio_s = size.files * size.file_s * size.copies
    (bare_s, bare_cpu_s), (prepare_s, prepare_cpu_s) = (
        map(min, zip(*all_, strict=True)) for all_ in (bare, prepared)
    )
    return {
        "ratio_to_bare": round(bare_s / prepare_s, 3),
        "cpu_ratio_to_bare": round(bare_cpu_s / prepare_cpu_s, 3),
        "kills": size.kills,
        "stores_equal": equal,
        "audio_h": round(audio_s / 3600, 2),
        "processes": size.processes,
        "times_real_time": round(audio_s / prepare_s),
        "bare_times_real_time": round(audio_s / bare_s),
        "chunks_read_per_s": round(chunks_per_s),
        "peak_mb_parent": round(parent_mb),
        "peak_mb_process": round(child_mb),
    }


def make_card(folder: Path, size: Size) -> None:
    """Write noise as 48 kHz WAV and its scan; links to the files count as further recordings."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from mast.config import Collection
    from mast.recordings.scan import scan

    (folder / "card" / "0").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number in range(size.files):
        audio = rng.standard_normal(round(size.file_s * FILE_RATE_HZ), np.float32) * np.float32(0.1)
        soundfile.write(folder / "card" / "0" / f"{number:04d}.wav", audio, FILE_RATE_HZ, subtype="PCM_16")
    scan({"card": Collection(root=str(folder / "card"))}, str(folder / "distinct.parquet"))
    distinct = pq.read_table(folder / "distinct.parquet")
    tables = []
    for copy in range(size.copies):
        paths = [path.replace("0/", f"{copy}/", 1) for path in distinct["path"].to_pylist()]
        if copy:
            (folder / "card" / str(copy)).mkdir()
            for path in paths:
                os.link(folder / "card" / f"0/{Path(path).name}", folder / "card" / path)
        table = distinct
        for name, values in (("path", paths), ("recording_id", [f"card/{path}" for path in paths])):
            column = table.schema.get_field_index(name)
            table = table.set_column(column, table.schema.field(name), pa.array(values))
        tables.append(table)
    pq.write_table(pa.concat_tables(tables), folder / "recordings.parquet")


def timed(job: Callable[[], object]) -> tuple[float, float]:
    """Return the wall-clock seconds of a job, and the processor seconds of its processes."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    job()
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_bare(folder: Path, processes: int) -> None:
    paths = sorted(map(str, (folder / "card").rglob("*.wav")))
    children = [child("bare", *paths[number::processes]) for number in range(processes)]
    if any(process.wait() for process in children):
        sys.exit("bare decoding failed")


def bare_child(*paths: str) -> None:
    for path in paths:
        audio, rate_hz = soundfile.read(path, dtype="float32")
        soxr.resample(audio, rate_hz, RATE_HZ, quality="HQ")


def run_prepare(
    folder: Path, store: str, processes: int, part_s: float, table: str = "recordings"
) -> subprocess.Popen[bytes]:
    places = (folder, folder / store, folder / f"{table}.parquet")
    return child("prepare", *map(str, (*places, processes, part_s)))


def prepare_child(folder: str, store: str, table: str, processes: str, part_s: str) -> None:
    from mast.config import Chunking, Collection
    from mast.store import writer
    from mast.store.prepare import prepare

    writer.PART_S = float(part_s)
    prepare(
        table,
        {"card": Collection(root=f"{folder}/card")},
        store,
        Chunking(),
        lambda done_s, total_s: print(done_s, flush=True),
        workers=int(processes),
    )
    for target in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        print(resource.getrusage(target).ru_maxrss / 1024)


def compare_killed(folder: Path, size: Size) -> bool:
    """Check that a store written with SIGKILLs equals one written without interruption."""
    run_prepare(folder, "uninterrupted.lance", size.processes, size.part_s, "distinct").communicate()
    rng = random.Random(0)
    kills = 0
    while kills < size.kills:
        process = run_prepare(folder, "killed.lance", size.processes, size.part_s, "distinct")
        for _ in range(rng.randrange(max(1, size.files // size.kills))):
            if process.stdout:
                process.stdout.readline()
        time.sleep(rng.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    run_prepare(folder, "killed.lance", size.processes, size.part_s, "distinct").communicate()
    if number_of_files(folder / "killed.lance") != number_of_files(folder / "uninterrupted.lance"):
        return False
    both = zip_longest(rows(folder / "uninterrupted.lance"), rows(folder / "killed.lance"))
    return all(one == other for one, other in both)


def number_of_files(store: Path) -> int:
    return len(list((store / "data").iterdir()))


def rows(location: Path) -> Iterator[tuple[Any, ...]]:
    """Yield every row of a store, with its audio as a hash."""
    import lance

    dataset = lance.dataset(location)
    names = [name for name in dataset.schema.names if name != "audio"]
    for first in range(0, dataset.count_rows(), 64):
        table = dataset.to_table(columns=names, offset=first, limit=64)
        blobs = dataset.read_blobs(
            "audio", indices=list(range(first, first + len(table))), preserve_order=True
        )
        for row, (_, audio) in zip(table.to_pylist(), blobs, strict=True):
            yield *row.values(), hashlib.blake2b(audio or b"").hexdigest()


def read_speed(location: Path) -> float:
    """Return the number of random chunks read per second, in batches of 32; most chunks span two rows."""
    from mast.config import Chunking
    from mast.store.audio_store import AudioStore

    store, rng = AudioStore(str(location)), np.random.default_rng(0)
    spans = store.chunks(Chunking(hop_s=1.0))
    batches = [spans[rng.integers(0, len(spans), 32)] for _ in range(30)]
    for batch in batches[:5]:
        store.read(batch, 163_840)
    start = time.perf_counter()
    for batch in batches[5:]:
        store.read(batch, 163_840)
    return 32 * len(batches[5:]) / (time.perf_counter() - start)


def child(job: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.prepare", "--child", job, "--arguments", *arguments]
    return subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE)


if __name__ == "__main__":
    main()
