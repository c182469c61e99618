"""Tests of the error analysis: outcomes of annotations and predictions, and AP at lower IoUs."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from experiments import error_analysis as experiment
from experiments.error_analysis import BoxSet, analyse, read_box_set

from mast.evaluation.evaluate import attach_predictions
from mast.evaluation.ground_truth import grid_of
from mast.evaluation.matching import GroupedBoxes, match
from mast.evaluation.results import write_results
from mast.models.postprocess import ChunkDetections
from tests.evaluation.studies import load_ground_truth, make_results, study_under_shift

ANNOTATED = [(0, 0, 10, 10), (20, 0, 30, 10), (40, 0, 50, 10), (60, 0, 70, 10)]


def boxes(bounds, score=None) -> GroupedBoxes:
    bounds = np.array(bounds, float).reshape(-1, 4)
    return GroupedBoxes(
        np.zeros(len(bounds), np.int64), bounds, None if score is None else np.array(score, float)
    )


def test_every_annotation_and_every_prediction_has_one_outcome():
    predicted = [
        (0, 0, 10, 10),  # correct
        (0, 0, 10, 9),  # duplicate
        (20, 0, 24, 10),  # loose: IoU 0.4
        (80, 0, 90, 10),  # false positive
        (60, 0, 70, 10),  # correct, but below the threshold
    ]
    box_set = BoxSet(
        boxes(predicted, [0.9, 0.8, 0.7, 0.6, 0.1]), boxes(ANNOTATED), np.array([20.0, 3.0, 2.0, 10.0])
    )
    result = analyse(box_set, 0.5)
    assert result["annotations"] == {"detected": 1, "loose": 1, "missed": 2}
    assert result["predictions"] == {"correct": 1, "loose": 1, "duplicate": 1, "false_positive": 1}
    assert [part["recall"] for part in result["by_loudness"]] == [0.0, 0.0, 1.0]
    assert [part["min_db"] for part in result["by_loudness"]] == [2.0, 10.0, 20.0]
    assert result["ap_at_10"] == result["ap_at_30"] > result["ap_at_50"] > 0


def test_loose_annotations_are_counted_by_the_sides_that_are_far_off():
    predicted = [
        (0, 0, 30, 10),  # three times as long
        (20, 0, 24, 10),  # less than half as long
        (40, -10, 46, 14),  # short, and over twice as wide
        (66, 0, 76, 10),  # of the right size, but late
    ]
    box_set = BoxSet(boxes(predicted, [0.9] * 4), boxes(ANNOTATED), np.zeros(4))
    result = analyse(box_set, 0.5)
    assert result["annotations"]["loose"] == 4
    sides = {"too long": 1, "too short": 2, "too wide": 1, "too narrow": 0, "displaced": 1}
    assert result["loose_reasons"] == sides


def test_recall_is_reported_by_bandwidth():
    annotated = [(0, 0, 10, 5.5), (20, 0, 30, 3), (40, 0, 50, 6), (60, 10, 70, 34)]
    box_set = BoxSet(boxes([annotated[0], annotated[3]], [0.9, 0.9]), boxes(annotated), np.zeros(4))
    groups = analyse(box_set, 0.5)["by_width"]
    assert [(part["min_bins"], part["annotations"], part["recall"]) for part in groups] == [
        (0, 2, 0.5),
        (6, 1, 0.0),
        (24, 1, 1.0),
    ]
    empty = analyse(BoxSet(boxes([], []), boxes(annotated[:1]), np.zeros(1)), 0.5)["by_width"]
    assert [part["recall"] for part in empty] == [0.0, None, None]


def test_without_a_threshold_or_predictions_every_annotation_is_missed():
    for predicted, threshold in ((boxes(ANNOTATED, [0.9] * 4), None), (boxes([], []), 0.5)):
        result = analyse(BoxSet(predicted, boxes(ANNOTATED), np.zeros(4)), threshold)
        assert result["annotations"] == {"detected": 0, "loose": 0, "missed": 4}
        assert sum(result["predictions"].values()) == 0


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory) -> Path:
    """Write an evaluation of a detector whose boxes are all three frames late, also those cut by a chunk's edge."""
    folder = tmp_path_factory.mktemp("synthetic_then_labels") / "0" / "evaluation"
    study, _, ground_truth = load_ground_truth(study_under_shift(tmp_path_factory.mktemp("study")), "train")
    ground_truth = replace(ground_truth, name="site")
    late = [
        torch.from_numpy(ground_truth.boxes.bounds[ground_truth.boxes.group == chunk] + [3, 0, 3, 0]).float()
        for chunk in range(len(ground_truth.chunk_recording))
    ]
    predictions = (ChunkDetections(each, torch.full((len(each),), 0.9)) for each in late)
    evaluation_set = attach_predictions(ground_truth, predictions, grid_of(study))
    settings = study.model_dump(mode="json", include={"chunking", "spectrogram"})
    write_results(str(folder), replace(make_results([evaluation_set]), settings=settings), [evaluation_set])
    return folder


def test_boxes_read_from_an_evaluation_have_its_overlaps(evaluation):
    settings = json.loads((evaluation / "results.json").read_text())["settings"]
    box_set = read_box_set(evaluation, "site", settings)
    overlap = pq.read_table(evaluation / "predictions.parquet")["overlap"].to_numpy()
    assert (overlap > 0).sum() > 0 and overlap.max() < 1
    np.testing.assert_allclose(match(box_set.predictions, box_set.ground_truth).overlap, overlap, atol=1e-4)


def test_the_command_writes_the_keys_of_the_full_result(evaluation, tmp_path, monkeypatch):
    out = tmp_path / "error_analysis.json"
    monkeypatch.setattr(sys, "argv", ["error_analysis", str(evaluation), "--out", str(out)])
    experiment.main()
    small = json.loads(out.read_text())
    full = json.loads((experiment.RESULTS / "error_analysis.json").read_text("utf-8"))
    assert small.keys() == full.keys()
    result, reference = (next(iter(values["detectors"].values())) for values in (small, full))
    assert result.keys() == reference.keys() and result["site"].keys() == reference["site"].keys()
    assert result["site"]["annotations"]["detected"] > 0
    assert result["in_domain"]["annotations"]["missed"] == 0  # the set is empty
