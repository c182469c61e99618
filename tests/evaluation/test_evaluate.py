"""Evaluate a model on a study's test sets: from chunks and boxes to metrics, tables and files."""

import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from mast.audio.spectrogram import MelGrid
from mast.cli import app
from mast.config import Spectrogram
from mast.datasets.chunk_boxes import CLIPPED, IN_NO_CHUNK
from mast.datasets.study_datasets import detection_dataset
from mast.errors import ConfigError, ModelError
from mast.evaluation.evaluate import EvaluationResult, attach_predictions, evaluate_study, resolve_threshold
from mast.evaluation.evaluation_set import EvaluationSet, match_chunks, match_recordings
from mast.evaluation.ground_truth import read_ground_truth
from mast.evaluation.results import to_json, write_results
from mast.evaluation.set_metrics import curves, evaluate_set, strata
from mast.models.loading import load_detector
from mast.models.postprocess import ChunkDetections
from tests.evaluation.studies import (
    SHIFTED,
    load_ground_truth,
    make_evaluation_set,
    make_ground_truth,
    make_results,
    open_study,
    oracle,
    random_detector,
)

NO_SCORES = [("f1", 0.0), ("recall", 0.0)]


def value(results, name, mode="iou"):
    return results.matching_modes[mode].metrics[name].value


# Two recordings. In the first, chunks start at 0 and 5 s and are 10 s long: the event from 6 to 8 s is in both.
CHUNKS = [(0, 0.0), (0, 5.0), (1, 0.0)]
GROUND_TRUTH = [(0, 6.0, 100, 8.0, 200), (1, 1.0, 100, 3.0, 200), (2, 2.0, 100, 4.0, 200)]
EVENTS = [(0, 6.0, 100, 8.0, 200), (1, 2.0, 100, 4.0, 200)]


def two_recordings(**changed):
    return make_ground_truth(CHUNKS, GROUND_TRUTH, events=EVENTS, box_event=[0, 0, 1], **changed)


def test_a_set_without_chunks_has_no_metrics_and_no_crash():
    results = evaluate_set(make_evaluation_set(make_ground_truth([], []), []), 0.5, resamples=5)
    assert (results.recordings, results.chunks, results.matching_modes["iou"].ground_truth) == (0, 0, 0)
    assert all(
        math.isnan(item.value) for mode in results.matching_modes.values() for item in mode.metrics.values()
    )
    assert results.strata == {
        name: [] for name in ("site", "hour", "band", "duration", "signal_to_noise", "label")
    }


def test_metrics_by_chunk_and_by_recording_of_a_case_worked_out_by_hand():
    evaluation_set = make_evaluation_set(
        two_recordings(),
        [
            (0, 6.0, 100, 8.0, 200, 0.9),  # matches the first event in the first chunk
            (1, 1.0, 100, 3.0, 200, 0.8),  # and again in the second: the same event of the recording
            (2, 7.0, 100, 9.0, 200, 0.7),  # is a false positive
            (2, 2.0, 100, 4.0, 150, 0.3),  # overlaps half of the last event, below the threshold
        ],
        stitched=[
            (0, 6.0, 100, 8.0, 200, 0.9),
            (1, 7.0, 100, 9.0, 200, 0.7),
            (1, 2.0, 100, 4.0, 150, 0.3),
        ],
    )
    results = evaluate_set(evaluation_set, 0.5, resamples=5)
    metrics = results.matching_modes["iou"]
    assert (metrics.ground_truth, metrics.predictions, metrics.hits) == (3, 3, 2)
    assert value(results, "precision") == value(results, "recall") == value(results, "f1") == 2 / 3
    assert value(results, "mean_iou") == 1.0
    assert value(results, "average_precision") == pytest.approx(
        (1 + 1 + 3 / 4) / 3
    )  # includes predictions below the threshold
    assert value(results, "average_precision_voc") == pytest.approx(7 / 11)  # recalls 0, 0.1 … 0.6
    assert metrics.max_f1 == pytest.approx(6 / 7) and metrics.max_f1_score == 0.3
    assert metrics.macro["macro_f1"] == pytest.approx((1 + 1 + 0) / 3)
    in_recordings = results.matching_modes["recordings"]
    assert (in_recordings.ground_truth, in_recordings.predictions, in_recordings.hits) == (2, 2, 1)
    assert value(results, "f1", "recordings") == 0.5


def test_iomin_and_time_matching_ignore_box_size_and_frequency():
    ground_truth = make_ground_truth([(0, 0.0)], [(0, 1.0, 100, 3.0, 200)])
    small = evaluate_set(make_evaluation_set(ground_truth, [(0, 1.0, 100, 3.0, 120, 0.9)]), 0.5, resamples=5)
    elsewhere = evaluate_set(
        make_evaluation_set(ground_truth, [(0, 1.0, 500, 3.0, 600, 0.9)]), 0.5, resamples=5
    )
    assert [value(small, "f1", mode) for mode in ("iou", "iomin", "time")] == [0, 1, 1]
    assert [value(elsewhere, "f1", mode) for mode in ("iou", "iomin", "time")] == [0, 0, 1]


def test_an_interval_contains_its_value_and_resamples_recordings():
    ground_truth = make_ground_truth(
        [(n, 0.0) for n in range(20)], [(n, 1.0, 100, 3.0, 200) for n in range(20)]
    )
    evaluation_set = make_evaluation_set(ground_truth, [(n, 1.0, 100, 3.0, 200, 0.9) for n in range(10)])
    recall = evaluate_set(evaluation_set, 0.5, resamples=200).matching_modes["iou"].metrics["recall"]
    assert recall.value == 0.5
    assert 0 < recall.low < 0.5 < recall.high < 1


def test_removing_low_scores_does_not_change_the_other_matches():
    evaluation_set = make_evaluation_set(
        two_recordings(), [(0, 6, 100, 8, 200, 0.9), (0, 6, 100, 8, 190, 0.2), (2, 2, 100, 4, 200, 0.8)]
    )
    all_matches, high = (
        match_chunks(evaluation_set).matches,
        match_chunks(evaluation_set.with_min_score(0.5)).matches,
    )
    assert high.ground_truth_row.tolist() == all_matches.ground_truth_row[[0, 2]].tolist() == [0, 2]


def test_predictions_must_have_scores():
    ground_truth = two_recordings()
    with pytest.raises(ValueError, match="have scores"):
        EvaluationSet(
            ground_truth, ground_truth.boxes, ground_truth.boxes.bounds, ground_truth.events
        ).with_min_score(0.5)


def test_strata_by_hand():
    ground_truth = two_recordings(
        chunk_hour=np.array([5, 6, -1]), event_labels=("frog", ""), event_snr_db=np.array([4.0, np.nan])
    )
    evaluation_set = make_evaluation_set(
        ground_truth, [(0, 6.0, 100, 8.0, 200, 0.9), (2, 2.0, 3000, 2.1, 5000, 0.8)]
    )
    strata_by_name = {
        name: {part.name: (part.ground_truth, part.predictions, part.recall) for part in parts}
        for name, parts in strata(evaluation_set).items()
    }
    assert strata_by_name["site"] == {"A": (2, 1, 0.5), "B": (1, 1, 0.0)}
    assert strata_by_name["hour"] == {"05–06 h": (1, 1, 1.0), "06–07 h": (1, 0, 0.0), "no clock": (1, 1, 0.0)}
    assert strata_by_name["band"] == {
        "< 250 Hz": (3, 1, 1 / 3),
        "≥ 4000 Hz": (0, 1, pytest.approx(np.nan, nan_ok=True)),
    }
    assert strata_by_name["duration"].keys() == {"< 0.25 s", "2–4 s"}
    assert strata_by_name["signal_to_noise"] == {"3–6 dB": (2, 0, 0.5), "undefined": (1, 0, 0.0)}
    assert strata_by_name["label"] == {"frog": (2, 0, 0.5), "(no label)": (1, 0, 0.0)}
    assert all(math.isnan(part.precision) and math.isnan(part.f1) for part in strata(evaluation_set)["label"])


def test_a_curve_of_many_scores_is_thinned_and_keeps_its_ends():
    ground_truth = make_ground_truth([(0, 0.0)], [(0, 1.0, 100, 3.0, 200)])
    scores = np.linspace(0.1, 0.9, 1000)
    ranking = match_chunks(
        make_evaluation_set(ground_truth, [(0, 1.0, 100, 3.0, 200, score) for score in scores])
    ).ranking
    thinned = curves(ranking)
    assert len(thinned.score) == 200
    assert (thinned.score[0], thinned.score[-1]) == (0.9, 0.1)
    assert (thinned.precision[0], thinned.precision[-1], thinned.recall[-1]) == (1.0, 0.001, 1.0)


def test_undefined_metrics_are_null_in_json():
    written = json.loads(
        to_json(make_results([make_evaluation_set(two_recordings(), [])], threshold=math.inf))
    )
    metrics = written["sets"][0]["matching_modes"]["iou"]
    assert written["threshold"] is None and metrics["max_f1_score"] is None
    assert metrics["metrics"]["precision"]["value"] is None
    assert [metrics["metrics"][name]["value"] for name, _ in NO_SCORES] == [number for _, number in NO_SCORES]


def test_predictions_with_time_expansion_are_in_the_recordings_own_time_and_frequency():
    grid = MelGrid(Spectrogram(), 256)
    ground_truth = make_ground_truth([(0, 3.0)], [], chunk_expansion=np.array([10.0]))
    box = grid.events_to_boxes(torch.tensor([[1.0, 1000.0, 2.0, 4000.0]]))
    evaluation_set = attach_predictions(ground_truth, iter([ChunkDetections(box, torch.tensor([0.5]))]), grid)
    start_s, low_hz, end_s, high_hz = evaluation_set.prediction_events[0]
    assert (start_s, end_s) == pytest.approx((3.1, 3.2))
    assert (low_hz, high_hz) == pytest.approx((10_000, 40_000), rel=0.02)


def test_predictions_of_another_number_of_chunks_are_refused():
    with pytest.raises(ValueError, match="0 chunks of predictions for 3"):
        attach_predictions(two_recordings(), iter(()), MelGrid(Spectrogram(), 256))


def test_ground_truth_of_a_split_equals_the_training_boxes_and_each_event_is_listed_once(shifted_study):
    study, store, frontend = open_study(shifted_study)
    for split in ("train", SHIFTED):
        ground_truth, locations = read_ground_truth(study, store, split, frontend)
        examples = detection_dataset(study, store, split)
        boxes_of_chunks = examples.chunks.boxes(np.arange(len(locations)))
        for chunk, expected in enumerate(boxes_of_chunks):
            bounds = ground_truth.boxes.bounds[ground_truth.boxes.group == chunk]
            assert sorted(map(tuple, bounds)) == sorted(map(tuple, expected.double().numpy()))
        assert 0 < len(ground_truth.events) < len(ground_truth.boxes)
        events = np.column_stack([ground_truth.events.group, ground_truth.events.bounds])
        assert len(np.unique(events, axis=0)) == len(events)
        assert set(ground_truth.excluded) <= {CLIPPED} and IN_NO_CHUNK not in ground_truth.excluded
        assert np.isfinite(ground_truth.event_snr_db).all() and (ground_truth.event_snr_db > 0).mean() > 0.8
    assert set(ground_truth.recordings) == {"card/B1/20240511_073000.WAV"} and set(ground_truth.sites) == {
        "B1"
    }
    assert set(ground_truth.event_labels) == {"insect"}
    assert set(ground_truth.chunk_hour.tolist()) == {7}


def test_a_perfect_detector_is_perfect_in_every_set_and_matching_mode(shifted_study):
    for split in ("train", "test", "val", SHIFTED):
        study, _, ground_truth = load_ground_truth(shifted_study, split)
        results = evaluate_set(oracle(ground_truth, study), 0.5, resamples=5)
        assert results.matching_modes["iou"].ground_truth > 0
        for metrics in results.matching_modes.values():
            values = {name: item.value for name, item in metrics.metrics.items()}
            assert values == pytest.approx(dict.fromkeys(values, 1.0), abs=1e-12)
            assert metrics.macro["macro_f1"] == metrics.max_f1 == 1.0
        assert results.curves.calibration_error == 0.0


def test_a_detector_without_predictions_has_recall_0_and_readable_tables(shifted_study, tmp_path):
    study, _, ground_truth = load_ground_truth(shifted_study, "test")
    chunks = len(ground_truth.chunk_recording)
    none = attach_predictions(
        ground_truth,
        iter([ChunkDetections(torch.zeros(0, 4), torch.zeros(0))] * chunks),
        MelGrid(study.spectrogram, 256),
    )
    results = make_results([none])
    assert value(results.sets[0], "recall") == 0 and math.isnan(value(results.sets[0], "precision"))
    write_results(str(tmp_path), results, [none])
    assert pq.read_table(tmp_path / "predictions.parquet").num_rows == 0
    assert pq.read_table(tmp_path / "events.parquet").num_rows == 0
    assert not any(pq.read_table(tmp_path / "ground_truth.parquet")["recalled"].to_pylist())
    assert pq.read_table(tmp_path / "chunks.parquet").num_rows == chunks


def test_tables_have_the_position_and_match_of_every_box(tmp_path):
    evaluation_set = make_evaluation_set(
        two_recordings(event_labels=("frog", "owl")),
        [(0, 6.0, 100, 8.0, 200, 0.9), (1, 1.0, 100, 3.0, 200, 0.8), (2, 7.0, 100, 9.0, 200, 0.3)],
        stitched=[(0, 6.0, 100, 8.0, 200, 0.9), (1, 7.0, 100, 9.0, 200, 0.3)],
    )
    write_results(str(tmp_path), make_results([evaluation_set]), [evaluation_set])
    predictions = pq.read_table(tmp_path / "predictions.parquet").to_pylist()
    assert [(row["recording_id"], row["start_s"], row["end_s"], row["score"]) for row in predictions] == [
        ("card/0.wav", 6.0, 8.0, 0.9), ("card/0.wav", 6.0, 8.0, 0.8), ("card/1.wav", 7.0, 9.0, 0.3),
    ]  # fmt: skip
    assert [(row["matched"], row["overlap"]) for row in predictions] == [(True, 1), (True, 1), (False, 0)]
    events = pq.read_table(tmp_path / "events.parquet").to_pylist()
    assert [(row["recording_id"], row["start_s"], row["score"], row["matched"]) for row in events] == [
        ("card/0.wav", 6.0, 0.9, True), ("card/1.wav", 7.0, 0.3, False),
    ]  # fmt: skip
    ground_truth = pq.read_table(tmp_path / "ground_truth.parquet").to_pylist()
    assert [(row["label"], row["chunk_start_s"], row["recalled"]) for row in ground_truth] == [
        ("frog", 0.0, True), ("frog", 5.0, True), ("owl", 0.0, False),
    ]  # fmt: skip


# Chunks of 2.56 s with a hop of 1.28 s, of two recordings; the second has time expansion 4 and a gap.
CUT = [(0, 0.0), (0, 1.28), (0, 2.56), (1, 0.0), (1, 0.32), (1, 2.0)]


def split_events(events):
    """Build events in the chunks of `CUT`, and the predictions of a perfect model.

    Events are rows of (recording, start_s, low_hz, end_s, high_hz).
    """
    grid = MelGrid(Spectrogram(), 256)
    expansion = np.array([1.0, 1.0, 1.0, 4.0, 4.0, 4.0])
    parts, box_event = [], []
    for chunk, (recording, chunk_start_s) in enumerate(CUT):
        for event_index, (recording_of_event, start_s, low_hz, end_s, high_hz) in enumerate(events):
            factor = expansion[chunk]
            first_s, last_s = (factor * (at_s - chunk_start_s) for at_s in (start_s, end_s))
            if recording_of_event == recording and last_s > 0 and first_s < 2.56:
                event = torch.tensor([[max(first_s, 0), low_hz / factor, last_s, high_hz / factor]])
                parts.append((chunk, *grid.events_to_boxes(event)[0].tolist()))
                box_event.append(event_index)
    ground_truth = make_ground_truth(
        CUT, parts, events=events, box_event=box_event, chunk_expansion=expansion
    )
    bounds = [
        torch.from_numpy(ground_truth.boxes.bounds[ground_truth.boxes.group == chunk])
        for chunk in range(len(CUT))
    ]
    detections = [ChunkDetections(item.float(), torch.full((len(item),), 0.9)) for item in bounds]
    return ground_truth, attach_predictions(ground_truth, detections, grid)


def test_a_detector_that_is_perfect_in_every_chunk_is_perfect_in_recordings_though_edges_cut_events():
    events = [
        (0, 0.50, 1000, 4.90, 2000),  # longer than a chunk
        (0, 1.20, 4000, 1.40, 6000),
        (0, 2.50, 4000, 2.70, 6000),
        (0, 3.80, 4000, 4.30, 6000),
        (1, 0.30, 8000, 0.90, 16000),
        (1, 2.00, 8000, 2.30, 16000),
    ]
    ground_truth, evaluation_set = split_events(events)
    assert len(ground_truth.boxes) > len(events)
    results = evaluate_set(evaluation_set, 0.5, resamples=5)
    assert results.matching_modes["recordings"].predictions == len(events)
    assert value(results, "f1") == value(results, "f1", "recordings") == 1.0
    np.testing.assert_allclose(
        evaluation_set.stitched.bounds[:, ::2], [(row[1], row[3]) for row in events], atol=0.011
    )
    assert evaluation_set.stitched.group.tolist() == [row[0] for row in events]
    assert evaluation_set.stitched.score == pytest.approx([0.9] * len(events))


def test_events_are_not_joined_over_a_gap_between_chunks():
    _, evaluation_set = split_events([(1, 0.70, 8000, 2.40, 16000)])  # not processed from 0.96 to 2 s
    np.testing.assert_allclose(
        evaluation_set.stitched.bounds[:, ::2], [(0.70, 0.96), (2.0, 2.40)], atol=0.011
    )


def test_events_with_low_scores_do_not_count_in_whole_recordings():
    evaluation_set = make_evaluation_set(
        two_recordings(), [], stitched=[(0, 6.0, 100, 8.0, 200, 0.9), (1, 2.0, 100, 4.0, 200, 0.3)]
    )
    assert match_recordings(evaluation_set).matches.ground_truth_row.tolist() == [0, 1]
    assert match_recordings(evaluation_set.with_min_score(0.5)).matches.ground_truth_row.tolist() == [0]


@pytest.fixture(scope="module")
def evaluated(shifted_study, tmp_path_factory):
    """Evaluate a random detector without a threshold by the command line."""
    folder = tmp_path_factory.mktemp("evaluated")
    model = random_detector(shifted_study, folder / "model")
    done = CliRunner().invoke(
        app,
        ["evaluate", str(shifted_study), "--model", model, "--out", str(folder / "out"), "--device", "cpu",
         "--set", "detection.score_threshold=0", "--set", "detection.max_detections=5"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return folder / "out", done.output


def test_evaluate_writes_metrics_page_and_tables_of_the_test_and_the_held_out_set(evaluated):
    folder, output = evaluated
    results = json.loads((folder / "results.json").read_text())
    assert [item["name"] for item in results["sets"]] == ["test", SHIFTED]
    assert results["threshold_source"].startswith("the model was saved without a threshold")
    assert results["provenance"].keys() == {"splits.parquet", "annotations.parquet", "audio.lance"}
    assert results["settings"]["detection"]["max_detections"] == 5
    chunks = [item["chunks"] for item in results["sets"]]
    assert pq.read_table(folder / "chunks.parquet").num_rows == sum(chunks)
    assert 4 * sum(chunks) < pq.read_table(folder / "predictions.parquet").num_rows <= 5 * sum(chunks)
    assert 0 < pq.read_table(folder / "events.parquet").num_rows <= 5 * sum(chunks)
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert "test: F1" in output and f"Report: {folder / 'report.html'}" in output


def test_the_saved_threshold_is_kept_and_results_go_below_the_work_folder(shifted_study, tmp_path):
    study, _, _ = open_study(shifted_study)
    model = random_detector(shifted_study, tmp_path / "model", thresholds={"score": 0.4})
    progress = []
    done = evaluate_study(
        study,
        model,
        splits=("val", "val"),
        device="cpu",
        on_progress=lambda *state: progress.append(state),
        resamples=5,
    )
    assert (done.results.threshold, done.results.threshold_source) == (
        0.4,
        "the threshold the model was saved with",
    )
    assert done.folder.startswith(study.work_dir) and done.folder.endswith(done.results.model["identity"])
    assert [item.name for item in done.results.sets] == ["val"]
    assert progress[-1] == ("val", done.results.sets[0].chunks, done.results.sets[0].chunks)


def test_without_a_threshold_one_with_a_good_f1_on_the_validation_split_is_chosen(shifted_study, tmp_path):
    model = random_detector(shifted_study, tmp_path / "model")
    hit, miss = (0, 6.0, 100, 8.0, 200, 0.3), (0, 1.0, 100, 2.0, 200, 0.2)

    def threshold(*predictions):
        def validate(split):
            assert split == "val"
            return make_evaluation_set(two_recordings(), predictions)

        return resolve_threshold(model, load_detector(model), validate)

    score, source = threshold(hit, miss)
    assert score == pytest.approx(0.25) and source.endswith("chosen for a high F1 on the validation split")
    score, source = threshold(miss)
    assert math.isinf(score) and source.endswith("no prediction on the validation split is correct")


def test_a_summary_has_a_line_for_each_set_and_names_undefined_metrics():
    results = make_results([make_evaluation_set(two_recordings(), [])], threshold=math.inf)
    assert EvaluationResult(results, "out").summary().splitlines() == [
        "Score threshold: none (a test)",
        "test: F1 0.000 (0.000–0.000), precision undefined, recall 0.000 (0.000–0.000); "
        "2 recordings, 3 boxes",
        "Report: out/report.html",
    ]
    assert EvaluationResult(make_results([]), "out").summary().startswith("Score threshold: 0.500 (a test)\n")


def test_invalid_evaluations_are_refused_with_the_remedy(shifted_study, tmp_path):
    study, _, _ = open_study(shifted_study)
    model = random_detector(shifted_study, tmp_path / "model")
    with pytest.raises(
        ConfigError, match="--split guard: no annotated split has this name. This study has train, val, test"
    ):
        evaluate_study(study, model, splits=("guard",))
    changed = study.chunking.model_copy(update={"chunk_s": 5.12})
    longer = random_detector(shifted_study, tmp_path / "longer", chunking=changed)
    with pytest.raises(ModelError, match="reads chunks of 5.12 s at 16000 Hz.*holds chunks of 2.56 s"):
        evaluate_study(study, longer)
    narrow = random_detector(shifted_study, tmp_path / "narrow", spectrogram=Spectrogram(high_hz=4000.0))
    with pytest.raises(ModelError, match="another spectrogram grid"):
        evaluate_study(study, narrow)
    held_out = study.splits.model_copy(update={"held_out": {**study.splits.held_out, "nowhere": {}}})
    with pytest.raises(ConfigError, match="no chunk in nowhere to test on"):
        evaluate_study(study.model_copy(update={"splits": held_out}), model, splits=("nowhere",))


def test_without_a_threshold_or_boxes_to_choose_one_on_evaluation_is_refused(shifted_study, tmp_path):
    study, _, _ = open_study(shifted_study)
    unannotated = study.model_copy(update={"work_dir": str(tmp_path / "work")})
    for name in ("splits.parquet", "audio.lance", "normalisation.json"):
        (tmp_path / "work").mkdir(exist_ok=True)
        (tmp_path / "work" / name).symlink_to(f"{study.work_dir}/{name}")
    model = random_detector(shifted_study, tmp_path / "model")
    with pytest.raises(ModelError, match="saved without a threshold, and the validation split has no box"):
        evaluate_study(unannotated, model, splits=("val",), device="cpu", resamples=5)
