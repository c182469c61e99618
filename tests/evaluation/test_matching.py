"""Matching against cases worked out by hand and a plain loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.evaluation import matching
from mast.evaluation.matching import OVERLAPS, GroupedBoxes, match
from tests.evaluation.builders import boxes, naive_match, naive_overlap

NONE = np.empty(0, dtype=np.int64), np.empty((0, 4))


def of(*rows, score=None, group=None):
    """Build boxes of one group by default."""
    numbers = np.zeros(len(rows), dtype=np.int64) if group is None else np.array(group)
    return GroupedBoxes(
        numbers, np.array(rows, dtype=float), None if score is None else np.array(score, dtype=float)
    )


def test_no_predictions_or_no_ground_truth_give_no_matches():
    one = [0, 0, 2, 2]
    assert len(match(GroupedBoxes(*NONE, np.empty(0)), of(one)).ground_truth_row) == 0
    unmatched = match(of(one, score=[0.5]), GroupedBoxes(*NONE))
    assert (unmatched.ground_truth_row.tolist(), unmatched.overlap.tolist()) == ([-1], [0])
    assert len(unmatched.is_recalled(0)) == 0


def test_the_higher_score_matches_even_if_another_prediction_overlaps_more():
    loose, exact = [0, 0, 10, 8], [0, 0, 10, 10]
    matches = match(of(exact, loose, score=[0.3, 0.9]), of(exact))
    assert matches.ground_truth_row.tolist() == [-1, 0]
    assert matches.overlap.tolist() == [0, 0.8]
    assert matches.is_recalled(1).tolist() == [True]


def test_a_prediction_whose_best_ground_truth_is_taken_gets_the_next_best():
    ground_truth = of([0, 0, 10, 10], [2, 0, 12, 10])
    matches = match(of([0, 0, 10, 10], [0, 0, 11, 10], score=[0.9, 0.8]), ground_truth)
    assert matches.ground_truth_row.tolist() == [0, 1]
    assert matches.overlap[1] == 9 / 12


def test_boxes_of_different_groups_never_match():
    same = [0, 0, 10, 10]
    assert match(of(same, score=[1], group=[4]), of(same, same, group=[3, 5])).ground_truth_row.tolist() == [
        -1
    ]
    far = 2**62
    assert match(
        of(same, score=[1], group=[far]), of(same, same, group=[-far, far])
    ).ground_truth_row.tolist() == [1]


def test_an_overlap_of_exactly_the_minimum_is_enough():
    full, half = [0, 0, 10, 10], [0, 0, 10, 5]
    assert match(of(half, score=[1]), of(full), min_overlap=0.5).ground_truth_row.tolist() == [0]
    assert match(of(half, score=[1]), of(full), min_overlap=0.51).ground_truth_row.tolist() == [-1]
    assert match(of(full, score=[1]), of(full), min_overlap=1).ground_truth_row.tolist() == [0]


def test_a_box_inside_another_matches_by_iomin_and_one_at_another_frequency_by_time():
    tight, loose, higher = of([2, 2, 3, 3], score=[1]), of([0, 0, 10, 10]), of([0, 20, 10, 30], score=[1])
    assert match(tight, loose).ground_truth_row.tolist() == [-1]
    assert match(tight, loose, "iomin").ground_truth_row.tolist() == [0]
    assert match(higher, loose, "iomin").ground_truth_row.tolist() == [-1]
    assert match(higher, loose, "time").ground_truth_row.tolist() == [0]


def test_among_equal_scores_the_earlier_row_comes_first():
    same = [0, 0, 10, 10]
    score = np.random.default_rng(0).integers(0, 3, 1000)
    matches = match(of(*[same] * 1000, score=score), of(same, same))
    first, second = np.flatnonzero(score == 2)[:2]
    assert np.flatnonzero(matches.is_hit).tolist() == [first, second]
    assert matches.ground_truth_row[[first, second]].tolist() == [
        1,
        0,
    ]  # and of equal overlaps the later ground truth


def test_a_short_box_matches_beside_others_that_are_far_away():
    click, far = [0, 0, 1e-8, 10], [1e9, 0, 1e9 + 1, 10]
    matches = match(of(far, click, score=[1, 1], group=[0, 1]), of(far, click, group=[0, 1]))
    assert matches.ground_truth_row.tolist() == [0, 1]


@pytest.mark.parametrize("count", [1, 2, 300])
def test_a_long_chain_of_competing_predictions_is_resolved_from_its_far_end(count):
    ground_truth = of(*[[10 * row, 0, 10 * row + 12, 10] for row in range(count)])
    moved = of(*[[10 * row - 3, 0, 10 * row + 9, 10] for row in range(count)], score=np.arange(count))
    assert match(moved, ground_truth, min_overlap=0.2).ground_truth_row.tolist() == naive_match(
        moved, ground_truth, "iou", 0.2
    )


@given(
    boxes(scored=True), boxes(scored=False), st.sampled_from(list(OVERLAPS)), st.sampled_from([0.1, 0.5, 1])
)
def test_matches_equal_the_plain_loop_and_count_each_box_once(predictions, ground_truth, kind, min_overlap):
    matches = match(predictions, ground_truth, kind, min_overlap)
    assert matches.ground_truth_row.tolist() == naive_match(predictions, ground_truth, kind, min_overlap)
    hits = int(matches.is_hit.sum())
    assert (
        hits
        == int(matches.is_recalled(len(ground_truth)).sum())
        == len(set(matches.ground_truth_row[matches.is_hit].tolist()))
    )
    for row, ground_truth_row in enumerate(matches.ground_truth_row):
        expected = (
            naive_overlap(kind, predictions.bounds[row], ground_truth.bounds[ground_truth_row])
            if ground_truth_row >= 0
            else 0
        )
        assert matches.overlap[row] == expected


@given(boxes(scored=True), boxes(scored=False), st.integers(1, 5))
def test_pairs_processed_in_small_blocks_give_the_same_matches(predictions, ground_truth, block):
    at_once = match(predictions, ground_truth)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "PAIRS_AT_ONCE", block)
        assert match(predictions, ground_truth).ground_truth_row.tolist() == at_once.ground_truth_row.tolist()


@given(boxes(scored=True), boxes(scored=False), st.sampled_from([0.25, 0.5, 1.0]))
def test_removing_low_scores_does_not_change_the_other_matches(predictions, ground_truth, min_score):
    is_kept = predictions.score >= min_score
    remaining = GroupedBoxes(
        predictions.group[is_kept], predictions.bounds[is_kept], predictions.score[is_kept]
    )
    assert (
        match(remaining, ground_truth).ground_truth_row.tolist()
        == match(predictions, ground_truth).ground_truth_row[is_kept].tolist()
    )


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-6, 1.0, 86_400.0]))
def test_boxes_anywhere_on_the_clock_are_matched_as_the_plain_loop_does(seed, scale):
    rng = np.random.default_rng(seed)
    group, start = rng.integers(0, 10**12, 5)[rng.integers(0, 5, 60)], rng.random((60, 2)) * 3
    bounds = np.hstack([start, start + rng.random((60, 2))]) * scale + 1e6 * scale
    predictions, ground_truth = (
        GroupedBoxes(group[:40], bounds[:40], rng.random(40)),
        GroupedBoxes(group[40:], bounds[40:]),
    )
    assert match(predictions, ground_truth, min_overlap=0.1).ground_truth_row.tolist() == naive_match(
        predictions, ground_truth, "iou", 0.1
    )


def test_arrays_that_do_not_belong_together_are_refused():
    with pytest.raises(ValueError, match="must be \\(N,\\) and \\(N, 4\\)"):
        of([0, 0, 1, 1], group=[0, 1])
    with pytest.raises(ValueError, match="start ≤ end"):
        of([1, 0, 0, 1])
    with pytest.raises(ValueError, match="finite"):
        of([0, 0, np.nan, 1])
    with pytest.raises(ValueError, match="each of the 1 boxes needs one finite score"):
        of([0, 0, 1, 1], score=[0.5, 0.5])
    with pytest.raises(ValueError, match="must have scores"):
        match(of([0, 0, 1, 1]), of([0, 0, 1, 1]))
    with pytest.raises(ValueError, match="min_overlap is 0;"):
        match(of([0, 0, 1, 1], score=[1]), of([0, 0, 1, 1]), min_overlap=0)
