"""Where a model does well and where it does not: results by site, hour, frequency band, duration, signal-to-noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mast.evaluation.matching import Floats, Integers, Mask, Matches

DB_PER_LOG = 10 / math.log(10)
"""A log-mel is the natural logarithm of power."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """What became of the predictions and of the truths of one stratum; NaN where there are none.

    A hit counts for precision where the prediction belongs, and for recall where the truth does: `hits` of the
    `predictions`, `found` of the `truths`.
    """

    name: str
    predictions: int
    hits: int
    truths: int
    found: int

    @property
    def precision(self) -> float:
        """Share of predictions that found a truth, wherever that belongs."""
        return self.hits / self.predictions if self.predictions else math.nan

    @property
    def recall(self) -> float:
        """Share of truths that were found, by whichever prediction."""
        return self.found / self.truths if self.truths else math.nan

    @property
    def f1(self) -> float:
        """Harmonic mean of both; 0 where either is 0 or cannot be told, NaN without any box."""
        if not (self.predictions or self.truths):
            return math.nan
        if not (self.hits and self.found):
            return 0.0
        return 2 * self.precision * self.recall / (self.precision + self.recall)


def by_stratum(
    matches: Matches, prediction_stratum: Integers, truth_stratum: Integers, names: Sequence[str]
) -> list[Stratum]:
    """Results in each stratum, from the matches of all; strata (N,) and (M,) are places in `names`."""
    is_hit, is_found = matches.is_hit, matches.is_found(len(truth_stratum))
    columns = (
        _count(prediction_stratum, names),
        _count(prediction_stratum[is_hit], names),
        _count(truth_stratum, names),
        _count(truth_stratum[is_found], names),
    )
    return [Stratum(name, *counts) for name, *counts in zip(names, *columns, strict=True)]


def _count(stratum: Integers, names: Sequence[str]) -> list[int]:
    """How many there are of each stratum."""
    if len(stratum) and not 0 <= stratum.min() <= stratum.max() < len(names):
        raise ValueError(f"strata {stratum.min()} to {stratum.max()} with names for 0 to {len(names) - 1}")
    counts: list[int] = np.bincount(stratum, minlength=len(names)).tolist()
    return counts


def stratum_of(values: Floats, edges: Sequence[float]) -> Integers:
    """Which band each value falls into: 0 below the first edge, and an edge belongs to the band above it. (N,) → (N,)"""
    return np.searchsorted(np.asarray(edges), values, side="right").astype(np.int64)


def band_names(edges: Sequence[float], unit: str) -> list[str]:
    """What to call the bands that edges make, such as "< 1000 Hz", "1000–2000 Hz", "≥ 2000 Hz"."""
    between = [f"{low:g}–{high:g} {unit}" for low, high in pairwise(edges)]
    return [f"< {edges[0]:g} {unit}", *between, f"≥ {edges[-1]:g} {unit}"]


def signal_to_noise_db(spec: Floats, boxes: Floats) -> Floats:
    """How far each box's mean level stands above the background of its own bins. (F, T), (n, 4) → (n,)

    `spec` is a chunk's log-mel, boxes are in frames and bins. A bin's background is its median level outside all
    boxes; bins that boxes fill from end to end are left out, and a box of such bins alone has NaN.
    """
    cells = [_cells(box, spec.shape) for box in boxes]
    is_background = np.ones(spec.shape, dtype=bool)
    for bins, frames in cells:
        is_background[bins, frames] = False
    excess = spec - _medians(spec, is_background)[:, None]  # (F, T)
    means_db = np.full(len(boxes), np.nan)
    for row, (bins, frames) in enumerate(cells):
        inside = excess[bins, frames]
        told = inside[~np.isnan(inside)]
        if len(told):
            means_db[row] = told.mean() * DB_PER_LOG
    return means_db


def _cells(box: Floats, shape: tuple[int, ...]) -> tuple[slice, slice]:
    """The bins and frames that a box touches, at least one of each."""
    start, low, end, high = box
    return _touched(low, high, shape[0]), _touched(start, end, shape[1])


def _touched(first: float, last: float, size: int) -> slice:
    begin = min(max(math.floor(first), 0), size - 1)
    return slice(begin, min(max(math.ceil(last), begin + 1), size))


def _medians(spec: Floats, is_counted: Mask) -> Floats:
    """Median of each row's counted values, NaN where there are none. (F, T), (F, T) → (F,)"""
    counted = is_counted.sum(axis=1)
    ranked = np.sort(np.where(is_counted, spec, np.inf), axis=1)
    rows, last = np.arange(len(spec)), np.maximum(counted - 1, 0)
    middle = (ranked[rows, last // 2] + ranked[rows, (last + 1) // 2]) / 2
    return np.where(counted > 0, middle, np.nan)
