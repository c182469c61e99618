"""A model on a study's test sets: from chunks and boxes to numbers, tables and files."""

import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from mast.cli import app
from mast.config import Spectrogram
from mast.datasets.chunk_boxes import CUT_SHORT, IN_NO_CHUNK
from mast.datasets.examples import detection_examples
from mast.detection.evaluate import Evaluated, evaluate_study, threshold_of, with_predictions
from mast.errors import ConfigError, ModelError
from mast.evaluation.figures import curves, set_results, strata
from mast.evaluation.results import to_json, write_results
from mast.evaluation.trial import Trial, match_chunks, match_recordings
from mast.evaluation.truths import read_truths
from mast.models.decoding import Detections
from mast.models.loading import load_detector
from mast.spectrogram import MelGrid
from tests.evaluation.studies import (
    SHIFTED,
    made_results,
    made_trial,
    made_truths,
    opened,
    oracle,
    random_detector,
    truths_of,
)

NO_SCORES = [("f1", 0.0), ("recall", 0.0)]


def value(results, name, way="iou"):
    return results.ways[way].numbers[name].value


# Two recordings. In the first, chunks start at 0 and 5 s and are 10 s long: the sound from 6 to 8 s is in both.
CHUNKS = [(0, 0.0), (0, 5.0), (1, 0.0)]
TRUTHS = [(0, 6.0, 100, 8.0, 200), (1, 1.0, 100, 3.0, 200), (2, 2.0, 100, 4.0, 200)]
EVENTS = [(0, 6.0, 100, 8.0, 200), (1, 2.0, 100, 4.0, 200)]


def two_recordings(**changed):
    return made_truths(CHUNKS, TRUTHS, events=EVENTS, box_event=[0, 0, 1], **changed)


def test_a_set_without_chunks_has_no_numbers_and_no_crash():
    results = set_results(made_trial(made_truths([], []), []), 0.5, resamples=5)
    assert (results.recordings, results.chunks, results.ways["iou"].truths) == (0, 0, 0)
    assert all(math.isnan(item.value) for way in results.ways.values() for item in way.numbers.values())
    assert results.strata == {
        name: [] for name in ("site", "hour", "band", "duration", "signal_to_noise", "label")
    }


def test_numbers_by_chunk_and_by_recording_of_a_case_worked_out_by_hand():
    trial = made_trial(
        two_recordings(),
        [
            (0, 6.0, 100, 8.0, 200, 0.9),  # finds the first sound in the first chunk
            (1, 1.0, 100, 3.0, 200, 0.8),  # and again in the second: the same sound of the recording
            (2, 7.0, 100, 9.0, 200, 0.7),  # is no sound
            (2, 2.0, 100, 4.0, 150, 0.3),  # finds half of the last one, below the threshold
        ],
        sounds=[
            (0, 6.0, 100, 8.0, 200, 0.9),
            (1, 7.0, 100, 9.0, 200, 0.7),
            (1, 2.0, 100, 4.0, 150, 0.3),
        ],
    )
    results = set_results(trial, 0.5, resamples=5)
    figures = results.ways["iou"]
    assert (figures.truths, figures.predictions, figures.hits) == (3, 3, 2)
    assert value(results, "precision") == value(results, "recall") == value(results, "f1") == 2 / 3
    assert value(results, "mean_iou") == 1.0
    assert value(results, "ap_area") == pytest.approx(
        (1 + 1 + 3 / 4) / 3
    )  # also what scores below the threshold
    assert value(results, "ap_11_points") == pytest.approx(7 / 11)  # recalls 0, 0.1 … 0.6
    assert figures.best_f1 == pytest.approx(6 / 7) and figures.best_score == 0.3
    assert figures.macro["macro_f1"] == pytest.approx((1 + 1 + 0) / 3)
    whole = results.ways["recordings"]
    assert (whole.truths, whole.predictions, whole.hits) == (2, 2, 1)
    assert value(results, "f1", "recordings") == 0.5


def test_loose_and_time_matching_forgive_what_boxes_do_not_share():
    truths = made_truths([(0, 0.0)], [(0, 1.0, 100, 3.0, 200)])
    small = set_results(made_trial(truths, [(0, 1.0, 100, 3.0, 120, 0.9)]), 0.5, resamples=5)
    elsewhere = set_results(made_trial(truths, [(0, 1.0, 500, 3.0, 600, 0.9)]), 0.5, resamples=5)
    assert [value(small, "f1", way) for way in ("iou", "iomin", "time")] == [0, 1, 1]
    assert [value(elsewhere, "f1", way) for way in ("iou", "iomin", "time")] == [0, 0, 1]


def test_an_interval_holds_its_number_and_is_drawn_over_recordings():
    truths = made_truths([(n, 0.0) for n in range(20)], [(n, 1.0, 100, 3.0, 200) for n in range(20)])
    trial = made_trial(truths, [(n, 1.0, 100, 3.0, 200, 0.9) for n in range(10)])
    recall = set_results(trial, 0.5, resamples=200).ways["iou"].numbers["recall"]
    assert recall.value == 0.5
    assert 0 < recall.low < 0.5 < recall.high < 1


def test_leaving_out_what_scores_low_changes_no_match_of_the_others():
    trial = made_trial(
        two_recordings(), [(0, 6, 100, 8, 200, 0.9), (0, 6, 100, 8, 190, 0.2), (2, 2, 100, 4, 200, 0.8)]
    )
    all_matches, high = match_chunks(trial).matches, match_chunks(trial.above(0.5)).matches
    assert high.truth.tolist() == all_matches.truth[[0, 2]].tolist() == [0, 2]


def test_predictions_must_have_scores():
    truths = two_recordings()
    with pytest.raises(ValueError, match="have scores"):
        Trial(truths, truths.boxes, truths.boxes.bounds, truths.events).above(0.5)


def test_strata_by_hand():
    truths = two_recordings(
        chunk_hour=np.array([5, 6, -1]), event_labels=("frog", ""), event_snr_db=np.array([4.0, np.nan])
    )
    trial = made_trial(truths, [(0, 6.0, 100, 8.0, 200, 0.9), (2, 2.0, 3000, 2.1, 5000, 0.8)])
    by = {
        name: {part.name: (part.truths, part.predictions, part.recall) for part in parts}
        for name, parts in strata(trial).items()
    }
    assert by["site"] == {"A": (2, 1, 0.5), "B": (1, 1, 0.0)}
    assert by["hour"] == {"05–06 h": (1, 1, 1.0), "06–07 h": (1, 0, 0.0), "no clock": (1, 1, 0.0)}
    assert by["band"] == {"< 250 Hz": (3, 1, 1 / 3), "≥ 4000 Hz": (0, 1, pytest.approx(np.nan, nan_ok=True))}
    assert by["duration"].keys() == {"< 0.25 s", "2–4 s"}
    assert by["signal_to_noise"] == {"3–6 dB": (2, 0, 0.5), "cannot be told": (1, 0, 0.0)}
    assert by["label"] == {"frog": (2, 0, 0.5), "(no label)": (1, 0, 0.0)}
    assert all(math.isnan(part.precision) and math.isnan(part.f1) for part in strata(trial)["label"])


def test_a_curve_of_many_scores_is_thinned_and_keeps_its_ends():
    truths = made_truths([(0, 0.0)], [(0, 1.0, 100, 3.0, 200)])
    scores = np.linspace(0.1, 0.9, 1000)
    ranking = match_chunks(made_trial(truths, [(0, 1.0, 100, 3.0, 200, score) for score in scores])).ranking
    drawn = curves(ranking)
    assert len(drawn.score) == 200
    assert (drawn.score[0], drawn.score[-1]) == (0.9, 0.1)
    assert (drawn.precision[0], drawn.precision[-1], drawn.recall[-1]) == (1.0, 0.001, 1.0)


def test_what_cannot_be_told_is_null_in_json():
    written = json.loads(to_json(made_results([made_trial(two_recordings(), [])], threshold=math.inf)))
    figures = written["sets"][0]["ways"]["iou"]
    assert written["threshold"] is None and figures["best_score"] is None
    assert figures["numbers"]["precision"]["value"] is None
    assert [figures["numbers"][name]["value"] for name, _ in NO_SCORES] == [number for _, number in NO_SCORES]


def test_predictions_of_slowed_down_sound_are_told_in_the_recordings_own_time_and_pitch():
    grid = MelGrid(Spectrogram(), 256)
    truths = made_truths([(0, 3.0)], [], chunk_expansion=np.array([10.0]))
    box = grid.to_boxes(torch.tensor([[1.0, 1000.0, 2.0, 4000.0]]))
    trial = with_predictions(truths, iter([Detections(box, torch.tensor([0.5]))]), grid)
    start_s, low_hz, end_s, high_hz = trial.found_events[0]
    assert (start_s, end_s) == pytest.approx((3.1, 3.2))
    assert (low_hz, high_hz) == pytest.approx((10_000, 40_000), rel=0.02)


def test_predictions_of_another_number_of_chunks_are_refused():
    with pytest.raises(ValueError, match="0 chunks of predictions for 3"):
        with_predictions(two_recordings(), iter(()), MelGrid(Spectrogram(), 256))


def test_truths_of_a_split_are_those_that_training_would_see_and_each_sound_is_an_event_once(shifted_study):
    study, store, frontend = opened(shifted_study)
    for split in ("train", SHIFTED):
        truths, places = read_truths(study, store, split, frontend)
        examples = detection_examples(study, store, split)
        seen = examples.chunks.boxes(np.arange(len(places)))
        for chunk, own in enumerate(seen):
            mine = truths.boxes.bounds[truths.boxes.group == chunk]
            assert sorted(map(tuple, mine)) == sorted(map(tuple, own.double().numpy()))
        assert 0 < len(truths.events) < len(truths.boxes)
        whole = np.column_stack([truths.events.group, truths.events.bounds])
        assert len(np.unique(whole, axis=0)) == len(whole)
        assert set(truths.left_out) <= {CUT_SHORT} and IN_NO_CHUNK not in truths.left_out
        assert np.isfinite(truths.event_snr_db).all() and (truths.event_snr_db > 0).mean() > 0.8
    assert set(truths.recordings) == {"card/B1/20240511_073000.WAV"} and set(truths.sites) == {"B1"}
    assert set(truths.event_labels) == {"insect"}
    assert set(truths.chunk_hour.tolist()) == {7}


def test_a_perfect_detector_is_right_in_every_chunk_and_recording_of_every_set_in_every_way(shifted_study):
    for split in ("train", "test", "val", SHIFTED):
        study, _, truths = truths_of(shifted_study, split)
        results = set_results(oracle(truths, study), 0.5, resamples=5)
        assert results.ways["iou"].truths > 0
        for figures in results.ways.values():
            numbers = {name: item.value for name, item in figures.numbers.items()}
            assert numbers == pytest.approx(dict.fromkeys(numbers, 1.0), abs=1e-12)
            assert figures.macro["macro_f1"] == figures.best_f1 == 1.0
        assert results.curves.calibration_error == 0.0


def test_an_empty_detector_finds_nothing_and_its_tables_can_be_read(shifted_study, tmp_path):
    study, _, truths = truths_of(shifted_study, "test")
    chunks = len(truths.chunk_recording)
    none = with_predictions(
        truths,
        iter([Detections(torch.zeros(0, 4), torch.zeros(0))] * chunks),
        MelGrid(study.spectrogram, 256),
    )
    results = made_results([none])
    assert value(results.sets[0], "recall") == 0 and math.isnan(value(results.sets[0], "precision"))
    write_results(str(tmp_path), results, [none])
    assert pq.read_table(tmp_path / "predictions.parquet").num_rows == 0
    assert pq.read_table(tmp_path / "events.parquet").num_rows == 0
    assert not any(pq.read_table(tmp_path / "truths.parquet")["found"].to_pylist())
    assert pq.read_table(tmp_path / "chunks.parquet").num_rows == chunks


def test_tables_say_of_every_box_where_it_is_and_what_became_of_it(tmp_path):
    trial = made_trial(
        two_recordings(event_labels=("frog", "owl")),
        [(0, 6.0, 100, 8.0, 200, 0.9), (1, 1.0, 100, 3.0, 200, 0.8), (2, 7.0, 100, 9.0, 200, 0.3)],
        sounds=[(0, 6.0, 100, 8.0, 200, 0.9), (1, 7.0, 100, 9.0, 200, 0.3)],
    )
    write_results(str(tmp_path), made_results([trial]), [trial])
    predictions = pq.read_table(tmp_path / "predictions.parquet").to_pylist()
    assert [(row["recording_id"], row["start_s"], row["end_s"], row["score"]) for row in predictions] == [
        ("card/0.wav", 6.0, 8.0, 0.9), ("card/0.wav", 6.0, 8.0, 0.8), ("card/1.wav", 7.0, 9.0, 0.3),
    ]  # fmt: skip
    assert [(row["matched"], row["overlap"]) for row in predictions] == [(True, 1), (True, 1), (False, 0)]
    events = pq.read_table(tmp_path / "events.parquet").to_pylist()
    assert [(row["recording_id"], row["start_s"], row["score"], row["matched"]) for row in events] == [
        ("card/0.wav", 6.0, 0.9, True), ("card/1.wav", 7.0, 0.3, False),
    ]  # fmt: skip
    truths = pq.read_table(tmp_path / "truths.parquet").to_pylist()
    assert [(row["label"], row["chunk_start_s"], row["found"]) for row in truths] == [
        ("frog", 0.0, True), ("frog", 5.0, True), ("owl", 0.0, False),
    ]  # fmt: skip


# Chunks of 2.56 s, a new one every 1.28 s, of two recordings; the second is slowed down four times, and has a gap.
CUT = [(0, 0.0), (0, 1.28), (0, 2.56), (1, 0.0), (1, 0.32), (1, 2.0)]


def cut_sounds(sounds):
    """Sounds (recording, start_s, low_hz, end_s, high_hz) in the chunks of `CUT`, and as a perfect model finds them."""
    grid = MelGrid(Spectrogram(), 256)
    expansion = np.array([1.0, 1.0, 1.0, 4.0, 4.0, 4.0])
    parts, box_event = [], []
    for chunk, (recording, chunk_start_s) in enumerate(CUT):
        for number, (own, start_s, low_hz, end_s, high_hz) in enumerate(sounds):
            factor = expansion[chunk]
            first_s, last_s = (factor * (at_s - chunk_start_s) for at_s in (start_s, end_s))
            if own == recording and last_s > 0 and first_s < 2.56:
                event = torch.tensor([[max(first_s, 0), low_hz / factor, last_s, high_hz / factor]])
                parts.append((chunk, *grid.to_boxes(event)[0].tolist()))
                box_event.append(number)
    truths = made_truths(CUT, parts, events=sounds, box_event=box_event, chunk_expansion=expansion)
    own = [torch.from_numpy(truths.boxes.bounds[truths.boxes.group == chunk]) for chunk in range(len(CUT))]
    detections = [Detections(item.float(), torch.full((len(item),), 0.9)) for item in own]
    return truths, with_predictions(truths, detections, grid)


def test_a_detector_that_is_right_in_every_chunk_is_right_in_whole_recordings_though_edges_cut_the_sounds():
    sounds = [
        (0, 0.50, 1000, 4.90, 2000),  # longer than any chunk
        (0, 1.20, 4000, 1.40, 6000),
        (0, 2.50, 4000, 2.70, 6000),
        (0, 3.80, 4000, 4.30, 6000),
        (1, 0.30, 8000, 0.90, 16000),
        (1, 2.00, 8000, 2.30, 16000),
    ]
    truths, trial = cut_sounds(sounds)
    assert len(truths.boxes) > len(sounds)
    results = set_results(trial, 0.5, resamples=5)
    assert results.ways["recordings"].predictions == len(sounds)
    assert value(results, "f1") == value(results, "f1", "recordings") == 1.0
    np.testing.assert_allclose(
        trial.stitched.bounds[:, ::2], [(row[1], row[3]) for row in sounds], atol=0.011
    )
    assert trial.stitched.group.tolist() == [row[0] for row in sounds]
    assert trial.stitched.score == pytest.approx([0.9] * len(sounds))


def test_over_a_gap_between_chunks_nothing_is_joined():
    _, trial = cut_sounds([(1, 0.70, 8000, 2.40, 16000)])  # unheard from 0.96 to 2 s
    np.testing.assert_allclose(trial.stitched.bounds[:, ::2], [(0.70, 0.96), (2.0, 2.40)], atol=0.011)


def test_sounds_of_low_scores_do_not_count_in_whole_recordings():
    trial = made_trial(
        two_recordings(), [], sounds=[(0, 6.0, 100, 8.0, 200, 0.9), (1, 2.0, 100, 4.0, 200, 0.3)]
    )
    assert match_recordings(trial).matches.truth.tolist() == [0, 1]
    assert match_recordings(trial.above(0.5)).matches.truth.tolist() == [0]


@pytest.fixture(scope="module")
def evaluated(shifted_study, tmp_path_factory):
    """A random detector without a threshold, evaluated by the command line."""
    folder = tmp_path_factory.mktemp("evaluated")
    model = random_detector(shifted_study, folder / "model")
    done = CliRunner().invoke(
        app,
        ["evaluate", str(shifted_study), "--model", model, "--out", str(folder / "out"), "--device", "cpu",
         "--set", "detection.min_score=0", "--set", "detection.max_boxes=5"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return folder / "out", done.output


def test_evaluate_writes_numbers_page_and_tables_of_the_test_and_the_held_out_set(evaluated):
    folder, output = evaluated
    results = json.loads((folder / "results.json").read_text())
    assert [item["name"] for item in results["sets"]] == ["test", SHIFTED]
    assert results["threshold_source"].startswith("the model was saved without a threshold")
    assert results["made_from"].keys() == {"splits.parquet", "annotations.parquet", "audio.lance"}
    assert results["settings"]["detection"]["max_boxes"] == 5
    chunks = [item["chunks"] for item in results["sets"]]
    assert pq.read_table(folder / "chunks.parquet").num_rows == sum(chunks)
    assert 4 * sum(chunks) < pq.read_table(folder / "predictions.parquet").num_rows <= 5 * sum(chunks)
    assert 0 < pq.read_table(folder / "events.parquet").num_rows <= 5 * sum(chunks)
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert "test: F1" in output and f"Report: {folder / 'report.html'}" in output


def test_the_threshold_a_model_was_saved_with_is_kept_and_results_go_below_the_work_folder(
    shifted_study, tmp_path
):
    study, _, _ = opened(shifted_study)
    model = random_detector(shifted_study, tmp_path / "model", thresholds={"score": 0.4})
    heard = []
    done = evaluate_study(
        study,
        model,
        splits=("val", "val"),
        device="cpu",
        on_progress=lambda *now: heard.append(now),
        resamples=5,
    )
    assert (done.results.threshold, done.results.threshold_source) == (
        0.4,
        "the threshold the model was saved with",
    )
    assert done.folder.startswith(study.work) and done.folder.endswith(done.results.model["identity"])
    assert [item.name for item in done.results.sets] == ["val"]
    assert heard[-1] == ("val", done.results.sets[0].chunks, done.results.sets[0].chunks)


def test_without_a_threshold_one_with_a_good_f1_on_the_validation_split_is_taken(shifted_study, tmp_path):
    model = random_detector(shifted_study, tmp_path / "model")
    hit, miss = (0, 6.0, 100, 8.0, 200, 0.3), (0, 1.0, 100, 2.0, 200, 0.2)

    def threshold(*predictions):
        def hear(split):
            assert split == "val"
            return made_trial(two_recordings(), predictions)

        return threshold_of(model, load_detector(model), hear)

    score, source = threshold(hit, miss)
    assert score == pytest.approx(0.25) and source.endswith("a good F1 on the validation split")
    score, source = threshold(miss)
    assert math.isinf(score) and source.endswith("no box is right on the validation split at any")


def test_a_summary_has_a_line_for_each_set_and_says_what_cannot_be_told():
    results = made_results([made_trial(two_recordings(), [])], threshold=math.inf)
    assert Evaluated(results, "out").summary().splitlines() == [
        "No box counts: made up",
        "test: F1 0.000 (0.000–0.000), precision cannot be told, recall 0.000 (0.000–0.000); "
        "2 recordings, 3 boxes",
        "Report: out/report.html",
    ]
    assert (
        Evaluated(made_results([]), "out").summary().startswith("Boxes of a score of 0.500 or more: made up")
    )


def test_what_cannot_be_evaluated_is_refused_with_the_remedy(shifted_study, tmp_path):
    study, _, _ = opened(shifted_study)
    model = random_detector(shifted_study, tmp_path / "model")
    with pytest.raises(
        ConfigError, match="--split guard: no such split with labels. This study has train, val, test"
    ):
        evaluate_study(study, model, splits=("guard",))
    changed = study.chunking.model_copy(update={"chunk_s": 5.12})
    longer = random_detector(shifted_study, tmp_path / "longer", chunking=changed)
    with pytest.raises(ModelError, match="hears chunks of 5.12 s at 16000 Hz.*holds chunks of 2.56 s"):
        evaluate_study(study, longer)
    narrow = random_detector(shifted_study, tmp_path / "narrow", spectrogram=Spectrogram(high_hz=4000.0))
    with pytest.raises(ModelError, match="another grid"):
        evaluate_study(study, narrow)
    held_out = study.splits.model_copy(update={"held_out": {**study.splits.held_out, "nowhere": {}}})
    with pytest.raises(ConfigError, match="nothing in nowhere to test on"):
        evaluate_study(study.model_copy(update={"splits": held_out}), model, splits=("nowhere",))


def test_without_a_threshold_or_boxes_to_choose_one_on_nothing_is_told(shifted_study, tmp_path):
    study, _, _ = opened(shifted_study)
    silent = study.model_copy(update={"work": str(tmp_path / "work")})
    for name in ("splits.parquet", "audio.lance", "normalisation.json"):
        (tmp_path / "work").mkdir(exist_ok=True)
        (tmp_path / "work" / name).symlink_to(f"{study.work}/{name}")
    model = random_detector(shifted_study, tmp_path / "model")
    with pytest.raises(ModelError, match="saved without a threshold, and the validation split has no box"):
        evaluate_study(silent, model, splits=("val",), device="cpu", resamples=5)
