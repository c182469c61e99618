"""Cluster vectors, and measure their novelty relative to labelled events (paper, Box-Level Embeddings).

The paper presents acoustically distinct clusters to experts, and leaves open how they are computed and ordered. We use
HDBSCAN on the first principal components of the vectors, and order by novelty, persistence and spread
(docs/decisions/0016).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date
from importlib.util import find_spec

import numpy as np

from mast.errors import ConfigError, MissingExtraError
from mast.evaluation.retrieval_metrics import LabelledVectors
from mast.types import Floats32, Integers

DIMENSIONS = 16
"""Number of principal components used for clustering: with all of them, every vector is far from every other."""

MAX_EVENTS, CELLS = 50_000, 5_000
"""Maximum number of events clustered directly, and the number of k-means cells clustered in place of more."""

MIN_CLUSTER_SIZE = 5
"""Default minimum number of events in a cluster."""

KNOWN_QUANTILE = 0.9
"""Fraction of the references that are not novel relative to references of other recordings."""

_EPOCHS = 2  # passes over the table to fit the cells
_NONE = -1


def novelty(vectors: Floats32, references: Floats32, block: int = 4096) -> tuple[Floats32, Integers]:
    """Return one minus the cosine to the nearest reference, and its index. (N, C), (E, C) → (N,), (N,)"""
    distances, nearest = [np.zeros(0, np.float32)], [np.zeros(0, np.int64)]
    for first in range(0, len(vectors), block):
        similarity = vectors[first : first + block] @ references.T  # (B, E)
        nearest.append(similarity.argmax(axis=1))
        distances.append(1 - similarity.max(axis=1))
    return np.concatenate(distances), np.concatenate(nearest)


def novelty_threshold(references: LabelledVectors) -> float:
    """Return the `KNOWN_QUANTILE` of the references' own novelty, each relative to those of other recordings."""
    recordings = np.unique(references.recordings)
    if len(recordings) < 2:
        raise ConfigError(
            "All labelled examples are from one recording, so the novelty of the same call in another recording is "
            "unknown. Provide examples from at least two recordings."
        )
    distances = []
    for recording in recordings:
        is_here = references.recordings == recording
        distances.append(novelty(references.vectors[is_here], references.vectors[~is_here])[0])
    return float(np.quantile(np.concatenate(distances), KNOWN_QUANTILE))


@dataclass(frozen=True, eq=False)
class PcaProjection:
    """Projection to the first principal components of a sample. (C,), (C, D)"""

    mean: Floats32
    axes: Floats32

    @classmethod
    def of(cls, vectors: Floats32) -> PcaProjection:
        """Fit the projection to a sample (N, C)."""
        mean = vectors.mean(axis=0) if len(vectors) else np.zeros(vectors.shape[1], np.float32)
        covariance = (vectors - mean).T @ (vectors - mean)
        axes = np.linalg.eigh(covariance.astype(np.float64))[1][:, ::-1]  # (C, C), largest variance first
        return cls(mean, axes[:, :DIMENSIONS].astype(np.float32))

    def __call__(self, vectors: Floats32) -> Floats32:
        """Project vectors. (N, C) → (N, D)"""
        points: Floats32 = np.matmul(vectors - self.mean, self.axes, dtype=np.float32)
        return points


@dataclass(frozen=True, eq=False)
class Clusters:
    """Number of clusters, their centroids, and the assignment of events to clusters.

    `numbers(first, points)` returns the cluster of each row of a table from row `first`, given its point; -1 for none.
    """

    count: int
    centroids: Floats32  # (K, D)
    numbers: Callable[[int, Floats32], Integers]


def cluster_all(points: Floats32, min_cluster_size: int = MIN_CLUSTER_SIZE) -> Clusters:
    """Cluster the points of all events directly. (N, D)"""
    labels = hdbscan(points, min_cluster_size)
    centroids = _centroids(points, labels)
    return Clusters(len(centroids), centroids, lambda first, batch: labels[first : first + len(batch)])


def choose_min_cluster_size(points: Floats32, min_cluster_size: int) -> int | None:
    """Return a smaller minimum size that gives clusters, trying decreasing sizes; None if none does. (N, D)"""
    min_cluster_size = min(min_cluster_size, len(points))
    while min_cluster_size > 2:
        min_cluster_size = (
            min_cluster_size // 2 if min_cluster_size > 2 * MIN_CLUSTER_SIZE else min_cluster_size - 1
        )
        if hdbscan(points, min_cluster_size).max(initial=_NONE) > _NONE:
            return min_cluster_size
    return None


def cluster_cells(batches: Callable[[], Iterable[Floats32]], seed: int = 0) -> Clusters:
    """Cluster more events than can be clustered directly: fit k-means cells batch by batch, then cluster the cells."""
    from sklearn.cluster import MiniBatchKMeans

    cells = MiniBatchKMeans(CELLS, random_state=seed, n_init=1, batch_size=4 * CELLS)
    for _ in range(_EPOCHS):
        for batch in _merge_batches(batches(), CELLS):
            cells.partial_fit(batch)
    centres = cells.cluster_centers_.astype(np.float32)
    labels = hdbscan(centres, min_cluster_size=2)  # two cells already hold many events
    centroids = _centroids(centres, labels)
    return Clusters(len(centroids), centroids, lambda first, batch: labels[cells.predict(batch)])


def _merge_batches(batches: Iterable[Floats32], rows: int) -> Iterable[Floats32]:
    """Yield the same rows in batches of at least `rows`, as k-means needs; drop a smaller last batch."""
    waiting: list[Floats32] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= rows:
            yield np.concatenate(waiting)
            waiting = []


def hdbscan(points: Floats32, min_cluster_size: int) -> Integers:
    """Return the cluster of each point, -1 for none. (N, D) → (N,)"""
    if min_cluster_size < 2:
        raise ConfigError(f"--min-cluster-size {min_cluster_size}: specify 2 or more.")
    if find_spec("sklearn") is None:
        raise MissingExtraError("Clustering events", "train")
    if len(points) <= min_cluster_size:
        return np.full(len(points), _NONE)
    from sklearn.cluster import HDBSCAN

    labels: Integers = (
        HDBSCAN(min_cluster_size=min_cluster_size, copy=True).fit_predict(points).astype(np.int64)
    )
    return labels


def _centroids(points: Floats32, labels: Integers) -> Floats32:
    """Return the mean point of each cluster. → (K, D)"""
    count = int(labels.max(initial=_NONE)) + 1
    centroids = [points[labels == number].mean(axis=0) for number in range(count)]
    return np.stack(centroids) if centroids else np.zeros((0, points.shape[1]), np.float32)


@dataclass
class ClusterStats:
    """Sums over the events of a cluster, updated batch by batch; `nearest` counts the nearest labels."""

    events: int = 0
    novelty: float = 0.0
    novel: int = 0
    days: set[date] = field(default_factory=set)
    sites: set[str] = field(default_factory=set)
    low_hz: float = 0.0
    high_hz: float = 0.0
    duration_s: float = 0.0
    nearest: dict[str, int] = field(default_factory=dict)

    def mean(self, total: float) -> float:
        """Return a sum divided by the number of events."""
        return total / max(1, self.events)

    @property
    def is_candidate(self) -> bool:
        """True if most events are more novel than most references are relative to those of other recordings."""
        return 2 * self.novel > self.events

    @property
    def priority(self) -> float:
        """Priority for review: novelty × persistence × spread, with logarithms of the numbers of days and sites."""
        days, sites = max(1, len(self.days)), max(1, len(self.sites))
        return self.mean(self.novelty) * math.log2(1 + days) * math.log2(1 + sites)


def rank_clusters(stats: list[ClusterStats]) -> list[int]:
    """Return cluster indices in review order: candidates for new sounds first, then by decreasing priority."""
    order = range(len(stats))
    return sorted(order, key=lambda number: (not stats[number].is_candidate, -stats[number].priority, number))
