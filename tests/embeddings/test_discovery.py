"""Groups, novelty and their order, by hand and against naive versions."""

from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.embeddings import discovery
from mast.embeddings.discovery import (
    Projection,
    Sums,
    group_all,
    group_cells,
    least_that_groups,
    novelty,
    ranked,
    usual_novelty,
)
from mast.errors import ConfigError
from tests.evaluation.test_retrieval import named


def heaps(counts, width=6, seed=0):
    """Heaps of points far from each other. → (N, C), N"""
    rng = np.random.default_rng(seed)
    middles = 10 * np.eye(width)[: len(counts)]
    number = np.repeat(np.arange(len(counts)), counts)
    return (middles[number] + rng.normal(size=(len(number), width))).astype(np.float32), number


def test_of_nothing_there_is_nothing():
    nothing = np.zeros((0, 4), np.float32)
    assert [len(item) for item in novelty(nothing, np.ones((1, 4), np.float32))] == [0, 0]
    groups = group_all(Projection.of(nothing)(nothing))
    assert groups.count == 0 and groups.middles.shape == (0, 4) and groups.numbers(0, nothing).tolist() == []
    assert ranked([]) == []
    assert least_that_groups(nothing, 5) is None


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), block=st.integers(1, 5))
def test_novelty_is_one_less_the_greatest_cosine(seed, block):
    rng = np.random.default_rng(seed)
    vectors, known = rng.normal(size=(6, 3)).astype(np.float32), rng.normal(size=(4, 3)).astype(np.float32)
    unlike, nearest = novelty(vectors, known, block)
    cosines = [[float(vector @ other) for other in known] for vector in vectors]
    assert unlike == pytest.approx([1 - max(row) for row in cosines], abs=1e-5)
    assert nearest.tolist() == [int(np.argmax(row)) for row in cosines]


def test_usual_is_how_unlike_examples_are_to_those_of_other_recordings():
    calls = named([[1, 0], [1, 0], [0.6, 0.8]], "aab", "112")
    assert usual_novelty(calls) == pytest.approx(0.4)
    with pytest.raises(ConfigError, match="at least two recordings"):
        usual_novelty(named([[1, 0], [1, 0]], "ab", "11"))


def test_heaps_are_found_whatever_their_size_and_dust_is_none_of_them():
    places, number = heaps([40, 12, 25])
    dust = np.full((3, 6), -30, np.float32) * np.arange(1, 4, dtype=np.float32)[:, None]
    every = np.concatenate([places, dust])
    project = Projection.of(every)
    groups = group_all(project(every), least=5)
    found = groups.numbers(0, project(every))
    assert groups.count == 3 and (found[-3:] == -1).all()
    assert len({(own, group) for own, group in zip(number, found, strict=False) if group >= 0}) == 3
    assert (groups.numbers(10, project(every)[10:20]) == found[10:20]).all()
    assert np.allclose(groups.middles[found[0]], project(every)[found == found[0]].mean(axis=0), atol=1e-4)


def test_where_no_sounds_are_enough_alike_a_smaller_number_is_told_that_makes_groups():
    places, _ = heaps([4, 4])
    assert group_all(places, least=5).count == 0
    enough = least_that_groups(places, least=40)
    assert enough == 4 and group_all(places, enough).count == 2
    assert least_that_groups(np.zeros((1, 4), np.float32), least=5) is None


def test_more_sounds_than_can_be_compared_are_grouped_by_cells(monkeypatch):
    monkeypatch.setattr(discovery, "CELLS", 12)
    places, number = heaps([400, 300, 200])
    mixed = np.random.default_rng(1).permutation(len(places))
    groups = group_cells(lambda: np.array_split(places[mixed], 9))
    found = groups.numbers(0, places)
    is_in = found >= 0
    assert groups.count >= 2 and is_in.mean() > 0.8
    for group in range(groups.count):  # no group mixes heaps
        assert len(set(number[found == group])) == 1


def test_a_group_of_one_is_refused():
    with pytest.raises(ConfigError, match="2 sounds or more"):
        group_all(np.zeros((3, 2), np.float32), least=1)


def made(novelty, new, days=1, sites=1):
    return Sums(
        events=10, novelty=10 * novelty, new=new,
        days={date(2024, 5, 1 + day) for day in range(days)}, sites={str(site) for site in range(sites)},
    )  # fmt: skip


def test_the_new_the_lasting_and_the_widespread_come_first():
    sums = [
        made(0.9, 5, 9, 9),
        made(0.5, 6),
        made(0.5, 6, days=3),
        made(0.5, 6, days=3, sites=2),
        made(0.6, 6),
    ]
    assert ranked(sums) == [3, 2, 4, 1, 0]
    assert made(0.5, 6, days=3, sites=1).worth == pytest.approx(0.5 * 2 * 1)
    assert (
        Sums(events=2, novelty=2.0, new=2).worth == 1
    )  # no clock and no site is no reason to pass a sound over
