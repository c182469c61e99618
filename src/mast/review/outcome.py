"""Outcome of a review: accepted events, and fully reviewed spans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mast.records import Event, ReviewedSpan
from mast.review.event_table import decided_mask
from mast.review.verdicts import Verdict, latest_verdicts

if TYPE_CHECKING:
    import pyarrow as pa

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class ReviewOutcome:
    """Accepted (or drawn) events, uncertain events, and fully reviewed spans.

    `reviewed` has a hole at each unsure or open event, because an animal may be there. `open` is the number of
    detections in reviewed spans without a verdict, `outside` are the ids of accepted and unsure events in no reviewed
    span, `rejected` is the number of rejected events.
    """

    accepted: tuple[Verdict, ...]
    uncertain: tuple[Verdict, ...]
    reviewed: tuple[ReviewedSpan, ...]
    open: int
    outside: frozenset[str]
    rejected: int


def summarise_review(
    events: pa.Table, verdicts: Iterable[Verdict], reviewed_before: Iterable[ReviewedSpan] = ()
) -> ReviewOutcome:
    """Summarise the verdicts on events; the spans `reviewed_before` were reviewed already, and each has an end."""
    latest = list(latest_verdicts(verdicts).values())
    spans: dict[str, list[Interval]] = defaultdict(list)
    for span in reviewed_before:
        spans[span.recording_id].append((span.start_s, span.end_s or span.start_s))
    for item in latest:
        if item.kind == "span" and item.state == "accepted":
            spans[item.recording_id].append((item.start_s, item.end_s))
    event_verdicts = [item for item in latest if item.kind == "sound"]
    accepted, uncertain, rejected = (
        tuple(item for item in event_verdicts if item.state == state)
        for state in ("accepted", "unsure", "rejected")
    )
    holes: dict[str, list[Interval]] = defaultdict(list)
    for item in uncertain:
        holes[item.recording_id].append((item.start_s, item.end_s))
    open_events = _unreviewed_in(events, latest, spans)
    for recording_id, interval in open_events:
        holes[recording_id].append(interval)
    reviewed = tuple(
        ReviewedSpan(name, start_s, end_s)
        for name in sorted(spans)
        for start_s, end_s in subtract_intervals(spans[name], holes[name])
    )
    outside = frozenset(
        item.event_id
        for item in (*accepted, *uncertain)
        if not _overlaps((item.start_s, item.end_s), spans[item.recording_id])
    )
    return ReviewOutcome(accepted, uncertain, reviewed, len(open_events), outside, len(rejected))


def event_of(verdict: Verdict, label: str | None = None) -> Event:
    """Return an event as the annotator left it; `label` replaces its label."""
    return Event(
        recording_id=verdict.recording_id,
        start_s=round(verdict.start_s, 6),
        end_s=round(verdict.end_s, 6),
        low_hz=None if verdict.low_hz is None else round(verdict.low_hz, 3),
        high_hz=None if verdict.high_hz is None else round(verdict.high_hz, 3),
        label=label or verdict.label,
        score=None if verdict.score is None else round(verdict.score, 6),
        origin="expert",
        annotator=verdict.user,
    )


def subtract_intervals(spans: Sequence[Interval], holes: Sequence[Interval]) -> list[Interval]:
    """Return the parts of spans outside all holes, merged and sorted."""
    remaining: list[Interval] = []
    for start_s, end_s in _merged(spans):
        at_s = start_s
        for hole_start_s, hole_end_s in _merged(holes):
            if hole_end_s <= at_s or hole_start_s >= end_s:
                continue
            if hole_start_s > at_s:
                remaining.append((at_s, hole_start_s))
            at_s = hole_end_s
        if at_s < end_s:
            remaining.append((at_s, end_s))
    return remaining


def _merged(spans: Sequence[Interval]) -> list[Interval]:
    """Return intervals in order; intervals that touch are merged."""
    merged: list[Interval] = []
    for start_s, end_s in sorted(spans):
        if merged and start_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end_s, merged[-1][1]))
        else:
            merged.append((start_s, end_s))
    return merged


def _unreviewed_in(
    events: pa.Table, latest: Iterable[Verdict], spans: dict[str, list[Interval]]
) -> list[tuple[str, Interval]]:
    """Return the events without a verdict that overlap a reviewed span, as recording id and interval."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = pc.is_in(events["recording_id"].cast(pa.string()), value_set=pa.array(spans, pa.string()))
    rows = np.flatnonzero(names.to_numpy() & ~decided_mask(events, latest))
    selected = events.select(["recording_id", "start_s", "end_s"]).take(rows).to_pylist()
    intervals = [(row["recording_id"], (row["start_s"], row["end_s"])) for row in selected]
    return [(name, box) for name, box in intervals if _overlaps(box, spans[name])]


def _overlaps(box: Interval, spans: Iterable[Interval]) -> bool:
    return any(box[0] < end_s and start_s < box[1] for start_s, end_s in spans)
