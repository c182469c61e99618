"""Sounds, verdicts and stores of verdicts, made up row by row; and a reviewer who knows the truth."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import astuple, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from mast.events import Detected, event_id, rows_to_table
from mast.review.reading import NAMES
from mast.review.verdicts import Verdict

MORNING = datetime(2024, 5, 10, 6, 0, tzinfo=UTC)
MODEL = "0123456789abcdef"


def sounds(rows: Iterable[dict], threshold: float | None = None) -> pa.Table:
    """A table of sounds; rows say what is not as usual, and `event_id` follows from the box."""
    filled = []
    for number, row in enumerate(rows):
        known = {
            "recording_id": "card/1.WAV", "start_s": float(number), "end_s": number + 0.5, "low_hz": 1000.0,
            "high_hz": 3000.0, "score": 0.5, "start_utc": None, "start_local": None, "utc_offset_min": None,
            "site": "ridge", "model": MODEL,
        }  # fmt: skip
        filled.append(known | row)
    table = rows_to_table([tuple(row.values()) for row in filled], Detected)
    ids = [
        event_id(row["recording_id"], row["start_s"], row["end_s"], row["low_hz"], row["high_hz"])
        for row in filled
    ]
    table = table.append_column("event_id", pa.array(ids, pa.string()))
    return table if threshold is None else table.replace_schema_metadata({"mast.threshold": str(threshold)})


def scored(scores: Iterable[float], recordings: int = 1, threshold: float | None = None) -> pa.Table:
    """Sounds with these scores, dealt out over some recordings."""
    rows = (
        {"score": float(score), "recording_id": f"card/{number % recordings}.WAV"}
        for number, score in enumerate(scores)
    )
    return sounds(rows, threshold)


def verdict(subject: str, state: str = "accepted", **changed) -> Verdict:
    """A verdict about a sound of the model."""
    known = {
        "number": 1, "subject": subject, "version": 1, "kind": "sound", "state": state,
        "recording_id": "card/1.WAV", "start_s": 0.0, "end_s": 0.5, "low_hz": 1000.0, "high_hz": 3000.0,
        "label": None, "score": 0.5, "model": MODEL, "who": "ana", "at_utc": MORNING,
    }  # fmt: skip
    return Verdict(**(known | changed))


def span(recording_id: str, start_s: float, end_s: float, **changed) -> Verdict:
    """A span that somebody has reviewed from end to end."""
    none = {"low_hz": None, "high_hz": None, "score": None, "model": None}
    own = {"kind": "span", "recording_id": recording_id, "start_s": start_s, "end_s": end_s}
    return replace(verdict(f"span {recording_id} {start_s:g}"), **(none | own | changed))


def decided_as(table: pa.Table, states: Iterable[str | None], **changed) -> dict[str, Verdict]:
    """Verdicts about the first sounds of a table, None for no verdict."""
    return {
        row["event_id"]: about(row, state, **changed)
        for row, state in zip(table.to_pylist(), states, strict=False)
        if state is not None
    }


def about(row: dict, state: str, **changed) -> Verdict:
    """A verdict about a row of a table of sounds, its box as it was found."""
    names = ("recording_id", "start_s", "end_s", "low_hz", "high_hz", "score", "model")
    return verdict(row["event_id"], state, **({name: row[name] for name in names} | changed))


def answered(table: pa.Table, asks, truth: dict[str, bool], queue: str, decided=None) -> dict[str, Verdict]:
    """What holds after a reviewer who knows the truth has answered."""
    rows = {row["event_id"]: row for row in table.to_pylist()}
    held = dict(decided or {})
    for ask in asks:
        for name in ask.subjects:
            held[name] = about(rows[name], "accepted" if truth[name] else "rejected", queue=queue)
    return held


def store(location: Path, verdicts: Iterable[Verdict]) -> str:
    """A store as `mast review` keeps it."""
    location.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(location) as connection:
        connection.execute(f"CREATE TABLE verdicts ({', '.join(NAMES)})")
        marks = ", ".join("?" * len(NAMES))
        rows = []
        for number, item in enumerate(verdicts, start=1):
            values = dict(zip(NAMES, astuple(item), strict=True))
            rows.append(tuple((values | {"number": number, "at_utc": item.at_utc.isoformat()}).values()))
        connection.executemany(f"INSERT INTO verdicts VALUES ({marks})", rows)
    connection.close()
    return str(location)


def heard(recordings: list[tuple[str, str | None, datetime | None, float]]) -> pa.Table:
    """A table of what was heard: name, site, clock, seconds."""
    columns = list(zip(*recordings, strict=True)) or [()] * 4
    types = (pa.string(), pa.string(), pa.timestamp("us"), pa.float64())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.table(arrays, names=["recording_id", "site", "start_local", "effort_s"])


def field_season(sites: int = 3, days: int = 4, every_min: int = 60) -> pa.Table:
    """Three minutes every so often."""
    first = datetime(2024, 5, 10)
    return heard(
        [
            (f"card/S{site}/{start:%d_%H%M}.WAV", f"S{site}", start, 180.0)
            for site in range(sites)
            for start in (first + timedelta(minutes=step) for step in range(0, days * 1440, every_min))
        ]
    )


def detector(count: int, seed: int, share: float = 0.5) -> tuple[pa.Table, dict[str, bool]]:
    """Sounds of a detector whose scores are right about as often as they say, and which of them are animals."""
    rng = np.random.default_rng(seed)
    score = np.where(rng.random(count) < share, rng.beta(6, 2, count), rng.beta(2, 4, count))
    table = scored(0.2 + 0.8 * score, recordings=20, threshold=0.2)
    is_animal = rng.random(count) < score
    return table, dict(zip(table["event_id"].to_pylist(), is_animal.tolist(), strict=True))
