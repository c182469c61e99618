"""Whether a score means what it says: of predictions scored 0.8, do eight in ten find a truth?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mast.evaluation.matching import Floats, Integers, Mask

BINS = 10


@dataclass(frozen=True, slots=True)
class Reliability:
    """Predictions binned by score, low to high: their mean score, the share that are hits, their number. (B,) each"""

    score: Floats
    hit_share: Floats
    count: Integers


def reliability(score: Floats, is_hit: Mask, bins: int = BINS) -> Reliability:
    """Predictions (N,) in bins of about equal count; equal scores share a bin, so there may be fewer bins.

    Scores of a detector crowd near 0: bins of equal width would leave the upper ones, which matter, almost empty.
    """
    if len(score) and not 0 <= score.min() <= score.max() <= 1:
        raise ValueError(f"scores from {score.min()} to {score.max()} are no probabilities")
    order = np.sort(score)
    edges = order[len(score) * np.arange(1, bins) // bins] if len(score) else order
    number = np.searchsorted(edges, score, side="right")
    count = np.bincount(number, minlength=bins)
    kept = count > 0
    scores, hits = (np.bincount(number, values, bins)[kept] for values in (score, is_hit.astype(np.float64)))
    return Reliability(scores / count[kept], hits / count[kept], count[kept])


def expected_calibration_error(curve: Reliability) -> float:
    """Mean distance of scores from hit shares over all predictions, 0 at best; NaN without predictions."""
    total = curve.count.sum()
    if not total:
        return np.nan
    return float(np.abs(curve.score - curve.hit_share) @ curve.count / total)
