"""Aggregate a run: processed hours and number of events by site, day, hour, frequency and score.

Parts are added one by one into arrays of fixed size and one entry per site and day; events are not kept in memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

import numpy as np

from mast.runs.results import ResultsPart
from mast.runs.stats import RunStats
from mast.types import Floats, Integers

if TYPE_CHECKING:
    import pyarrow as pa


BAND_HZ = 250.0
"""Height of a frequency band in the map of hours and frequencies, before plotting."""

BANDS = 1024
SCORE_BINS = 100
DAY_S, HOUR_S = 86_400.0, 3600.0

CLOCK_FAULTS = frozenset({"clock-reset", "clock-in-future", "no-start-time"})
"""Faults that exclude a recording from the counts by day and hour."""

MAX_QUARANTINED = 200
"""Maximum number of quarantined recordings listed with their reasons; the others are only counted."""


@dataclass
class ActivityCounts:
    """Seconds of processed audio, events and recordings of a site, or of a site on a day."""

    effort_s: float = 0.0
    events: int = 0
    recordings: int = 0

    @property
    def rate(self) -> float:
        """Events per processed hour; NaN without effort."""
        return self.events / (self.effort_s / HOUR_S) if self.effort_s else np.nan


@dataclass
class Activity:
    """Counts of a run; an unknown site has an empty name, and times are those of the recorders' clocks.

    `effort_by_hour_s` and `events_by_hour` are by hour of the day (24,); `touching` (24, BANDS) counts the events that
    overlap a frequency band; `scores` (SCORE_BINS,) is a histogram over scores from 0 to 1.
    """

    sites: defaultdict[str, ActivityCounts] = field(default_factory=lambda: defaultdict(ActivityCounts))
    days: defaultdict[tuple[str, date], ActivityCounts] = field(
        default_factory=lambda: defaultdict(ActivityCounts)
    )
    effort_by_hour_s: Floats = field(default_factory=lambda: np.zeros(24))
    events_by_hour: Integers = field(default_factory=lambda: np.zeros(24, np.int64))
    touching: Integers = field(default_factory=lambda: np.zeros((24, BANDS), np.int64))
    scores: Integers = field(default_factory=lambda: np.zeros(SCORE_BINS, np.int64))
    stats: RunStats = field(default_factory=RunStats)
    faults: Counter[str] = field(default_factory=Counter)
    quarantined: list[tuple[str, str, float]] = field(default_factory=list)
    copies: int = 0
    without_clock_s: float = 0.0

    def add(self, part: ResultsPart) -> None:
        """Add the recordings, status and events of a part."""
        import pyarrow.compute as pc

        sites = pc.fill_null(part.recordings["site"], "").to_pylist()
        effort_s = part.status["effort_s"].to_numpy()
        start_s = _clock_s(part.recordings)  # (R,) NaN if the clock is unreliable
        ids = part.recordings["recording_id"].combine_chunks()
        at = pc.index_in(
            pc.cast(part.events["recording_id"], ids.type), ids
        ).to_numpy()  # (N,) rows of recordings
        self._add_status(part)
        self._add_effort(sites, effort_s, start_s)
        self._add_events(part.events, sites, at, start_s)

    def _add_status(self, part: ResultsPart) -> None:
        self.stats.add(part.status)
        self.copies += len(part.recordings) - part.recordings["duplicate_of"].null_count
        for faults in part.recordings["faults"].to_pylist():
            self.faults.update(faults)
        columns = ("recording_id", "status", "reason", "effort_s")
        for recording_id, status, reason, processed_s in zip(
            *(part.status[name].to_pylist() for name in columns), strict=True
        ):
            if status == "quarantined" and len(self.quarantined) < MAX_QUARANTINED:
                self.quarantined.append((recording_id, reason or "", processed_s))

    def _add_effort(self, sites: Sequence[str], effort_s: Floats, start_s: Floats) -> None:
        for site, processed_s in zip(sites, effort_s.tolist(), strict=True):
            self.sites[site].effort_s += processed_s
            self.sites[site].recordings += 1
        has_clock = ~np.isnan(start_s)
        self.without_clock_s += float(effort_s[~has_clock].sum())
        self.effort_by_hour_s += by_hour_s(start_s[has_clock], effort_s[has_clock])
        rows, days, spans_s = by_day_s(start_s[has_clock], effort_s[has_clock])
        with_clock = np.flatnonzero(has_clock)
        for row, day, span_s in zip(with_clock[rows].tolist(), days.tolist(), spans_s.tolist(), strict=True):
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
        has_clock = ~np.isnan(clock_s)
        hour = (clock_s[has_clock] % DAY_S // HOUR_S).astype(np.int64)
        self.events_by_hour += np.bincount(hour, minlength=24)
        low, high = (events[name].to_numpy()[has_clock] for name in ("low_hz", "high_hz"))
        self.touching += touching_bands(hour, low, high)
        day = _EPOCH + (clock_s[has_clock] // DAY_S).astype(np.int64)
        for row, ordinal, count in _grouped(at[has_clock], day):
            self.days[sites[row], date.fromordinal(ordinal)].events += count

    def rates(self) -> Floats:
        """Return events per processed hour in each band, by hour of the day; NaN without effort. → (24, BANDS)"""
        effort_h = self.effort_by_hour_s[:, None] / HOUR_S
        rates: Floats = np.divide(
            self.touching, effort_h, out=np.full(self.touching.shape, np.nan), where=effort_h > 0
        )
        return rates


_EPOCH = date(1970, 1, 1).toordinal()


def _clock_s(recordings: pa.Table) -> Floats:
    """Return seconds from 1970 to each recording's start by the recorder's clock, NaN if it is unreliable. → (R,)"""
    import pyarrow as pa
    import pyarrow.compute as pc

    micros = pc.cast(pc.cast(recordings["start_local"], pa.int64()), pa.float64())
    start_s: Floats = pc.fill_null(micros, np.nan).to_numpy() / 1e6
    is_reliable = [CLOCK_FAULTS.isdisjoint(faults) for faults in recordings["faults"].to_pylist()]
    return np.where(np.array(is_reliable, bool), start_s, np.nan)


def by_hour_s(start_s: Floats, effort_s: Floats) -> Floats:
    """Return the seconds of spans in each hour of the day; a span may last for days. (R,), (R,) → (24,)"""

    def until(time_s: Floats) -> Floats:
        """Return the seconds in each hour of the day from 1970 until a time. (R,) → (R, 24)"""
        days, rest_s = np.divmod(time_s[:, None], DAY_S)
        hours: Floats = days * HOUR_S + np.clip(rest_s - HOUR_S * np.arange(24), 0.0, HOUR_S)
        return hours

    total: Floats = (until(start_s + effort_s) - until(start_s)).sum(axis=0)
    return total


def by_day_s(start_s: Floats, effort_s: Floats) -> tuple[Integers, Integers, Floats]:
    """Split spans at midnight; return the row, day (a `date` ordinal) and seconds of each piece. (R,), (R,) → 3 × (P,)"""
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
    """Count the events that overlap each band in each hour. (N,), (N,), (N,) → (24, BANDS)"""
    low = (low_hz // BAND_HZ).astype(np.int64).clip(0, BANDS - 1)
    high = (np.ceil(high_hz / BAND_HZ).astype(np.int64) - 1).clip(low, BANDS - 1)
    edges = np.zeros((24, BANDS + 1), np.int64)  # +1 at the lowest band of an event, -1 above its highest
    np.add.at(edges, (hour, low), 1)
    np.add.at(edges, (hour, high + 1), -1)
    counts: Integers = edges.cumsum(axis=1)[:, :-1]
    return counts


def _grouped(rows: Integers, days: Integers) -> list[tuple[int, int, int]]:
    """Count how often each pair of row and day occurs. (N,), (N,) → (row, day, count)"""
    pairs, counts = np.unique(np.stack([rows, days]), axis=1, return_counts=True)
    return list(zip(*pairs.tolist(), counts.tolist(), strict=True))
