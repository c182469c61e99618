"""Matching against cases worked out by hand and a plain loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.evaluation import matching
from mast.evaluation.matching import OVERLAPS, Boxes, match
from tests.evaluation.made import boxes, naive_match, naive_overlap

NONE = np.empty(0, dtype=np.int64), np.empty((0, 4))


def of(*rows, score=None, group=None):
    """Boxes of one group unless told."""
    numbers = np.zeros(len(rows), dtype=np.int64) if group is None else np.array(group)
    return Boxes(
        numbers, np.array(rows, dtype=float), None if score is None else np.array(score, dtype=float)
    )


def test_no_predictions_or_no_truths_give_no_matches():
    one = [0, 0, 2, 2]
    assert len(match(Boxes(*NONE, np.empty(0)), of(one)).truth) == 0
    alone = match(of(one, score=[0.5]), Boxes(*NONE))
    assert (alone.truth.tolist(), alone.overlap.tolist()) == ([-1], [0])
    assert len(alone.is_found(0)) == 0


def test_the_higher_score_takes_the_truth_even_if_another_fits_better():
    loose, exact = [0, 0, 10, 8], [0, 0, 10, 10]
    matches = match(of(exact, loose, score=[0.3, 0.9]), of(exact))
    assert matches.truth.tolist() == [-1, 0]
    assert matches.overlap.tolist() == [0, 0.8]
    assert matches.is_found(1).tolist() == [True]


def test_a_prediction_whose_best_truth_is_taken_gets_the_next_best():
    truths = of([0, 0, 10, 10], [2, 0, 12, 10])
    matches = match(of([0, 0, 10, 10], [0, 0, 11, 10], score=[0.9, 0.8]), truths)
    assert matches.truth.tolist() == [0, 1]
    assert matches.overlap[1] == 9 / 12


def test_boxes_of_different_groups_never_meet():
    same = [0, 0, 10, 10]
    assert match(of(same, score=[1], group=[4]), of(same, same, group=[3, 5])).truth.tolist() == [-1]
    far = 2**62
    assert match(of(same, score=[1], group=[far]), of(same, same, group=[-far, far])).truth.tolist() == [1]


def test_an_overlap_of_just_the_least_is_enough():
    whole, half = [0, 0, 10, 10], [0, 0, 10, 5]
    assert match(of(half, score=[1]), of(whole), min_overlap=0.5).truth.tolist() == [0]
    assert match(of(half, score=[1]), of(whole), min_overlap=0.51).truth.tolist() == [-1]
    assert match(of(whole, score=[1]), of(whole), min_overlap=1).truth.tolist() == [0]


def test_a_tight_box_in_a_loose_one_agrees_by_iomin_and_one_at_another_pitch_by_time():
    tight, loose, higher = of([2, 2, 3, 3], score=[1]), of([0, 0, 10, 10]), of([0, 20, 10, 30], score=[1])
    assert match(tight, loose).truth.tolist() == [-1]
    assert match(tight, loose, "iomin").truth.tolist() == [0]
    assert match(higher, loose, "iomin").truth.tolist() == [-1]
    assert match(higher, loose, "time").truth.tolist() == [0]


def test_of_equal_scores_the_earlier_row_comes_first_however_many_there_are():
    same = [0, 0, 10, 10]
    score = np.random.default_rng(0).integers(0, 3, 1000)
    matches = match(of(*[same] * 1000, score=score), of(same, same))
    first, second = np.flatnonzero(score == 2)[:2]
    assert np.flatnonzero(matches.is_hit).tolist() == [first, second]
    assert matches.truth[[first, second]].tolist() == [1, 0]  # and of equal overlaps the later truth


def test_a_short_box_is_found_beside_others_that_are_far_away():
    click, far = [0, 0, 1e-8, 10], [1e9, 0, 1e9 + 1, 10]
    matches = match(of(far, click, score=[1, 1], group=[0, 1]), of(far, click, group=[0, 1]))
    assert matches.truth.tolist() == [0, 1]


@pytest.mark.parametrize("count", [1, 2, 300])
def test_a_long_chain_of_rivals_is_resolved_from_its_far_end(count):
    truths = of(*[[10 * row, 0, 10 * row + 12, 10] for row in range(count)])
    moved = of(*[[10 * row - 3, 0, 10 * row + 9, 10] for row in range(count)], score=np.arange(count))
    assert match(moved, truths, min_overlap=0.2).truth.tolist() == naive_match(moved, truths, "iou", 0.2)


@given(
    boxes(scored=True), boxes(scored=False), st.sampled_from(list(OVERLAPS)), st.sampled_from([0.1, 0.5, 1])
)
def test_matches_equal_the_plain_loop_and_count_each_box_once(predictions, truths, kind, min_overlap):
    matches = match(predictions, truths, kind, min_overlap)
    assert matches.truth.tolist() == naive_match(predictions, truths, kind, min_overlap)
    hits = int(matches.is_hit.sum())
    assert (
        hits == int(matches.is_found(len(truths)).sum()) == len(set(matches.truth[matches.is_hit].tolist()))
    )
    for row, truth in enumerate(matches.truth):
        expected = naive_overlap(kind, predictions.bounds[row], truths.bounds[truth]) if truth >= 0 else 0
        assert matches.overlap[row] == expected


@given(boxes(scored=True), boxes(scored=False), st.integers(1, 5))
def test_pairs_looked_at_in_small_blocks_give_the_same_matches(predictions, truths, block):
    whole = match(predictions, truths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "PAIRS_AT_ONCE", block)
        assert match(predictions, truths).truth.tolist() == whole.truth.tolist()


@given(boxes(scored=True), boxes(scored=False), st.sampled_from([0.25, 0.5, 1.0]))
def test_leaving_out_low_scores_changes_nothing_for_the_others(predictions, truths, min_score):
    kept = predictions.score >= min_score
    few = Boxes(predictions.group[kept], predictions.bounds[kept], predictions.score[kept])
    assert match(few, truths).truth.tolist() == match(predictions, truths).truth[kept].tolist()


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-6, 1.0, 86_400.0]))
def test_boxes_anywhere_on_the_clock_are_matched_as_the_plain_loop_does(seed, scale):
    rng = np.random.default_rng(seed)
    group, start = rng.integers(0, 10**12, 5)[rng.integers(0, 5, 60)], rng.random((60, 2)) * 3
    bounds = np.hstack([start, start + rng.random((60, 2))]) * scale + 1e6 * scale
    predictions, truths = Boxes(group[:40], bounds[:40], rng.random(40)), Boxes(group[40:], bounds[40:])
    assert match(predictions, truths, min_overlap=0.1).truth.tolist() == naive_match(
        predictions, truths, "iou", 0.1
    )


def test_arrays_that_do_not_belong_together_are_refused():
    with pytest.raises(ValueError, match="need \\(N,\\) and \\(N, 4\\)"):
        of([0, 0, 1, 1], group=[0, 1])
    with pytest.raises(ValueError, match="start ≤ end"):
        of([1, 0, 0, 1])
    with pytest.raises(ValueError, match="finite"):
        of([0, 0, np.nan, 1])
    with pytest.raises(ValueError, match="one finite score for each of 1 boxes"):
        of([0, 0, 1, 1], score=[0.5, 0.5])
    with pytest.raises(ValueError, match="need scores"):
        match(of([0, 0, 1, 1]), of([0, 0, 1, 1]))
    with pytest.raises(ValueError, match="least overlap of 0 "):
        match(of([0, 0, 1, 1], score=[1]), of([0, 0, 1, 1]), min_overlap=0)
