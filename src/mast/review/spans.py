"""Minutes to be reviewed from end to end: spread over sites, days and hours, and those that would teach most.

A detector learns what is no animal only from sound that somebody has looked at completely, so these are what the next
training feeds on. The paper (Label Budget and Sampling Strategy) finds that such minutes should be spread over the hours
of the day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Literal

import numpy as np

from mast.datasets.budget import SPAN_S, UNKNOWN_HOUR, Span, balanced
from mast.review.queues import SEED, Ask, Integers
from mast.review.sounds import Floats, Mask, codes, decided_among, rank_within
from mast.review.verdicts import Verdict

if TYPE_CHECKING:
    import pyarrow as pa

Liking = Literal["any", "doubtful"]
DAY_S, HOUR_S = 86_400, 3600
UNKNOWN_DAY = -1


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of equal length that lie in recordings one after the other; `first` is where those of each begin.

    `row` is the recording's, `start_s` and `end_s` are its own seconds; `hour` and `day` are by its clock. (S,) each
    """

    first: Integers
    row: Integers
    start_s: Floats
    end_s: Floats
    site: Integers
    hour: Integers
    day: Integers


def minutes(
    sounds: pa.Table,
    decided: Mapping[str, Verdict],
    count: int,
    *,
    heard: pa.Table,
    liking: Liking = "any",
    span_s: float = SPAN_S,
) -> list[Ask]:
    """Spans that nobody has reviewed, from the hours and sites that have least, there from another day each time.

    `heard` is the table of `heard_of`. Of a day's spans any is taken, or the most doubtful: the one whose sounds, by
    their scores, are likest to be decided either way.
    """
    spans = cut(heard, span_s)
    reviewed = [item for item in decided.values() if item.kind == "span" and item.state == "accepted"]
    where, is_open = _places(sounds, heard, spans, span_s), ~decided_among(sounds, decided.values())
    bits = np.bincount(where[is_open], _entropy_bits(sounds)[is_open], len(spans.row) + 1)
    doubt_bits = bits[:-1].astype(np.float64) if liking == "doubtful" else None
    liked = _liked(spans, _unreviewed(spans, heard, reviewed), doubt_bits)
    kept = liked[rank_within(spans.hour[liked] * (spans.site.max(initial=0) + 1) + spans.site[liked]) < count]
    offered = _records(spans, heard, kept)
    rng = np.random.default_rng(SEED)
    order = list(range(len(kept)))[::-1]
    chosen = list(islice(balanced(offered, order, rng, _done(heard, reviewed)), count))
    return [_ask(offered[item], _names(sounds, is_open & (where == kept[item])), liking) for item in chosen]


def cut(heard: pa.Table, span_s: float = SPAN_S) -> Spans:
    """All spans of what was heard; a rest counts from half a span on, and a shorter recording is one span."""
    effort_s = heard["effort_s"].to_numpy()
    counts = np.maximum(1, (effort_s / span_s + 0.5).astype(np.int64))
    first = np.append(0, np.cumsum(counts))[:-1]
    row = np.repeat(np.arange(len(counts)), counts)
    start_s = (np.arange(len(row)) - first[row]) * span_s
    clock_s, is_known = _clocks(heard)
    at_s = clock_s[row] + start_s.astype(np.int64)
    return Spans(
        first=first,
        row=row,
        start_s=start_s,
        end_s=np.minimum(start_s + span_s, effort_s[row]),
        site=codes(heard["site"])[row],
        hour=np.where(is_known[row], at_s % DAY_S // HOUR_S, UNKNOWN_HOUR),
        day=np.where(is_known[row], at_s // DAY_S, UNKNOWN_DAY),
    )


def _clocks(heard: pa.Table) -> tuple[Integers, Mask]:
    """Seconds since 1970 by the recorder's clock at the start of each recording, and which of them are known."""
    import pyarrow as pa

    column = heard["start_local"].combine_chunks()
    seconds = column.cast(pa.int64()).fill_null(0).to_numpy() // 1_000_000
    return seconds, column.is_valid().to_numpy(zero_copy_only=False)


def _places(sounds: pa.Table, heard: pa.Table, spans: Spans, span_s: float) -> Integers:
    """The span in which the middle of each sound lies; one after the last for those that lie in none. → (N,)"""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = heard["recording_id"].combine_chunks()
    row = pc.index_in(sounds["recording_id"].cast(pa.string()), value_set=names).fill_null(-1).to_numpy()
    middle_s = (sounds["start_s"].to_numpy() + sounds["end_s"].to_numpy()) / 2
    place = np.append(spans.first, 0)[row] + (middle_s / span_s).astype(np.int64)
    ends = np.append(spans.first[1:], [len(spans.row)] * min(1, len(spans.first)))
    inside = (row >= 0) & (place < np.append(ends, 0)[row])
    return np.where(inside, place, len(spans.row))


def _entropy_bits(sounds: pa.Table) -> Floats:
    """How open each sound is by its score: 1 bit at 0.5, nothing at 0 and 1. → (N,)"""
    score = np.clip(sounds["score"].to_numpy(), 1e-9, 1 - 1e-9)
    bits: Floats = -(score * np.log2(score) + (1 - score) * np.log2(1 - score))
    return bits


def _unreviewed(spans: Spans, heard: pa.Table, reviewed: Iterable[Verdict]) -> Integers:
    """Spans that share no moment with any that was reviewed."""
    left = np.ones(len(spans.row), bool)
    rows = _rows_by_name(heard)
    ends = np.append(spans.first[1:], len(spans.row))
    for item in reviewed:
        if item.recording_id in rows:
            row = rows[item.recording_id]
            own = slice(spans.first[row], ends[row])
            left[own] &= (spans.end_s[own] <= item.start_s) | (spans.start_s[own] >= item.end_s)
    return np.flatnonzero(left)


def _liked(spans: Spans, rows: Integers, doubt_bits: Floats | None) -> Integers:
    """Rows, the best first: every day's best of an hour and site before any day's second."""
    chance = np.random.default_rng(SEED).random(len(rows))
    key = chance if doubt_bits is None else -doubt_bits[rows]
    days = np.unique(np.stack([spans.site, spans.hour, spans.day], axis=1)[rows], axis=0, return_inverse=True)
    turn = rank_within(days[1].reshape(-1).astype(np.int64), key, chance)
    return rows[np.lexsort((chance, key, turn))]


def _records(spans: Spans, heard: pa.Table, rows: Integers) -> list[Span]:
    few = heard.take(spans.row[rows]).to_pylist()
    starts_s, ends_s = spans.start_s[rows].tolist(), spans.end_s[rows].tolist()
    return [
        Span(item["recording_id"], start_s, end_s, item["site"], _later(item["start_local"], start_s))
        for item, start_s, end_s in zip(few, starts_s, ends_s, strict=True)
    ]


def _done(heard: pa.Table, reviewed: Iterable[Verdict]) -> list[Span]:
    """What was reviewed before, with its site and hour."""
    rows = _rows_by_name(heard)
    known = [item for item in reviewed if item.recording_id in rows]
    few = heard.take(np.array([rows[item.recording_id] for item in known], np.int64)).to_pylist()
    return [
        Span(
            item.recording_id, item.start_s, item.end_s, row["site"], _later(row["start_local"], item.start_s)
        )
        for item, row in zip(known, few, strict=True)
    ]


def _rows_by_name(heard: pa.Table) -> dict[str, int]:
    return {name: row for row, name in enumerate(heard["recording_id"].to_pylist())}


def _later(start: datetime | None, seconds: float) -> datetime | None:
    return start and start + timedelta(seconds=seconds)


def _names(sounds: pa.Table, chosen: Mask) -> tuple[str, ...]:
    return tuple(sounds["event_id"].take(np.flatnonzero(chosen)).to_pylist())


def _ask(span: Span, subjects: tuple[str, ...], liking: Liking) -> Ask:
    """The reason names the hour and the site that had least, and what is doubtful about this span."""
    hour = f"{span.hour:02d} h" if span.start_local else "an unknown hour"
    where = f" at {span.site}" if span.site else ""
    doubt = f", and its {len(subjects)} open sounds are most in doubt" if liking == "doubtful" else ""
    why = f"little was reviewed so far from {hour}{where}{doubt}"
    return Ask(span.recording_id, span.start_s, span.end_s, subjects, why)
