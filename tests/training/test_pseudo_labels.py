"""Predictions of a teacher in the unlabelled pool, and the pseudo-labels selected from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mast.config import Selftrain
from mast.errors import TrainingError
from mast.models.postprocess import ChunkDetections
from mast.training.pseudo_labels import (
    Pool,
    choose_score_threshold,
    detections_per_hour,
    mask_uncertain_regions,
    read_labels,
    select_pseudo_labels,
    statistics,
    uncertain_boxes,
    write_labels,
)
from mast.training.validation import ValidationPredictions

NO_DETECTIONS = ChunkDetections(torch.zeros(0, 4), torch.zeros(0))
SETTINGS = Selftrain()


def detections(*boxes: tuple[float, float, float, float, float]) -> ChunkDetections:
    rows = torch.tensor(boxes, dtype=torch.float32).reshape(-1, 5)
    return ChunkDetections(rows[:, :4], rows[:, 4])


def pool(*sites: str) -> Pool:
    locations = np.stack([np.arange(len(sites)), np.zeros(len(sites), np.int64)], axis=1)
    return Pool(locations, np.array(sites, object), chunk_hours=0.01)


def test_an_empty_pool_has_no_pseudo_labels(tmp_path: Path) -> None:
    assert len(select_pseudo_labels([], pool(), 0.1, SETTINGS)) == 0
    write_labels([], str(tmp_path / "labels.parquet"))
    assert read_labels(str(tmp_path / "labels.parquet")) == []
    assert statistics([NO_DETECTIONS], pool("A"), 0.1, SETTINGS)["mean_score"] is None


def test_a_chunk_is_weighted_by_the_mean_score_of_its_boxes_and_chunks_without_any_are_left_out() -> None:
    labels = [
        detections((0, 0, 10, 5, 0.9), (20, 0, 30, 5, 0.3)),
        NO_DETECTIONS,
        detections((0, 0, 10, 5, 0.05)),
        detections((0, 0, 10, 5, 0.5)),
    ]
    chunks = select_pseudo_labels(labels, pool("A", "A", "B", "B"), 0.1, SETTINGS)
    assert chunks.locations(0, np.arange(2)).tolist() == [[0, 0], [3, 0]]
    assert chunks.weights(np.arange(2)).tolist() == pytest.approx([0.6, 0.5])
    assert [len(boxes) for boxes in chunks.boxes(np.arange(2))] == [2, 1]


def test_tiny_boxes_are_not_selected() -> None:
    tiny = detections((0, 0, 3.9, 50, 0.9), (0, 0, 50, 0.9, 0.9))
    assert len(select_pseudo_labels([tiny], pool("A"), 0.1, SETTINGS)) == 0


def test_detections_per_hour_are_counted_by_site() -> None:
    labels = [detections((0, 0, 9, 9, 0.9), (0, 0, 9, 9, 0.2)), NO_DETECTIONS, detections((0, 0, 9, 9, 0.6))]
    assert detections_per_hour(labels, pool("A", "A", "B"), 0.5) == {"A": 50.0, "B": 100.0}


def test_the_pseudo_label_threshold_rises_to_the_required_precision_on_validation() -> None:
    ground_truth = [torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[0.0, 0, 10, 10]])]
    predictions = [
        detections((0, 0, 10, 10, 0.8), (50, 50, 60, 60, 0.3)),
        detections((0, 0, 10, 10, 0.4), (50, 50, 60, 60, 0.2)),
    ]
    ranking = ValidationPredictions(predictions, ground_truth).ranking()
    assert choose_score_threshold(SETTINGS, ranking) == 0.10
    assert choose_score_threshold(Selftrain(min_pseudo_label_precision=0.6), ranking) == pytest.approx(0.3)
    assert choose_score_threshold(Selftrain(min_pseudo_label_precision=1.0), ranking) == pytest.approx(0.4)
    assert (
        choose_score_threshold(Selftrain(min_pseudo_label_precision=0.6, pseudo_label_threshold=0.7), ranking)
        == 0.7
    )


def test_a_teacher_that_never_reaches_the_precision_is_refused() -> None:
    ranking = ValidationPredictions(
        [detections((50, 50, 60, 60, 0.3))], [torch.tensor([[0.0, 0, 10, 10]])]
    ).ranking()
    with pytest.raises(TrainingError, match="better teacher"):
        choose_score_threshold(Selftrain(min_pseudo_label_precision=0.5), ranking)


def test_without_a_box_on_validation_the_fixed_threshold_is_used() -> None:
    ranking = ValidationPredictions([detections((50, 50, 60, 60, 0.3))], [torch.zeros(0, 4)]).ranking()
    assert choose_score_threshold(Selftrain(min_pseudo_label_precision=0.5), ranking) == 0.10


BOX = st.tuples(
    st.floats(0, 90), st.floats(0, 90), st.floats(0.5, 30), st.floats(0.5, 30), st.floats(0.01, 1)
).map(lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3], b[4]))


@given(st.lists(st.lists(BOX, max_size=4), min_size=1, max_size=5))
def test_labels_survive_a_round_trip_and_are_counted_once(tmp_path_factory, chunks) -> None:
    labels = [detections(*boxes) for boxes in chunks]
    location = str(tmp_path_factory.mktemp("labels") / "labels.parquet")
    write_labels(labels, location)
    again = read_labels(location)
    assert len(again) == len(labels)
    for item, other in zip(labels, again, strict=True):
        assert torch.equal(item.boxes, other.boxes) and torch.equal(item.scores, other.scores)
    result = statistics(labels, pool(*"A" * len(labels)), 0.1, SETTINGS)
    assert sum(result["candidates_by_score"]) == sum(map(len, chunks))
    selected = [
        box
        for item in labels
        for box, score in zip(item.boxes.tolist(), item.scores.tolist(), strict=True)
        if score >= 0.1
        and np.float32(box[2]) - np.float32(box[0]) >= 4
        and np.float32(box[3]) - np.float32(box[1]) >= 1
    ]
    assert result["boxes"] == len(selected)


def test_uncertain_boxes_are_replaced_by_background_except_inside_confident_boxes() -> None:
    logmel = torch.arange(2 * 4 * 10, dtype=torch.float32).reshape(2, 4, 10)
    uncertain, confident = (
        [torch.tensor([[2.0, 1, 6, 3]]), torch.zeros(0, 4)],
        [torch.tensor([[5.0, 0, 9, 4]]), torch.zeros(0, 4)],
    )
    result = mask_uncertain_regions(logmel, torch.tensor([7, 10]), uncertain, confident)
    medians = logmel[..., :7].median(dim=-1, keepdim=True).values  # only the first seven frames contain audio
    expected = logmel.clone()
    expected[0, 1:3, 2:5] = medians[0, 1:3].expand(2, 3)
    assert torch.equal(result, expected)


def test_uncertain_boxes_are_all_that_are_not_selected_in_the_selected_chunks() -> None:
    predictions = [
        detections((0, 0, 10, 10, 0.9), (20, 20, 30, 30, 0.2), (40, 20, 41, 30, 0.9)),
        detections((0, 0, 10, 10, 0.2)),
        detections((0, 0, 10, 10, 0.8)),
    ]
    uncertain = uncertain_boxes(predictions, 0.5, SETTINGS)
    assert [item.tolist() for item in uncertain] == [[[20, 20, 30, 30], [40, 20, 41, 30]], []]
