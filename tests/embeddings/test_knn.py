"""A label is the vote of the nearest references, and the threshold keeps the error rate below the maximum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.embeddings.knn import choose_threshold, knn_vote
from mast.errors import ConfigError
from tests.evaluation.test_retrieval_metrics import named


def test_no_events_give_no_votes():
    assert knn_vote(np.zeros((0, 3), np.float32), np.array([0, 1, 1]), 2).label.tolist() == []


def test_cosines_are_summed_by_label():
    similarity = np.array([[0.9, 0.5, 0.45, -0.8], [-0.1, -0.2, -0.3, -0.4]], np.float32)
    votes = knn_vote(similarity, np.array([0, 1, 1, 0]), 2, neighbours=3)
    assert votes.label.tolist() == [1, 0] and votes.nearest.tolist() == [0, 0]
    assert votes.confidence == pytest.approx([0.95 / 3, 0.0]) and votes.similarity == pytest.approx(
        [0.9, -0.1]
    )


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), references=st.integers(1, 9), neighbours=st.integers(1, 6))
def test_votes_equal_a_naive_count(seed, references, neighbours):
    rng = np.random.default_rng(seed)
    similarity = rng.uniform(-1, 1, (4, references)).astype(np.float32)
    label_index = rng.integers(0, 3, references)
    votes = knn_vote(similarity, label_index, 3, neighbours)
    for row, cosines in enumerate(similarity):
        sums = [0.0, 0.0, 0.0]
        for reference in sorted(range(references), key=lambda reference: -cosines[reference])[:neighbours]:
            sums[label_index[reference]] += max(0.0, float(cosines[reference]))
        assert votes.confidence[row] == pytest.approx(max(sums) / neighbours, abs=1e-6)
        assert sums[votes.label[row]] == pytest.approx(max(sums), abs=1e-6)


def spread(count, seed, labels="abc"):
    """Return references of many recordings, about as similar within a label as between labels."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice(list(labels), count)
    vectors = (
        rng.normal(size=(count, 4))
        + 1.5
        * np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])[
            [list(labels).index(label) for label in chosen]
        ]
    )
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return named(unit, chosen, rng.integers(0, 12, count).astype(str))


@pytest.mark.parametrize("max_error_rate", [0.05, 0.2, 0.5])
def test_the_error_rate_stays_below_the_maximum_and_a_larger_maximum_labels_more(max_error_rate):
    references = spread(150, 0)
    rule = choose_threshold(references, max_error_rate=max_error_rate)
    assert 0 < rule.labelled <= 1 and rule.error_rate <= max_error_rate
    looser = choose_threshold(references, max_error_rate=max_error_rate + 0.2)
    assert looser.threshold <= rule.threshold and looser.labelled >= rule.labelled
    assert f"{rule.threshold:.3f}" in rule.summary() and rule.labels == ("a", "b", "c")


def test_a_label_that_no_other_recording_has_counts_as_wrong():
    vectors = [[1, 0], [1, 0], [0, 1], [0.1, 1]]
    rule = choose_threshold(named(vectors, "aabb", "1122"), neighbours=1)
    assert rule.labelled == 0 and np.isinf(rule.threshold) and "No confidence threshold" in rule.summary()


def test_invalid_settings_and_references_of_one_recording_are_refused():
    with pytest.raises(ConfigError, match="at least two recordings"):
        choose_threshold(named([[1, 0], [0, 1]], "ab", "11"))
    with pytest.raises(ConfigError, match="a fraction between 0 and 1"):
        choose_threshold(spread(5, 1), max_error_rate=1.0)
    with pytest.raises(ConfigError, match="1 or more"):
        choose_threshold(spread(5, 1), neighbours=0)
