"""Bootstrap intervals against a collection with copied recordings, and against the intervals expected by chance."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.evaluation.bootstrap import Interval, confidence_interval, difference_interval
from mast.evaluation.metrics import METRICS, RankedPredictions, average_precision, f1, precision, recall


def made_ranking(seed, units=12, predictions=60, ground_truth=30, skill=0.6):
    """Rank predictions of random recordings with distinct scores; the more skill, the more hits."""
    rng = np.random.default_rng(seed)
    ground_truth_unit = np.sort(rng.integers(0, units, ground_truth))
    unit = np.concatenate([ground_truth_unit, rng.integers(0, units, predictions - ground_truth)])
    is_hit = np.append(rng.random(ground_truth) < skill, np.zeros(predictions - ground_truth, dtype=bool))
    overlap = np.where(is_hit, rng.uniform(0.5, 1, predictions), 0)
    return RankedPredictions.of(
        rng.permutation(predictions) / predictions, overlap, unit, ground_truth_unit, units
    )


def copied(ranking, times):
    """Return the ranking of a collection that contains each recording `times` times."""
    unit, ground_truth_unit = ranking.unit, np.repeat(np.arange(len(times)), ranking.ground_truth)
    repeats = times[unit]
    first_copy = np.cumsum(times) - times

    def numbered(of):
        return np.concatenate([first_copy[one] + np.arange(times[one]) for one in of]).astype(np.int64)

    score, overlap = np.repeat(ranking.score, repeats), np.repeat(ranking.overlap, repeats)
    return RankedPredictions.of(score, overlap, numbered(unit), numbered(ground_truth_unit), int(times.sum()))


@pytest.mark.parametrize("name", METRICS)
def test_without_recordings_there_is_no_interval(name):
    none = np.empty(0, dtype=np.int64)
    empty = RankedPredictions.of(np.empty(0), np.empty(0), none, none, 0)
    interval = confidence_interval(METRICS[name], empty, np.random.default_rng(0))
    assert math.isnan(interval.value) and math.isnan(interval.low) and math.isnan(interval.high)


def test_without_ground_truth_precision_has_an_interval_and_recall_has_none():
    none = np.empty(0, dtype=np.int64)
    false_positive = RankedPredictions.of(np.array([0.5]), np.zeros(1), np.array([0]), none, 2)
    assert math.isnan(confidence_interval(recall, false_positive, np.random.default_rng(0)).high)
    assert confidence_interval(precision, false_positive, np.random.default_rng(0)).high == 0


def test_a_single_recording_has_metrics_but_no_interval():
    one, other = made_ranking(0, units=1), made_ranking(0, units=1, skill=0.1)
    alone = confidence_interval(recall, one, np.random.default_rng(0), 50)
    assert 0 < alone.value < 1 and math.isnan(alone.low) and math.isnan(alone.high)
    assert alone.format() == f"{alone.value:.3f}" and not alone.is_bounded
    difference = difference_interval(recall, one, other, np.random.default_rng(0), 50)
    assert difference.value > 0 and math.isnan(difference.low) and math.isnan(difference.high)


def test_a_metric_is_formatted_with_its_bounds_if_it_has_any():
    assert Interval(0.5, 0.25, 0.75, 0.95).format() == "0.500 (0.250–0.750)"
    assert Interval(12.0, 8.0, 20.0, 0.95).format(1) == "12.0 (8.0–20.0)"
    assert Interval(math.nan, math.nan, math.nan, 0.95).format() == "undefined"


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_a_weight_counts_a_recording_like_copies_of_it(seed, resample_seed):
    ranking = made_ranking(seed)
    times = np.random.default_rng(resample_seed).multinomial(12, np.ones(12) / 12)
    again = copied(ranking, times)
    for name, metric in METRICS.items():
        assert metric(ranking, times.astype(float)) == pytest.approx(metric(again, None), nan_ok=True), name
        assert metric(ranking, np.ones(12)) == pytest.approx(metric(ranking, None), nan_ok=True), name


def test_the_same_seed_gives_the_same_interval_around_the_value():
    ranking = made_ranking(0)
    interval, again = (confidence_interval(f1, ranking, np.random.default_rng(7), 200) for _ in range(2))
    assert interval == again
    assert interval.value == f1(ranking)
    assert interval.low < interval.value < interval.high
    narrow = confidence_interval(f1, ranking, np.random.default_rng(7), 200, level=0.5)
    assert interval.low < narrow.low < narrow.high < interval.high


def test_equal_recordings_have_an_interval_of_width_zero():
    each = np.arange(8)
    equal = RankedPredictions.of(np.linspace(1, 0.5, 8), np.full(8, 0.7), each, np.repeat(each, 2), 8)
    interval = confidence_interval(recall, equal, np.random.default_rng(0), 50)
    assert interval.low == interval.value == interval.high == 0.5


def test_the_interval_of_a_fraction_has_the_width_of_the_binomial_interval():
    rng = np.random.default_rng(3)
    each = np.arange(400)
    ranking = RankedPredictions.of(rng.random(400), np.where(rng.random(400) < 0.3, 0.8, 0), each, each, 400)
    interval = confidence_interval(recall, ranking, rng, 2000)
    deviation = math.sqrt(interval.value * (1 - interval.value) / 400)
    assert interval.high - interval.value == pytest.approx(1.96 * deviation, rel=0.1)
    assert interval.value - interval.low == pytest.approx(1.96 * deviation, rel=0.1)


@pytest.mark.parametrize("metric", [f1, average_precision])
def test_a_model_does_not_differ_from_itself(metric):
    ranking = made_ranking(1)
    interval = difference_interval(metric, ranking, ranking, np.random.default_rng(0), 50)
    assert interval.low == interval.value == interval.high == 0


def test_a_pair_is_compared_on_the_same_resamples():
    good, bad = made_ranking(4, skill=0.9), made_ranking(4, skill=0.5)
    paired = difference_interval(recall, good, bad, np.random.default_rng(0), 300)
    alone = [confidence_interval(recall, each, np.random.default_rng(0), 300) for each in (good, bad)]
    assert paired.value == recall(good) - recall(bad)
    assert paired.low > 0
    assert paired.high - paired.low < sum(each.high - each.low for each in alone)


def test_models_on_different_ground_truth_cannot_be_compared():
    with pytest.raises(ValueError, match="same recordings with the same ground truth"):
        difference_interval(f1, made_ranking(0), made_ranking(1), np.random.default_rng(0))
