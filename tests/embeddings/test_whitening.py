"""Whitening reduces differences in variance, and leaves vectors unchanged if the sample is too small."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.embeddings.whitening import (
    MIN_SAMPLES,
    Whitening,
    fit_whitening,
    read_whitening,
    write_whitening,
)
from mast.errors import StorageError


def stretched(count, *scales, seed=0):
    return np.random.default_rng(seed).normal(size=(count, len(scales))) * np.array(scales) + 5


def test_a_sample_below_the_minimum_size_gives_no_whitening():
    for count in (0, MIN_SAMPLES - 1):
        white = fit_whitening(stretched(count, 4.0, 1.0))
        assert np.array_equal(white.matrix, np.eye(2)) and not white.mean.any() and not white.is_measured
    assert fit_whitening(stretched(MIN_SAMPLES, 4.0, 1.0)).is_measured
    assert white(np.array([[3.0, 4.0]])).tolist() == [[np.float16(0.6), np.float16(0.8)]]
    assert white(np.zeros((0, 2))).shape == (0, 2)


@pytest.mark.parametrize(("strength", "ratio"), [(0.0, 4.0), (0.5, 2.0), (1.0, 1.0)])
def test_half_strength_reduces_the_ratio_of_deviations_and_full_strength_removes_it(strength, ratio):
    values = stretched(4000, 4.0, 1.0)
    white = fit_whitening(values, strength)
    spread = ((values - white.mean) @ white.matrix).std(axis=0)
    assert spread[0] / spread[1] == pytest.approx(ratio, rel=0.05)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), strength=st.sampled_from([0.0, 0.5, 1.0]))
def test_a_rotated_sample_gives_the_same_cosines(seed, strength):
    values = stretched(MIN_SAMPLES, 3.0, 1.0, 0.2, seed=seed)
    rotation = np.linalg.qr(np.random.default_rng(seed + 1).normal(size=(3, 3)))[0]
    one, other = (
        fit_whitening(values, strength)(values),
        fit_whitening(values @ rotation, strength)(values @ rotation),
    )
    cosines = [item.astype(np.float64) @ item.astype(np.float64).T for item in (one, other)]
    assert np.allclose(*cosines, atol=5e-3)


def test_whitening_is_stored_with_a_table_and_a_corrupt_file_is_reported(tmp_path):
    table = str(tmp_path)
    with pytest.raises(StorageError, match="run mast embed again"):
        read_whitening(table)
    write_whitening(table, Whitening(np.ones(2, np.float32), 2 * np.eye(2, dtype=np.float32)))
    whitening = read_whitening(table)
    assert whitening.mean.tolist() == [1, 1] and whitening.matrix.tolist() == [[2, 0], [0, 2]]
    (tmp_path / "whitening.npz").write_bytes(b"nothing")
    with pytest.raises(StorageError, match="cannot be read"):
        read_whitening(table)
