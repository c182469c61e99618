"""Write the folder of a run from given rows, and read Raven tables strictly."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from mast.records import DetectedEvent, Recording, RecordingStatus, write_table
from mast.storage import atomic_write, join

MODEL = "0123456789abcdef"
START = datetime(2024, 5, 11, 23, 30)
OFFSET_MIN = 120


def recording(
    path: str, *, start: datetime | None = START, site: str | None = "ridge", **changes
) -> Recording:
    """Return a recording of one minute at 16 kHz in the collection `card`."""
    offset_min = None if start is None else OFFSET_MIN
    defaults = {
        "status": "ok",
        "container": "WAV",
        "encoding": "PCM_16",
        "sample_rate_hz": 16_000,
        "channels": 1,
        "duration_s": 60.0,
        "start_local": start,
        "start_utc": start and (start - timedelta(minutes=OFFSET_MIN)).replace(tzinfo=UTC),
        "utc_offset_min": offset_min,
        "site": site,
    }
    return Recording(f"card/{path}", "card", path, 1000, None, **(defaults | changes))


def event(of: Recording, start_s: float, *, high_hz: float = 3000.0, score: float = 0.5) -> DetectedEvent:
    """Return an event of half a second from 1 kHz to `high_hz`."""
    offset = timedelta(seconds=start_s)
    return DetectedEvent(
        of.recording_id,
        start_s,
        start_s + 0.5,
        1000.0,
        high_hz,
        score,
        of.start_utc and of.start_utc + offset,
        of.start_local and of.start_local + offset,
        of.utc_offset_min,
        of.site,
        MODEL,
    )


def status_of(of: Recording, events: int = 0, **changes) -> RecordingStatus:
    """Return the status of a recording that was processed completely."""
    status = "ok" if events else "empty"
    row = RecordingStatus(of.recording_id, status, None, of.duration_s or 0.0, events, of.site, of.start_utc)
    return replace(row, **changes)


Row = tuple[Recording, RecordingStatus, list[DetectedEvent]]


def write_run(folder, parts: list[list[Row] | None], root="cards", expansion: float = 1.0) -> str:
    """Write a run of parts, each a list of recordings with their status and events; None is a missing part."""
    rows = [row for part in parts for row in part or []]
    write_table([item for item, _, _ in rows], Recording, join(str(folder), "recordings.parquet"))
    for number, part in enumerate(parts):
        if part is not None:
            name = f"part-{number:06d}.parquet"
            events = [event for _, _, recording_events in part for event in recording_events]
            write_table(events, DetectedEvent, join(str(folder), f"events/{name}"))
            write_table([item for _, item, _ in part], RecordingStatus, join(str(folder), f"status/{name}"))
    run = {
        "mast_version": "9.9",
        "fingerprint": "f0",
        "settings": {"model": MODEL, "threshold": 0.2},
        "model": {"thresholds": {"score": 0.2}},
        "collections": {"card": {"root": str(root), "time_expansion": expansion}},
        "parts": len(parts),
    }
    with atomic_write(join(str(folder), "run.json")) as file:
        file.write(json.dumps(run).encode())
    return str(folder)


def night(root="cards") -> list[list[Row] | None]:
    """Return two parts at two sites: a recording with events, one without, a truncated and an unreadable one."""
    one, two = recording("ridge/1.WAV"), recording("ridge/2.WAV", start=START + timedelta(minutes=30))
    broken = recording("swamp/3.WAV", site="swamp", duration_s=40.0)
    bad = recording(
        "swamp/4.WAV", site="swamp", start=None, status="quarantined", faults=("empty-file",), duration_s=None
    )
    return [
        [
            (
                one,
                status_of(one, 2),
                [event(one, 1.5, score=0.25), event(one, 20.0, high_hz=8100.0, score=0.75)],
            ),
            (two, status_of(two), []),
        ],
        [
            (
                broken,
                status_of(broken, 1, status="quarantined", reason="it breaks off at 12 s", effort_s=12.0),
                [event(broken, 3.0)],
            ),
            (bad, status_of(bad, status="quarantined", reason="the file has no content", effort_s=0.0), []),
        ],
    ]


RAVEN_COLUMNS = [
    *("Selection", "View", "Channel", "Begin Time (s)", "End Time (s)", "Low Freq (Hz)", "High Freq (Hz)"),
    *("Begin File", "Begin Path", "File Offset (s)"),
]
PLAIN = re.compile(r"\d+(\.\d+)?")


def read_raven(path: Path, sequence: list[tuple[str, str, int, int]]) -> list[dict[str, str]]:
    """Read the rows of a table over a sequence of files, each (path, seconds, rate, channels).

    Fail for a table that Raven might refuse or would show at a different place.
    """
    assert path.suffix == ".txt"
    data = path.read_bytes()
    assert not data.startswith(b"\xef\xbb\xbf") and b"\r" not in data and b'"' not in data
    assert data.endswith(b"\n")
    header, *lines = [line.split("\t") for line in data.decode("utf-8").removesuffix("\n").split("\n")]
    assert header[: len(RAVEN_COLUMNS)] == RAVEN_COLUMNS
    assert len({*header}) == len(header) and all(name.strip() == name != "" for name in header)
    begins, offset_s = {}, Decimal(0)
    for name, seconds, rate_hz, channels in sequence:
        begins[name] = (offset_s, Decimal(seconds), rate_hz, channels)
        offset_s += Decimal(seconds)
    rows = []
    for number, cells in enumerate(lines, start=1):
        assert len(cells) == len(header)
        row = dict(zip(header, cells, strict=True))
        numbers = [row[name] for name in (*RAVEN_COLUMNS[3:7], "File Offset (s)")]
        assert all(PLAIN.fullmatch(text) for text in numbers), numbers
        begin, end, low, high, offset = map(Decimal, numbers)
        file_begin, seconds, rate_hz, channels = begins[row["Begin Path"]]
        assert row["Selection"] == str(number) and row["View"] == "Spectrogram 1"
        assert 1 <= int(row["Channel"]) <= channels
        assert begin < end and low < high <= Decimal(rate_hz) / 2
        assert offset >= 0 and offset + (end - begin) <= seconds
        assert begin == file_begin + offset
        assert row["Begin File"] == Path(row["Begin Path"]).name
        rows.append(row)
    return rows
