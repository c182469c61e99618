"""How well the nearest sounds tell a sound's name (paper, Retrieval-based event characterization).

A sound is never compared with another of its own recording, where the same animal calls again a second later before the
same background: the paper does not say so, and its detected boxes (96 %) beat the experts' own (72 %).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mast.evaluation.intervals import RESAMPLES, Interval, interval
from mast.evaluation.matching import Floats

Names = NDArray[np.str_]
"""(N,): labels, or recordings."""


@dataclass(frozen=True, slots=True)
class Named:
    """Sounds with a known name: vectors of unit length (N, C), the label and the recording of each (N,)."""

    vectors: NDArray[np.float32]
    labels: Names
    recordings: Names


@dataclass(frozen=True, slots=True)
class Retrieval:
    """How often the nearest sound, or one of the five nearest, has the right name; the mean rank of the first that has.

    `top_1_labels` is the mean over labels instead of over sounds. Sounds whose label no other recording has are `alone`:
    nothing could name them, and they do not count.
    """

    queries: int
    alone: int
    labels: int
    recordings: int
    top_1: Interval
    top_5: Interval
    mean_rank: Interval
    top_1_labels: Interval

    def summary(self) -> str:
        """A line for a person."""
        told = [
            f"{title} {getattr(self, name).told(digits)}"
            for name, title, digits in (
                ("top_1", "Top-1", 3),
                ("top_5", "Top-5", 3),
                ("mean_rank", "mean rank", 1),
            )
        ]
        return f"{', '.join(told)}; {self.queries:,} sounds of {self.labels:,} labels in {self.recordings:,} recordings"

    def as_json(self) -> dict[str, object]:
        """The same for a file: an interval is its value and its two ends, None where they cannot be told."""
        return {
            name: [_rounded(value[end]) for end in ("value", "low", "high")]
            if isinstance(value, dict)
            else value
            for name, value in asdict(self).items()
        }


def _rounded(number: float) -> float | None:
    return round(number, 4) if math.isfinite(number) else None


def first_right(asked: Named, known: Named, block: int = 1024) -> NDArray[np.int64]:
    """Rank of the nearest sound of the same label in another recording, 1 for the nearest of all; 0 where none is. → (Q,)

    Of sounds equally near, those of other labels come first: a tie is no answer.
    """
    ranks = np.zeros(len(asked.labels), np.int64)
    for first in range(0, len(ranks), block):
        own = slice(first, first + block)
        near = asked.vectors[own].astype(np.float32) @ known.vectors.T.astype(np.float32)  # (B, N)
        other = asked.recordings[own, None] != known.recordings[None]
        right = other & (asked.labels[own, None] == known.labels[None])
        best = np.where(right, near, -np.inf).max(axis=1, initial=-np.inf)  # (B,)
        nearer = (other & ~right & (near >= best[:, None])).sum(axis=1)
        ranks[own] = np.where(right.any(axis=1), 1 + nearer, 0)
    return ranks


def retrieval(asked: Named, known: Named, rng: np.random.Generator, resamples: int = RESAMPLES) -> Retrieval:
    """The paper's figures of sounds among known ones, with intervals over the recordings of those asked for."""
    ranks = first_right(asked, known)
    told = ranks > 0
    rank, labels = ranks[told], asked.labels[told]
    names, group = np.unique(asked.recordings[told], return_inverse=True)

    def figure(values: NDArray[Any]) -> Interval:
        return interval(_mean(values.astype(np.float64), group), len(names), rng, resamples, 0.95)

    by_label = _label_mean((rank == 1).astype(np.float64), labels, group)
    return Retrieval(
        queries=len(rank),
        alone=len(ranks) - len(rank),
        labels=len(np.unique(labels)),
        recordings=len(names),
        top_1=figure(rank == 1),
        top_5=figure(rank <= 5),
        mean_rank=figure(rank),
        top_1_labels=interval(by_label, len(names), rng, resamples, 0.95),
    )


def _mean(values: Floats, group: NDArray[np.int64]) -> Callable[[Floats | None], float]:
    """The mean of values as often as their group was drawn."""

    def figure(times: Floats | None) -> float:
        weight = np.ones(len(values)) if times is None else times[group]
        return float((values * weight).sum() / weight.sum()) if weight.sum() else np.nan

    return figure


def _label_mean(values: Floats, labels: Names, group: NDArray[np.int64]) -> Callable[[Floats | None], float]:
    """The mean over labels of their means, of those that were drawn."""
    _, number = np.unique(labels, return_inverse=True)

    def figure(times: Floats | None) -> float:
        weight = np.ones(len(values)) if times is None else times[group]
        right, drawn = np.bincount(number, values * weight), np.bincount(number, weight)
        return float((right[drawn > 0] / drawn[drawn > 0]).mean()) if drawn.any() else np.nan

    return figure
