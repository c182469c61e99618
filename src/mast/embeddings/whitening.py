"""Vectors told apart by what sets sounds apart: less what all have in common, and directions of more equal weight.

The mean of a map under a box is nearly the same for any two sounds: cosines lie above 0.9, and the few directions in
which all sounds differ, such as how loud the background is, drown those that tell a call. It is measured on a sample of a
table's own sounds once, before the first is written, and kept with the table (docs/decisions/0016).
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mast.errors import StorageError
from mast.storage import join, open_binary, written_whole

FILE = "whitening.npz"
STRENGTH = 0.5
"""Halfway between leaving directions as they are (0) and giving all the same weight (1). All the way gains little more
with weak encoders and loses much with a strong one (experiments/results/retrieval.json)."""

SHRINK = 0.01
"""Share of the mean variance that is added to that of every direction, so that those which hardly vary stay small."""

ENOUGH, SAMPLE = 200, 1000
"""From fewer sounds nothing is measured, and vectors stay as they are; more would tell no more."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Whitening:
    """The mean of a sample (C,), and the product that evens its directions out (C, C)."""

    mean: Floats
    matrix: Floats

    @property
    def is_measured(self) -> bool:
        """Whether it changes anything: that of too few sounds does not."""
        return bool(self.mean.any()) or not np.array_equal(self.matrix, np.eye(len(self.mean)))

    def __call__(self, vectors: NDArray[np.floating]) -> NDArray[np.float16]:
        """Vectors in these terms, of unit length. (N, C) → (N, C)"""
        turned = (vectors.astype(np.float32) - self.mean) @ self.matrix
        lengths = np.maximum(np.linalg.norm(turned, axis=1, keepdims=True), 1e-12)
        unit: NDArray[np.float16] = (turned / lengths).astype(np.float16)
        return unit


def measure(vectors: NDArray[np.floating], strength: float = STRENGTH) -> Whitening:
    """The whitening of a sample, turned back: with all directions alike already, none would change. (N, C)"""
    values = vectors.astype(np.float64)
    width = values.shape[1]
    if len(values) < ENOUGH:
        return Whitening(np.zeros(width, np.float32), np.eye(width, dtype=np.float32))
    mean = values.mean(axis=0)
    variance, axes = np.linalg.eigh(np.cov(values - mean, rowvar=False))  # (C,), (C, C)
    scale = (np.maximum(variance, 0) + max(SHRINK * variance.mean(), 1e-12)) ** (-strength / 2)
    return Whitening(mean.astype(np.float32), ((axes * scale) @ axes.T).astype(np.float32))


def write_whitening(table: str, whitening: Whitening) -> None:
    """Keep it in the folder of a table of vectors."""
    with written_whole(join(table, FILE)) as file:
        np.savez(file, mean=whitening.mean, matrix=whitening.matrix)


def read_whitening(table: str) -> Whitening:
    """That of a table."""
    place = join(table, FILE)
    try:
        with open_binary(place) as file, np.load(io.BytesIO(file.read()), allow_pickle=False) as kept:
            return Whitening(kept["mean"], kept["matrix"])
    except (ValueError, KeyError, OSError) as error:
        raise StorageError(
            f"{place} cannot be read: {error}. Delete {table} and run mast embed again."
        ) from None
