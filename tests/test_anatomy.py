"""Taking evaluations apart: what became of sounds and predictions, and what sharper edges could win."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from experiments import anatomy as experiment
from experiments.anatomy import Trial, anatomy, read_trial

from mast.detection.evaluate import with_predictions
from mast.evaluation.matching import Boxes, match
from mast.evaluation.results import write_results
from mast.evaluation.truths import grid_of
from mast.models.decoding import Detections
from tests.evaluation.studies import made_results, study_under_shift, truths_of

TRUTHS = [(0, 0, 10, 10), (20, 0, 30, 10), (40, 0, 50, 10), (60, 0, 70, 10)]


def boxes(bounds, score=None) -> Boxes:
    own = np.array(bounds, float).reshape(-1, 4)
    return Boxes(np.zeros(len(own), np.int64), own, None if score is None else np.array(score, float))


def test_every_sound_and_every_prediction_is_of_one_kind():
    found = [
        (0, 0, 10, 10),  # right
        (0, 0, 10, 9),  # drawn twice
        (20, 0, 24, 10),  # loose: IoU 0.4
        (80, 0, 90, 10),  # nothing there
        (60, 0, 70, 10),  # right, but below the threshold
    ]
    trial = Trial(boxes(found, [0.9, 0.8, 0.7, 0.6, 0.1]), boxes(TRUTHS), np.array([20.0, 3.0, 2.0, 10.0]))
    told = anatomy(trial, 0.5)
    assert told["sounds"] == {"found": 1, "loose": 1, "missed": 2}
    assert told["predictions"] == {"right": 1, "loose": 1, "double": 1, "alarm": 1}
    assert [part["found"] for part in told["by_loudness"]] == [0.0, 0.0, 1.0]
    assert [part["from_db"] for part in told["by_loudness"]] == [2.0, 10.0, 20.0]
    assert told["ap_at_10"] == told["ap_at_30"] > told["ap_at_50"] > 0


def test_of_a_loose_sound_the_sides_that_are_far_off_are_told():
    found = [
        (0, 0, 30, 10),  # thrice as long
        (20, 0, 24, 10),  # less than half as long
        (40, -10, 46, 14),  # short, and over twice as wide
        (66, 0, 76, 10),  # of the right size, but late
    ]
    trial = Trial(boxes(found, [0.9] * 4), boxes(TRUTHS), np.zeros(4))
    told = anatomy(trial, 0.5)
    assert told["sounds"]["loose"] == 4
    sides = {"too long": 1, "too short": 2, "too wide": 1, "too narrow": 0, "beside": 1}
    assert told["loose_because"] == sides


def test_sounds_are_told_apart_by_the_width_of_their_band():
    truths = [(0, 0, 10, 5.5), (20, 0, 30, 3), (40, 0, 50, 6), (60, 10, 70, 34)]
    trial = Trial(boxes([truths[0], truths[3]], [0.9, 0.9]), boxes(truths), np.zeros(4))
    told = anatomy(trial, 0.5)["by_width"]
    assert [(part["from_bins"], part["sounds"], part["found"]) for part in told] == [
        (0, 2, 0.5),
        (6, 1, 0.0),
        (24, 1, 1.0),
    ]
    none = anatomy(Trial(boxes([], []), boxes(truths[:1]), np.zeros(1)), 0.5)["by_width"]
    assert [part["found"] for part in none] == [0.0, None, None]


def test_without_a_threshold_or_a_prediction_all_is_missed():
    for found, threshold in ((boxes(TRUTHS, [0.9] * 4), None), (boxes([], []), 0.5)):
        told = anatomy(Trial(found, boxes(TRUTHS), np.zeros(4)), threshold)
        assert told["sounds"] == {"found": 0, "loose": 0, "missed": 4}
        assert sum(told["predictions"].values()) == 0


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory) -> Path:
    """A real evaluation of a detector whose boxes are all three frames late, also those that a chunk's edge cuts."""
    folder = tmp_path_factory.mktemp("rehearsed") / "0" / "evaluation"
    study, _, truths = truths_of(study_under_shift(tmp_path_factory.mktemp("study")), "train")
    truths = replace(truths, name="site")
    late = [
        torch.from_numpy(truths.boxes.bounds[truths.boxes.group == chunk] + [3, 0, 3, 0]).float()
        for chunk in range(len(truths.chunk_recording))
    ]
    found = (Detections(own, torch.full((len(own),), 0.9)) for own in late)
    trial = with_predictions(truths, found, grid_of(study))
    settings = study.model_dump(mode="json", include={"chunking", "spectrogram"})
    write_results(str(folder), replace(made_results([trial]), settings=settings), [trial])
    return folder


def test_boxes_read_from_an_evaluation_overlap_as_the_evaluation_says(evaluation):
    settings = json.loads((evaluation / "results.json").read_text())["settings"]
    trial = read_trial(evaluation, "site", settings)
    told = pq.read_table(evaluation / "predictions.parquet")["overlap"].to_numpy()
    assert (told > 0).sum() > 0 and told.max() < 1
    np.testing.assert_allclose(match(trial.found, trial.truths).overlap, told, atol=1e-4)


def test_the_command_reads_evaluations_and_writes_what_the_full_result_holds(
    evaluation, tmp_path, monkeypatch
):
    out = tmp_path / "anatomy.json"
    monkeypatch.setattr(sys, "argv", ["anatomy", str(evaluation), "--out", str(out)])
    experiment.main()
    small = json.loads(out.read_text())
    full = json.loads((experiment.RESULTS / "anatomy.json").read_text("utf-8"))
    assert small.keys() == full.keys()
    own, other = (next(iter(values["detectors"].values())) for values in (small, full))
    assert own.keys() == other.keys() and own["site"].keys() == other["site"].keys()
    assert own["site"]["sounds"]["found"] > 0 and own["in_domain"]["sounds"]["missed"] == 0  # there is none
