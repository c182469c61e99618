"""Measure the memory of `mast detect` on ten files, 100,000 files and very long files, and of planning ten million.

    python -m benchmarks.memory              writes benchmarks/results/memory.json
    python -m benchmarks.memory --small      a small version

Memory is the sum over the command and its workers (PSS: shared pages counted once), sampled during the run. Each
worker processes its own very long file (links to one file), so that all runs have the same number of active workers.
The plan is that of a table of ten million recordings, from opening the table to the list of missing recordings,
including its copy: seconds and peak memory of the process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.archive import finish, processes_below, save_detector, start_detect, write_archive
from benchmarks.long_file import write_noise
from benchmarks.results import FOLDER, peak_mb, write_result
from benchmarks.scan import _pss_mb

PACKAGES = ("mast-bioacoustics", "torch", "pyarrow", "numpy", "soundfile")
WORKERS = 2
FEW_FILES = 10
"""Number of files of the small run, enough for all workers."""

FILE_S = 0.5
"""Duration of each file of the run with many files."""

SAMPLE_INTERVAL_S = 0.2
BLOCK_ROWS = 1 << 16


@dataclass(frozen=True)
class Size:
    """Extent of the benchmark."""

    few_s: float  # duration of each of ten files
    files: int
    hours: float
    rows: int


FULL = Size(few_s=60.0, files=100_000, hours=15.0, rows=10_000_000)
SMALL = Size(few_s=15.0, files=150, hours=0.03, rows=100_000)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="150 files, 2 minutes, 100,000 rows")
    parser.add_argument("--out", type=Path, default=FOLDER / "memory.json")
    parser.add_argument("--plan", nargs=3, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plan:
        print(*plan(*options.plan))
        return
    with tempfile.TemporaryDirectory(prefix="mast-memory-") as temporary:
        metrics = measure(Path(temporary), SMALL if options.small else FULL)
    write_result(options.out, metrics, PACKAGES)
    print(json.dumps(metrics, indent=2))


def measure(folder: Path, size: Size) -> dict[str, Any]:
    """Measure the memory of three runs and of a plan."""
    model = save_detector(folder / "model")
    write_archive(folder / "many", size.files, seconds=FILE_S)
    for name, count, hours in (("few", FEW_FILES, size.few_s / 3600), ("long", WORKERS, size.hours)):
        (folder / name).mkdir()
        write_noise(folder / name / "0.wav", hours)
        for number in range(1, count):
            (folder / name / f"{number}.wav").symlink_to("0.wav")
    (few_mb, _), (many_mb, many_s), (long_mb, long_s) = (
        run_and_measure([folder / name], model, folder / f"{name}-out") for name in ("few", "many", "long")
    )
    write_table(folder / "recordings.parquet", size.rows)
    command = [sys.executable, "-m", "benchmarks.memory", "--plan"]
    paths = [str(folder / name) for name in ("recordings.parquet", "model", "plan-out")]
    process = subprocess.run([*command, *paths], check=True, capture_output=True, text=True)
    plan_s, plan_mb, parts = map(float, process.stdout.split())
    return {
        "peak_mb_10_files": round(few_mb),
        "peak_mb_100k_files": round(many_mb),
        "peak_mb_15h_file": round(long_mb),
        "plan_10m_s": round(plan_s, 1),
        "plan_10m_mb": round(plan_mb),
        "files": size.files,
        "files_s": round(many_s),
        "hours": size.hours,
        "hours_s": round(long_s),
        "plan_rows": size.rows,
        "plan_parts": int(parts),
        "workers": WORKERS,
    }


def run_and_measure(paths: Sequence[Path], model: Path, out: Path) -> tuple[float, float]:
    """Return the peak memory of a run and its workers in MB, and its duration in seconds."""
    start, peak = time.perf_counter(), 0.0
    process = start_detect(paths, model, out, WORKERS, "--precision", "bf16")
    while process.poll() is None:
        family = [process.pid, *processes_below(process.pid)]
        peak = max(peak, sum(map(_pss_mb, family)))
        time.sleep(SAMPLE_INTERVAL_S)
    finish(process)
    return peak, time.perf_counter() - start


def plan(table: Path, model: Path, out: Path) -> tuple[float, float, int]:
    """Plan the missing parts of a table; return the seconds, the peak memory of this process in MB, and their number."""
    from mast.runs.inputs import resolve_inputs
    from mast.runs.run import open_run

    start = time.perf_counter()
    archive = open_run(resolve_inputs([str(table)]), str(model), str(out))
    missing = archive.missing()
    return time.perf_counter() - start, peak_mb(), len(missing)


def write_table(path: Path, rows: int) -> None:
    """Write a table of minutes from a thousand recorders, as `mast scan` would; the audio files do not exist."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from mast.recordings.scan import PROVENANCE
    from mast.records import Recording, arrow_schema

    collections = {"archive": {"root": str(path.parent), "time_zone": "UTC"}}
    schema = arrow_schema(Recording)
    empty = {field.name: pa.nulls(BLOCK_ROWS, field.type) for field in schema if field.nullable}
    metadata = {PROVENANCE: json.dumps({"collections": collections})}
    with pq.ParquetWriter(path, schema.with_metadata(metadata), compression="zstd") as writer:
        for first in range(0, rows, BLOCK_ROWS):
            count = min(BLOCK_ROWS, rows - first)
            columns = empty | table_columns(range(first, first + count), rows)
            arrays = [pa.array(columns[field.name][:count], field.type) for field in schema]
            writer.write_table(pa.table(arrays, schema=schema), row_group_size=1 << 14)


def table_columns(numbers: range, rows: int) -> dict[str, list[Any]]:
    """Return the columns that a plan and its parts read."""
    per_site = -(-rows // 1000)
    begin = datetime(2020, 1, 1, tzinfo=UTC)
    starts = [begin + timedelta(minutes=number % per_site) for number in numbers]
    sites = [f"site{number // per_site:04d}" for number in numbers]
    paths = [f"{site}/{start:%Y%m%d_%H%M%S}.WAV" for site, start in zip(sites, starts, strict=True)]
    constant: dict[str, Any] = {
        "collection": "archive",
        "size_bytes": 5_760_488,
        "status": "ok",
        "faults": [],
        "duration_s": 60.0,
        "utc_offset_min": 0,
    }
    return {
        **{name: [value] * len(numbers) for name, value in constant.items()},
        "recording_id": [f"archive/{path}" for path in paths],
        "path": paths,
        "site": sites,
        "modified_utc": starts,
        "start_utc": starts,
        "start_local": [start.replace(tzinfo=None) for start in starts],
    }


if __name__ == "__main__":
    main()
