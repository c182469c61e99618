"""BIRDeep's CSV, raw and as published.

Both keep their labels as they stand: `unknown` (an animal) and `abiotic noise` in the raw file, `No audio` in the
published one, where noise was boxed. What they mean is said by the study's label map.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from mast.annotations.files import recording_named_by
from mast.annotations.rows import Row, collect, rows_from, rows_of, write_rows
from mast.annotations.tables import Annotations, RecordingFacts, Source, local_start
from mast.annotations.text import file_name, number, plain, read_table

SUFFIXES = (".csv",)

SPELLINGS = {
    "recording": ("path",),
    "annotator": ("annotator",),
    "site": ("recorder",),
    "date": ("date",),
    "time": ("time",),
    "duration": ("audio_duration",),
    "start_s": ("start_time",),
    "end_s": ("end_time",),
    "low_hz": ("low_frequency",),
    "high_hz": ("high_frequency",),
    "label": ("specie", "species"),
    "bbox": ("bbox",),
    "score": ("score",),
    "origin": ("event_origin",),
    "reviewed": ("reviewed_s",),
}
OPTIONAL = frozenset({"score", "origin", "reviewed"})
CLOCK_UNREAD = "date or time of a recording not understood"
DURATION_UNREAD = "duration of a recording not understood"
START_CUT = "fraction of a second in a recording's start: cut off"


def fits(head: str) -> bool:
    """Whether a file begins with BIRDeep's column names."""
    first = head.lstrip().partition("\n")[0]
    return "low_frequency" in first and "specie" in first


def read(path: str | Path, name: str | None = None) -> Annotations:
    """Read a BIRDeep table; `bbox` repeats the times and frequencies on an axis of its own and is left out."""
    location = str(path)
    rows = [_tidy(row) for row in rows_from(read_table(location), SPELLINGS, needed=("start_s", "end_s"))]
    problems: Counter[str] = Counter()
    facts = list(_facts(rows, problems))
    own_name = recording_named_by(name or file_name(location))
    return collect(rows, Source(location, "birdeep"), own_name, problems, facts)


def _tidy(row: Row) -> Row:
    """Without the space some names have before their ending: `AM02_20230511_060000 .WAV`."""
    return replace(
        row, fields={**row.fields, "recording": re.sub(r"\s+(\.\w+)$", r"\1", row.get("recording"))}
    )


def _facts(rows: list[Row], problems: Counter[str]) -> Iterator[RecordingFacts]:
    seen = set()
    for row in rows:
        if row.get("recording") and row.get("recording") not in seen:
            seen.add(row.get("recording"))
            yield RecordingFacts(
                recording_id=row.get("recording"),
                duration_s=_duration(row, problems),
                start_local=_start(row, problems),
                site=row.get("site") or None,
            )


def _start(row: Row, problems: Counter[str]) -> datetime | None:
    digits = re.sub(r"\D", "", row.get("date")) + re.sub(r"\D", "", row.get("time")).ljust(6, "0")
    if not row.get("date") or not row.get("time"):
        return None
    try:
        return datetime.strptime(digits, "%Y%m%d%H%M%S")
    except ValueError:
        problems[CLOCK_UNREAD] += 1
        return None


def _duration(row: Row, problems: Counter[str]) -> float | None:
    """Seconds of `00:01:00`, or of a plain number."""
    text = row.get("duration")
    clock = re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d+)?)", text)
    if clock:
        hours, minutes, seconds = map(Decimal, clock.groups())
        return float(hours * 3600 + minutes * 60 + seconds)
    if ":" in text:
        problems[DURATION_UNREAD] += 1
        return None
    return number(text, row.where, "audio_duration")


def write(annotations: Annotations, path: str | Path) -> Counter[str]:
    """Write a BIRDeep table; the column `bbox` stays empty, for its axis is not told anywhere."""
    facts = annotations.facts()
    losses: Counter[str] = Counter()
    described = {name: _described(item, losses) for name, item in facts.items()}
    rows = [
        replace(row, fields={**row.fields, **described[row.get("recording")]}) for row in rows_of(annotations)
    ]
    return losses + write_rows(rows, str(path), SPELLINGS, optional=OPTIONAL)


def _described(facts: RecordingFacts, losses: Counter[str]) -> dict[str, str]:
    start = local_start(facts)
    losses[START_CUT] += bool(start and start.microsecond)
    return {
        "site": facts.site or "",
        "date": f"{start:%Y/%m/%d}" if start else "",
        "time": f"{start:%H:%M:%S}" if start else "",
        "duration": "" if facts.duration_s is None else _clock(Decimal(repr(facts.duration_s))),
    }


def _clock(duration_s: Decimal) -> str:
    hours, rest_s = divmod(duration_s, 3600)
    minutes, seconds = divmod(rest_s, 60)
    whole, point, part = plain(seconds).partition(".")
    return f"{int(hours):02}:{int(minutes):02}:{whole.zfill(2)}{point}{part}"
