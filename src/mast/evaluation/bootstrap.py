"""Bootstrap confidence intervals: resample the recordings with replacement and recompute the metric each time.

The boxes of a recording are correlated, so recordings are resampled and not boxes. A resample is a weight for each
recording, the number of times it was drawn: nothing is copied, matched or sorted again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mast.evaluation.metrics import Metric, RankedPredictions
from mast.types import Floats

RESAMPLES = 1000
"""Number of resamples; enough for two digits of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Value of a metric and the bounds that contain `level` of its resampled values; NaN if undefined."""

    value: float
    low: float
    high: float
    level: float

    @property
    def is_bounded(self) -> bool:
        """True if both bounds are defined."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def format(self, digits: int = 3) -> str:
        """Format the value with its bounds, if it has any."""
        if math.isnan(self.value):
            return "undefined"
        bounds = f" ({self.low:.{digits}f}–{self.high:.{digits}f})" if self.is_bounded else ""
        return f"{self.value:.{digits}f}{bounds}"


def confidence_interval(
    metric: Metric,
    ranking: RankedPredictions,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Interval:
    """Compute a metric with its bootstrap interval over the ranking's units, which should be whole recordings."""
    return interval(lambda weight: metric(ranking, weight), len(ranking.ground_truth), rng, resamples, level)


def difference_interval(
    metric: Metric,
    ranking: RankedPredictions,
    other: RankedPredictions,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Interval:
    """Compute a metric minus that of another model, with its paired bootstrap interval: each resample serves both models.

    If the interval contains 0, the difference is not significant.
    """
    if not np.array_equal(ranking.ground_truth, other.ground_truth):
        raise ValueError("only rankings of the same recordings with the same ground truth can be compared")
    return interval(
        lambda weight: metric(ranking, weight) - metric(other, weight),
        len(ranking.ground_truth),
        rng,
        resamples,
        level,
    )


def interval(
    statistic: Callable[[Floats | None], float],
    units: int,
    rng: np.random.Generator,
    resamples: int,
    level: float,
) -> Interval:
    """Compute the percentile interval of a statistic over resampled units.

    Resamples in which the statistic is undefined, for example because none has ground truth, are excluded. With one
    recording the bootstrap is undefined, so both bounds are NaN.
    """
    if units < 2:
        return Interval(statistic(None), np.nan, np.nan, level)
    resampled = np.array([statistic(_resample_weights(units, rng)) for _ in range(resamples)])
    defined = resampled[~np.isnan(resampled)]
    if not len(defined):
        return Interval(statistic(None), np.nan, np.nan, level)
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return Interval(statistic(None), float(low), float(high), level)


def _resample_weights(units: int, rng: np.random.Generator) -> Floats:
    """Draw as many units as there are, with replacement, and return the count of each. (U,)"""
    counts: Floats = np.bincount(rng.integers(units, size=units), minlength=units).astype(np.float64)
    return counts
