"""`mast detect` killed again and again over many short recordings, some of them corrupt, against a run left alone.

    python -m benchmarks.crash              20,000 recordings, 20 kills; writes benchmarks/results/crash.json
    python -m benchmarks.crash --small      a small version
    python -m benchmarks.crash --engine ray     the same on a Ray of this machine; writes crash_ray.json
    unshare -n sh -c 'ip link set lo up && python -m benchmarks.crash --engine ray'     without a network

Every run is a real process with real workers. SIGKILL meets the process that leads, or one of its workers (of Ray's
own, with --engine ray), at moments that a seed decides: while it starts, hears or writes. The same command goes on each
time; in the end every file of events and status has to be the same bytes as in the run that was left alone, and nothing
half-written may be left.
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
"""Exit code of a run that has met corrupt files."""

STARTING_SHARE, STARTING_S = 0.2, 10.0
"""So many kills come while a process may still be starting."""

WORKER_SHARES = {"local": 0.25, "ray": 0.75}
"""In so many runs a worker is killed; the process that leads it has to bear that, and is killed later."""

HANGING_S = 1800.0
"""Longest that anything here may take."""


@dataclass(frozen=True)
class Size:
    """How much is run."""

    recordings: int
    corrupt_every: int
    kills: int
    pause_s: float  # a kill comes at most so long after a part was finished


FULL = Size(20_000, corrupt_every=100, kills=20, pause_s=2.0)
SMALL = Size(200, corrupt_every=60, kills=3, pause_s=0.1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="200 recordings and 3 kills")
    parser.add_argument("--engine", choices=[*WORKER_SHARES], default="local")
    parser.add_argument("--out", type=Path, help="default: crash.json or crash_ray.json of the results")
    options = parser.parse_args()
    name = "crash.json" if options.engine == "local" else f"crash_{options.engine}.json"
    with tempfile.TemporaryDirectory(prefix="mast-crash-") as temporary:
        figures = measure(Path(temporary), SMALL if options.small else FULL, options.engine)
    write_result(
        options.out or FOLDER / name, figures, PACKAGES if options.engine == "local" else (*PACKAGES, "ray")
    )
    print(json.dumps(figures, indent=2))
    if not figures["identical"] or figures["quarantined"] != figures["corrupt"]:
        sys.exit("the run that was killed differs from the one that was left alone")


def measure(folder: Path, size: Size, engine: str) -> dict[str, Any]:
    """Run on one machine; run on an engine and kill it; compare."""
    corrupt = write_archive(folder / "card", size.recordings, size.corrupt_every)
    model = save_detector(folder / "model")
    start = time.perf_counter()
    finish(start_detect([folder / "card"], model, folder / "whole", WORKERS), [QUARANTINED])
    whole_s = time.perf_counter() - start
    deaths = disturb(folder, model, size, engine, parts=len(parts_of(folder / "whole")))
    finish(
        start_detect([folder / "card"], model, folder / "killed", WORKERS, "--engine", engine), [QUARANTINED]
    )
    status = counts(folder / "killed")
    return {
        "engine": engine,
        "kills": len(deaths),
        "kills_by_moment": {moment: deaths.count(moment) for moment in sorted({*MOMENTS, *deaths})},
        "recordings": size.recordings,
        "identical": contents(folder / "whole") == contents(folder / "killed"),
        "corrupt": corrupt,
        **status,
        "parts": len(parts_of(folder / "whole")),
        "workers": WORKERS,
        "undisturbed_s": round(whole_s, 1),
    }


MOMENTS = ("starting", "hearing", "writing", "worker")


def disturb(folder: Path, model: Path, size: Size, engine: str, parts: int) -> list[str]:
    """Kill runs at moments that a seed decides. → what each kill met"""
    rng, deaths, out = random.Random(1), list[str](), folder / "killed"
    while len(deaths) < size.kills:
        process = start_detect([folder / "card"], model, out, WORKERS, "--engine", engine)
        before = len(parts_of(out))
        if rng.random() < STARTING_SHARE:
            time.sleep(rng.uniform(0, STARTING_S))
        else:
            share = (parts - before) / (size.kills - len(deaths) + 1)
            wait_for_parts(process, out, before + rng.randint(0, max(1, round(share))))
            is_unlucky = rng.random() < WORKER_SHARES[engine] and len(deaths) + 1 < size.kills
            if is_unlucky and kill_worker(process, engine):
                deaths.append("worker")
            time.sleep(rng.uniform(0, size.pause_s))
        is_writing = bool(partials(out))
        process.kill()
        process.communicate()
        if process.returncode == -signal.SIGKILL:
            has_heard = len(parts_of(out)) > before
            deaths.append("writing" if is_writing else "hearing" if has_heard else "starting")
    return deaths


def kill_worker(process: subprocess.Popen[str], engine: str) -> bool:
    """Kill one of a run's workers, if it has any; of Ray, its own worker, whose detecting process ends with it."""
    workers = ray_workers(process.pid) if engine == "ray" else processes_below(process.pid)
    if workers:
        with suppress(ProcessLookupError):
            os.kill(workers[-1], signal.SIGKILL)
    return bool(workers)


def wait_for_parts(process: subprocess.Popen[str], out: Path, count: int) -> None:
    """Wait until so many parts are done, or the run has ended."""
    start = time.monotonic()
    while len(parts_of(out)) < count and process.poll() is None:
        if time.monotonic() - start > HANGING_S:
            process.kill()
            sys.exit(f"nothing happened: {process.communicate()[1]}")
        time.sleep(0.01)


def parts_of(out: Path) -> list[Path]:
    """Parts that are done."""
    return [*out.glob("status/part-*.parquet")]


def partials(out: Path) -> list[Path]:
    """Files that are being written."""
    return [*out.rglob(".*.partial")]


def contents(out: Path) -> dict[str, bytes]:
    """Every file of a run but the table of recordings, which tells when it was made."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.name != "recordings.parquet"
    }


def counts(out: Path) -> dict[str, float]:
    """Quarantined recordings and events of a run, and the bytes that a row of either table takes."""
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
