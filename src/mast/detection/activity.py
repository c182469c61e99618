"""What a run has found, added up for people: hours heard and sounds found, by site, day, hour, frequency and score.

Parts are counted in one by one, with arrays of fixed size and a row for every site and day; events are not kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mast.detection.found import FoundPart
from mast.detection.tally import Tally

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BAND_HZ = 250.0
"""Height of a band of the map of hours and frequencies, before it is drawn."""

BANDS = 1024
SCORE_BINS = 100
DAY_S, HOUR_S = 86_400.0, 3600.0

CLOCK_FAULTS = frozenset({"clock-reset", "clock-in-future", "no-start-time"})
"""A recording with one of these counts at no day or hour."""

MAX_QUARANTINED = 200
"""Recordings that are named, with their reasons; the rest are counted."""


@dataclass
class Sums:
    """Of a site, or of a site and day: seconds heard, sounds, recordings."""

    effort_s: float = 0.0
    events: int = 0
    recordings: int = 0

    @property
    def rate(self) -> float:
        """Sounds for each hour heard."""
        return self.events / (self.effort_s / HOUR_S) if self.effort_s else np.nan


@dataclass
class Activity:
    """Everything that is added up; a site that is not known is an empty name, and clocks are the recorders' own.

    `effort_by_hour_s` and `events_by_hour` are by hour of the day (24,); `touching` (24, BANDS) counts the sounds that
    reach into a band; `scores` (SCORE_BINS,) counts from 0 to 1.
    """

    sites: defaultdict[str, Sums] = field(default_factory=lambda: defaultdict(Sums))
    days: defaultdict[tuple[str, date], Sums] = field(default_factory=lambda: defaultdict(Sums))
    effort_by_hour_s: Floats = field(default_factory=lambda: np.zeros(24))
    events_by_hour: Integers = field(default_factory=lambda: np.zeros(24, np.int64))
    touching: Integers = field(default_factory=lambda: np.zeros((24, BANDS), np.int64))
    scores: Integers = field(default_factory=lambda: np.zeros(SCORE_BINS, np.int64))
    tally: Tally = field(default_factory=Tally)
    faults: Counter[str] = field(default_factory=Counter)
    quarantined: list[tuple[str, str, float]] = field(default_factory=list)
    copies: int = 0
    without_clock_s: float = 0.0

    def add(self, part: FoundPart) -> None:
        """Count a part in."""
        import pyarrow.compute as pc

        sites = pc.fill_null(part.recordings["site"], "").to_pylist()
        effort_s = part.status["effort_s"].to_numpy()
        start_s = _clock_s(part.recordings)  # (R,) NaN where no clock can be trusted
        ids = part.recordings["recording_id"].combine_chunks()
        at = pc.index_in(
            pc.cast(part.events["recording_id"], ids.type), ids
        ).to_numpy()  # (N,) rows of recordings
        self._add_status(part)
        self._add_effort(sites, effort_s, start_s)
        self._add_events(part.events, sites, at, start_s)

    def _add_status(self, part: FoundPart) -> None:
        self.tally.add(part.status)
        self.copies += len(part.recordings) - part.recordings["duplicate_of"].null_count
        for faults in part.recordings["faults"].to_pylist():
            self.faults.update(faults)
        columns = ("recording_id", "status", "reason", "effort_s")
        for recording_id, status, reason, heard_s in zip(
            *(part.status[name].to_pylist() for name in columns), strict=True
        ):
            if status == "quarantined" and len(self.quarantined) < MAX_QUARANTINED:
                self.quarantined.append((recording_id, reason or "", heard_s))

    def _add_effort(self, sites: Sequence[str], effort_s: Floats, start_s: Floats) -> None:
        for site, heard_s in zip(sites, effort_s.tolist(), strict=True):
            self.sites[site].effort_s += heard_s
            self.sites[site].recordings += 1
        known = ~np.isnan(start_s)
        self.without_clock_s += float(effort_s[~known].sum())
        self.effort_by_hour_s += by_hour_s(start_s[known], effort_s[known])
        rows, days, spans_s = by_day_s(start_s[known], effort_s[known])
        own = np.flatnonzero(known)
        for row, day, span_s in zip(own[rows].tolist(), days.tolist(), spans_s.tolist(), strict=True):
            self.days[sites[row], date.fromordinal(day)].effort_s += span_s

    def _add_events(self, events: pa.Table, sites: Sequence[str], at: Integers, start_s: Floats) -> None:
        for row, count in zip(
            *(column.tolist() for column in np.unique(at, return_counts=True)), strict=True
        ):
            self.sites[sites[row]].events += count
        score = events["score"].to_numpy()
        self.scores += np.bincount(
            (score * SCORE_BINS).astype(np.int64).clip(0, SCORE_BINS - 1), minlength=SCORE_BINS
        )
        clock_s = start_s[at] + events["start_s"].to_numpy()
        known = ~np.isnan(clock_s)
        hour = (clock_s[known] % DAY_S // HOUR_S).astype(np.int64)
        self.events_by_hour += np.bincount(hour, minlength=24)
        low, high = (events[name].to_numpy()[known] for name in ("low_hz", "high_hz"))
        self.touching += touching_bands(hour, low, high)
        day = _EPOCH + (clock_s[known] // DAY_S).astype(np.int64)
        for row, when, count in _grouped(at[known], day):
            self.days[sites[row], date.fromordinal(when)].events += count

    def rates(self) -> Floats:
        """Sounds in each band for each hour heard, by hour of the day; NaN where nothing was heard. → (24, BANDS)"""
        effort_h = self.effort_by_hour_s[:, None] / HOUR_S
        rates: Floats = np.divide(
            self.touching, effort_h, out=np.full(self.touching.shape, np.nan), where=effort_h > 0
        )
        return rates


_EPOCH = date(1970, 1, 1).toordinal()


def _clock_s(recordings: pa.Table) -> Floats:
    """Seconds from 1970 to each recording's start by the recorder's clock, NaN where it cannot be trusted. → (R,)"""
    import pyarrow as pa
    import pyarrow.compute as pc

    micros = pc.cast(pc.cast(recordings["start_local"], pa.int64()), pa.float64())
    start_s: Floats = pc.fill_null(micros, np.nan).to_numpy() / 1e6
    trusted = [CLOCK_FAULTS.isdisjoint(faults) for faults in recordings["faults"].to_pylist()]
    return np.where(np.array(trusted, bool), start_s, np.nan)


def by_hour_s(start_s: Floats, effort_s: Floats) -> Floats:
    """Seconds heard in each hour of the day by spans that may last for days. (R,), (R,) → (24,)"""

    def until(time_s: Floats) -> Floats:
        """Seconds of each hour of the day from 1970 to a time. (R,) → (R, 24)"""
        days, rest_s = np.divmod(time_s[:, None], DAY_S)
        hours: Floats = days * HOUR_S + np.clip(rest_s - HOUR_S * np.arange(24), 0.0, HOUR_S)
        return hours

    total: Floats = (until(start_s + effort_s) - until(start_s)).sum(axis=0)
    return total


def by_day_s(start_s: Floats, effort_s: Floats) -> tuple[Integers, Integers, Floats]:
    """Spans cut at midnight: the row, day (as of `date.toordinal`) and seconds of each piece. (R,), (R,) → 3 × (P,)"""
    first = (start_s // DAY_S).astype(np.int64)
    pieces = np.maximum(np.ceil((start_s + effort_s) / DAY_S).astype(np.int64) - first, 1)
    rows = np.repeat(np.arange(len(first)), pieces)
    day = first[rows] + np.arange(len(rows)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin_s, end_s = (
        np.maximum(start_s[rows], day * DAY_S),
        np.minimum((start_s + effort_s)[rows], (day + 1) * DAY_S),
    )
    return rows, day + _EPOCH, end_s - begin_s


def touching_bands(hour: Integers, low_hz: Floats, high_hz: Floats) -> Integers:
    """How many sounds reach into each band in each hour. (N,), (N,), (N,) → (24, BANDS)"""
    low = (low_hz // BAND_HZ).astype(np.int64).clip(0, BANDS - 1)
    high = (np.ceil(high_hz / BAND_HZ).astype(np.int64) - 1).clip(low, BANDS - 1)
    edges = np.zeros((24, BANDS + 1), np.int64)  # +1 where a sound begins, -1 above its end
    np.add.at(edges, (hour, low), 1)
    np.add.at(edges, (hour, high + 1), -1)
    counts: Integers = edges.cumsum(axis=1)[:, :-1]
    return counts


def _grouped(rows: Integers, days: Integers) -> list[tuple[int, int, int]]:
    """How often each row and day occur together."""
    pairs, counts = np.unique(np.stack([rows, days]), axis=1, return_counts=True)
    return list(zip(*pairs.tolist(), counts.tolist(), strict=True))
