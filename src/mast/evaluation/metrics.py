"""One number for many predictions: precision, recall, F1, average precision and mean IoU (paper, Evaluation Details).

All follow from a `Ranking`: what became of each prediction, from the highest score to the lowest. What a prediction
found does not depend on those of lower score, so a score threshold cuts a ranking short and changes nothing else:
`f1(ranking.above(0.3))`.

Every metric takes a weight for each unit, a recording or a chunk: how often it counts. What cannot be said is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mast.evaluation.matching import Floats, Integers, Mask

COCO_RECALLS: Floats = np.linspace(0, 1, 101)
"""Recalls at which COCO reads precision; made as COCO makes them, since 0.35 and 35 / 100 round differently there."""

ELEVEN_RECALLS: Floats = np.arange(11) / 10

NEARLY = 0.9
"""A threshold with so large a share of the highest F1 is nearly as good (decision 0012)."""


@dataclass(frozen=True)
class Ranking:
    """Predictions by falling score, equal ones by unit: `score`, `overlap`, `unit` (N,); `truths` of each unit (U,).

    `overlap` is that with the truth found, and 0 where none was.
    """

    score: Floats
    overlap: Floats
    unit: Integers
    truths: Integers

    @classmethod
    def of(cls, score: Floats, overlap: Floats, unit: Integers, truth_unit: Integers, units: int) -> Ranking:
        """Rank predictions, (N,) each, beside the units of all truths (M,), found or not; units are 0 … `units` - 1."""
        if not len(score) == len(overlap) == len(unit):
            raise ValueError(
                f"{len(score)} scores, {len(overlap)} overlaps, {len(unit)} units: need as many of each"
            )
        for numbers in (unit, truth_unit):
            if len(numbers) and not 0 <= numbers.min() <= numbers.max() < units:
                raise ValueError(
                    f"units are numbered from 0 to {units - 1}, not {numbers.min()} to {numbers.max()}"
                )
        order = np.lexsort((unit, -score))
        return cls(score[order], overlap[order], unit[order], np.bincount(truth_unit, minlength=units))

    def above(self, min_score: float) -> Ranking:
        """The predictions of at least this score, and all truths."""
        kept = int(np.searchsorted(-self.score, -min_score, side="right"))
        return replace(self, score=self.score[:kept], overlap=self.overlap[:kept], unit=self.unit[:kept])

    @cached_property
    def is_hit(self) -> Mask:
        """Which predictions found a truth. (N,)"""
        return self.overlap > 0

    @cached_property
    def unit_predictions(self) -> Integers:
        """Predictions in each unit. (U,)"""
        return np.bincount(self.unit, minlength=len(self.truths))

    @cached_property
    def unit_hits(self) -> Integers:
        """Truths found in each unit. (U,)"""
        return np.bincount(self.unit[self.is_hit], minlength=len(self.truths))

    @cached_property
    def unit_overlap(self) -> Floats:
        """Overlaps of each unit's hits, summed. (U,)"""
        summed: Floats = np.bincount(self.unit, self.overlap, len(self.truths)).astype(np.float64)
        return summed


Metric = Callable[[Ranking, Floats | None], float]
"""A number for a ranking whose units count `weight` (U,) times each."""


def precision(ranking: Ranking, weight: Floats | None = None) -> float:
    """Share of predictions that found a truth."""
    return _share(_total(ranking.unit_hits, weight), _total(ranking.unit_predictions, weight))


def recall(ranking: Ranking, weight: Floats | None = None) -> float:
    """Share of truths that were found."""
    return _share(_total(ranking.unit_hits, weight), _total(ranking.truths, weight))


def f1(ranking: Ranking, weight: Floats | None = None) -> float:
    """Harmonic mean of precision and recall; 0 where nothing was found, NaN where there was nothing to find or say."""
    boxes = _total(ranking.unit_predictions, weight) + _total(ranking.truths, weight)
    return _share(2 * _total(ranking.unit_hits, weight), boxes)


def mean_iou(ranking: Ranking, weight: Floats | None = None) -> float:
    """Mean overlap of predictions with the truths they found."""
    return _share(_total(ranking.unit_overlap, weight), _total(ranking.unit_hits, weight))


def macro_precision(ranking: Ranking, weight: Floats | None = None) -> float:
    """Mean of the units' precisions, 0 for units without predictions."""
    return _mean_of_units(ranking, ranking.unit_hits, ranking.unit_predictions, weight)


def macro_recall(ranking: Ranking, weight: Floats | None = None) -> float:
    """Mean of the units' recalls, 0 for units without truths."""
    return _mean_of_units(ranking, ranking.unit_hits, ranking.truths, weight)


def macro_f1(ranking: Ranking, weight: Floats | None = None) -> float:
    """Mean of the units' F1."""
    return _mean_of_units(ranking, 2 * ranking.unit_hits, ranking.unit_predictions + ranking.truths, weight)


def macro_mean_iou(ranking: Ranking, weight: Floats | None = None) -> float:
    """Mean of the units' mean overlaps, 0 for units without a hit; some of the paper's figures look like this."""
    return _mean_of_units(ranking, ranking.unit_overlap, ranking.unit_hits, weight)


def ap_101_points(ranking: Ranking, weight: Floats | None = None) -> float:
    """Average precision as COCO computes it: the mean precision at 101 recalls."""
    return _ap_at(COCO_RECALLS, ranking, weight)


def ap_11_points(ranking: Ranking, weight: Floats | None = None) -> float:
    """Mean precision at recalls 0, 0.1 … 1; the paper's mAP is this one, of predictions above the score threshold.

    The paper does not say so, but several of its models score 1 / 11: precise, and with a recall below 0.1.
    """
    return _ap_at(ELEVEN_RECALLS, ranking, weight)


def ap_area(ranking: Ranking, weight: Floats | None = None) -> float:
    """Exact area under the curve of the best precision at each recall or a higher one."""
    truths = _total(ranking.truths, weight)
    if not truths:
        return np.nan
    hits, precisions = _best_precision(ranking, weight)
    return float(np.diff(hits, prepend=0.0) @ precisions / truths)


METRICS: dict[str, Metric] = {
    "precision": precision,
    "recall": recall,
    "f1": f1,
    "mean_iou": mean_iou,
    "macro_precision": macro_precision,
    "macro_recall": macro_recall,
    "macro_f1": macro_f1,
    "macro_mean_iou": macro_mean_iou,
    "ap_101_points": ap_101_points,
    "ap_11_points": ap_11_points,
    "ap_area": ap_area,
}


@dataclass(frozen=True, slots=True)
class Curve:
    """Precision and recall of all predictions of at least each score that occurs, from the highest down. (S,) each"""

    score: Floats
    precision: Floats
    recall: Floats


def precision_recall_curve(ranking: Ranking) -> Curve:
    """The choices of a score threshold that a ranking offers; recall is NaN without truths."""
    last = _last_of_equal(ranking.score)
    hits = np.cumsum(ranking.is_hit)[last]
    truths = int(ranking.truths.sum())
    recalls = hits / truths if truths else np.full(len(last), np.nan)
    return Curve(ranking.score[last], hits / (last + 1), recalls)


def best_threshold(ranking: Ranking) -> float:
    """The score whose predictions reach the highest F1: what a threshold could have done at best.

    Of equally good scores the highest, so the fewest predictions; infinite where no prediction finds anything.
    """
    score, reached = _f1_by_score(ranking)
    best = np.argmax(np.append(0.0, reached))  # the first of equals
    return float(np.append(np.inf, score)[best])


def steady_threshold(ranking: Ranking) -> float:
    """The threshold to take from validation data: the mean of all that reach nearly the highest F1.

    The score of the highest F1 itself is a matter of luck where boxes are few. Infinite where nothing finds anything.
    """
    score, reached = _f1_by_score(ranking)
    if not reached.max(initial=0.0):
        return math.inf
    is_good = reached >= NEARLY * reached.max()
    lower = np.append(score[1:], score[-1:])
    width = (score - lower)[is_good]
    middle = ((score + lower) / 2)[is_good]
    return float(np.average(middle, weights=width if width.any() else None))


def _f1_by_score(ranking: Ranking) -> tuple[Floats, Floats]:
    """Scores that occur, from the highest down, and F1 of all predictions of at least each. (S,), (S,)"""
    last = _last_of_equal(ranking.score)
    reached: Floats = 2 * np.cumsum(ranking.is_hit)[last] / (last + 1 + ranking.truths.sum())
    return ranking.score[last], reached


def _ap_at(points: Floats, ranking: Ranking, weight: Floats | None) -> float:
    """Mean of the best precision at each of some recalls or a higher one, 0 beyond the highest recall reached."""
    truths = _total(ranking.truths, weight)
    if not truths:
        return np.nan
    hits, precisions = _best_precision(ranking, weight)
    return float(np.append(precisions, 0.0)[np.searchsorted(hits / truths, points)].mean())


def _best_precision(ranking: Ranking, weight: Floats | None) -> tuple[Floats, Floats]:
    """Hits so far at each hit, and the best precision there or later; misses in between are no better. (H,), (H,)"""
    is_hit = ranking.is_hit
    if weight is None:
        hits, seen = np.arange(1.0, is_hit.sum() + 1), np.flatnonzero(is_hit) + 1.0
    else:
        times = weight[ranking.unit]
        hits, seen = np.cumsum(times[is_hit]), np.cumsum(times)[is_hit]
    precisions = np.divide(hits, seen, out=np.zeros_like(hits), where=seen > 0)
    return hits, np.maximum.accumulate(precisions[::-1])[::-1]


def _last_of_equal(falling: Floats) -> Integers:
    """Where each run of equal values ends: a threshold takes all of them or none. (N,) → (S,)"""
    is_last = np.ones(len(falling), dtype=bool)
    is_last[:-1] = falling[1:] != falling[:-1]
    return np.flatnonzero(is_last)


def _total(values: Floats | Integers, weight: Floats | None) -> float:
    return float(values.sum() if weight is None else weight @ values)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else np.nan


def _mean_of_units(
    ranking: Ranking, part: Floats | Integers, whole: Floats | Integers, weight: Floats | None
) -> float:
    """Mean share over units, 0 of nothing; a unit with neither a prediction nor a truth says nothing and is left out."""
    shares = np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)
    speaks = np.where(ranking.unit_predictions + ranking.truths > 0, 1.0, 0.0)
    return _share(_total(shares, weight), _total(speaks, weight))
