"""Whiten vectors: subtract the mean of all vectors and reduce the directions of largest variance.

The mean of a feature map under a box is nearly the same for any two events: cosines lie above 0.9, and the few
directions in which all events differ, such as the background level, dominate those that distinguish calls. The
whitening is measured once, on a sample of the events of a table before the first vector is written, and stored with
the table (docs/decisions/0016).
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mast.errors import StorageError
from mast.storage import atomic_write, join, open_binary
from mast.types import Floats32

FILE = "whitening.npz"
STRENGTH = 0.5
"""Exponent between unchanged variances (0) and equal variances (1). Full whitening gains little more with weak encoders
and loses much with a strong one (experiments/results/retrieval.json)."""

SHRINK = 0.01
"""Fraction of the mean variance added to each variance, so that directions of little variance stay small."""

MIN_SAMPLES, SAMPLE = 200, 1000
"""Minimum number of vectors to measure a whitening; with fewer, vectors stay unchanged. And the sample size: more
vectors do not improve the estimate."""


@dataclass(frozen=True, eq=False)
class Whitening:
    """The mean of a sample (C,) and the matrix that reduces differences in variance (C, C)."""

    mean: Floats32
    matrix: Floats32

    @property
    def is_measured(self) -> bool:
        """True if the whitening changes vectors; false if there were too few events to measure it."""
        return bool(self.mean.any()) or not np.array_equal(self.matrix, np.eye(len(self.mean)))

    def __call__(self, vectors: NDArray[np.floating]) -> NDArray[np.float16]:
        """Return the whitened vectors, scaled to unit length. (N, C) → (N, C)"""
        whitened = (vectors.astype(np.float32) - self.mean) @ self.matrix
        lengths = np.maximum(np.linalg.norm(whitened, axis=1, keepdims=True), 1e-12)
        unit: NDArray[np.float16] = (whitened / lengths).astype(np.float16)
        return unit


def fit_whitening(vectors: NDArray[np.floating], strength: float = STRENGTH) -> Whitening:
    """Compute the whitening of a sample (N, C).

    Vectors are rotated back to their own axes, so that a sample with equal variances stays unchanged.
    """
    values = vectors.astype(np.float64)
    width = values.shape[1]
    if len(values) < MIN_SAMPLES:
        return Whitening(np.zeros(width, np.float32), np.eye(width, dtype=np.float32))
    mean = values.mean(axis=0)
    variance, axes = np.linalg.eigh(np.cov(values - mean, rowvar=False))  # (C,), (C, C)
    scale = (np.maximum(variance, 0) + max(SHRINK * variance.mean(), 1e-12)) ** (-strength / 2)
    return Whitening(mean.astype(np.float32), ((axes * scale) @ axes.T).astype(np.float32))


def write_whitening(table: str, whitening: Whitening) -> None:
    """Write a whitening into the folder of a table of vectors."""
    with atomic_write(join(table, FILE)) as file:
        np.savez(file, mean=whitening.mean, matrix=whitening.matrix)


def read_whitening(table: str) -> Whitening:
    """Read the whitening of a table of vectors."""
    location = join(table, FILE)
    try:
        with open_binary(location) as file, np.load(io.BytesIO(file.read()), allow_pickle=False) as arrays:
            return Whitening(arrays["mean"], arrays["matrix"])
    except (ValueError, KeyError, OSError) as error:
        raise StorageError(
            f"{location} cannot be read: {error}. Delete {table} and run mast embed again."
        ) from None
