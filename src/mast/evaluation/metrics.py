"""Compute precision, recall, F1, average precision and mean IoU of predictions (paper, Evaluation Details).

All metrics follow from `RankedPredictions`: the matched overlap of each prediction, from the highest score to the
lowest. The match of a prediction does not depend on predictions of lower score, so a score threshold truncates a
ranking and changes nothing else: `f1(ranking.with_min_score(0.3))`.

Every metric takes a weight for each unit, a recording or a chunk: the number of times it counts. Undefined metrics are
NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mast.types import Floats, Integers, Mask

COCO_RECALLS: Floats = np.linspace(0, 1, 101)
"""Recalls at which COCO samples precision; computed as COCO does, since 0.35 and 35 / 100 round differently there."""

ELEVEN_RECALLS: Floats = np.arange(11) / 10

F1_TOLERANCE = 0.9
"""Fraction of the maximum F1 from which a threshold counts as nearly as good (decision 0012)."""


@dataclass(frozen=True)
class RankedPredictions:
    """Predictions by falling score, ties by unit.

    `score`, `overlap` and `unit` have shape (N,); `ground_truth` (U,) is the number of ground-truth boxes of each unit.
    `overlap` is the overlap with the matched ground truth, 0 for a prediction without a match.
    """

    score: Floats
    overlap: Floats
    unit: Integers
    ground_truth: Integers

    @classmethod
    def of(
        cls, score: Floats, overlap: Floats, unit: Integers, ground_truth_unit: Integers, units: int
    ) -> RankedPredictions:
        """Rank predictions (N,); `ground_truth_unit` (M,) is the unit of each ground truth; units are 0 … `units` - 1."""
        if not len(score) == len(overlap) == len(unit):
            raise ValueError(
                f"{len(score)} scores, {len(overlap)} overlaps, {len(unit)} units: the numbers must be equal"
            )
        for indices in (unit, ground_truth_unit):
            if len(indices) and not 0 <= indices.min() <= indices.max() < units:
                raise ValueError(
                    f"units must be from 0 to {units - 1}, not {indices.min()} to {indices.max()}"
                )
        order = np.lexsort((unit, -score))
        return cls(score[order], overlap[order], unit[order], np.bincount(ground_truth_unit, minlength=units))

    def with_min_score(self, min_score: float) -> RankedPredictions:
        """Return the predictions of at least this score; all ground truth stays."""
        count = int(np.searchsorted(-self.score, -min_score, side="right"))
        return replace(self, score=self.score[:count], overlap=self.overlap[:count], unit=self.unit[:count])

    @cached_property
    def is_hit(self) -> Mask:
        """Mask of the predictions that match ground truth. (N,)"""
        return self.overlap > 0

    @cached_property
    def unit_predictions(self) -> Integers:
        """Number of predictions in each unit. (U,)"""
        return np.bincount(self.unit, minlength=len(self.ground_truth))

    @cached_property
    def unit_hits(self) -> Integers:
        """Number of matched ground-truth boxes in each unit. (U,)"""
        return np.bincount(self.unit[self.is_hit], minlength=len(self.ground_truth))

    @cached_property
    def unit_overlap(self) -> Floats:
        """Sum of the overlaps of the hits in each unit. (U,)"""
        summed: Floats = np.bincount(self.unit, self.overlap, len(self.ground_truth)).astype(np.float64)
        return summed


Metric = Callable[[RankedPredictions, Floats | None], float]
"""Function that computes a metric of a ranking whose units count `weight` (U,) times each."""


def precision(ranking: RankedPredictions, weight: Floats | None = None) -> float:
    """Return the fraction of predictions that match ground truth."""
    return _ratio(_total(ranking.unit_hits, weight), _total(ranking.unit_predictions, weight))


def recall(ranking: RankedPredictions, weight: Floats | None = None) -> float:
    """Return the fraction of ground truth that is matched."""
    return _ratio(_total(ranking.unit_hits, weight), _total(ranking.ground_truth, weight))


def f1(ranking: RankedPredictions, weight: Floats | None = None) -> float:
    """Return the harmonic mean of precision and recall; 0 without a hit, NaN without predictions and ground truth."""
    boxes = _total(ranking.unit_predictions, weight) + _total(ranking.ground_truth, weight)
    return _ratio(2 * _total(ranking.unit_hits, weight), boxes)


def mean_iou(ranking: RankedPredictions, weight: Floats | None = None) -> float:
    """Return the mean overlap of predictions with the ground truth they match."""
    return _ratio(_total(ranking.unit_overlap, weight), _total(ranking.unit_hits, weight))


def macro_precision(ranking: RankedPredictions, weight: Floats | None = None) -> float:
    """Return the mean of the units' precisions, 0 for units without predictions."""
    return _mean_of_units(ranking, ranking.unit_hits, ranking.unit_predictions, weight)


def macro_recall(ranking: RankedPredictions, weight: Floats | None = None) -> float:
    """Return the mean of the units' recalls, 0 for units without ground truth."""
    return _mean_of_units(ranking, ranking.unit_hits, ranking.ground_truth, weight)


def macro_f1(ranking: RankedPredictions, weight: Floats | None = None) -> float:
    """Return the mean of the units' F1."""
    return _mean_of_units(
        ranking, 2 * ranking.unit_hits, ranking.unit_predictions + ranking.ground_truth, weight
    )


def macro_mean_iou(ranking: RankedPredictions, weight: Floats | None = None) -> float:
    """Return the mean of the units' mean overlaps, 0 for units without a hit; some values in the paper look like this."""
    return _mean_of_units(ranking, ranking.unit_overlap, ranking.unit_hits, weight)


def average_precision_coco(ranking: RankedPredictions, weight: Floats | None = None) -> float:
    """Return the average precision as COCO computes it: the mean precision at 101 recalls."""
    return _ap_at(COCO_RECALLS, ranking, weight)


def average_precision_voc(ranking: RankedPredictions, weight: Floats | None = None) -> float:
    """Return the mean precision at recalls 0, 0.1 … 1; the paper's mAP is this one, of predictions above the threshold.

    The paper does not state this, but several of its models score 1 / 11: precise, and with a recall below 0.1.
    """
    return _ap_at(ELEVEN_RECALLS, ranking, weight)


def average_precision(ranking: RankedPredictions, weight: Floats | None = None) -> float:
    """Return the exact area under the precision-recall curve, with the best precision at each recall or a higher one."""
    ground_truth = _total(ranking.ground_truth, weight)
    if not ground_truth:
        return np.nan
    hits, precisions = _best_precision(ranking, weight)
    return float(np.diff(hits, prepend=0.0) @ precisions / ground_truth)


METRICS: dict[str, Metric] = {
    "precision": precision,
    "recall": recall,
    "f1": f1,
    "mean_iou": mean_iou,
    "macro_precision": macro_precision,
    "macro_recall": macro_recall,
    "macro_f1": macro_f1,
    "macro_mean_iou": macro_mean_iou,
    "average_precision_coco": average_precision_coco,
    "average_precision_voc": average_precision_voc,
    "average_precision": average_precision,
}


@dataclass(frozen=True, slots=True)
class Curve:
    """Precision and recall of the predictions above each distinct score, from the highest score down. (S,) each"""

    score: Floats
    precision: Floats
    recall: Floats


def precision_recall_curve(ranking: RankedPredictions) -> Curve:
    """Compute precision and recall at each distinct score; recall is NaN without ground truth."""
    last = _last_of_equal(ranking.score)
    hits = np.cumsum(ranking.is_hit)[last]
    ground_truth = int(ranking.ground_truth.sum())
    recalls = hits / ground_truth if ground_truth else np.full(len(last), np.nan)
    return Curve(ranking.score[last], hits / (last + 1), recalls)


def max_f1_threshold(ranking: RankedPredictions) -> float:
    """Return the score threshold with the highest F1: an upper bound for any choice of threshold.

    Ties go to the highest score, so the fewest predictions; infinite if no prediction matches.
    """
    score, reached = _f1_by_score(ranking)
    best = np.argmax(np.append(0.0, reached))  # the first of equal maxima
    return float(np.append(np.inf, score)[best])


def robust_f1_threshold(ranking: RankedPredictions) -> float:
    """Return the threshold to choose on validation data: the mean of all thresholds that reach nearly the highest F1.

    The score of the highest F1 itself depends on chance if boxes are few. Infinite if no prediction matches.
    """
    score, reached = _f1_by_score(ranking)
    if not reached.max(initial=0.0):
        return math.inf
    is_candidate = reached >= F1_TOLERANCE * reached.max()
    lower = np.append(score[1:], score[-1:])
    width = (score - lower)[is_candidate]
    middle = ((score + lower) / 2)[is_candidate]
    return float(np.average(middle, weights=width if width.any() else None))


def _f1_by_score(ranking: RankedPredictions) -> tuple[Floats, Floats]:
    """Return the distinct scores, from the highest down, and F1 of the predictions of at least each. (S,), (S,)"""
    last = _last_of_equal(ranking.score)
    reached: Floats = 2 * np.cumsum(ranking.is_hit)[last] / (last + 1 + ranking.ground_truth.sum())
    return ranking.score[last], reached


def _ap_at(points: Floats, ranking: RankedPredictions, weight: Floats | None) -> float:
    """Return the mean over `points` of the best precision at that recall or a higher one, 0 beyond the highest recall."""
    ground_truth = _total(ranking.ground_truth, weight)
    if not ground_truth:
        return np.nan
    hits, precisions = _best_precision(ranking, weight)
    return float(np.append(precisions, 0.0)[np.searchsorted(hits / ground_truth, points)].mean())


def _best_precision(ranking: RankedPredictions, weight: Floats | None) -> tuple[Floats, Floats]:
    """Return the number of hits at each hit, and the best precision there or later (misses are no better). (H,), (H,)"""
    is_hit = ranking.is_hit
    if weight is None:
        hits, ranks = np.arange(1.0, is_hit.sum() + 1), np.flatnonzero(is_hit) + 1.0
    else:
        weights = weight[ranking.unit]
        hits, ranks = np.cumsum(weights[is_hit]), np.cumsum(weights)[is_hit]
    precisions = np.divide(hits, ranks, out=np.zeros_like(hits), where=ranks > 0)
    return hits, np.maximum.accumulate(precisions[::-1])[::-1]


def _last_of_equal(falling: Floats) -> Integers:
    """Return the index of the last of each run of equal values: a threshold takes all of them or none. (N,) → (S,)"""
    is_last = np.ones(len(falling), dtype=bool)
    is_last[:-1] = falling[1:] != falling[:-1]
    return np.flatnonzero(is_last)


def _total(values: Floats | Integers, weight: Floats | None) -> float:
    return float(values.sum() if weight is None else weight @ values)


def _ratio(part: float, total: float) -> float:
    return part / total if total else np.nan


def _mean_of_units(
    ranking: RankedPredictions, part: Floats | Integers, total: Floats | Integers, weight: Floats | None
) -> float:
    """Return the mean ratio over units, 0 for 0 / 0; units without predictions and ground truth are excluded."""
    ratios = np.divide(part, total, out=np.zeros(len(part)), where=total > 0)
    is_counted = np.where(ranking.unit_predictions + ranking.ground_truth > 0, 1.0, 0.0)
    return _ratio(_total(ratios, weight), _total(is_counted, weight))
