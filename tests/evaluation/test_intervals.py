"""Bootstrap intervals against recordings copied in earnest, and against what chance must give."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.evaluation.intervals import Interval, confidence_interval, difference_interval
from mast.evaluation.metrics import METRICS, Ranking, ap_area, f1, precision, recall


def made_ranking(seed, units=12, predictions=60, truths=30, skill=0.6):
    """Predictions of random recordings, all of different scores; with more skill more of them are hits."""
    rng = np.random.default_rng(seed)
    truth_unit = np.sort(rng.integers(0, units, truths))
    unit = np.concatenate([truth_unit, rng.integers(0, units, predictions - truths)])
    is_hit = np.append(rng.random(truths) < skill, np.zeros(predictions - truths, dtype=bool))
    overlap = np.where(is_hit, rng.uniform(0.5, 1, predictions), 0)
    return Ranking.of(rng.permutation(predictions) / predictions, overlap, unit, truth_unit, units)


def copied(ranking, times):
    """The ranking of a collection that holds each recording so many times."""
    unit, truth_unit = ranking.unit, np.repeat(np.arange(len(times)), ranking.truths)
    often = times[unit]
    first_copy = np.cumsum(times) - times

    def numbered(of):
        return np.concatenate([first_copy[one] + np.arange(times[one]) for one in of]).astype(np.int64)

    score, overlap = np.repeat(ranking.score, often), np.repeat(ranking.overlap, often)
    return Ranking.of(score, overlap, numbered(unit), numbered(truth_unit), int(times.sum()))


@pytest.mark.parametrize("name", METRICS)
def test_without_recordings_there_is_no_interval(name):
    none = np.empty(0, dtype=np.int64)
    empty = Ranking.of(np.empty(0), np.empty(0), none, none, 0)
    interval = confidence_interval(METRICS[name], empty, np.random.default_rng(0))
    assert math.isnan(interval.value) and math.isnan(interval.low) and math.isnan(interval.high)


def test_without_truths_recall_has_no_interval_and_precision_has():
    none = np.empty(0, dtype=np.int64)
    invented = Ranking.of(np.array([0.5]), np.zeros(1), np.array([0]), none, 2)
    assert math.isnan(confidence_interval(recall, invented, np.random.default_rng(0)).high)
    assert confidence_interval(precision, invented, np.random.default_rng(0)).high == 0


def test_a_single_recording_has_figures_but_no_interval():
    one, other = made_ranking(0, units=1), made_ranking(0, units=1, skill=0.1)
    alone = confidence_interval(recall, one, np.random.default_rng(0), 50)
    assert 0 < alone.value < 1 and math.isnan(alone.low) and math.isnan(alone.high)
    assert alone.told() == f"{alone.value:.3f}" and not alone.is_bounded
    difference = difference_interval(recall, one, other, np.random.default_rng(0), 50)
    assert difference.value > 0 and math.isnan(difference.low) and math.isnan(difference.high)


def test_a_figure_is_told_with_its_bounds_if_it_has_any():
    assert Interval(0.5, 0.25, 0.75, 0.95).told() == "0.500 (0.250–0.750)"
    assert Interval(12.0, 8.0, 20.0, 0.95).told(1) == "12.0 (8.0–20.0)"
    assert Interval(math.nan, math.nan, math.nan, 0.95).told() == "cannot be told"


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_a_weight_counts_a_recording_as_if_it_were_there_so_often(seed, draw):
    ranking = made_ranking(seed)
    times = np.random.default_rng(draw).multinomial(12, np.ones(12) / 12)
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


def test_equal_recordings_leave_no_doubt():
    each = np.arange(8)
    equal = Ranking.of(np.linspace(1, 0.5, 8), np.full(8, 0.7), each, np.repeat(each, 2), 8)
    interval = confidence_interval(recall, equal, np.random.default_rng(0), 50)
    assert interval.low == interval.value == interval.high == 0.5


def test_the_interval_of_a_share_is_as_wide_as_the_binomial_says():
    rng = np.random.default_rng(3)
    each = np.arange(400)
    ranking = Ranking.of(rng.random(400), np.where(rng.random(400) < 0.3, 0.8, 0), each, each, 400)
    interval = confidence_interval(recall, ranking, rng, 2000)
    deviation = math.sqrt(interval.value * (1 - interval.value) / 400)
    assert interval.high - interval.value == pytest.approx(1.96 * deviation, rel=0.1)
    assert interval.value - interval.low == pytest.approx(1.96 * deviation, rel=0.1)


@pytest.mark.parametrize("metric", [f1, ap_area])
def test_a_model_does_not_differ_from_itself(metric):
    ranking = made_ranking(1)
    interval = difference_interval(metric, ranking, ranking, np.random.default_rng(0), 50)
    assert interval.low == interval.value == interval.high == 0


def test_a_pair_is_compared_on_the_same_draws():
    good, bad = made_ranking(4, skill=0.9), made_ranking(4, skill=0.5)
    paired = difference_interval(recall, good, bad, np.random.default_rng(0), 300)
    alone = [confidence_interval(recall, each, np.random.default_rng(0), 300) for each in (good, bad)]
    assert paired.value == recall(good) - recall(bad)
    assert paired.low > 0
    assert paired.high - paired.low < sum(each.high - each.low for each in alone)


def test_models_on_different_truths_cannot_be_compared():
    with pytest.raises(ValueError, match="same recordings with the same truths"):
        difference_interval(f1, made_ranking(0), made_ranking(1), np.random.default_rng(0))
