"""Rank of the first correct label, against comparing one event after the other."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.evaluation.retrieval_metrics import LabelledVectors, first_hit_rank, retrieval_metrics

LINE = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]], np.float32)


def named(vectors, labels, recordings):
    return LabelledVectors(
        np.asarray(vectors, np.float32), np.array(list(labels)), np.array(list(recordings))
    )


def test_without_events_there_are_no_metrics():
    empty = LabelledVectors(np.zeros((0, 2), np.float32), np.zeros(0, "U1"), np.zeros(0, "U1"))
    assert first_hit_rank(empty, empty).tolist() == []
    metrics = retrieval_metrics(empty, empty, np.random.default_rng(0), resamples=3)
    assert (metrics.queries, metrics.unmatched) == (0, 0) and math.isnan(metrics.top_1.value)
    assert first_hit_rank(named(LINE, "aaaa", "1234"), empty).tolist() == [0, 0, 0, 0]


def test_neighbours_of_the_same_recording_do_not_count():
    calls = named(LINE, "aaba", "1122")
    assert first_hit_rank(calls, calls).tolist() == [2, 2, 0, 1]
    metrics = retrieval_metrics(calls, calls, np.random.default_rng(0), resamples=50)
    assert (metrics.queries, metrics.unmatched, metrics.labels, metrics.recordings) == (3, 1, 1, 2)
    assert metrics.top_1.value == 1 / 3 and metrics.top_5.value == 1 and metrics.mean_rank.value == 5 / 3
    assert metrics.top_1.low == 0 and metrics.top_1.high == 1  # the recordings are all wrong and all right
    assert "Top-1 0.333" in metrics.summary() and "3 events of 1 label in 2 recordings" in metrics.summary()
    assert metrics.as_json()["top_1"] == [0.3333, 0.0, 1.0] and metrics.as_json()["queries"] == 3


def test_events_of_one_recording_have_metrics_without_bounds():
    queries, references = named(LINE[:2], "ab", "11"), named(LINE, "aabb", "2233")
    metrics = retrieval_metrics(queries, references, np.random.default_rng(0), resamples=5)
    assert metrics.as_json()["top_1"] == [0.5, None, None]
    assert "Top-1 0.500, Top-5 1.000" in metrics.summary()


def test_the_mean_over_labels_weights_all_labels_equally():
    vectors = [[1, 0], [1, 0], [1, 0], [0, 1], [0.9, 0.4]]
    calls = named(vectors, "aaabb", "12345")
    metrics = retrieval_metrics(calls, calls, np.random.default_rng(0), resamples=3)
    assert metrics.top_1.value == 4 / 5 and metrics.top_1_labels.value == 3 / 4


def naive(queries, references):
    ranks = []
    for vector, label, recording in zip(queries.vectors, queries.labels, queries.recordings, strict=True):
        others = [
            (-float(vector @ other), name == label)
            for other, name, other_recording in zip(
                references.vectors, references.labels, references.recordings, strict=True
            )
            if other_recording != recording
        ]
        right = [is_right for _, is_right in sorted(others)]
        ranks.append(right.index(True) + 1 if True in right else 0)
    return ranks


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 12))
def test_ranks_are_those_of_sorting(seed, queries, count):
    rng = np.random.default_rng(seed)

    def random_events(rows):
        return named(
            rng.integers(-3, 4, (rows, 3)), rng.choice(list("ab"), rows), rng.choice(list("123"), rows)
        )

    query_events, references = random_events(queries), random_events(count)
    assert first_hit_rank(query_events, references).tolist() == naive(query_events, references)
    assert np.array_equal(
        first_hit_rank(query_events, references, block=2), first_hit_rank(query_events, references)
    )
