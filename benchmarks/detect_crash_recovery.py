"""Compare runs of `mast detect` that are killed repeatedly with an uninterrupted run, on many short recordings.

    python -m benchmarks.detect_crash_recovery              20,000 recordings, 20 kills
    python -m benchmarks.detect_crash_recovery --small      a small version
    python -m benchmarks.detect_crash_recovery --engine ray     the same on a local Ray cluster
    unshare -n sh -c 'ip link set lo up && python -m benchmarks.detect_crash_recovery --engine ray'     without a network

Writes benchmarks/results/detect_crash_recovery.json, or detect_crash_recovery_ray.json. Some recordings are corrupt.
Every run is a process with workers. SIGKILL is sent to the main process, or to one of its workers (Ray's, with
--engine ray), at moments that depend on a seed: while it starts, detects or writes. The same command resumes each
time; at the end every file of events and status must be identical to that of the uninterrupted run, and no partial
file may be left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.archive import (
    finish,
    processes_below,
    ray_workers,
    save_detector,
    start_detect,
    write_archive,
)
from benchmarks.results import FOLDER, write_result

PACKAGES = ("mast-bioacoustics", "torch", "pyarrow", "soundfile")
WORKERS = 2
QUARANTINED = 3
"""Exit code of a run with corrupt files."""

STARTING_FRACTION, STARTING_S = 0.2, 10.0
"""Fraction of kills in the first seconds, while a process may still be starting."""

WORKER_FRACTIONS = {"local": 0.25, "ray": 0.75}
"""Fraction of runs in which a worker is killed first; the main process must recover, and is killed later."""

HANGING_S = 1800.0
"""Timeout of every step."""


@dataclass(frozen=True)
class Size:
    """Extent of the benchmark."""

    recordings: int
    corrupt_every: int
    kills: int
    pause_s: float  # maximum delay of a kill after a part was finished


FULL = Size(20_000, corrupt_every=100, kills=20, pause_s=2.0)
SMALL = Size(200, corrupt_every=60, kills=3, pause_s=0.1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="200 recordings and 3 kills")
    parser.add_argument("--engine", choices=[*WORKER_FRACTIONS], default="local")
    parser.add_argument(
        "--out",
        type=Path,
        help="default: detect_crash_recovery.json or detect_crash_recovery_ray.json of the results",
    )
    options = parser.parse_args()
    name = (
        "detect_crash_recovery.json"
        if options.engine == "local"
        else f"detect_crash_recovery_{options.engine}.json"
    )
    with tempfile.TemporaryDirectory(prefix="mast-crash-") as temporary:
        metrics = measure(Path(temporary), SMALL if options.small else FULL, options.engine)
    write_result(
        options.out or FOLDER / name, metrics, PACKAGES if options.engine == "local" else (*PACKAGES, "ray")
    )
    print(json.dumps(metrics, indent=2))
    if not metrics["identical"] or metrics["quarantined"] != metrics["corrupt"]:
        sys.exit("the killed run differs from the uninterrupted run")


def measure(folder: Path, size: Size, engine: str) -> dict[str, Any]:
    """Run without interruption; run on an engine and kill it; compare the files."""
    corrupt = write_archive(folder / "card", size.recordings, size.corrupt_every)
    model = save_detector(folder / "model")
    start = time.perf_counter()
    finish(start_detect([folder / "card"], model, folder / "uninterrupted", WORKERS), [QUARANTINED])
    uninterrupted_s = time.perf_counter() - start
    kills = disturb(folder, model, size, engine, parts=len(parts_of(folder / "uninterrupted")))
    finish(
        start_detect([folder / "card"], model, folder / "killed", WORKERS, "--engine", engine), [QUARANTINED]
    )
    status = counts(folder / "killed")
    return {
        "engine": engine,
        "kills": len(kills),
        "kills_by_moment": {moment: kills.count(moment) for moment in sorted({*MOMENTS, *kills})},
        "recordings": size.recordings,
        "identical": contents(folder / "uninterrupted") == contents(folder / "killed"),
        "corrupt": corrupt,
        **status,
        "parts": len(parts_of(folder / "uninterrupted")),
        "workers": WORKERS,
        "uninterrupted_s": round(uninterrupted_s, 1),
    }


MOMENTS = ("starting", "detecting", "writing", "worker")


def disturb(folder: Path, model: Path, size: Size, engine: str, parts: int) -> list[str]:
    """Kill runs at seeded random moments; return the activity that each kill interrupted."""
    rng, kills, out = random.Random(1), list[str](), folder / "killed"
    while len(kills) < size.kills:
        process = start_detect([folder / "card"], model, out, WORKERS, "--engine", engine)
        before = len(parts_of(out))
        if rng.random() < STARTING_FRACTION:
            time.sleep(rng.uniform(0, STARTING_S))
        else:
            share = (parts - before) / (size.kills - len(kills) + 1)
            wait_for_parts(process, out, before + rng.randint(0, max(1, round(share))))
            is_unlucky = rng.random() < WORKER_FRACTIONS[engine] and len(kills) + 1 < size.kills
            if is_unlucky and kill_worker(process, engine):
                kills.append("worker")
            time.sleep(rng.uniform(0, size.pause_s))
        is_writing = bool(partials(out))
        process.kill()
        process.communicate()
        if process.returncode == -signal.SIGKILL:
            has_detected = len(parts_of(out)) > before
            kills.append("writing" if is_writing else "detecting" if has_detected else "starting")
    return kills


def kill_worker(process: subprocess.Popen[str], engine: str) -> bool:
    """Kill one of a run's workers, if it has any; with Ray, a Ray worker, whose detection subprocess ends with it."""
    workers = ray_workers(process.pid) if engine == "ray" else processes_below(process.pid)
    if workers:
        with suppress(ProcessLookupError):
            os.kill(workers[-1], signal.SIGKILL)
    return bool(workers)


def wait_for_parts(process: subprocess.Popen[str], out: Path, count: int) -> None:
    """Wait until `count` parts are finished, or the run has ended."""
    start = time.monotonic()
    while len(parts_of(out)) < count and process.poll() is None:
        if time.monotonic() - start > HANGING_S:
            process.kill()
            sys.exit(f"no part was finished in {HANGING_S:.0f} s: {process.communicate()[1]}")
        time.sleep(0.01)


def parts_of(out: Path) -> list[Path]:
    """Return the status files of finished parts."""
    return [*out.glob("status/part-*.parquet")]


def partials(out: Path) -> list[Path]:
    """Return the files that are being written."""
    return [*out.rglob(".*.partial")]


def contents(out: Path) -> dict[str, bytes]:
    """Return every file of a run except the table of recordings, which contains its creation time."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.name != "recordings.parquet"
    }


def counts(out: Path) -> dict[str, float]:
    """Return the numbers of quarantined recordings and of events, and the bytes per row of both tables."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    status = pq.read_table(out / "status", columns=["status", "events"])
    quarantined = pc.sum(pc.equal(status["status"], "quarantined")).as_py()
    events = pc.sum(status["events"]).as_py()
    bytes_of = {
        name: sum(path.stat().st_size for path in (out / name).iterdir()) for name in ("events", "status")
    }
    return {
        "quarantined": quarantined,
        "events": events,
        "event_bytes": round(bytes_of["events"] / max(events, 1), 1),
        "status_bytes": round(bytes_of["status"] / len(status), 1),
    }


if __name__ == "__main__":
    main()
