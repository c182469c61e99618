"""Groups of sounds that are alike, and how unlike they are to all that has a name (paper, Box-Level Embeddings).

The paper puts acoustically distinct clusters before experts and leaves open how they are made and ordered: we take
HDBSCAN over the vectors' first principal components, and order by novelty, persistence and spread (docs/decisions/0016).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from mast.errors import ConfigError, MissingExtraError
from mast.evaluation.retrieval import Named

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

DIMENSIONS = 16
"""Principal components in which sounds are grouped: in all of them, everything is far from everything."""

MOST_EVENTS, CELLS = 50_000, 5_000
"""So many sounds are grouped one by one. Of more, so many cells of like sounds are made first, and these are grouped."""

LEAST = 5
"""Sounds that make a group, at least, where no number is given."""

KNOWN = 0.9
"""Share of the examples themselves that are not new beside those of other recordings."""

_ROUNDS = 2  # passes over a table in which cells are learned
_NONE = -1


def novelty(vectors: Floats, known: Floats, block: int = 4096) -> tuple[Floats, Integers]:
    """How unlike sounds are to the nearest example, one less their cosine; and which it is. (N, C), (E, C) → (N,) × 2"""
    unlike, nearest = [np.zeros(0, np.float32)], [np.zeros(0, np.int64)]
    for first in range(0, len(vectors), block):
        near = vectors[first : first + block] @ known.T  # (B, E)
        nearest.append(near.argmax(axis=1))
        unlike.append(1 - near.max(axis=1))
    return np.concatenate(unlike), np.concatenate(nearest)


def usual_novelty(known: Named) -> float:
    """A novelty that `KNOWN` of the examples do not exceed, each compared with those of other recordings."""
    recordings = np.unique(known.recordings)
    if len(recordings) < 2:
        raise ConfigError(
            "All examples are of one recording: how unlike the same call is elsewhere cannot be told. Give examples of "
            "at least two recordings."
        )
    unlike = []
    for recording in recordings:
        own = known.recordings == recording
        unlike.append(novelty(known.vectors[own], known.vectors[~own])[0])
    return float(np.quantile(np.concatenate(unlike), KNOWN))


@dataclass(frozen=True, eq=False)
class Projection:
    """The first principal components of some vectors. (C,), (C, D)"""

    mean: Floats
    axes: Floats

    @classmethod
    def of(cls, vectors: Floats) -> Projection:
        """Those of a sample. (N, C)"""
        mean = vectors.mean(axis=0) if len(vectors) else np.zeros(vectors.shape[1], np.float32)
        covariance = (vectors - mean).T @ (vectors - mean)
        axes = np.linalg.eigh(covariance.astype(np.float64))[1][:, ::-1]  # (C, C), the longest first
        return cls(mean, axes[:, :DIMENSIONS].astype(np.float32))

    def __call__(self, vectors: Floats) -> Floats:
        """(N, C) → (N, D)"""
        places: Floats = np.matmul(vectors - self.mean, self.axes, dtype=np.float32)
        return places


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups by their middles, and the number of each sound's group, -1 for none, by its row and place in the table.

    `numbers(first, places)` are those of rows that begin with the `first`.
    """

    count: int
    middles: Floats  # (K, D)
    numbers: Callable[[int, Floats], Integers]


def group_all(places: Floats, least: int = LEAST) -> Groups:
    """Groups of sounds that are compared one by one. (N, D)"""
    labels = hdbscan(places, least)
    middles = _middles(places, labels)
    return Groups(len(middles), middles, lambda first, own: labels[first : first + len(own)])


def least_that_groups(places: Floats, least: int) -> int | None:
    """A smaller number of sounds that makes groups, of few that are tried from above; None if none does. (N, D)"""
    least = min(least, len(places))
    while least > 2:
        least = least // 2 if least > 2 * LEAST else least - 1
        if hdbscan(places, least).max(initial=_NONE) > _NONE:
            return least
    return None


def group_cells(batches: Callable[[], Iterable[Floats]], seed: int = 0) -> Groups:
    """Groups of more sounds than can be compared one by one: of cells of like sounds, learned batch by batch."""
    from sklearn.cluster import MiniBatchKMeans

    cells = MiniBatchKMeans(CELLS, random_state=seed, n_init=1, batch_size=4 * CELLS)
    for _ in range(_ROUNDS):
        for own in _at_least(batches(), CELLS):
            cells.partial_fit(own)
    centres = cells.cluster_centers_.astype(np.float32)
    labels = hdbscan(centres, least=2)  # a group of cells is a group of many sounds
    middles = _middles(centres, labels)
    return Groups(len(middles), middles, lambda first, own: labels[cells.predict(own)])


def _at_least(batches: Iterable[Floats], rows: int) -> Iterable[Floats]:
    """The same rows in batches that are large enough to learn cells from."""
    waiting: list[Floats] = []
    for own in batches:
        waiting.append(own)
        if sum(map(len, waiting)) >= rows:
            yield np.concatenate(waiting)
            waiting = []


def hdbscan(places: Floats, least: int) -> Integers:
    """The number of each place's group, -1 for none. (N, D) → (N,)"""
    if least < 2:
        raise ConfigError(f"--least {least}: a group has 2 sounds or more.")
    if find_spec("sklearn") is None:
        raise MissingExtraError("Grouping sounds", "train")
    if len(places) <= least:
        return np.full(len(places), _NONE)
    from sklearn.cluster import HDBSCAN

    labels: Integers = HDBSCAN(min_cluster_size=least, copy=True).fit_predict(places).astype(np.int64)
    return labels


def _middles(places: Floats, labels: Integers) -> Floats:
    """The mean place of each group. → (K, D)"""
    count = int(labels.max(initial=_NONE)) + 1
    middles = [places[labels == number].mean(axis=0) for number in range(count)]
    return np.stack(middles) if middles else np.zeros((0, places.shape[1]), np.float32)


@dataclass
class Sums:
    """What is added up about a group while its sounds pass by."""

    events: int = 0
    novelty: float = 0.0
    new: int = 0
    days: set[date] = field(default_factory=set)
    sites: set[str] = field(default_factory=set)
    low_hz: float = 0.0
    high_hz: float = 0.0
    lasting_s: float = 0.0
    nearest: dict[str, int] = field(default_factory=dict)

    def mean(self, total: float) -> float:
        """A sum as a mean over sounds."""
        return total / max(1, self.events)

    @property
    def is_candidate(self) -> bool:
        """Whether most of its sounds are more unlike to all examples than examples usually are to each other."""
        return 2 * self.new > self.events

    @property
    def worth(self) -> float:
        """How much it is worth to listen to: novelty × persistence × spread, days and sites by logarithm."""
        days, sites = max(1, len(self.days)), max(1, len(self.sites))
        return self.mean(self.novelty) * math.log2(1 + days) * math.log2(1 + sites)


def ranked(sums: list[Sums]) -> list[int]:
    """Numbers of groups, those that may be new first, then by their worth."""
    order = range(len(sums))
    return sorted(order, key=lambda number: (not sums[number].is_candidate, -sums[number].worth, number))
