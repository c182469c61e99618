"""Measure time and peak memory of reading all chunks of a 15-hour recording at 48 kHz.

python -m benchmarks.long_file
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

from benchmarks.results import FOLDER, peak_mb, write_result
from mast.audio.reader import chunk_offsets, read_chunks
from mast.config import Chunking

RATE_HZ = 48_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=FOLDER / "long_file.json")
    parser.add_argument("--hours", type=float, default=15.0)
    parser.add_argument("--read", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        print(*read_all_chunks(options.read))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.wav"
        write_noise(path, options.hours)
        command = [sys.executable, "-m", "benchmarks.long_file", "--read", str(path)]
        chunks, seconds, peak_mb = map(
            float, subprocess.run(command, check=True, capture_output=True).stdout.split()
        )
        size_gb = path.stat().st_size / 1e9
    expected = len(list(chunk_offsets(round(options.hours * 3600 * Chunking().sample_rate_hz), Chunking())))
    metrics = {
        "hours": options.hours,
        "size_gb": round(size_gb, 2),
        "chunks": int(chunks),
        "chunks_expected": expected,
        "peak_mb": round(peak_mb),
        "seconds": round(seconds, 1),
        "x_real_time": round(options.hours * 3600 / seconds),
    }
    write_result(options.out, metrics, ("soundfile", "soxr", "numpy"))
    print(f"{metrics['chunks']} of {expected} chunks, at most {metrics['peak_mb']} MB → {options.out}")


def write_noise(path: Path, hours: float) -> None:
    """Write 16-bit noise in blocks; files above 4 GB use RF64."""
    noise = (np.random.default_rng(0).standard_normal(RATE_HZ * 60) * 1000).astype(np.int16)
    with soundfile.SoundFile(path, "w", RATE_HZ, 1, "PCM_16", format="RF64") as file:
        remaining = round(hours * 3600 * RATE_HZ)
        while remaining:
            file.write(noise[:remaining])
            remaining -= min(remaining, len(noise))


def read_all_chunks(path: str) -> tuple[int, float, float]:
    """Return the number of chunks, seconds, and the peak memory of this process in MB."""
    start = time.perf_counter()
    count = sum(1 for _ in read_chunks(path, "long", Chunking()))
    return count, time.perf_counter() - start, peak_mb()


if __name__ == "__main__":
    main()
