"""Compute results by site, hour, frequency band, duration and signal-to-noise ratio."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mast.evaluation.matching import Matches
from mast.types import Floats, Integers, Mask

DB_PER_LOG = 10 / math.log(10)
"""Decibels per unit of a log-mel, which is the natural logarithm of power."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """Counts of predictions and ground truth in one stratum; metrics are NaN where there are none.

    A match counts for precision in the stratum of the prediction, and for recall in that of the ground truth: `hits` of
    the `predictions`, `recalled` of the `ground_truth`.
    """

    name: str
    predictions: int
    hits: int
    ground_truth: int
    recalled: int

    @property
    def precision(self) -> float:
        """Fraction of predictions that match ground truth of any stratum."""
        return self.hits / self.predictions if self.predictions else math.nan

    @property
    def recall(self) -> float:
        """Fraction of ground truth that is matched by any prediction."""
        return self.recalled / self.ground_truth if self.ground_truth else math.nan

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 if either is 0 or undefined, NaN without any box."""
        if not (self.predictions or self.ground_truth):
            return math.nan
        if not (self.hits and self.recalled):
            return 0.0
        return 2 * self.precision * self.recall / (self.precision + self.recall)


def by_stratum(
    matches: Matches, prediction_stratum: Integers, ground_truth_stratum: Integers, names: Sequence[str]
) -> list[Stratum]:
    """Count matches in each stratum; strata (N,) and (M,) are indices into `names`."""
    is_hit, is_recalled = matches.is_hit, matches.is_recalled(len(ground_truth_stratum))
    columns = (
        _count(prediction_stratum, names),
        _count(prediction_stratum[is_hit], names),
        _count(ground_truth_stratum, names),
        _count(ground_truth_stratum[is_recalled], names),
    )
    return [Stratum(name, *counts) for name, *counts in zip(names, *columns, strict=True)]


def _count(stratum: Integers, names: Sequence[str]) -> list[int]:
    """Count the boxes of each stratum."""
    if len(stratum) and not 0 <= stratum.min() <= stratum.max() < len(names):
        raise ValueError(
            f"strata are {stratum.min()} to {stratum.max()}; there are names for 0 to {len(names) - 1}"
        )
    counts: list[int] = np.bincount(stratum, minlength=len(names)).tolist()
    return counts


def stratum_of(values: Floats, edges: Sequence[float]) -> Integers:
    """Return the band of each value: 0 below the first edge; an edge belongs to the band above it. (N,) → (N,)"""
    return np.searchsorted(np.asarray(edges), values, side="right").astype(np.int64)


def band_names(edges: Sequence[float], unit: str) -> list[str]:
    """Name the bands between edges, such as "< 1000 Hz", "1000–2000 Hz", "≥ 2000 Hz"."""
    between = [f"{low:g}–{high:g} {unit}" for low, high in pairwise(edges)]
    return [f"< {edges[0]:g} {unit}", *between, f"≥ {edges[-1]:g} {unit}"]


def signal_to_noise_db(spec: Floats, boxes: Floats) -> Floats:
    """Compute how far each box's mean level is above the background of its own bins, in dB. (F, T), (n, 4) → (n,)

    `spec` is a chunk's log-mel; boxes are in frames and bins. The background of a bin is its median level outside all
    boxes; bins that boxes cover completely are excluded, and a box of such bins only has NaN.
    """
    cells = [_cells(box, spec.shape) for box in boxes]
    is_background = np.ones(spec.shape, dtype=bool)
    for bins, frames in cells:
        is_background[bins, frames] = False
    excess = spec - _medians(spec, is_background)[:, None]  # (F, T)
    means_db = np.full(len(boxes), np.nan)
    for row, (bins, frames) in enumerate(cells):
        inside = excess[bins, frames]
        defined = inside[~np.isnan(inside)]
        if len(defined):
            means_db[row] = defined.mean() * DB_PER_LOG
    return means_db


def _cells(box: Floats, shape: tuple[int, ...]) -> tuple[slice, slice]:
    """Return the bins and frames that a box touches, at least one of each."""
    start, low, end, high = box
    return _touched(low, high, shape[0]), _touched(start, end, shape[1])


def _touched(first: float, last: float, size: int) -> slice:
    begin = min(max(math.floor(first), 0), size - 1)
    return slice(begin, min(max(math.ceil(last), begin + 1), size))


def _medians(spec: Floats, is_counted: Mask) -> Floats:
    """Return the median of each row's counted values, NaN for rows without any. (F, T), (F, T) → (F,)"""
    counted = is_counted.sum(axis=1)
    ranked = np.sort(np.where(is_counted, spec, np.inf), axis=1)
    rows, last = np.arange(len(spec)), np.maximum(counted - 1, 0)
    middle = (ranked[rows, last // 2] + ranked[rows, (last + 1) // 2]) / 2
    return np.where(counted > 0, middle, np.nan)
