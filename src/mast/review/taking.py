"""What a review has come to: the sounds people stand for, and the sound they have looked at from end to end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mast.events import Event, Reviewed
from mast.review.sounds import decided_among
from mast.review.verdicts import Verdict, holding

if TYPE_CHECKING:
    import pyarrow as pa

Stretch = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Taken:
    """Sounds that were accepted or drawn, those that nobody could tell, and what was reviewed completely.

    `reviewed` has a hole wherever a sound is unsure or still open: nobody can say that no animal is there. `open`
    counts the model's sounds within reviewed spans that nobody has decided about, `outside` names accepted and unsure
    sounds in no reviewed span, `rejected` counts those that were found wrong.
    """

    accepted: tuple[Verdict, ...]
    unsure: tuple[Verdict, ...]
    reviewed: tuple[Reviewed, ...]
    open: int
    outside: frozenset[str]
    rejected: int


def take(sounds: pa.Table, verdicts: Iterable[Verdict], before: Iterable[Reviewed] = ()) -> Taken:
    """What holds after these verdicts about the sounds of a run; `before` was reviewed already, each to a known end."""
    held = list(holding(verdicts).values())
    spans: dict[str, list[Stretch]] = defaultdict(list)
    for span in before:
        spans[span.recording_id].append((span.start_s, span.end_s or span.start_s))
    for item in held:
        if item.kind == "span" and item.state == "accepted":
            spans[item.recording_id].append((item.start_s, item.end_s))
    found = [item for item in held if item.kind == "sound"]
    accepted, unsure, rejected = (
        tuple(item for item in found if item.state == state) for state in ("accepted", "unsure", "rejected")
    )
    holes: dict[str, list[Stretch]] = defaultdict(list)
    for item in unsure:
        holes[item.recording_id].append((item.start_s, item.end_s))
    open_ones = _open_in(sounds, held, spans)
    for recording_id, stretch in open_ones:
        holes[recording_id].append(stretch)
    reviewed = tuple(
        Reviewed(name, start_s, end_s)
        for name in sorted(spans)
        for start_s, end_s in without(spans[name], holes[name])
    )
    outside = frozenset(
        item.subject
        for item in (*accepted, *unsure)
        if not _touches((item.start_s, item.end_s), spans[item.recording_id])
    )
    return Taken(accepted, unsure, reviewed, len(open_ones), outside, len(rejected))


def event_of(verdict: Verdict, label: str | None = None) -> Event:
    """A sound as a person left it; `label` stands in for its own."""
    return Event(
        recording_id=verdict.recording_id,
        start_s=round(verdict.start_s, 6),
        end_s=round(verdict.end_s, 6),
        low_hz=None if verdict.low_hz is None else round(verdict.low_hz, 3),
        high_hz=None if verdict.high_hz is None else round(verdict.high_hz, 3),
        label=label or verdict.label,
        score=None if verdict.score is None else round(verdict.score, 6),
        origin="expert",
        annotator=verdict.who,
    )


def without(spans: Sequence[Stretch], holes: Sequence[Stretch]) -> list[Stretch]:
    """What of some stretches of time is in no hole, each moment once, in order."""
    left: list[Stretch] = []
    for start_s, end_s in _merged(spans):
        at_s = start_s
        for hole_start_s, hole_end_s in _merged(holes):
            if hole_end_s <= at_s or hole_start_s >= end_s:
                continue
            if hole_start_s > at_s:
                left.append((at_s, hole_start_s))
            at_s = hole_end_s
        if at_s < end_s:
            left.append((at_s, end_s))
    return left


def _merged(spans: Sequence[Stretch]) -> list[Stretch]:
    """Stretches in order, those that touch made one."""
    merged: list[Stretch] = []
    for start_s, end_s in sorted(spans):
        if merged and start_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end_s, merged[-1][1]))
        else:
            merged.append((start_s, end_s))
    return merged


def _open_in(
    sounds: pa.Table, held: Iterable[Verdict], spans: dict[str, list[Stretch]]
) -> list[tuple[str, Stretch]]:
    """Sounds without a verdict that reach into a reviewed span; only recordings that have one become Python's."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = pc.is_in(sounds["recording_id"].cast(pa.string()), value_set=pa.array(spans, pa.string()))
    rows = np.flatnonzero(names.to_numpy() & ~decided_among(sounds, held))
    few = sounds.select(["recording_id", "start_s", "end_s"]).take(rows).to_pylist()
    stretches = [(row["recording_id"], (row["start_s"], row["end_s"])) for row in few]
    return [(name, own) for name, own in stretches if _touches(own, spans[name])]


def _touches(own: Stretch, spans: Iterable[Stretch]) -> bool:
    return any(own[0] < end_s and start_s < own[1] for start_s, end_s in spans)
