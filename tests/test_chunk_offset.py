"""The chunk offset experiments: events detected again, outcomes of the others, and calls cut by chunks."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments import engine_accuracy
from experiments.chunk_offset import measure, variants
from experiments.chunk_offset.detectors import fade_scores, snap_edges
from experiments.event_agreement import (
    OUTCOMES,
    compare,
    concatenate,
    cut_by_chunks,
    depth_s,
    is_matched,
    mean_interval,
    outcome_fractions,
    paired_recall,
    rank_predictions,
    same_fraction,
)
from hypothesis import given
from hypothesis import strategies as st

from mast.evaluation.metrics import recall
from mast.models.postprocess import ChunkDetections
from tests.evaluation.studies import random_detector, study_under_shift

HOP_S, CHUNK_S = 4.5, 5.0
EMPTY = np.zeros((0, 5))
RESULTS = Path(__file__).parents[1] / "experiments" / "results"


def test_empty_inputs_give_empty_results():
    assert cut_by_chunks(EMPTY, 0.0, HOP_S, CHUNK_S).tolist() == []
    assert depth_s(EMPTY, 0.0, HOP_S, CHUNK_S).tolist() == []
    assert is_matched(EMPTY, EMPTY, 0.9).tolist() == []
    assert is_matched(np.array([[0.0, 100, 1, 200]]), EMPTY, 0.9).tolist() == [False]
    assert len(compare(EMPTY, EMPTY, 0.5).outcome) == 0
    assert compare(np.array([[0.0, 100, 1, 200, 0.6]]), EMPTY, 0.5).outcome.tolist() == [
        OUTCOMES.index("missing")
    ]
    assert same_fraction(np.zeros(0, bool)) is None
    none = np.zeros(0, np.int64)
    assert mean_interval(none, none) is None
    assert paired_recall(none, none, none > 0, none > 0)["difference"] is None


def test_a_call_is_cut_by_a_chunks_start_or_end_but_not_by_the_recordings_start():
    spans = [(0.0, 1.0), (4.0, 4.4), (4.4, 4.6), (4.9, 5.1), (8.9, 9.1), (5.1, 8.9)]
    calls = np.array([(start, 100.0, end, 200.0) for start, end in spans])
    assert cut_by_chunks(calls, 0.0, HOP_S, CHUNK_S).tolist() == [False, False, True, True, True, False]


@given(st.floats(0, 60), st.floats(0.05, 3), st.floats(0, 4))
def test_cut_calls_and_their_depth_equal_a_naive_loop_over_chunks(start_s, length_s, offset_s):
    end_s = start_s + length_s
    edges = [offset_s + number * HOP_S for number in range(1, 30)]
    edges += [offset_s + number * HOP_S + CHUNK_S for number in range(30)]
    call = np.array([[start_s, 100.0, end_s, 200.0]])
    assert cut_by_chunks(call, offset_s, HOP_S, CHUNK_S)[0] == any(start_s < edge < end_s for edge in edges)
    position = (start_s + end_s) / 2 - offset_s - HOP_S * np.arange(30)
    assert depth_s(call, offset_s, HOP_S, CHUNK_S)[0] == pytest.approx(
        np.minimum(position, CHUNK_S - position).max()
    )


def test_an_event_matches_only_at_its_own_position():
    targets = np.array([[1.0, 100, 2, 200], [3.0, 100, 4, 200]])
    events = np.array([[1.0, 100, 2.05, 200, 0.9], [3.3, 100, 4, 200, 0.8]])
    assert is_matched(targets, events, 0.9).tolist() == [True, False]
    assert is_matched(targets, events, 0.5).tolist() == [True, True]


def test_each_event_has_an_outcome_and_a_partner():
    events = np.array([[start, 100.0, start + 1, 200, 0.7] for start in (1.0, 3.0, 5.0, 7.0, 9.0)])
    others = events[[0, 1, 2, 3, 4]] + [
        [0, 0, 0, 0, 0],
        [0, 0, 0, 0, -0.3],
        [0, 0, 0.3, 0, 0],
        [0.3, 0, 0, 0, -0.3],
        [0.9] * 5,
    ]
    comparison = compare(events, others, 0.5)
    assert [OUTCOMES[index] for index in comparison.outcome] == list(OUTCOMES)
    assert comparison.is_same.tolist() == [
        [True] * 3,
        [False] * 3,
        [True, True, False],
        [False] * 3,
        [False] * 3,
    ]
    np.testing.assert_array_equal(comparison.partner[:4], others[:4])
    assert np.isnan(comparison.partner[4]).all()
    assert outcome_fractions(concatenate([comparison, comparison])) == dict.fromkeys(OUTCOMES, 0.2)


def test_recall_is_compared_only_between_results_for_the_same_call():
    #        call 0 of recording 0: recalled in 1 of 2 inside, missed when cut; call 1: never cut; call 0 of recording 1
    recording, call = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 0, 1, 0, 0])
    is_cut = np.array([False, False, True, False, False, True])
    is_recalled = np.array([True, False, False, True, True, True])
    result = paired_recall(recording, call, is_cut, is_recalled)
    assert result["calls"] == 2 and result["inside"][0] == 0.75 and result["cut"][0] == 0.5
    assert result["difference"] == [-0.25, -0.5, 0.0]


def test_events_are_matched_within_their_own_recording():
    event, call = np.array([[1.0, 100, 2, 200, 0.9]]), np.array([[1.0, 100, 2, 200]])
    assert recall(rank_predictions([event, EMPTY], [call, call])) == 0.5
    assert recall(rank_predictions([event, event], [call, call])) == 1.0


def test_scores_fade_towards_chunk_edges_and_boxes_are_sorted_again():
    boxes = torch.tensor([[0.0, 0, 50, 9], [16.0, 0, 90, 9], [200.0, 0, 300, 9]])
    faded = fade_scores(ChunkDetections(boxes, torch.tensor([0.8, 0.6, 0.5])), 512)
    torch.testing.assert_close(faded.scores, torch.tensor([0.5, 0.45, 0.4]))
    torch.testing.assert_close(faded.boxes, boxes[[2, 1, 0]])


def test_edges_snap_to_a_near_level_change():
    spec = torch.zeros(64, 256)
    spec[20:40, 100:160] = 3.0
    near, far = [102.0, 19.0, 157.5, 41.0], [80.0, 10.0, 180.0, 50.0]
    snapped = snap_edges(torch.tensor([near, far]), spec)
    torch.testing.assert_close(snapped[0], torch.tensor([100.0, 20, 160, 40]), atol=0.1, rtol=0)
    assert snap_edges(torch.zeros(0, 4), spec).shape == (0, 4)
    assert ((snapped[1] - torch.tensor(far)).abs() <= torch.tensor([4.0, 2, 4, 2])).all()


@pytest.fixture(scope="module")
def study_and_model(tmp_path_factory):
    """Return a study under shift, and an untrained detector with a very low threshold."""
    folder = tmp_path_factory.mktemp("offset")
    file = study_under_shift(folder)
    values = json.loads(file.read_text())
    values["detection"] = {"score_threshold": 0.001, "max_detections": 10}
    file.write_text(json.dumps(values))
    return file, random_detector(file, folder / "detector", thresholds={"score": 0.002})


@pytest.mark.parametrize(
    ("experiment", "name"),
    [(measure, "chunk_offset"), (variants, "chunk_offset_variants"), (engine_accuracy, "engine_accuracy")],
)
def test_a_small_run_writes_the_keys_of_the_committed_result(
    experiment, name, study_and_model, tmp_path, monkeypatch
):
    file, model = study_and_model
    out = tmp_path / "result.json"
    monkeypatch.setattr(sys, "argv", ["x", str(file), model, "--recordings", "2", "--out", str(out)])
    monkeypatch.setattr(engine_accuracy, "PAIRS", engine_accuracy.PAIRS[:2])
    monkeypatch.setattr(measure, "OFFSETS_FRAMES", (77, 160))
    monkeypatch.setattr(variants, "RECORDINGS", 2)
    experiment.main()
    small = json.loads(out.read_text("utf-8"))
    full = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    assert small.keys() == full.keys()
    if experiment is measure:
        assert small["events_compared"] > 0 and small["same_in_other_batches"] == 1.0
        assert small["recall_of_the_same_calls"].keys() == full["recall_of_the_same_calls"].keys()
    if experiment is variants:
        assert [row["variant"] for row in small["variants"]] == [row["variant"] for row in full["variants"]]
        assert small["variants"][0]["ap_gain"] == [0.0, 0.0, 0.0]
