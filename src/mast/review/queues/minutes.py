"""Queues of minutes to review fully: spread over sites, days and hours, optionally the most uncertain minutes first.

A detector learns the background only from fully reviewed spans, so these minutes are the training data of the next
round. The paper (Label Budget and Sampling Strategy) finds that they should be spread over the hours of the day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Literal

import numpy as np

from mast.datasets.annotation_sampling import SPAN_S, UNKNOWN_HOUR, Span, balanced_order
from mast.review.event_table import category_codes, decided_mask, rank_within
from mast.review.queues.basic import SEED, QueueItem
from mast.review.verdicts import Verdict
from mast.types import Floats, Integers, Mask
from mast.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

Priority = Literal["any", "uncertain"]
DAY_S, HOUR_S = 86_400, 3600
UNKNOWN_DAY = -1


@dataclass(frozen=True, slots=True)
class Spans:
    """Consecutive spans of equal length in all recordings; `first` is the first span of each recording, (R,).

    `row` is the row of the recording, `start_s` and `end_s` are seconds in it; `hour` and `day` are local time.
    `site` is the code of the site. All but `first` have shape (S,).
    """

    first: Integers
    row: Integers
    start_s: Floats
    end_s: Floats
    site: Integers
    hour: Integers
    day: Integers


def minutes(
    events: pa.Table,
    decided: Mapping[str, Verdict],
    count: int,
    *,
    processed: pa.Table,
    priority: Priority = "any",
    span_s: float = SPAN_S,
) -> list[QueueItem]:
    """Return unreviewed spans from the least reviewed hours and sites, alternating the days within each of these.

    `processed` is the table of `processed_recordings`. With priority "any" the span of a day is random. With
    "uncertain" it is the span with the highest sum of the binary entropy of the scores of its open events.
    """
    spans = cut_spans(processed, span_s)
    reviewed = [item for item in decided.values() if item.kind == "span" and item.state == "accepted"]
    span_rows, is_open = _span_rows(events, processed, spans, span_s), ~decided_mask(events, decided.values())
    bits = np.bincount(span_rows[is_open], _entropy_bits(events)[is_open], len(spans.row) + 1)
    span_bits = bits[:-1].astype(np.float64) if priority == "uncertain" else None
    ranked = _prioritise(spans, _unreviewed(spans, processed, reviewed), span_bits)
    kept = ranked[
        rank_within(spans.hour[ranked] * (spans.site.max(initial=0) + 1) + spans.site[ranked]) < count
    ]
    offered = _records(spans, processed, kept)
    rng = np.random.default_rng(SEED)
    order = list(range(len(kept)))[::-1]
    chosen = list(islice(balanced_order(offered, order, rng, _reviewed_spans(processed, reviewed)), count))
    return [
        _queue_item(offered[item], _event_ids(events, is_open & (span_rows == kept[item])), priority)
        for item in chosen
    ]


def cut_spans(processed: pa.Table, span_s: float = SPAN_S) -> Spans:
    """Cut processed audio into spans; a rest below half a span is left out, a recording below one span is one span."""
    effort_s = processed["effort_s"].to_numpy()
    counts = np.maximum(1, (effort_s / span_s + 0.5).astype(np.int64))
    first = np.append(0, np.cumsum(counts))[:-1]
    row = np.repeat(np.arange(len(counts)), counts)
    start_s = (np.arange(len(row)) - first[row]) * span_s
    clock_s, has_clock = _clocks(processed)
    at_s = clock_s[row] + start_s.astype(np.int64)
    return Spans(
        first=first,
        row=row,
        start_s=start_s,
        end_s=np.minimum(start_s + span_s, effort_s[row]),
        site=category_codes(processed["site"])[row],
        hour=np.where(has_clock[row], at_s % DAY_S // HOUR_S, UNKNOWN_HOUR),
        day=np.where(has_clock[row], at_s // DAY_S, UNKNOWN_DAY),
    )


def _clocks(processed: pa.Table) -> tuple[Integers, Mask]:
    """Return the local start time of each recording in seconds since 1970, and a mask of the known times."""
    import pyarrow as pa

    column = processed["start_local"].combine_chunks()
    seconds = column.cast(pa.int64()).fill_null(0).to_numpy() // 1_000_000
    return seconds, column.is_valid().to_numpy(zero_copy_only=False)


def _span_rows(events: pa.Table, processed: pa.Table, spans: Spans, span_s: float) -> Integers:
    """Return the span that contains the midpoint of each event, or the number of spans if none does, shape (N,)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = processed["recording_id"].combine_chunks()
    row = pc.index_in(events["recording_id"].cast(pa.string()), value_set=names).fill_null(-1).to_numpy()
    middle_s = (events["start_s"].to_numpy() + events["end_s"].to_numpy()) / 2
    span_row = np.append(spans.first, 0)[row] + (middle_s / span_s).astype(np.int64)
    ends = np.append(spans.first[1:], [len(spans.row)] * min(1, len(spans.first)))
    inside = (row >= 0) & (span_row < np.append(ends, 0)[row])
    return np.where(inside, span_row, len(spans.row))


def _entropy_bits(events: pa.Table) -> Floats:
    """Return the binary entropy of each score: 1 bit at 0.5, 0 bits at 0 and 1, shape (N,)."""
    score = np.clip(events["score"].to_numpy(), 1e-9, 1 - 1e-9)
    bits: Floats = -(score * np.log2(score) + (1 - score) * np.log2(1 - score))
    return bits


def _unreviewed(spans: Spans, processed: pa.Table, reviewed: Iterable[Verdict]) -> Integers:
    """Return the rows of spans that overlap no reviewed span."""
    is_unreviewed = np.ones(len(spans.row), bool)
    rows = _rows_by_name(processed)
    ends = np.append(spans.first[1:], len(spans.row))
    for item in reviewed:
        if item.recording_id in rows:
            row = rows[item.recording_id]
            of_recording = slice(spans.first[row], ends[row])
            is_unreviewed[of_recording] &= (spans.end_s[of_recording] <= item.start_s) | (
                spans.start_s[of_recording] >= item.end_s
            )
    return np.flatnonzero(is_unreviewed)


def _prioritise(spans: Spans, rows: Integers, span_bits: Floats | None) -> Integers:
    """Sort rows by priority: the best span of each site, hour and day before any second-best span."""
    chance = np.random.default_rng(SEED).random(len(rows))
    key = chance if span_bits is None else -span_bits[rows]
    days = np.unique(np.stack([spans.site, spans.hour, spans.day], axis=1)[rows], axis=0, return_inverse=True)
    turn = rank_within(days[1].reshape(-1).astype(np.int64), key, chance)
    return rows[np.lexsort((chance, key, turn))]


def _records(spans: Spans, processed: pa.Table, rows: Integers) -> list[Span]:
    selected = processed.take(spans.row[rows]).to_pylist()
    starts_s, ends_s = spans.start_s[rows].tolist(), spans.end_s[rows].tolist()
    return [
        Span(item["recording_id"], start_s, end_s, item["site"], _later(item["start_local"], start_s))
        for item, start_s, end_s in zip(selected, starts_s, ends_s, strict=True)
    ]


def _reviewed_spans(processed: pa.Table, reviewed: Iterable[Verdict]) -> list[Span]:
    """Return the reviewed spans with their site and start time."""
    rows = _rows_by_name(processed)
    reviewed_verdicts = [item for item in reviewed if item.recording_id in rows]
    selected = processed.take(
        np.array([rows[item.recording_id] for item in reviewed_verdicts], np.int64)
    ).to_pylist()
    return [
        Span(
            item.recording_id, item.start_s, item.end_s, row["site"], _later(row["start_local"], item.start_s)
        )
        for item, row in zip(reviewed_verdicts, selected, strict=True)
    ]


def _rows_by_name(processed: pa.Table) -> dict[str, int]:
    return {name: row for row, name in enumerate(processed["recording_id"].to_pylist())}


def _later(start: datetime | None, seconds: float) -> datetime | None:
    return start and start + timedelta(seconds=seconds)


def _event_ids(events: pa.Table, mask: Mask) -> tuple[str, ...]:
    return tuple(events["event_id"].take(np.flatnonzero(mask)).to_pylist())


def _queue_item(span: Span, event_ids: tuple[str, ...], priority: Priority) -> QueueItem:
    """Build an item whose reason names the least reviewed hour and site, and the number of uncertain events."""
    hour = f"{span.hour:02d} h" if span.start_local else "an unknown hour"
    site = f" at {span.site}" if span.site else ""
    events = f"; most uncertain, {counted(len(event_ids), 'open event')}" if priority == "uncertain" else ""
    reason = f"few minutes reviewed so far from {hour}{site}{events}"
    return QueueItem(span.recording_id, span.start_s, span.end_s, event_ids, reason)
