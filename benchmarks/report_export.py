"""Measure time and memory of `mast report` and `mast export` on many events.

    python -m benchmarks.report_export             10^5, 10^6 and 10^7 events
    python -m benchmarks.report_export --small     a small version

Writes benchmarks/results/report_export.json. The benchmark writes the folder of a finished run, with a hundred events in
each minute of a thousand recorders; all recordings are links to one minute of audio. Every command is a separate process,
of which the seconds and the peak memory are measured.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.archive import save_detector
from benchmarks.long_file import write_noise
from benchmarks.memory import SAMPLE_INTERVAL_S, write_table
from benchmarks.results import FOLDER, write_result
from benchmarks.scan import _pss_mb
from mast.records import Event, RecordingStatus
from mast.runs.inputs import resolve_inputs
from mast.runs.run import DetectionRun, open_run
from mast.runs.tables import RecordingRow, events_table, read_rows, write_status

PACKAGES = ("mast-bioacoustics", "pyarrow", "numpy")
FULL, SMALL = (100_000, 1_000_000, 10_000_000), (2_000,)
EVENTS_PER_MINUTE = 100
COMMANDS = {
    "report": ("report",),
    "csv": ("export", "--to", "csv"),
    "raven": ("export", "--to", "raven", "--combined"),
    "camtrap_dp": ("export", "--to", "camtrap-dp"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, nargs="*", default=FULL)
    parser.add_argument("--small", action="store_true", help=f"{SMALL[0]:,} events")
    parser.add_argument("--out", type=Path, default=FOLDER / "report_export.json")
    options = parser.parse_args()
    rows = []
    for count in SMALL if options.small else options.events:
        with tempfile.TemporaryDirectory(prefix="mast-report-export-") as temporary:
            events = make_run(Path(temporary), count)
            for name, arguments in COMMANDS.items():
                seconds, peak_mb = run_and_measure(arguments[0], str(events), *arguments[1:])
                rows.append({"command": name, "events": count, "s": seconds, "peak_mb": peak_mb})
                print(rows[-1], flush=True)
    write_result(options.out, {"runs": rows, "events_per_minute": EVENTS_PER_MINUTE}, PACKAGES)


def make_run(folder: Path, count: int) -> Path:
    """Write a finished run of `count` events and its recordings; return the folder of the run."""
    write_noise(folder / "minute.wav", 1 / 60)
    write_table(folder / "recordings.parquet", count // EVENTS_PER_MINUTE)
    out = folder / "events"
    inputs = resolve_inputs([str(folder / "recordings.parquet")])
    archive = open_run(inputs, str(save_detector(folder / "model")), str(out))
    rng = np.random.default_rng(0)
    for number in range(len(archive.plan)):
        _write_part(archive, number, folder, rng)
    return out


def _write_part(archive: DetectionRun, number: int, folder: Path, rng: np.random.Generator) -> None:
    """Write events and status of a part, and links to audio as its recordings."""
    config, statuses = archive.config, []
    sources = read_rows(f"{config.out}/recordings.parquet", archive.plan.part(number))
    with events_table(number, config, width=0) as table:
        for source in sources:
            path = folder / source.path
            path.parent.mkdir(exist_ok=True)
            path.hardlink_to(folder / "minute.wav")
            for event in random_events(source.recording_id, rng):
                table.add(source, event, None)
            statuses.append(_status(source))
    write_status(statuses, number, config)


def random_events(recording_id: str, rng: np.random.Generator) -> Iterator[Event]:
    """Yield the random events of a minute, in order."""
    starts, lows, scores = (
        np.sort(rng.uniform(0, 59, EVENTS_PER_MINUTE)),
        rng.uniform(200, 6000, EVENTS_PER_MINUTE),
        rng.random(EVENTS_PER_MINUTE),
    )
    for start_s, low_hz, score in zip(starts.tolist(), lows.tolist(), scores.tolist(), strict=True):
        yield Event(recording_id, start_s, start_s + 0.5, low_hz, low_hz + 1500, score=0.3 + 0.7 * score)


def _status(source: RecordingRow) -> tuple[Any, ...]:
    row = RecordingStatus(
        source.recording_id, "ok", None, 60.0, EVENTS_PER_MINUTE, source.site, source.start_utc
    )
    return tuple(asdict(row).values())


def run_and_measure(name: str, *arguments: str) -> tuple[float, int]:
    """Run a command of the same installation; return its seconds and its peak memory in MB."""
    start, peak_mb = time.perf_counter(), 0.0
    command = [str(Path(sys.executable).with_name("mast")), name, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        peak_mb = max(peak_mb, _pss_mb(process.pid))
        time.sleep(SAMPLE_INTERVAL_S)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return round(time.perf_counter() - start, 1), round(peak_mb)


if __name__ == "__main__":
    main()
