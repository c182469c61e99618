"""Measure `mast scan` on a card with every kind of fault: reported faults, memory and speed.

    python -m benchmarks.scan                   100,000 files; writes benchmarks/results/scan.json
    python -m benchmarks.scan --files 600       a small version

Time is compared with a loop of `soundfile.info` over the same files, alternately, both from a warm cache. Memory is the
sum over all processes of the scan (PSS: shared pages counted once), sampled during a separate scan. A superuser can read
every file, so the measured processes drop that capability before they start.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import soundfile

from benchmarks.corrupt_card import delete_card, make_card
from benchmarks.results import FOLDER, write_result

ROUNDS = 5
DROP_FROM_BOUNDING_SET, DAC_OVERRIDE, DAC_READ_SEARCH = 24, 1, 2  # of Linux: prctl(2), capabilities(7)
PACKAGES = ("mast-bioacoustics", "numpy", "pyarrow", "duckdb", "soundfile")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=FOLDER / "scan.json")
    parser.add_argument("--child", choices=("scan", "info"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        _CHILDREN[arguments.child](arguments.folder)
        return
    with tempfile.TemporaryDirectory(prefix="mast-bench-") as temporary:
        folder = Path(temporary)
        try:
            result = measure(folder, arguments.files)
        finally:
            delete_card(folder / "full")
            delete_card(folder / "tenth")
    write_result(arguments.out, result, PACKAGES)
    print(json.dumps(result, indent=2))
    if result["fault_classes_reported"] < result["fault_classes_injected"]:
        sys.exit(f"not reported: {', '.join(result['missed'])}")


def measure(folder: Path, files: int) -> dict[str, Any]:
    """Write a card and one of a tenth of its size, scan both, and compare the reported faults with the expected ones."""
    peaks_mb = {}
    for name, count in (("tenth", max(files // 10, 100)), ("full", files)):
        card = folder / name
        card.mkdir()
        make_card(card, count).save(card / "card.json")
        peaks_mb[name] = run("scan", card, measures_memory=True)["peak_mb"]
    times_s: dict[str, list[float]] = {"info": [], "scan": []}
    for _ in range(ROUNDS):
        for job, measured in times_s.items():
            measured.append(run(job, folder / "full")["seconds"])
    scan_s, info_s = min(times_s["scan"]), min(times_s["info"])
    missed, injected, rows = check(folder / "full")
    return {
        "files": rows,
        "fault_classes_injected": len(injected),
        "fault_classes_reported": len(injected) - len({fault for _, fault in missed}),
        "missed": sorted({f"{fault or 'good'}: {path}" for path, fault in missed}),
        "peak_mb": round(peaks_mb["full"]),
        "peak_mb_at_a_tenth": round(peaks_mb["tenth"]),
        "ratio_to_info_loop": round(info_s / scan_s, 2),
        "scan_s": round(scan_s, 2),
        "info_loop_s": round(info_s, 2),
        "libsndfile": soundfile.__libsndfile_version__,
    }


def run(job: str, card: Path, *, measures_memory: bool = False) -> dict[str, float]:
    """Run a job in a new process; return its seconds, or, with `measures_memory`, the peak memory of its process tree.

    Reading the memory of a process slows it down, so time and memory are measured in separate runs.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.scan", "--child", job, "--folder", str(card)],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=obey_permissions,  # noqa: PLW1509 (this process has no threads)
    )
    peak_mb = 0.0
    while measures_memory and child.poll() is None:
        peak_mb = max(peak_mb, sum(_pss_mb(pid) for pid in _tree(child.pid)))
        time.sleep(0.1)
    output = child.communicate()[0]
    if child.returncode:
        sys.exit(f"{job} failed with {child.returncode}")
    return {"peak_mb": peak_mb, "seconds": float(output.split()[-1])}


def obey_permissions() -> None:
    """Drop a superuser's capability to read unreadable files; this takes effect at the next exec."""
    if os.getuid() == 0:
        libc = ctypes.CDLL(None)
        libc.prctl(DROP_FROM_BOUNDING_SET, DAC_OVERRIDE)
        libc.prctl(DROP_FROM_BOUNDING_SET, DAC_READ_SEARCH)


def check(card: Path) -> tuple[list[tuple[str, str]], set[str], int]:
    """Return the expected faults that were not reported, the kinds of expected faults, and the number of rows."""
    import pyarrow.parquet as pq

    table = pq.read_table(card / "recordings.parquet", columns=["recording_id", "faults"])
    faults = dict(zip(table["recording_id"].to_pylist(), table["faults"].to_pylist(), strict=True))
    expected = json.loads((card / "card.json").read_text())["expected"]
    missed = [
        (path, fault)
        for path, fault in expected
        if path not in faults or (fault not in faults[path] if fault else faults[path])
    ]
    return missed, {fault for _, fault in expected if fault}, len(table)


def scan_child(card: Path) -> None:
    from mast.config import Collection
    from mast.recordings.scan import scan

    collections = json.loads((card / "card.json").read_text())["collections"]
    start = time.perf_counter()
    scan(
        {name: Collection(**settings) for name, settings in collections.items()},
        str(card / "recordings.parquet"),
    )
    print(time.perf_counter() - start)


def info_child(card: Path) -> None:
    paths = [Path(folder, name) for folder, _, names in os.walk(card) for name in names]
    start = time.perf_counter()
    for path in paths:
        try:
            soundfile.info(path)
        except (soundfile.LibsndfileError, OSError, UnicodeError):
            continue
    print(time.perf_counter() - start)


_CHILDREN = {"scan": scan_child, "info": info_child}


def _tree(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(descendant for child in children for descendant in _tree(int(child)))]


def _pss_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    main()
