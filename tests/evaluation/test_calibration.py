"""Reliability and calibration error: by hand, of calibrated scores, and of miscalibrated ones."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.evaluation.calibration import expected_calibration_error, reliability


def test_without_predictions_there_is_no_error():
    curve = reliability(np.empty(0), np.empty(0, dtype=bool))
    assert len(curve.score) == len(curve.hit_fraction) == len(curve.count) == 0
    assert math.isnan(expected_calibration_error(curve))


def test_two_bins_of_four_predictions_by_hand():
    curve = reliability(np.array([0.9, 0.1, 0.3, 0.7]), np.array([True, False, True, True]), bins=2)
    assert curve.score.tolist() == pytest.approx([0.2, 0.8])
    assert curve.hit_fraction.tolist() == [0.5, 1]
    assert curve.count.tolist() == [2, 2]
    assert expected_calibration_error(curve) == pytest.approx((0.3 + 0.2) / 2)


def test_equal_scores_share_a_bin():
    curve = reliability(np.full(7, 0.25), np.arange(7) < 3)
    assert curve.count.tolist() == [7]
    assert expected_calibration_error(curve) == pytest.approx(3 / 7 - 0.25)


def test_calibrated_scores_have_almost_no_error_and_others_have():
    rng = np.random.default_rng(0)
    score = rng.random(20_000)
    is_hit = rng.random(20_000) < score
    assert expected_calibration_error(reliability(score, is_hit)) < 0.02
    assert expected_calibration_error(reliability(score**3, is_hit)) == pytest.approx(1 / 2 - 1 / 4, abs=0.02)


def test_scores_outside_0_to_1_are_refused():
    with pytest.raises(ValueError, match="outside 0 to 1"):
        reliability(np.array([0.5, 1.5]), np.array([True, False]))


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=60), st.integers(1, 12))
def test_every_prediction_is_in_one_bin(rows, bins):
    score, is_hit = np.array([row[0] / 20 for row in rows]), np.array([row[1] for row in rows])
    curve = reliability(score, is_hit, bins)
    assert curve.count.sum() == len(rows) and len(curve.count) <= bins
    assert curve.count @ curve.score == pytest.approx(score.sum())
    assert curve.count @ curve.hit_fraction == pytest.approx(is_hit.sum())
    assert np.all(np.diff(curve.score) > 0)


@given(st.integers(1, 200), st.integers(1, 12))
def test_bins_of_different_scores_differ_by_at_most_one_prediction(predictions, bins):
    score = np.random.default_rng(0).permutation(predictions) / predictions
    counts = reliability(score, score > 0.5, bins).count
    assert counts.max() - counts.min() <= 1
