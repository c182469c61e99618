"""Measure the calibration of scores: the fraction of predictions scored 0.8 that match the ground truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mast.types import Floats, Integers, Mask

BINS = 10


@dataclass(frozen=True, slots=True)
class Reliability:
    """Predictions binned by score, low to high: mean score, fraction that are hits, and count of each bin. (B,) each"""

    score: Floats
    hit_fraction: Floats
    count: Integers


def reliability(score: Floats, is_hit: Mask, bins: int = BINS) -> Reliability:
    """Bin predictions (N,) by score into bins of about equal count; equal scores share a bin, so there may be fewer bins.

    The scores of a detector crowd near 0: with bins of equal width, the upper ones, which matter, would be almost
    empty.
    """
    if len(score) and not 0 <= score.min() <= score.max() <= 1:
        raise ValueError(f"scores from {score.min()} to {score.max()} are outside 0 to 1")
    order = np.sort(score)
    edges = order[len(score) * np.arange(1, bins) // bins] if len(score) else order
    number = np.searchsorted(edges, score, side="right")
    count = np.bincount(number, minlength=bins)
    is_used = count > 0
    scores, hits = (
        np.bincount(number, values, bins)[is_used] for values in (score, is_hit.astype(np.float64))
    )
    return Reliability(scores / count[is_used], hits / count[is_used], count[is_used])


def expected_calibration_error(bins: Reliability) -> float:
    """Return the mean distance of scores from hit fractions over all predictions, 0 at best; NaN without predictions."""
    total = bins.count.sum()
    if not total:
        return np.nan
    return float(np.abs(bins.score - bins.hit_fraction) @ bins.count / total)
