"""The rank of the first right name, against looking at one sound after the other."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.evaluation.retrieval import Named, first_right, retrieval

LINE = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]], np.float32)


def named(vectors, labels, recordings):
    return Named(np.asarray(vectors, np.float32), np.array(list(labels)), np.array(list(recordings)))


def test_without_sounds_there_are_no_figures():
    nothing = Named(np.zeros((0, 2), np.float32), np.zeros(0, "U1"), np.zeros(0, "U1"))
    assert first_right(nothing, nothing).tolist() == []
    figures = retrieval(nothing, nothing, np.random.default_rng(0), resamples=3)
    assert (figures.queries, figures.alone) == (0, 0) and math.isnan(figures.top_1.value)
    assert first_right(named(LINE, "aaaa", "1234"), nothing).tolist() == [0, 0, 0, 0]


def test_neighbours_of_the_same_recording_do_not_count():
    calls = named(LINE, "aaba", "1122")
    assert first_right(calls, calls).tolist() == [2, 2, 0, 1]
    figures = retrieval(calls, calls, np.random.default_rng(0), resamples=50)
    assert (figures.queries, figures.alone, figures.labels, figures.recordings) == (3, 1, 1, 2)
    assert figures.top_1.value == 1 / 3 and figures.top_5.value == 1 and figures.mean_rank.value == 5 / 3
    assert figures.top_1.low == 0 and figures.top_1.high == 1  # the recordings are all wrong and all right
    assert "Top-1 0.333" in figures.summary() and "3 sounds of 1 labels" in figures.summary()
    assert figures.as_json()["top_1"] == [0.3333, 0.0, 1.0] and figures.as_json()["queries"] == 3


def test_sounds_of_one_recording_have_figures_without_bounds():
    asked, known = named(LINE[:2], "ab", "11"), named(LINE, "aabb", "2233")
    figures = retrieval(asked, known, np.random.default_rng(0), resamples=5)
    assert figures.as_json()["top_1"] == [0.5, None, None]
    assert "Top-1 0.500, Top-5 1.000" in figures.summary()


def test_the_mean_over_labels_gives_a_rare_one_the_same_weight():
    vectors = [[1, 0], [1, 0], [1, 0], [0, 1], [0.9, 0.4]]
    calls = named(vectors, "aaabb", "12345")
    figures = retrieval(calls, calls, np.random.default_rng(0), resamples=3)
    assert figures.top_1.value == 4 / 5 and figures.top_1_labels.value == 3 / 4


def naive(asked, known):
    ranks = []
    for vector, label, recording in zip(asked.vectors, asked.labels, asked.recordings, strict=True):
        others = [
            (-float(vector @ other), name == label)
            for other, name, where in zip(known.vectors, known.labels, known.recordings, strict=True)
            if where != recording
        ]
        right = [is_right for _, is_right in sorted(others)]
        ranks.append(right.index(True) + 1 if True in right else 0)
    return ranks


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 12))
def test_ranks_are_those_of_sorting(seed, queries, count):
    rng = np.random.default_rng(seed)

    def some(rows):
        return named(
            rng.integers(-3, 4, (rows, 3)), rng.choice(list("ab"), rows), rng.choice(list("123"), rows)
        )

    asked, known = some(queries), some(count)
    assert first_right(asked, known).tolist() == naive(asked, known)
    assert np.array_equal(first_right(asked, known, block=2), first_right(asked, known))
