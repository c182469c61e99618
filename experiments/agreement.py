"""Two hearings of one recording beside each other: which sounds are found again, and what became of the others.

Events are rows of start, low, end, high and score, in seconds and Hz of the recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from benchmarks.results import rounded
from numpy.typing import NDArray

from mast.evaluation.intervals import RESAMPLES, interval
from mast.evaluation.matching import OVERLAPS, Boxes, match
from mast.evaluation.metrics import Ranking

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

IOUS = (0.5, 0.7, 0.9)
NEAR_IOU, SAME_IOU = IOUS[0], IOUS[-1]

FATES = ("same", "fainter", "moved", "moved and fainter", "gone")
"""Of a sound in another hearing: found again; there, but below the threshold; with other edges, an IoU of 0.5 to 0.9;
both; or with no box that has an IoU of 0.5 with it, however faint."""


@dataclass(frozen=True, slots=True)
class Compared:
    """N sounds of a hearing, and what another made of each."""

    sound: Floats  # (N, 5)
    partner: Floats  # (N, 5) the event that overlaps it most, NaN where none has an IoU of 0.5
    is_same: Mask  # (N, 3) whether it is found again, one to one, at each of IOUS
    fate: Integers  # (N,) a row of FATES


def compare(sounds: Floats, others: Floats, threshold: float) -> Compared:
    """Sounds above a threshold beside all events of another hearing, of any score. (N, 5), (M, 5)"""
    is_loud = others[:, 4] >= threshold
    overlap = overlaps(sounds, others)  # (N, M)
    loud, faint = (overlap[:, rows].max(axis=1, initial=0) for rows in (is_loud, ~is_loud))  # (N,)
    is_same = np.stack([is_among(sounds, others[is_loud], iou) for iou in IOUS], axis=1)
    told = (is_same[:, -1], faint >= SAME_IOU, loud >= NEAR_IOU, faint >= NEAR_IOU)
    fate = np.select(told, range(len(told)), default=len(told)).astype(np.int64)
    partner = np.full((len(sounds), 5), np.nan)
    has_partner = overlap.max(axis=1, initial=0) >= NEAR_IOU
    partner[has_partner] = others[overlap[has_partner].argmax(axis=1)] if len(others) else np.nan
    return Compared(sounds, partner, is_same, fate)


def together(parts: Sequence[Compared]) -> Compared:
    """Several comparisons as one."""
    return Compared(
        *(np.concatenate([getattr(part, item.name) for part in parts]) for item in fields(Compared))
    )


def overlaps(sounds: Floats, others: Floats) -> Floats:
    """IoU of every sound with every other. (N, 5), (M, 5) → (N, M)"""
    row, column = np.indices((len(sounds), len(others))).reshape(2, -1)
    return OVERLAPS["iou"](sounds[row, :4], others[column, :4]).reshape(len(sounds), len(others))


def is_among(sounds: Floats, events: Floats, min_iou: float) -> Mask:
    """Which sounds are found among events with this overlap, one to one. (N, 4 or 5), (M, 5) → (N,)"""
    found = Boxes(np.zeros(len(events), np.int64), events[:, :4], events[:, 4])
    wanted = Boxes(np.zeros(len(sounds), np.int64), sounds[:, :4])
    return match(found, wanted, min_overlap=min_iou).is_found(len(sounds))


def shares(compared: Compared) -> dict[str, float | None]:
    """What share of the sounds met each fate."""
    count = np.bincount(compared.fate, minlength=len(FATES))
    return {name: rounded(number / max(count.sum(), 1)) for name, number in zip(FATES, count, strict=True)}


def same_share(is_same: Mask) -> float | None:
    """What share is found again. (N,)"""
    return rounded(is_same.mean()) if len(is_same) else None


def mean_interval(values: NDArray[Any], recording: Integers) -> list[float | None] | None:
    """The mean and its 95 % interval, recordings drawn again and again; None of nothing. (N,), (N,)"""
    if not len(values):
        return None
    unit = np.unique(recording, return_inverse=True)[1]
    total, count = np.bincount(unit, values), np.bincount(unit)

    def mean(weight: Floats | None) -> float:
        times = np.ones(len(count)) if weight is None else weight
        return float(times @ total / (times @ count))

    told = interval(mean, len(count), np.random.default_rng(0), RESAMPLES, 0.95)
    return [rounded(number) for number in (told.value, told.low, told.high)]


def cut_by_chunks(calls: Floats, begin_s: float, hop_s: float, chunk_s: float) -> Mask:
    """Which calls have a chunk's start or end within them. (N, 4) → (N,)"""
    is_cut = np.zeros(len(calls), np.bool_)
    for first_s in (begin_s + hop_s, begin_s + chunk_s):  # the first chunk's start is the recording's
        number = np.ceil((calls[:, 0] - first_s) / hop_s).clip(min=0)
        is_cut |= (first_s + number * hop_s > calls[:, 0]) & (first_s + number * hop_s < calls[:, 2])
    return is_cut


def depth_s(sounds: Floats, begin_s: float | Floats, hop_s: float, chunk_s: float) -> Floats:
    """From the middle of each sound to the nearer edge of the chunk in which it lies deepest. (N, 4 or 5) → (N,)"""
    middle = (sounds[:, 0] + sounds[:, 2]) / 2 - begin_s
    number = np.round((middle - chunk_s / 2) / hop_s).clip(min=0)
    into = middle - number * hop_s
    return np.minimum(into, chunk_s - into)


def paired_recall(recording: Integers, call: Integers, is_cut: Mask, is_found: Mask) -> dict[str, Any]:
    """Recall of calls that some hearings cut and others do not: of each the mean when cut, less when not. (N,) each

    Long calls are cut more often than short ones and are harder to find, so only a call itself is fair company.
    """
    key, inverse = np.unique(np.stack([recording, call]), axis=1, return_inverse=True)
    inverse = inverse.reshape(-1)
    heard, found = (
        np.stack([np.bincount(inverse, weight * (is_cut == state), key.shape[1]) for state in (False, True)])
        for weight in (np.ones(len(call)), is_found.astype(float))
    )  # (2, calls) each
    both = (heard > 0).all(axis=0)
    inside, cut = found[:, both] / heard[:, both]  # (calls,) each
    return {
        "calls": int(both.sum()),
        "inside": mean_interval(inside, key[0, both]),
        "cut": mean_interval(cut, key[0, both]),
        "difference": mean_interval(cut - inside, key[0, both]),
    }


def ranked(found: Sequence[Floats], calls: Sequence[Floats]) -> Ranking:
    """Events of recordings, matched with the experts' calls in each. (N, 5) and (M, 4) of each recording"""
    number, call_number = (
        np.repeat(np.arange(len(rows)), [len(item) for item in rows]) for rows in (found, calls)
    )
    events, truths = np.concatenate([np.zeros((0, 5)), *found]), np.concatenate([np.zeros((0, 4)), *calls])
    predictions, experts = Boxes(number, events[:, :4], events[:, 4]), Boxes(call_number, truths)
    overlap = match(predictions, experts).overlap
    return Ranking.of(events[:, 4], overlap, number, call_number, len(found))
