"""Compare two lists of events of one recording: which events match, and how the others differ.

Events are rows of start, low, end, high and score, in seconds and Hz of the recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from benchmarks.results import rounded
from numpy.typing import NDArray

from mast.evaluation.bootstrap import RESAMPLES, interval
from mast.evaluation.matching import OVERLAPS, GroupedBoxes, match
from mast.evaluation.metrics import RankedPredictions

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

IOUS = (0.5, 0.7, 0.9)
NEAR_IOU, SAME_IOU = IOUS[0], IOUS[-1]

OUTCOMES = ("same", "lower score", "moved", "moved and lower score", "missing")
"""Outcomes of an event in the other list: an event above the threshold at IoU >= 0.9; one below the threshold at
IoU >= 0.9; one above the threshold at IoU 0.5 to 0.9; one below the threshold at IoU 0.5 to 0.9; none at IoU >= 0.5."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """N events and their counterparts in another list."""

    event: Floats  # (N, 5)
    partner: Floats  # (N, 5) the event with the largest IoU, NaN if that is below 0.5
    is_same: Mask  # (N, 3) true if matched one to one, at each of IOUS
    outcome: Integers  # (N,) index into OUTCOMES


def compare(events: Floats, others: Floats, threshold: float) -> Comparison:
    """Compare events above a threshold with all events of another list, of any score. (N, 5), (M, 5)"""
    is_above = others[:, 4] >= threshold
    overlap = overlaps(events, others)  # (N, M)
    above, below = (overlap[:, rows].max(axis=1, initial=0) for rows in (is_above, ~is_above))  # (N,)
    is_same = np.stack([is_matched(events, others[is_above], iou) for iou in IOUS], axis=1)
    conditions = (is_same[:, -1], below >= SAME_IOU, above >= NEAR_IOU, below >= NEAR_IOU)
    outcome = np.select(conditions, range(len(conditions)), default=len(conditions)).astype(np.int64)
    partner = np.full((len(events), 5), np.nan)
    has_partner = overlap.max(axis=1, initial=0) >= NEAR_IOU
    partner[has_partner] = others[overlap[has_partner].argmax(axis=1)] if len(others) else np.nan
    return Comparison(events, partner, is_same, outcome)


def concatenate(parts: Sequence[Comparison]) -> Comparison:
    """Concatenate comparisons."""
    return Comparison(
        *(np.concatenate([getattr(part, item.name) for part in parts]) for item in fields(Comparison))
    )


def overlaps(events: Floats, others: Floats) -> Floats:
    """Return the IoU of each event with each other event. (N, 5), (M, 5) → (N, M)"""
    row, column = np.indices((len(events), len(others))).reshape(2, -1)
    return OVERLAPS["iou"](events[row, :4], others[column, :4]).reshape(len(events), len(others))


def is_matched(targets: Floats, events: Floats, min_iou: float) -> Mask:
    """Return a mask of the targets matched one to one by events at an IoU. (N, 4 or 5), (M, 5) → (N,)"""
    predictions = GroupedBoxes(np.zeros(len(events), np.int64), events[:, :4], events[:, 4])
    ground_truth = GroupedBoxes(np.zeros(len(targets), np.int64), targets[:, :4])
    return match(predictions, ground_truth, min_overlap=min_iou).is_recalled(len(targets))


def outcome_fractions(comparison: Comparison) -> dict[str, float | None]:
    """Return the fraction of events with each outcome."""
    counts = np.bincount(comparison.outcome, minlength=len(OUTCOMES))
    return {name: rounded(count / max(counts.sum(), 1)) for name, count in zip(OUTCOMES, counts, strict=True)}


def same_fraction(is_same: Mask) -> float | None:
    """Return the fraction of true values (N,); None of an empty mask."""
    return rounded(is_same.mean()) if len(is_same) else None


def mean_interval(values: NDArray[Any], recording: Integers) -> list[float | None] | None:
    """Return the mean and its 95 % bootstrap interval over recordings; None without values. (N,), (N,)"""
    if not len(values):
        return None
    index = np.unique(recording, return_inverse=True)[1]
    total, count = np.bincount(index, values), np.bincount(index)

    def mean(weight: Floats | None) -> float:
        times = np.ones(len(count)) if weight is None else weight
        return float(times @ total / (times @ count))

    result = interval(mean, len(count), np.random.default_rng(0), RESAMPLES, 0.95)
    return [rounded(number) for number in (result.value, result.low, result.high)]


def cut_by_chunks(calls: Floats, begin_s: float, hop_s: float, chunk_s: float) -> Mask:
    """Return a mask of the calls that contain the start or the end of a chunk. (N, 4) → (N,)"""
    is_cut = np.zeros(len(calls), np.bool_)
    for first_s in (begin_s + hop_s, begin_s + chunk_s):  # the first chunk's start is the recording's
        number = np.ceil((calls[:, 0] - first_s) / hop_s).clip(min=0)
        is_cut |= (first_s + number * hop_s > calls[:, 0]) & (first_s + number * hop_s < calls[:, 2])
    return is_cut


def depth_s(events: Floats, begin_s: float | Floats, hop_s: float, chunk_s: float) -> Floats:
    """Return the distance in s from each event's middle to the edge of its most central chunk. (N, 4 or 5) → (N,)"""
    middle = (events[:, 0] + events[:, 2]) / 2 - begin_s
    number = np.round((middle - chunk_s / 2) / hop_s).clip(min=0)
    position = middle - number * hop_s
    return np.minimum(position, chunk_s - position)


def paired_recall(recording: Integers, call: Integers, is_cut: Mask, is_found: Mask) -> dict[str, Any]:
    """Compare the recall of the same calls when a chunk cuts them and when none does. (N,) each

    Long calls are cut more often than short ones and are harder to detect, so each call is compared only with itself.
    """
    key, inverse = np.unique(np.stack([recording, call]), axis=1, return_inverse=True)
    inverse = inverse.reshape(-1)
    counts, recalled = (
        np.stack([np.bincount(inverse, weight * (is_cut == state), key.shape[1]) for state in (False, True)])
        for weight in (np.ones(len(call)), is_found.astype(float))
    )  # (2, calls) each
    both = (counts > 0).all(axis=0)
    inside, cut = recalled[:, both] / counts[:, both]  # (calls,) each
    return {
        "calls": int(both.sum()),
        "inside": mean_interval(inside, key[0, both]),
        "cut": mean_interval(cut, key[0, both]),
        "difference": mean_interval(cut - inside, key[0, both]),
    }


def rank_predictions(
    events_by_recording: Sequence[Floats], calls_by_recording: Sequence[Floats]
) -> RankedPredictions:
    """Match the events (N, 5) of each recording with its annotated calls (M, 4), and rank them by score."""
    number, call_number = (
        np.repeat(np.arange(len(rows)), [len(item) for item in rows])
        for rows in (events_by_recording, calls_by_recording)
    )
    events = np.concatenate([np.zeros((0, 5)), *events_by_recording])
    calls = np.concatenate([np.zeros((0, 4)), *calls_by_recording])
    predictions = GroupedBoxes(number, events[:, :4], events[:, 4])
    ground_truth = GroupedBoxes(call_number, calls)
    overlap = match(predictions, ground_truth).overlap
    return RankedPredictions.of(events[:, 4], overlap, number, call_number, len(events_by_recording))
