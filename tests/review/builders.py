"""Build tables of events, verdicts and databases of verdicts; and simulate a reviewer who knows the ground truth."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import astuple, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from mast.records import DetectedEvent, event_id, rows_to_table
from mast.review.read_verdicts import FIELD_NAMES
from mast.review.verdicts import Verdict

MORNING = datetime(2024, 5, 10, 6, 0, tzinfo=UTC)
MODEL = "0123456789abcdef"


def event_table(rows: Iterable[dict], threshold: float | None = None) -> pa.Table:
    """Build a table of events; rows override the defaults, and `event_id` follows from the box."""
    complete = []
    for number, row in enumerate(rows):
        defaults = {
            "recording_id": "card/1.WAV", "start_s": float(number), "end_s": number + 0.5, "low_hz": 1000.0,
            "high_hz": 3000.0, "score": 0.5, "start_utc": None, "start_local": None, "utc_offset_min": None,
            "site": "ridge", "model": MODEL,
        }  # fmt: skip
        complete.append(defaults | row)
    table = rows_to_table([tuple(row.values()) for row in complete], DetectedEvent)
    ids = [
        event_id(row["recording_id"], row["start_s"], row["end_s"], row["low_hz"], row["high_hz"])
        for row in complete
    ]
    table = table.append_column("event_id", pa.array(ids, pa.string()))
    return table if threshold is None else table.replace_schema_metadata({"mast.threshold": str(threshold)})


def scored(scores: Iterable[float], recordings: int = 1, threshold: float | None = None) -> pa.Table:
    """Build events with these scores, alternating between recordings."""
    rows = (
        {"score": float(score), "recording_id": f"card/{number % recordings}.WAV"}
        for number, score in enumerate(scores)
    )
    return event_table(rows, threshold)


def verdict(event_id: str, state: str = "accepted", **changes) -> Verdict:
    """Build a verdict on a detection."""
    defaults = {
        "number": 1, "event_id": event_id, "version": 1, "kind": "sound", "state": state,
        "recording_id": "card/1.WAV", "start_s": 0.0, "end_s": 0.5, "low_hz": 1000.0, "high_hz": 3000.0,
        "label": None, "score": 0.5, "model": MODEL, "user": "ana", "created_at": MORNING,
    }  # fmt: skip
    return Verdict(**(defaults | changes))


def span(recording_id: str, start_s: float, end_s: float, **changes) -> Verdict:
    """Build the verdict on a fully reviewed span."""
    missing = {"low_hz": None, "high_hz": None, "score": None, "model": None}
    values = {"kind": "span", "recording_id": recording_id, "start_s": start_s, "end_s": end_s}
    return replace(verdict(f"span {recording_id} {start_s:g}"), **(missing | values | changes))


def decided_as(table: pa.Table, states: Iterable[str | None], **changes) -> dict[str, Verdict]:
    """Build verdicts on the first events of a table, None for no verdict."""
    return {
        row["event_id"]: about(row, state, **changes)
        for row, state in zip(table.to_pylist(), states, strict=False)
        if state is not None
    }


def about(row: dict, state: str, **changes) -> Verdict:
    """Build a verdict on a row of an event table, with an unchanged box."""
    names = ("recording_id", "start_s", "end_s", "low_hz", "high_hz", "score", "model")
    return verdict(row["event_id"], state, **({name: row[name] for name in names} | changes))


def answered(table: pa.Table, items, truth: dict[str, bool], queue: str, decided=None) -> dict[str, Verdict]:
    """Return the latest verdicts after a reviewer who knows the ground truth has decided the items."""
    rows = {row["event_id"]: row for row in table.to_pylist()}
    latest = dict(decided or {})
    for item in items:
        for name in item.event_ids:
            latest[name] = about(rows[name], "accepted" if truth[name] else "rejected", queue=queue)
    return latest


def store(location: Path, verdicts: Iterable[Verdict]) -> str:
    """Write a database of verdicts as `mast review` does."""
    location.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(location) as connection:
        connection.execute(f"CREATE TABLE verdicts ({', '.join(FIELD_NAMES)})")
        marks = ", ".join("?" * len(FIELD_NAMES))
        rows = []
        for number, item in enumerate(verdicts, start=1):
            values = dict(zip(FIELD_NAMES, astuple(item), strict=True))
            rows.append(
                tuple((values | {"number": number, "created_at": item.created_at.isoformat()}).values())
            )
        connection.executemany(f"INSERT INTO verdicts VALUES ({marks})", rows)
    connection.close()
    return str(location)


def processed_table(recordings: list[tuple[str, str | None, datetime | None, float]]) -> pa.Table:
    """Build a table of processed recordings: id, site, local start, seconds."""
    columns = list(zip(*recordings, strict=True)) or [()] * 4
    types = (pa.string(), pa.string(), pa.timestamp("us"), pa.float64())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.table(arrays, names=["recording_id", "site", "start_local", "effort_s"])


def field_season(sites: int = 3, days: int = 4, every_min: int = 60) -> pa.Table:
    """Build processed recordings of three minutes at regular intervals."""
    first = datetime(2024, 5, 10)
    return processed_table(
        [
            (f"card/S{site}/{start:%d_%H%M}.WAV", f"S{site}", start, 180.0)
            for site in range(sites)
            for start in (first + timedelta(minutes=step) for step in range(0, days * 1440, every_min))
        ]
    )


def detector(count: int, seed: int, fraction: float = 0.5) -> tuple[pa.Table, dict[str, bool]]:
    """Build events of a detector with calibrated scores, and the ground truth by event id."""
    rng = np.random.default_rng(seed)
    score = np.where(rng.random(count) < fraction, rng.beta(6, 2, count), rng.beta(2, 4, count))
    table = scored(0.2 + 0.8 * score, recordings=20, threshold=0.2)
    is_animal = rng.random(count) < score
    return table, dict(zip(table["event_id"].to_pylist(), is_animal.tolist(), strict=True))
