"""Memory of `mast detect`: over ten files, over very many, over very long ones; and a plan of ten million.

    python -m benchmarks.memory              writes benchmarks/results/memory.json
    python -m benchmarks.memory --small      a small version

Memory is the sum over the command and its workers (PSS: shared pages counted once), sampled while it runs. Each worker
has a very long file of its own (links to one), so that all runs have as many at work. The plan is
that of a table of ten million recordings, from the command's look at it to the list of what is missing, its copy
included: seconds, and the most that the process has held.
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
FEW = 10
"""Files, so that all workers have something to do."""

FILE_S = 0.5
"""Length of each of very many."""

LOOK_S = 0.2
ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Size:
    """How much is run."""

    few_s: float  # length of each of ten files
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
        figures = measure(Path(temporary), SMALL if options.small else FULL)
    write_result(options.out, figures, PACKAGES)
    print(json.dumps(figures, indent=2))


def measure(folder: Path, size: Size) -> dict[str, Any]:
    """Weigh three runs, and a plan."""
    model = save_detector(folder / "model")
    write_archive(folder / "many", size.files, seconds=FILE_S)
    for name, count, hours in (("few", FEW, size.few_s / 3600), ("long", WORKERS, size.hours)):
        (folder / name).mkdir()
        write_noise(folder / name / "0.wav", hours)
        for number in range(1, count):
            (folder / name / f"{number}.wav").symlink_to("0.wav")
    (few_mb, _), (many_mb, many_s), (long_mb, long_s) = (
        weighed([folder / name], model, folder / f"{name}-out") for name in ("few", "many", "long")
    )
    write_table(folder / "recordings.parquet", size.rows)
    command = [sys.executable, "-m", "benchmarks.memory", "--plan"]
    places = [str(folder / name) for name in ("recordings.parquet", "model", "plan-out")]
    done = subprocess.run([*command, *places], check=True, capture_output=True, text=True)
    plan_s, plan_mb, parts = map(float, done.stdout.split())
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


def weighed(paths: Sequence[Path], model: Path, out: Path) -> tuple[float, float]:
    """Most memory that a run and its workers hold at once, in MB, and how long it takes, in seconds."""
    start, most_mb = time.perf_counter(), 0.0
    process = start_detect(paths, model, out, WORKERS, "--precision", "bf16")
    while process.poll() is None:
        family = [process.pid, *processes_below(process.pid)]
        most_mb = max(most_mb, sum(map(_pss_mb, family)))
        time.sleep(LOOK_S)
    finish(process)
    return most_mb, time.perf_counter() - start


def plan(table: Path, model: Path, out: Path) -> tuple[float, float, int]:
    """Seconds from a table to what is missing, most memory of this process in MB, and the number of parts."""
    from mast.detection.archive import open_archive
    from mast.detection.inputs import look_at

    start = time.perf_counter()
    archive = open_archive(look_at([str(table)]), str(model), str(out))
    missing = archive.missing()
    return time.perf_counter() - start, peak_mb(), len(missing)


def write_table(path: Path, rows: int) -> None:
    """A table of minutes from a thousand recorders, as `mast scan` would write it; there is no sound behind it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from mast.events import Recording, arrow_schema
    from mast.recordings.scan import PROVENANCE

    collections = {"archive": {"root": str(path.parent), "time_zone": "UTC"}}
    schema = arrow_schema(Recording)
    nothing = {field.name: pa.nulls(ROWS_AT_ONCE, field.type) for field in schema if field.nullable}
    story = {PROVENANCE: json.dumps({"collections": collections})}
    with pq.ParquetWriter(path, schema.with_metadata(story), compression="zstd") as writer:
        for first in range(0, rows, ROWS_AT_ONCE):
            count = min(ROWS_AT_ONCE, rows - first)
            columns = nothing | made_columns(range(first, first + count), rows)
            arrays = [pa.array(columns[field.name][:count], field.type) for field in schema]
            writer.write_table(pa.table(arrays, schema=schema), row_group_size=1 << 14)


def made_columns(numbers: range, rows: int) -> dict[str, list[Any]]:
    """The columns that a plan and its parts read."""
    each = -(-rows // 1000)
    begin = datetime(2020, 1, 1, tzinfo=UTC)
    starts = [begin + timedelta(minutes=number % each) for number in numbers]
    sites = [f"site{number // each:04d}" for number in numbers]
    paths = [f"{site}/{start:%Y%m%d_%H%M%S}.WAV" for site, start in zip(sites, starts, strict=True)]
    same: dict[str, Any] = {
        "collection": "archive",
        "size_bytes": 5_760_488,
        "status": "ok",
        "faults": [],
        "duration_s": 60.0,
        "utc_offset_min": 0,
    }
    return {
        **{name: [value] * len(numbers) for name, value in same.items()},
        "recording_id": [f"archive/{item}" for item in paths],
        "path": paths,
        "site": sites,
        "modified_utc": starts,
        "start_utc": starts,
        "start_local": [start.replace(tzinfo=None) for start in starts],
    }


if __name__ == "__main__":
    main()
