"""Results by stratum, and the signal-to-noise ratio of a box."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.evaluation.matching import Matches, match
from mast.evaluation.strata import band_names, by_stratum, signal_to_noise_db, stratum_of
from tests.evaluation.builders import boxes

DB = 10 / math.log(10)


def test_without_boxes_every_stratum_is_empty():
    none = np.empty(0, dtype=np.int64)
    marsh, wood = by_stratum(Matches(none, np.empty(0)), none, none, ["marsh", "wood"])
    assert (marsh.name, marsh.predictions, marsh.ground_truth, wood.name) == ("marsh", 0, 0, "wood")
    assert math.isnan(marsh.precision) and math.isnan(marsh.recall) and math.isnan(marsh.f1)


def test_a_hit_counts_for_precision_in_the_predictions_stratum_and_for_recall_in_the_ground_truths():
    matches = Matches(np.array([0, -1, 2]), np.array([0.8, 0, 0.6]))
    low, high = by_stratum(matches, np.array([0, 0, 0]), np.array([0, 0, 1, 1]), ["low", "high"])
    assert (low.predictions, low.hits, low.ground_truth, low.recalled) == (3, 2, 2, 1)
    assert (low.precision, low.recall) == (2 / 3, 1 / 2)
    assert low.f1 == pytest.approx(4 / 7)
    assert (high.predictions, high.hits, high.ground_truth, high.recalled) == (0, 0, 2, 1)
    assert math.isnan(high.precision) and high.recall == 1 / 2 and high.f1 == 0


@given(boxes(scored=True), boxes(scored=False), st.integers(0, 2**32 - 1))
def test_the_strata_add_up_to_the_total(predictions, ground_truth, seed):
    rng = np.random.default_rng(seed)
    matches = match(predictions, ground_truth)
    names = ["a", "b", "c"]
    results = by_stratum(
        matches, rng.integers(0, 3, len(predictions)), rng.integers(0, 3, len(ground_truth)), names
    )
    assert sum(stratum.predictions for stratum in results) == len(predictions)
    assert sum(stratum.ground_truth for stratum in results) == len(ground_truth)
    hits = sum(stratum.hits for stratum in results)
    assert hits == sum(stratum.recalled for stratum in results) == matches.is_hit.sum()


def test_strata_without_a_name_are_refused():
    with pytest.raises(ValueError, match="strata are 0 to 2; there are names for 0 to 1"):
        by_stratum(Matches(np.array([-1, -1]), np.zeros(2)), np.array([0, 2]), np.array([0]), ["a", "b"])


def test_bands_are_named_by_their_edges_and_an_edge_belongs_to_the_band_above():
    assert stratum_of(np.array([0, 999.9, 1000, 2000, 9000]), [1000, 2000]).tolist() == [0, 0, 1, 2, 2]
    assert band_names([1000, 2000], "Hz") == ["< 1000 Hz", "1000–2000 Hz", "≥ 2000 Hz"]
    assert band_names([0.5], "s") == ["< 0.5 s", "≥ 0.5 s"]


def test_no_boxes_have_no_signal_to_noise_ratio():
    assert signal_to_noise_db(np.zeros((4, 6)), np.empty((0, 4))).shape == (0,)


def test_a_box_with_ten_times_the_power_of_its_background_has_ten_decibels():
    spec = np.repeat(np.array([[-3.0], [1.0], [2.0], [-8.0]]), 10, axis=1)  # every bin has a different level
    spec[1:3, 2:5] += math.log(10)
    assert signal_to_noise_db(spec, np.array([[2.0, 1, 5, 3]])) == pytest.approx([10])


def test_other_boxes_are_not_background():
    spec = np.zeros((1, 9))
    spec[0, :3], spec[0, 3:8] = 1.0, 5.0
    alone = signal_to_noise_db(spec, np.array([[0.0, 0, 3, 1]]))
    both = signal_to_noise_db(spec, np.array([[0.0, 0, 3, 1], [3, 0, 8, 1]]))
    assert alone == pytest.approx([(1 - 5) * DB])
    assert both == pytest.approx([1 * DB, 5 * DB])


def test_bins_without_background_are_excluded():
    spec = np.array([[7.0, 7, 7, 7], [2, 2, 0, 0]])
    full, partly = np.array([0.0, 0, 4, 1]), np.array([0.0, 0, 2, 2])
    assert math.isnan(signal_to_noise_db(spec, full[None])[0])
    assert signal_to_noise_db(spec, np.stack([full, partly]))[1] == pytest.approx(2 * DB)


def test_a_box_is_measured_in_all_cells_it_touches():
    spec = np.array([[3.0, 1, 1, 0, 0]])
    assert signal_to_noise_db(spec, np.array([[0.5, 0.2, 2.5, 0.8]])) == pytest.approx([5 / 3 * DB])


def test_a_box_thinner_than_a_cell_or_beyond_the_edge_is_measured_where_it_touches():
    spec = np.zeros((2, 4))
    spec[1, 3] = 1.0
    thin, beyond = np.array([3.4, 1.2, 3.4, 1.2]), np.array([3.0, 1, 99, 99])
    outside = np.array([50.0, 50, 60, 60])
    for box in (thin, beyond, outside):
        assert signal_to_noise_db(spec, box[None]) == pytest.approx([DB])


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_the_ratio_equals_the_plain_loop(seed, count):
    rng = np.random.default_rng(seed)
    spec = rng.normal(size=(5, 8))
    corner = rng.integers(0, (7, 4), (count, 2))
    bounds = np.hstack([corner, np.minimum(corner + rng.integers(1, 9, (count, 2)), (8, 5))]).astype(float)
    covered = {(f, t) for s, lo, e, hi in bounds.astype(int) for f in range(lo, hi) for t in range(s, e)}
    for box, measured in zip(bounds.astype(int), signal_to_noise_db(spec, bounds), strict=True):
        values = []
        for f in range(box[1], box[3]):
            background = [spec[f, t] for t in range(8) if (f, t) not in covered]
            values += [spec[f, t] - np.median(background) for t in range(box[0], box[2]) if background]
        assert measured == pytest.approx(np.mean(values) * DB if values else math.nan, nan_ok=True)
