"""Vectors are evened out by what a sample tells, and left alone where it tells too little."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.embeddings.whitening import (
    ENOUGH,
    Whitening,
    measure,
    read_whitening,
    write_whitening,
)
from mast.errors import StorageError


def stretched(count, *scales, seed=0):
    return np.random.default_rng(seed).normal(size=(count, len(scales))) * np.array(scales) + 5


def test_of_no_sounds_and_of_few_nothing_is_measured():
    for count in (0, ENOUGH - 1):
        white = measure(stretched(count, 4.0, 1.0))
        assert np.array_equal(white.matrix, np.eye(2)) and not white.mean.any() and not white.is_measured
    assert measure(stretched(ENOUGH, 4.0, 1.0)).is_measured
    assert white(np.array([[3.0, 4.0]])).tolist() == [[np.float16(0.6), np.float16(0.8)]]
    assert white(np.zeros((0, 2))).shape == (0, 2)


@pytest.mark.parametrize(("strength", "ratio"), [(0.0, 4.0), (0.5, 2.0), (1.0, 1.0)])
def test_the_wider_direction_keeps_its_lead_halfway_and_loses_it_all_the_way(strength, ratio):
    values = stretched(4000, 4.0, 1.0)
    white = measure(values, strength)
    spread = ((values - white.mean) @ white.matrix).std(axis=0)
    assert spread[0] / spread[1] == pytest.approx(ratio, rel=0.05)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), strength=st.sampled_from([0.0, 0.5, 1.0]))
def test_a_turned_sample_gives_the_same_cosines(seed, strength):
    values = stretched(ENOUGH, 3.0, 1.0, 0.2, seed=seed)
    turn = np.linalg.qr(np.random.default_rng(seed + 1).normal(size=(3, 3)))[0]
    one, other = measure(values, strength)(values), measure(values @ turn, strength)(values @ turn)
    near = [item.astype(np.float64) @ item.astype(np.float64).T for item in (one, other)]
    assert np.allclose(*near, atol=5e-3)


def test_it_is_kept_with_a_table_and_one_that_is_broken_is_told(tmp_path):
    place = str(tmp_path)
    with pytest.raises(StorageError, match="run mast embed again"):
        read_whitening(place)
    write_whitening(place, Whitening(np.ones(2, np.float32), 2 * np.eye(2, dtype=np.float32)))
    kept = read_whitening(place)
    assert kept.mean.tolist() == [1, 1] and kept.matrix.tolist() == [[2, 0], [0, 2]]
    (tmp_path / "whitening.npz").write_bytes(b"nothing")
    with pytest.raises(StorageError, match="cannot be read"):
        read_whitening(place)
