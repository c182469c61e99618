"""How far a figure could be off: recordings are drawn again and again, with replacement, and the metric with them.

Boxes of a recording stand or fall together, so recordings are drawn and not boxes. A draw is how often each recording
counts: nothing is copied, matched or sorted again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mast.evaluation.matching import Floats
from mast.evaluation.metrics import Metric, Ranking

RESAMPLES = 1000
"""Enough for two digits of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and the bounds between which `level` of its resampled values lie; NaN where they cannot be told."""

    value: float
    low: float
    high: float
    level: float

    @property
    def is_bounded(self) -> bool:
        """Whether it is known how far the figure could be off."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def told(self, digits: int = 3) -> str:
        """The figure for a person, with its bounds if it has any."""
        if math.isnan(self.value):
            return "cannot be told"
        bounds = f" ({self.low:.{digits}f}–{self.high:.{digits}f})" if self.is_bounded else ""
        return f"{self.value:.{digits}f}{bounds}"


def confidence_interval(
    metric: Metric,
    ranking: Ranking,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Interval:
    """A metric with its bootstrap interval over the ranking's units, which should be whole recordings."""
    return interval(lambda weight: metric(ranking, weight), len(ranking.truths), rng, resamples, level)


def difference_interval(
    metric: Metric,
    ranking: Ranking,
    other: Ranking,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Interval:
    """How much higher the metric is than another model's, each draw of recordings serving both.

    An interval that holds 0 leaves open which of the two is better.
    """
    if not np.array_equal(ranking.truths, other.truths):
        raise ValueError("only rankings of the same recordings with the same truths can be compared")
    return interval(
        lambda weight: metric(ranking, weight) - metric(other, weight),
        len(ranking.truths),
        rng,
        resamples,
        level,
    )


def interval(
    figure: Callable[[Floats | None], float],
    units: int,
    rng: np.random.Generator,
    resamples: int,
    level: float,
) -> Interval:
    """Percentile interval; draws in which the figure cannot be told, as when none has a truth, are left out.

    One unit is all that can be drawn of it again: how others would differ from it, nothing tells.
    """
    if units < 2:
        return Interval(figure(None), np.nan, np.nan, level)
    drawn = np.array([figure(_draw(units, rng)) for _ in range(resamples)])
    told = drawn[~np.isnan(drawn)]
    if not len(told):
        return Interval(figure(None), np.nan, np.nan, level)
    low, high = np.quantile(told, [(1 - level) / 2, (1 + level) / 2])
    return Interval(figure(None), float(low), float(high), level)


def _draw(units: int, rng: np.random.Generator) -> Floats:
    """How often each unit is among as many drawn with replacement. (U,)"""
    times: Floats = np.bincount(rng.integers(units, size=units), minlength=units).astype(np.float64)
    return times
