"""Evaluate nearest-neighbour labelling of events (paper, Retrieval-based event characterization).

An event is never compared with another of its own recording, where the same animal calls again a second later before
the same background: the paper does not state this, and its detected boxes (96 %) score higher than the annotated ones
(72 %).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mast.evaluation.bootstrap import RESAMPLES, Interval, interval
from mast.types import Floats
from mast.wording import counted

Names = NDArray[np.str_]
"""Labels or recordings. (N,)"""


@dataclass(frozen=True, slots=True)
class LabelledVectors:
    """Labelled events: vectors of unit length (N, C), the label and the recording of each (N,)."""

    vectors: NDArray[np.float32]
    labels: Names
    recordings: Names


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Retrieval metrics: top-1 and top-5 accuracy of the label, and the mean rank of the first reference with that label.

    `top_1_labels` is the mean over labels instead of over events. Queries whose label occurs in no other recording are
    `unmatched`: no reference could label them, and they do not count.
    """

    queries: int
    unmatched: int
    labels: int
    recordings: int
    top_1: Interval
    top_5: Interval
    mean_rank: Interval
    top_1_labels: Interval

    def summary(self) -> str:
        """Return the metrics as one line of text."""
        parts = [
            f"{title} {getattr(self, name).format(digits)}"
            for name, title, digits in (
                ("top_1", "Top-1", 3),
                ("top_5", "Top-5", 3),
                ("mean_rank", "mean rank", 1),
            )
        ]
        return (
            f"{', '.join(parts)}; {counted(self.queries, 'event')} of "
            f"{counted(self.labels, 'label')} in "
            f"{counted(self.recordings, 'recording')}"
        )

    def as_json(self) -> dict[str, object]:
        """Return the metrics for a JSON file: an interval as its value and its two bounds, None where undefined."""
        return {
            name: [_rounded(value[end]) for end in ("value", "low", "high")]
            if isinstance(value, dict)
            else value
            for name, value in asdict(self).items()
        }


def _rounded(number: float) -> float | None:
    return round(number, 4) if math.isfinite(number) else None


def first_hit_rank(
    queries: LabelledVectors, references: LabelledVectors, block: int = 1024
) -> NDArray[np.int64]:
    """Return the rank of the nearest reference of the same label in another recording, 1 for the nearest of all. → (Q,)

    0 if there is none. Among equally near references, those of other labels come first, so that a tie is no hit.
    """
    ranks = np.zeros(len(queries.labels), np.int64)
    for first in range(0, len(ranks), block):
        rows = slice(first, first + block)
        similarity = queries.vectors[rows].astype(np.float32) @ references.vectors.T.astype(
            np.float32
        )  # (B, N)
        is_other = queries.recordings[rows, None] != references.recordings[None]
        is_same_label = is_other & (queries.labels[rows, None] == references.labels[None])
        best = np.where(is_same_label, similarity, -np.inf).max(axis=1, initial=-np.inf)  # (B,)
        nearer = (is_other & ~is_same_label & (similarity >= best[:, None])).sum(axis=1)
        ranks[rows] = np.where(is_same_label.any(axis=1), 1 + nearer, 0)
    return ranks


def retrieval_metrics(
    queries: LabelledVectors,
    references: LabelledVectors,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Retrieval:
    """Compute the paper's retrieval metrics, with bootstrap intervals over the recordings of the queries.

    Args:
        queries: Events to label.
        references: Labelled events to search.
        rng: Random generator of the bootstrap.
        resamples: Number of bootstrap resamples.

    Returns:
        Counts and metrics of all queries.
    """
    ranks = first_hit_rank(queries, references)
    is_matched = ranks > 0
    rank, labels = ranks[is_matched], queries.labels[is_matched]
    recordings, group = np.unique(queries.recordings[is_matched], return_inverse=True)

    def statistic(values: NDArray[Any]) -> Interval:
        return interval(_mean(values.astype(np.float64), group), len(recordings), rng, resamples, 0.95)

    by_label = _label_mean((rank == 1).astype(np.float64), labels, group)
    return Retrieval(
        queries=len(rank),
        unmatched=len(ranks) - len(rank),
        labels=len(np.unique(labels)),
        recordings=len(recordings),
        top_1=statistic(rank == 1),
        top_5=statistic(rank <= 5),
        mean_rank=statistic(rank),
        top_1_labels=interval(by_label, len(recordings), rng, resamples, 0.95),
    )


def _mean(values: Floats, group: NDArray[np.int64]) -> Callable[[Floats | None], float]:
    """Return a statistic: the mean of `values`, each weighted by the count of its group."""

    def statistic(counts: Floats | None) -> float:
        weight = np.ones(len(values)) if counts is None else counts[group]
        return float((values * weight).sum() / weight.sum()) if weight.sum() else np.nan

    return statistic


def _label_mean(values: Floats, labels: Names, group: NDArray[np.int64]) -> Callable[[Floats | None], float]:
    """Return a statistic: the mean over the resampled labels of the weighted mean of each label."""
    _, number = np.unique(labels, return_inverse=True)

    def statistic(counts: Floats | None) -> float:
        weight = np.ones(len(values)) if counts is None else counts[group]
        correct, total = np.bincount(number, values * weight), np.bincount(number, weight)
        return float((correct[total > 0] / total[total > 0]).mean()) if total.any() else np.nan

    return statistic
