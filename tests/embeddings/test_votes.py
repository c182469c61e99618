"""A name is the vote of the nearest, and is given as often as it may be wrong."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.embeddings.votes import calibrate, vote
from mast.errors import ConfigError
from tests.evaluation.test_retrieval import named


def test_of_no_sounds_there_are_no_votes():
    assert vote(np.zeros((0, 3), np.float32), np.array([0, 1, 1]), 2).name.tolist() == []


def test_cosines_are_summed_up_name_by_name():
    near = np.array([[0.9, 0.5, 0.45, -0.8], [-0.1, -0.2, -0.3, -0.4]], np.float32)
    votes = vote(near, np.array([0, 1, 1, 0]), 2, neighbours=3)
    assert votes.name.tolist() == [1, 0] and votes.nearest.tolist() == [0, 0]
    assert votes.confidence == pytest.approx([0.95 / 3, 0.0]) and votes.similarity == pytest.approx(
        [0.9, -0.1]
    )


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), examples=st.integers(1, 9), neighbours=st.integers(1, 6))
def test_votes_are_those_of_counting_one_by_one(seed, examples, neighbours):
    rng = np.random.default_rng(seed)
    near = rng.uniform(-1, 1, (4, examples)).astype(np.float32)
    number = rng.integers(0, 3, examples)
    votes = vote(near, number, 3, neighbours)
    for row, own in enumerate(near):
        sums = [0.0, 0.0, 0.0]
        for place in sorted(range(examples), key=lambda place: -own[place])[:neighbours]:
            sums[number[place]] += max(0.0, float(own[place]))
        assert votes.confidence[row] == pytest.approx(max(sums) / neighbours, abs=1e-6)
        assert sums[votes.name[row]] == pytest.approx(max(sums), abs=1e-6)


def spread(count, seed, labels="abc"):
    """Examples about as near to their own kind as to others, of many recordings."""
    rng = np.random.default_rng(seed)
    names = rng.choice(list(labels), count)
    vectors = (
        rng.normal(size=(count, 4))
        + 1.5
        * np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])[[list(labels).index(name) for name in names]]
    )
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return named(unit, names, rng.integers(0, 12, count).astype(str))


@pytest.mark.parametrize("max_wrong", [0.05, 0.2, 0.5])
def test_no_more_names_are_wrong_than_may_be_and_no_fewer_are_given(max_wrong):
    known = spread(150, 0)
    rule = calibrate(known, max_wrong=max_wrong)
    assert 0 < rule.named <= 1 and rule.wrong <= max_wrong
    looser = calibrate(known, max_wrong=max_wrong + 0.2)
    assert looser.threshold <= rule.threshold and looser.named >= rule.named
    assert f"{rule.threshold:.3f}" in rule.summary() and rule.labels == ("a", "b", "c")


def test_a_name_that_no_other_recording_has_counts_as_wrong():
    vectors = [[1, 0], [1, 0], [0, 1], [0.1, 1]]
    rule = calibrate(named(vectors, "aabb", "1122"), neighbours=1)
    assert rule.named == 0 and np.isinf(rule.threshold) and "No name can be given" in rule.summary()


def test_what_cannot_be_told_is_refused():
    with pytest.raises(ConfigError, match="at least two recordings"):
        calibrate(named([[1, 0], [0, 1]], "ab", "11"))
    with pytest.raises(ConfigError, match="between 0 and 1"):
        calibrate(spread(5, 1), max_wrong=1.0)
    with pytest.raises(ConfigError, match="1 or more"):
        calibrate(spread(5, 1), neighbours=0)
