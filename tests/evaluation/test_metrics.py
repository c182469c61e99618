"""Metrics against values worked out by hand, plain loops, and two COCO evaluators."""

import contextlib
import io
import math

import faster_coco_eval
import numpy as np
import pycocotools.coco
import pycocotools.cocoeval
import pytest
from benchmarks.evaluate import coco_average_precision, coco_dataset, random_boxes
from hypothesis import given, settings

from mast.evaluation.matching import match
from mast.evaluation.metrics import (
    METRICS,
    RankedPredictions,
    average_precision,
    average_precision_coco,
    average_precision_voc,
    f1,
    macro_f1,
    macro_mean_iou,
    macro_precision,
    macro_recall,
    max_f1_threshold,
    mean_iou,
    precision,
    precision_recall_curve,
    recall,
    robust_f1_threshold,
)
from tests.evaluation.builders import GROUPS, boxes, in_group_order, ranking_of

COCO = {
    "pycocotools": (pycocotools.coco.COCO, pycocotools.cocoeval.COCOeval),
    "faster-coco-eval": (faster_coco_eval.COCO, faster_coco_eval.COCOeval_faster),
}


def ranked(hits, ground_truth, scores=None):
    """Rank one unit's hits (1) and misses (0), by falling score."""
    falling = np.linspace(1, 0, len(hits) + 1)[:-1] if scores is None else np.array(scores)
    none = np.zeros(len(hits), dtype=np.int64)
    return RankedPredictions.of(
        falling, 0.8 * np.array(hits, dtype=float), none, np.zeros(ground_truth, dtype=np.int64), 1
    )


EXAMPLE = RankedPredictions.of(
    score=np.array([0.2, 0.9, 0.8, 0.5, 0.7]),
    overlap=np.array([0.5, 1.0, 0.6, 0.0, 0.0]),
    unit=np.array([1, 0, 0, 0, 2]),
    ground_truth_unit=np.array([0, 0, 0, 0, 1, 3]),
    units=5,
)
"""Unit 0: two of three predictions match two of four boxes; 1: all match; 2: one false positive; 3: a miss; 4: empty."""


def test_without_boxes_all_metrics_are_undefined():
    nothing = ranked([], ground_truth=0)
    assert all(math.isnan(metric(nothing, None)) for metric in METRICS.values())
    assert max_f1_threshold(nothing) == math.inf
    assert len(precision_recall_curve(nothing).score) == 0


def test_without_predictions_or_ground_truth_defined_metrics_are_zero():
    missed, false_positives = ranked([], ground_truth=2), ranked([0, 0], ground_truth=0)
    assert (
        math.isnan(precision(missed)) and recall(missed) == f1(missed) == average_precision_coco(missed) == 0
    )
    assert average_precision_voc(missed) == average_precision(missed) == 0
    assert math.isnan(recall(false_positives)) and precision(false_positives) == f1(false_positives) == 0
    assert math.isnan(average_precision(false_positives)) and math.isnan(mean_iou(false_positives))
    assert max_f1_threshold(false_positives) == math.inf
    assert np.isnan(precision_recall_curve(false_positives).recall).all()


def test_counts_over_all_units_give_the_micro_metrics():
    assert precision(EXAMPLE) == 3 / 5
    assert recall(EXAMPLE) == 3 / 6
    assert f1(EXAMPLE) == 6 / 11
    assert mean_iou(EXAMPLE) == pytest.approx((1 + 0.6 + 0.5) / 3)


def test_macro_metrics_are_means_over_units_with_a_box_and_0_for_0_by_0():
    assert macro_precision(EXAMPLE) == pytest.approx((2 / 3 + 1 + 0 + 0) / 4)
    assert macro_recall(EXAMPLE) == pytest.approx((2 / 4 + 1 + 0 + 0) / 4)
    assert macro_f1(EXAMPLE) == pytest.approx((4 / 7 + 1 + 0 + 0) / 4)
    assert macro_mean_iou(EXAMPLE) == pytest.approx((0.8 + 0.5 + 0 + 0) / 4)


def test_a_threshold_keeps_predictions_of_exactly_that_score_and_all_ground_truth():
    kept = EXAMPLE.with_min_score(0.8)
    assert kept.score.tolist() == [0.9, 0.8]
    assert (precision(kept), recall(kept)) == (1, 2 / 6)
    assert len(EXAMPLE.with_min_score(0).score) == 5
    assert len(EXAMPLE.with_min_score(math.inf).score) == 0


def test_average_precision_reads_the_best_precision_at_or_beyond_each_recall():
    ranking = ranked([1, 0, 0, 1], ground_truth=4)  # precision 1 at recall 0.25, 0.5 at recall 0.5
    assert average_precision(ranking) == 0.25 * 1 + 0.25 * 0.5
    assert average_precision_voc(ranking) == pytest.approx((3 * 1 + 3 * 0.5) / 11)
    assert average_precision_coco(ranking) == pytest.approx((26 * 1 + 25 * 0.5) / 101)


def test_one_high_scored_hit_among_many_boxes_is_worth_an_eleventh():
    assert average_precision_voc(ranked([1, 0, 0], ground_truth=11)) == 1 / 11
    assert average_precision_voc(ranked([1], ground_truth=10)) == 2 / 11


@pytest.mark.parametrize("tenths", range(11))
def test_a_recall_of_exactly_a_tenth_counts_despite_rounding(tenths):
    assert average_precision_voc(ranked([1] * (3 * tenths), ground_truth=30)) == pytest.approx(
        (tenths + 1 if tenths else 0) / 11
    )


def test_the_curve_takes_equal_scores_together():
    curve = precision_recall_curve(ranked([1, 0, 1, 1], ground_truth=4, scores=[0.9, 0.5, 0.5, 0.1]))
    assert curve.score.tolist() == [0.9, 0.5, 0.1]
    assert curve.precision.tolist() == [1, 2 / 3, 3 / 4]
    assert curve.recall.tolist() == [1 / 4, 2 / 4, 3 / 4]


def test_the_maximum_f1_threshold_is_the_highest_of_equally_good_ones():
    assert max_f1_threshold(ranked([1, 0, 1], ground_truth=2, scores=[0.9, 0.6, 0.3])) == 0.3
    assert (
        max_f1_threshold(ranked([1, 0, 0, 1], ground_truth=2, scores=[0.9, 0.6, 0.5, 0.3])) == 0.9
    )  # both 2 / 3
    assert max_f1_threshold(ranked([1, 1], ground_truth=2, scores=[0.5, 0.5])) == 0.5


@given(boxes(scored=True), boxes(scored=False))
def test_no_threshold_has_a_higher_f1_than_the_maximum_f1_threshold(predictions, ground_truth):
    ranking = ranking_of(predictions, ground_truth, match(predictions, ground_truth))
    reached = np.nan_to_num(
        f1(ranking.with_min_score(max_f1_threshold(ranking)))
    )  # NaN without predictions and ground truth
    others = [f1(ranking.with_min_score(score)) for score in predictions.score]
    assert all(other <= reached for other in others)


def test_the_robust_threshold_is_the_mean_of_all_that_are_nearly_best():
    sure = ranked([1, 1, 0, 0], ground_truth=2, scores=[0.9, 0.8, 0.4, 0.2])
    assert robust_f1_threshold(sure) == pytest.approx(
        0.6
    )  # any threshold from 0.4 to 0.8 gives both hits and nothing else
    lucky = ranked([1, 1, 1, 1, 0, 1, 0], ground_truth=5, scores=[0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.1])
    assert max_f1_threshold(lucky) == 0.4
    good = [
        (0.6 + 0.5) / 2,
        (0.4 + 0.1) / 2,
    ]  # F1 of 8 / 9 and 10 / 11; at 0.5 and at 0.7 it is less than 0.9 of that
    assert robust_f1_threshold(lucky) == pytest.approx((0.1 * good[0] + 0.3 * good[1]) / 0.4)


def test_a_single_score_is_the_robust_threshold_and_without_a_hit_it_is_infinite():
    assert robust_f1_threshold(ranked([1, 1], ground_truth=2, scores=[0.5, 0.5])) == 0.5
    assert robust_f1_threshold(ranked([0, 0], ground_truth=2, scores=[0.5, 0.4])) == math.inf
    assert robust_f1_threshold(ranked([], ground_truth=2)) == math.inf


@given(boxes(scored=True), boxes(scored=False))
def test_the_robust_threshold_is_the_mean_of_good_ones_on_a_fine_grid(predictions, ground_truth):
    ranking = ranking_of(predictions, ground_truth, match(predictions, ground_truth))
    best = max_f1_threshold(ranking)
    if math.isinf(best) or ranking.score[0] - ranking.score[-1] < 0.01:
        return
    grid = np.linspace(ranking.score[-1], ranking.score[0], 4001)
    reached = np.array([f1(ranking.with_min_score(score)) for score in grid])
    good = grid[reached >= 0.9 * f1(ranking.with_min_score(best))]
    if len(good) > 400:
        assert robust_f1_threshold(ranking) == pytest.approx(good.mean(), abs=0.002)


@given(boxes(scored=True), boxes(scored=False))
def test_average_precision_equals_its_definition(predictions, ground_truth):
    ranking = ranking_of(predictions, ground_truth, match(predictions, ground_truth))
    count, hits, points = len(ground_truth), 0, []
    for rank, is_hit in enumerate(ranking.is_hit.tolist(), start=1):
        hits += is_hit
        points.append((hits, hits / rank))
    if not count:
        assert math.isnan(average_precision(ranking))
        return
    best = [max((p for at, p in points if at >= needed), default=0) for needed in range(1, count + 1)]
    tenths = [max((p for at, p in points if 10 * at >= tenth * count), default=0) for tenth in range(11)]
    assert average_precision(ranking) == pytest.approx(sum(best) / count)
    assert average_precision_voc(ranking) == pytest.approx(sum(tenths) / 11)


def coco_ap(name, predictions, ground_truth, chunks):
    api, evaluator = COCO[name]
    with contextlib.redirect_stdout(io.StringIO()):
        return coco_average_precision(evaluator, *coco_dataset(api, predictions, ground_truth, chunks))


@pytest.mark.parametrize("name", COCO)
@given(boxes(scored=True), boxes(scored=False))
def test_average_precision_equals_that_of_coco_evaluators_with_ties_and_empty_chunks(
    name, predictions, ground_truth
):
    predictions, ground_truth = in_group_order(predictions), in_group_order(ground_truth)
    ours = average_precision_coco(ranking_of(predictions, ground_truth, match(predictions, ground_truth)))
    theirs = coco_ap(name, predictions, ground_truth, GROUPS)
    assert abs(ours - theirs) < 1e-6 or (math.isnan(ours) and theirs == -1)


@pytest.mark.parametrize("name", COCO)
@pytest.mark.parametrize("seed", range(3))
def test_average_precision_of_crowded_chunks_equals_that_of_coco_evaluators(name, seed):
    predictions, ground_truth = random_boxes(200, seed)
    matches = match(predictions, ground_truth)
    ranking = RankedPredictions.of(
        predictions.score, matches.overlap, predictions.group, ground_truth.group, 200
    )
    assert 0.2 < average_precision_coco(ranking) < 0.9
    assert abs(average_precision_coco(ranking) - coco_ap(name, predictions, ground_truth, 200)) < 1e-6


@settings(max_examples=30)
@given(boxes(scored=True), boxes(scored=False))
def test_the_order_of_groups_does_not_matter(predictions, ground_truth):
    sorted_predictions, sorted_ground_truth = in_group_order(predictions), in_group_order(ground_truth)
    ranking = ranking_of(predictions, ground_truth, match(predictions, ground_truth))
    same = ranking_of(sorted_predictions, sorted_ground_truth, match(sorted_predictions, sorted_ground_truth))
    for metric in METRICS.values():
        assert metric(ranking, None) == pytest.approx(metric(same, None), nan_ok=True)


def test_arrays_that_do_not_belong_together_cannot_be_ranked():
    one, two, none = np.zeros(1), np.zeros(2), np.empty(0, dtype=np.int64)
    with pytest.raises(ValueError, match="1 scores, 2 overlaps, 0 units"):
        RankedPredictions.of(one, two, none, none, 1)
    with pytest.raises(ValueError, match="units must be from 0 to 2, not 3 to 3"):
        RankedPredictions.of(one, one, np.array([3]), none, 3)
    with pytest.raises(ValueError, match="units must be from 0 to 2, not -1 to 1"):
        RankedPredictions.of(one, one, np.array([0]), np.array([-1, 1]), 3)
