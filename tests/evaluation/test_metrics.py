"""Metrics against figures worked out by hand, plain loops, and two evaluators of COCO."""

import contextlib
import io
import math

import faster_coco_eval
import numpy as np
import pycocotools.coco
import pycocotools.cocoeval
import pytest
from benchmarks.evaluate import coco_average_precision, coco_dataset, made_boxes
from hypothesis import given, settings

from mast.evaluation.matching import match
from mast.evaluation.metrics import (
    METRICS,
    Ranking,
    ap_11_points,
    ap_101_points,
    ap_area,
    best_threshold,
    f1,
    macro_f1,
    macro_mean_iou,
    macro_precision,
    macro_recall,
    mean_iou,
    precision,
    precision_recall_curve,
    recall,
    steady_threshold,
)
from tests.evaluation.made import GROUPS, boxes, in_group_order, ranking_of

COCO = {
    "pycocotools": (pycocotools.coco.COCO, pycocotools.cocoeval.COCOeval),
    "faster-coco-eval": (faster_coco_eval.COCO, faster_coco_eval.COCOeval_faster),
}


def ranked(hits, truths, scores=None):
    """A ranking of one unit from its hits (1) and misses (0), by falling score."""
    falling = np.linspace(1, 0, len(hits) + 1)[:-1] if scores is None else np.array(scores)
    none = np.zeros(len(hits), dtype=np.int64)
    return Ranking.of(falling, 0.8 * np.array(hits, dtype=float), none, np.zeros(truths, dtype=np.int64), 1)


EXAMPLE = Ranking.of(
    score=np.array([0.2, 0.9, 0.8, 0.5, 0.7]),
    overlap=np.array([0.5, 1.0, 0.6, 0.0, 0.0]),
    unit=np.array([1, 0, 0, 0, 2]),
    truth_unit=np.array([0, 0, 0, 0, 1, 3]),
    units=5,
)
"""Unit 0: two of three predictions found two of four truths; 1: all found; 2: only a miss; 3: not found; 4: nothing."""


def test_without_boxes_nothing_can_be_said():
    nothing = ranked([], truths=0)
    assert all(math.isnan(metric(nothing, None)) for metric in METRICS.values())
    assert best_threshold(nothing) == math.inf
    assert len(precision_recall_curve(nothing).score) == 0


def test_without_predictions_or_truths_only_what_can_be_said_is_zero():
    unfound, invented = ranked([], truths=2), ranked([0, 0], truths=0)
    assert math.isnan(precision(unfound)) and recall(unfound) == f1(unfound) == ap_101_points(unfound) == 0
    assert ap_11_points(unfound) == ap_area(unfound) == 0
    assert math.isnan(recall(invented)) and precision(invented) == f1(invented) == 0
    assert math.isnan(ap_area(invented)) and math.isnan(mean_iou(invented))
    assert best_threshold(invented) == math.inf
    assert np.isnan(precision_recall_curve(invented).recall).all()


def test_counts_over_all_units_give_the_micro_figures():
    assert precision(EXAMPLE) == 3 / 5
    assert recall(EXAMPLE) == 3 / 6
    assert f1(EXAMPLE) == 6 / 11
    assert mean_iou(EXAMPLE) == pytest.approx((1 + 0.6 + 0.5) / 3)


def test_macro_figures_are_means_over_units_that_hold_a_box_with_zeros_for_what_they_lack():
    assert macro_precision(EXAMPLE) == pytest.approx((2 / 3 + 1 + 0 + 0) / 4)
    assert macro_recall(EXAMPLE) == pytest.approx((2 / 4 + 1 + 0 + 0) / 4)
    assert macro_f1(EXAMPLE) == pytest.approx((4 / 7 + 1 + 0 + 0) / 4)
    assert macro_mean_iou(EXAMPLE) == pytest.approx((0.8 + 0.5 + 0 + 0) / 4)


def test_a_threshold_keeps_predictions_of_just_that_score_and_all_truths():
    kept = EXAMPLE.above(0.8)
    assert kept.score.tolist() == [0.9, 0.8]
    assert (precision(kept), recall(kept)) == (1, 2 / 6)
    assert len(EXAMPLE.above(0).score) == 5
    assert len(EXAMPLE.above(math.inf).score) == 0


def test_average_precision_reads_the_best_precision_at_or_beyond_each_recall():
    ranking = ranked([1, 0, 0, 1], truths=4)  # precision 1 at recall 0.25, 0.5 at recall 0.5
    assert ap_area(ranking) == 0.25 * 1 + 0.25 * 0.5
    assert ap_11_points(ranking) == pytest.approx((3 * 1 + 3 * 0.5) / 11)
    assert ap_101_points(ranking) == pytest.approx((26 * 1 + 25 * 0.5) / 101)


def test_one_sure_hit_among_many_truths_is_worth_an_eleventh():
    assert ap_11_points(ranked([1, 0, 0], truths=11)) == 1 / 11
    assert ap_11_points(ranked([1], truths=10)) == 2 / 11


@pytest.mark.parametrize("tenths", range(11))
def test_a_recall_of_just_a_tenth_counts_whatever_the_rounding(tenths):
    assert ap_11_points(ranked([1] * (3 * tenths), truths=30)) == pytest.approx(
        (tenths + 1 if tenths else 0) / 11
    )


def test_the_curve_takes_equal_scores_together():
    curve = precision_recall_curve(ranked([1, 0, 1, 1], truths=4, scores=[0.9, 0.5, 0.5, 0.1]))
    assert curve.score.tolist() == [0.9, 0.5, 0.1]
    assert curve.precision.tolist() == [1, 2 / 3, 3 / 4]
    assert curve.recall.tolist() == [1 / 4, 2 / 4, 3 / 4]


def test_the_best_threshold_is_the_highest_of_equally_good_ones():
    assert best_threshold(ranked([1, 0, 1], truths=2, scores=[0.9, 0.6, 0.3])) == 0.3
    assert best_threshold(ranked([1, 0, 0, 1], truths=2, scores=[0.9, 0.6, 0.5, 0.3])) == 0.9  # both 2 / 3
    assert best_threshold(ranked([1, 1], truths=2, scores=[0.5, 0.5])) == 0.5


@given(boxes(scored=True), boxes(scored=False))
def test_no_threshold_beats_the_best_one(predictions, truths):
    ranking = ranking_of(predictions, truths, match(predictions, truths))
    reached = np.nan_to_num(
        f1(ranking.above(best_threshold(ranking)))
    )  # of nothing where nothing can be found
    others = [f1(ranking.above(score)) for score in predictions.score]
    assert all(other <= reached for other in others)


def test_the_steady_threshold_is_amid_all_that_are_nearly_best():
    sure = ranked([1, 1, 0, 0], truths=2, scores=[0.9, 0.8, 0.4, 0.2])
    assert steady_threshold(sure) == pytest.approx(0.6)  # anything from 0.4 up to 0.8 finds both and no more
    lucky = ranked([1, 1, 1, 1, 0, 1, 0], truths=5, scores=[0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.1])
    assert best_threshold(lucky) == 0.4
    good = [
        (0.6 + 0.5) / 2,
        (0.4 + 0.1) / 2,
    ]  # F1 of 8 / 9 and 10 / 11; at 0.5 and at 0.7 it is less than 0.9 of that
    assert steady_threshold(lucky) == pytest.approx((0.1 * good[0] + 0.3 * good[1]) / 0.4)


def test_where_a_single_score_is_there_it_is_the_steady_one_and_none_where_nothing_is_found():
    assert steady_threshold(ranked([1, 1], truths=2, scores=[0.5, 0.5])) == 0.5
    assert steady_threshold(ranked([0, 0], truths=2, scores=[0.5, 0.4])) == math.inf
    assert steady_threshold(ranked([], truths=2)) == math.inf


@given(boxes(scored=True), boxes(scored=False))
def test_the_steady_threshold_is_the_mean_of_good_ones_on_a_fine_grid(predictions, truths):
    ranking = ranking_of(predictions, truths, match(predictions, truths))
    best = best_threshold(ranking)
    if math.isinf(best) or ranking.score[0] - ranking.score[-1] < 0.01:
        return
    grid = np.linspace(ranking.score[-1], ranking.score[0], 4001)
    reached = np.array([f1(ranking.above(score)) for score in grid])
    good = grid[reached >= 0.9 * f1(ranking.above(best))]
    if len(good) > 400:
        assert steady_threshold(ranking) == pytest.approx(good.mean(), abs=0.002)


@given(boxes(scored=True), boxes(scored=False))
def test_average_precision_equals_its_definition(predictions, truths):
    ranking = ranking_of(predictions, truths, match(predictions, truths))
    count, hits, points = len(truths), 0, []
    for seen, is_hit in enumerate(ranking.is_hit.tolist(), start=1):
        hits += is_hit
        points.append((hits, hits / seen))
    if not count:
        assert math.isnan(ap_area(ranking))
        return
    best = [max((p for at, p in points if at >= needed), default=0) for needed in range(1, count + 1)]
    tenths = [max((p for at, p in points if 10 * at >= tenth * count), default=0) for tenth in range(11)]
    assert ap_area(ranking) == pytest.approx(sum(best) / count)
    assert ap_11_points(ranking) == pytest.approx(sum(tenths) / 11)


def coco_ap(name, predictions, truths, chunks):
    api, evaluator = COCO[name]
    with contextlib.redirect_stdout(io.StringIO()):
        return coco_average_precision(evaluator, *coco_dataset(api, predictions, truths, chunks))


@pytest.mark.parametrize("name", COCO)
@given(boxes(scored=True), boxes(scored=False))
def test_average_precision_equals_that_of_coco_evaluators_with_ties_and_empty_chunks(
    name, predictions, truths
):
    predictions, truths = in_group_order(predictions), in_group_order(truths)
    ours = ap_101_points(ranking_of(predictions, truths, match(predictions, truths)))
    theirs = coco_ap(name, predictions, truths, GROUPS)
    assert abs(ours - theirs) < 1e-6 or (math.isnan(ours) and theirs == -1)


@pytest.mark.parametrize("name", COCO)
@pytest.mark.parametrize("seed", range(3))
def test_average_precision_of_crowded_chunks_equals_that_of_coco_evaluators(name, seed):
    predictions, truths = made_boxes(200, seed)
    matches = match(predictions, truths)
    ranking = Ranking.of(predictions.score, matches.overlap, predictions.group, truths.group, 200)
    assert 0.2 < ap_101_points(ranking) < 0.9
    assert abs(ap_101_points(ranking) - coco_ap(name, predictions, truths, 200)) < 1e-6


@settings(max_examples=30)
@given(boxes(scored=True), boxes(scored=False))
def test_the_order_of_groups_does_not_matter(predictions, truths):
    sorted_predictions, sorted_truths = in_group_order(predictions), in_group_order(truths)
    ranking = ranking_of(predictions, truths, match(predictions, truths))
    same = ranking_of(sorted_predictions, sorted_truths, match(sorted_predictions, sorted_truths))
    for metric in METRICS.values():
        assert metric(ranking, None) == pytest.approx(metric(same, None), nan_ok=True)


def test_arrays_that_do_not_belong_together_cannot_be_ranked():
    one, two, none = np.zeros(1), np.zeros(2), np.empty(0, dtype=np.int64)
    with pytest.raises(ValueError, match="1 scores, 2 overlaps, 0 units"):
        Ranking.of(one, two, none, none, 1)
    with pytest.raises(ValueError, match="from 0 to 2, not 3 to 3"):
        Ranking.of(one, one, np.array([3]), none, 3)
    with pytest.raises(ValueError, match="from 0 to 2, not -1 to 1"):
        Ranking.of(one, one, np.array([0]), np.array([-1, 1]), 3)
