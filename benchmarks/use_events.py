"""What people do with events when there are very many: `mast report` and `mast export`, their time and memory.

    python -m benchmarks.use_events             10^5, 10^6 and 10^7 events; writes benchmarks/results/use_events.json
    python -m benchmarks.use_events --small     a small version

A run's folder is made as `mast detect` would have left it, a hundred events in each minute of a thousand recorders, all
of them links to one minute of sound. Every command is a process of its own: its seconds, and the most memory it held.
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
from benchmarks.memory import LOOK_S, write_table
from benchmarks.results import FOLDER, write_result
from benchmarks.scan import _pss_mb
from mast.detection.archive import Archive, open_archive
from mast.detection.inputs import look_at
from mast.detection.part_tables import Source, events_table, read_rows, write_status
from mast.events import Event, Heard

PACKAGES = ("mast-bioacoustics", "pyarrow", "numpy")
FULL, SMALL = (100_000, 1_000_000, 10_000_000), (2_000,)
A_MINUTE = 100
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
    parser.add_argument("--out", type=Path, default=FOLDER / "use_events.json")
    options = parser.parse_args()
    rows = []
    for count in SMALL if options.small else options.events:
        with tempfile.TemporaryDirectory(prefix="mast-use-events-") as temporary:
            events = make_run(Path(temporary), count)
            for name, words in COMMANDS.items():
                seconds, peak_mb = weighed(words[0], str(events), *words[1:])
                rows.append({"command": name, "events": count, "s": seconds, "peak_mb": peak_mb})
                print(rows[-1], flush=True)
    write_result(options.out, {"runs": rows, "events_a_minute": A_MINUTE}, PACKAGES)


def make_run(folder: Path, count: int) -> Path:
    """A finished run of so many events, with its recordings beside it."""
    write_noise(folder / "minute.wav", 1 / 60)
    write_table(folder / "recordings.parquet", count // A_MINUTE)
    out = folder / "events"
    given = look_at([str(folder / "recordings.parquet")])
    archive = open_archive(given, str(save_detector(folder / "model")), str(out))
    rng = np.random.default_rng(0)
    for number in range(len(archive.plan)):
        _write_part(archive, number, folder, rng)
    return out


def _write_part(archive: Archive, number: int, folder: Path, rng: np.random.Generator) -> None:
    """Events and status of a part, and sound where its recordings should be."""
    orders, heard = archive.orders, []
    sources = read_rows(f"{orders.out}/recordings.parquet", archive.plan.part(number))
    with events_table(number, orders, width=0) as table:
        for source in sources:
            path = folder / source.path
            path.parent.mkdir(exist_ok=True)
            path.hardlink_to(folder / "minute.wav")
            for event in made_up(source.recording_id, rng):
                table.add(source, event, None)
            heard.append(_heard(source))
    write_status(heard, number, orders)


def made_up(recording_id: str, rng: np.random.Generator) -> Iterator[Event]:
    """The events of a minute, in their order."""
    starts, lows, scores = (
        np.sort(rng.uniform(0, 59, A_MINUTE)),
        rng.uniform(200, 6000, A_MINUTE),
        rng.random(A_MINUTE),
    )
    for start_s, low_hz, score in zip(starts.tolist(), lows.tolist(), scores.tolist(), strict=True):
        yield Event(recording_id, start_s, start_s + 0.5, low_hz, low_hz + 1500, score=0.3 + 0.7 * score)


def _heard(source: Source) -> tuple[Any, ...]:
    row = Heard(source.recording_id, "ok", None, 60.0, A_MINUTE, source.site, source.start_utc)
    return tuple(asdict(row).values())


def weighed(verb: str, *words: str) -> tuple[float, int]:
    """Seconds of a command of the same installation, and the most memory that it held, in MB."""
    start, most_mb = time.perf_counter(), 0.0
    command = [str(Path(sys.executable).with_name("mast")), verb, *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        most_mb = max(most_mb, _pss_mb(process.pid))
        time.sleep(LOOK_S)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return round(time.perf_counter() - start, 1), round(most_mb)


if __name__ == "__main__":
    main()
