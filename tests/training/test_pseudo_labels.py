"""What a teacher draws in unlabelled sound, and what of it a student believes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mast.config import Selftrain
from mast.errors import TrainingError
from mast.models.decoding import Detections
from mast.training.hearing import Heard
from mast.training.pseudo_labels import (
    Pool,
    learned_from,
    rate_by_site,
    read_labels,
    score_to_learn_from,
    silenced,
    statistics,
    unsure_of,
    write_labels,
)

NONE = Detections(torch.zeros(0, 4), torch.zeros(0))
Q = Selftrain()


def found(*boxes: tuple[float, float, float, float, float]) -> Detections:
    rows = torch.tensor(boxes, dtype=torch.float32).reshape(-1, 5)
    return Detections(rows[:, :4], rows[:, 4])


def pool(*sites: str) -> Pool:
    places = np.stack([np.arange(len(sites)), np.zeros(len(sites), np.int64)], axis=1)
    return Pool(places, np.array(sites, object), chunk_hours=0.01)


def test_an_empty_pool_teaches_nothing(tmp_path: Path) -> None:
    assert len(learned_from([], pool(), 0.1, Q)) == 0
    write_labels([], str(tmp_path / "labels.parquet"))
    assert read_labels(str(tmp_path / "labels.parquet")) == []
    assert statistics([NONE], pool("A"), 0.1, Q)["mean_score"] is None


def test_a_chunk_counts_as_much_as_its_boxes_score_on_average_and_chunks_without_any_are_left_out() -> None:
    labels = [
        found((0, 0, 10, 5, 0.9), (20, 0, 30, 5, 0.3)),
        NONE,
        found((0, 0, 10, 5, 0.05)),
        found((0, 0, 10, 5, 0.5)),
    ]
    chunks = learned_from(labels, pool("A", "A", "B", "B"), 0.1, Q)
    assert chunks.places(0, np.arange(2)).tolist() == [[0, 0], [3, 0]]
    assert chunks.weights(np.arange(2)).tolist() == pytest.approx([0.6, 0.5])
    assert [len(own) for own in chunks.boxes(np.arange(2))] == [2, 1]


def test_slivers_are_not_learned_from() -> None:
    slivers = found((0, 0, 3.9, 50, 0.9), (0, 0, 50, 0.9, 0.9))
    assert len(learned_from([slivers], pool("A"), 0.1, Q)) == 0


def test_boxes_an_hour_are_told_by_site() -> None:
    labels = [found((0, 0, 9, 9, 0.9), (0, 0, 9, 9, 0.2)), NONE, found((0, 0, 9, 9, 0.6))]
    assert rate_by_site(labels, pool("A", "A", "B"), 0.5) == {"A": 50.0, "B": 100.0}


def test_the_score_to_learn_from_rises_until_enough_boxes_on_validation_are_right() -> None:
    truths = [torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[0.0, 0, 10, 10]])]
    guesses = [
        found((0, 0, 10, 10, 0.8), (50, 50, 60, 60, 0.3)),
        found((0, 0, 10, 10, 0.4), (50, 50, 60, 60, 0.2)),
    ]
    ranking = Heard(guesses, truths).ranking()
    assert score_to_learn_from(Q, ranking) == 0.10
    assert score_to_learn_from(Selftrain(min_precision=0.6), ranking) == pytest.approx(0.3)
    assert score_to_learn_from(Selftrain(min_precision=1.0), ranking) == pytest.approx(0.4)
    assert score_to_learn_from(Selftrain(min_precision=0.6, min_score=0.7), ranking) == 0.7


def test_a_teacher_that_is_never_right_enough_is_refused() -> None:
    ranking = Heard([found((50, 50, 60, 60, 0.3))], [torch.tensor([[0.0, 0, 10, 10]])]).ranking()
    with pytest.raises(TrainingError, match="better teacher"):
        score_to_learn_from(Selftrain(min_precision=0.5), ranking)


def test_without_a_box_on_validation_a_teacher_is_taken_at_its_fixed_score() -> None:
    ranking = Heard([found((50, 50, 60, 60, 0.3))], [torch.zeros(0, 4)]).ranking()
    assert score_to_learn_from(Selftrain(min_precision=0.5), ranking) == 0.10


BOX = st.tuples(
    st.floats(0, 90), st.floats(0, 90), st.floats(0.5, 30), st.floats(0.5, 30), st.floats(0.01, 1)
).map(lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3], b[4]))


@given(st.lists(st.lists(BOX, max_size=4), min_size=1, max_size=5))
def test_labels_come_back_as_they_were_kept_and_are_counted_once(tmp_path_factory, chunks) -> None:
    labels = [found(*own) for own in chunks]
    location = str(tmp_path_factory.mktemp("labels") / "labels.parquet")
    write_labels(labels, location)
    again = read_labels(location)
    assert len(again) == len(labels)
    for own, other in zip(labels, again, strict=True):
        assert torch.equal(own.boxes, other.boxes) and torch.equal(own.scores, other.scores)
    told = statistics(labels, pool(*"A" * len(labels)), 0.1, Q)
    assert sum(told["candidates_by_score"]) == sum(map(len, chunks))
    kept = [
        box
        for own in labels
        for box, score in zip(own.boxes.tolist(), own.scores.tolist(), strict=True)
        if score >= 0.1
        and np.float32(box[2]) - np.float32(box[0]) >= 4
        and np.float32(box[3]) - np.float32(box[1]) >= 1
    ]
    assert told["boxes"] == len(kept)


def test_where_the_teacher_is_unsure_the_background_is_heard_but_not_within_a_box_it_is_sure_of() -> None:
    levels = torch.arange(2 * 4 * 10, dtype=torch.float32).reshape(2, 4, 10)
    unsure, sure = (
        [torch.tensor([[2.0, 1, 6, 3]]), torch.zeros(0, 4)],
        [torch.tensor([[5.0, 0, 9, 4]]), torch.zeros(0, 4)],
    )
    heard = silenced(levels, torch.tensor([7, 10]), unsure, sure)
    medians = (
        levels[..., :7].median(dim=-1, keepdim=True).values
    )  # after the first seven frames there is no sound
    expected = levels.clone()
    expected[0, 1:3, 2:5] = medians[0, 1:3].expand(2, 3)
    assert torch.equal(heard, expected)


def test_unsure_boxes_are_all_that_are_not_learned_from_in_the_chunks_that_are() -> None:
    drawn = [
        found((0, 0, 10, 10, 0.9), (20, 20, 30, 30, 0.2), (40, 20, 41, 30, 0.9)),
        found((0, 0, 10, 10, 0.2)),
        found((0, 0, 10, 10, 0.8)),
    ]
    unsure = unsure_of(drawn, 0.5, Q)
    assert [item.tolist() for item in unsure] == [[[20, 20, 30, 30], [40, 20, 41, 30]], []]
