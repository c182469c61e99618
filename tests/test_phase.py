"""What the comparison of chunk phases counts: sounds found again, what became of others, and calls that chunks cut."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments import engines, phase, phase_ways
from experiments.agreement import (
    FATES,
    compare,
    cut_by_chunks,
    depth_s,
    is_among,
    mean_interval,
    paired_recall,
    ranked,
    same_share,
    shares,
    together,
)
from experiments.phase_finders import drawn, faded
from hypothesis import given
from hypothesis import strategies as st

from mast.evaluation.metrics import recall
from mast.models.decoding import Detections
from tests.evaluation.studies import random_detector, study_under_shift

HOP_S, CHUNK_S = 4.5, 5.0
NOTHING = np.zeros((0, 5))
RESULTS = Path(__file__).parents[1] / "experiments" / "results"


def test_without_calls_nothing_is_cut_and_without_sounds_nothing_is_found():
    assert cut_by_chunks(NOTHING, 0.0, HOP_S, CHUNK_S).tolist() == []
    assert depth_s(NOTHING, 0.0, HOP_S, CHUNK_S).tolist() == []
    assert is_among(NOTHING, NOTHING, 0.9).tolist() == []
    assert is_among(np.array([[0.0, 100, 1, 200]]), NOTHING, 0.9).tolist() == [False]
    assert len(compare(NOTHING, NOTHING, 0.5).fate) == 0
    assert compare(np.array([[0.0, 100, 1, 200, 0.6]]), NOTHING, 0.5).fate.tolist() == [FATES.index("gone")]
    assert same_share(np.zeros(0, bool)) is None
    none = np.zeros(0, np.int64)
    assert mean_interval(none, none) is None
    assert paired_recall(none, none, none > 0, none > 0)["difference"] is None


def test_a_call_is_cut_by_a_chunks_start_or_end_but_not_by_the_recordings_start():
    spans = [(0.0, 1.0), (4.0, 4.4), (4.4, 4.6), (4.9, 5.1), (8.9, 9.1), (5.1, 8.9)]
    calls = np.array([(start, 100.0, end, 200.0) for start, end in spans])
    assert cut_by_chunks(calls, 0.0, HOP_S, CHUNK_S).tolist() == [False, False, True, True, True, False]


@given(st.floats(0, 60), st.floats(0.05, 3), st.floats(0, 4))
def test_calls_are_cut_as_chunk_after_chunk_says_and_lie_as_deep(start_s, length_s, begin_s):
    end_s = start_s + length_s
    edges = [begin_s + number * HOP_S for number in range(1, 30)]
    edges += [begin_s + number * HOP_S + CHUNK_S for number in range(30)]
    call = np.array([[start_s, 100.0, end_s, 200.0]])
    assert cut_by_chunks(call, begin_s, HOP_S, CHUNK_S)[0] == any(start_s < edge < end_s for edge in edges)
    into = (start_s + end_s) / 2 - begin_s - HOP_S * np.arange(30)
    assert depth_s(call, begin_s, HOP_S, CHUNK_S)[0] == pytest.approx(np.minimum(into, CHUNK_S - into).max())


def test_a_sound_is_found_again_only_where_it_was():
    sounds = np.array([[1.0, 100, 2, 200], [3.0, 100, 4, 200]])
    events = np.array([[1.0, 100, 2.05, 200, 0.9], [3.3, 100, 4, 200, 0.8]])
    assert is_among(sounds, events, 0.9).tolist() == [True, False]
    assert is_among(sounds, events, 0.5).tolist() == [True, True]


def test_what_becomes_of_a_sound_is_told_with_its_partner():
    sounds = np.array([[start, 100.0, start + 1, 200, 0.7] for start in (1.0, 3.0, 5.0, 7.0, 9.0)])
    others = sounds[[0, 1, 2, 3, 4]] + [
        [0, 0, 0, 0, 0],
        [0, 0, 0, 0, -0.3],
        [0, 0, 0.3, 0, 0],
        [0.3, 0, 0, 0, -0.3],
        [0.9] * 5,
    ]
    found = compare(sounds, others, 0.5)
    assert [FATES[fate] for fate in found.fate] == list(FATES)
    assert found.is_same.tolist() == [[True] * 3, [False] * 3, [True, True, False], [False] * 3, [False] * 3]
    np.testing.assert_array_equal(found.partner[:4], others[:4])
    assert np.isnan(found.partner[4]).all()
    assert shares(together([found, found])) == dict.fromkeys(FATES, 0.2)


def test_recall_is_compared_between_hearings_of_the_same_call_alone():
    #        call 0 of recording 0: found in 1 of 2 inside, missed when cut; call 1: never cut; call 0 of recording 1
    recording, call = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 0, 1, 0, 0])
    is_cut = np.array([False, False, True, False, False, True])
    is_found = np.array([True, False, False, True, True, True])
    told = paired_recall(recording, call, is_cut, is_found)
    assert told["calls"] == 2 and told["inside"][0] == 0.75 and told["cut"][0] == 0.5
    assert told["difference"] == [-0.25, -0.5, 0.0]


def test_events_are_matched_within_their_own_recording():
    event, call = np.array([[1.0, 100, 2, 200, 0.9]]), np.array([[1.0, 100, 2, 200]])
    assert recall(ranked([event, NOTHING], [call, call])) == 0.5
    assert recall(ranked([event, event], [call, call])) == 1.0


def test_boxes_fade_towards_the_edges_of_a_chunk_and_are_ranked_anew():
    boxes = torch.tensor([[0.0, 0, 50, 9], [16.0, 0, 90, 9], [200.0, 0, 300, 9]])
    found = faded(Detections(boxes, torch.tensor([0.8, 0.6, 0.5])), 512)
    torch.testing.assert_close(found.scores, torch.tensor([0.5, 0.45, 0.4]))
    torch.testing.assert_close(found.boxes, boxes[[2, 1, 0]])


def test_edges_are_drawn_to_the_sound_if_it_is_near():
    spec = torch.zeros(64, 256)
    spec[20:40, 100:160] = 3.0
    near, far = [102.0, 19.0, 157.5, 41.0], [80.0, 10.0, 180.0, 50.0]
    found = drawn(torch.tensor([near, far]), spec)
    torch.testing.assert_close(found[0], torch.tensor([100.0, 20, 160, 40]), atol=0.1, rtol=0)
    assert drawn(torch.zeros(0, 4), spec).shape == (0, 4)
    assert ((found[1] - torch.tensor(far)).abs() <= torch.tensor([4.0, 2, 4, 2])).all()


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    """A study under shift, and a detector that has learned nothing and tells of everything."""
    folder = tmp_path_factory.mktemp("phase")
    file = study_under_shift(folder)
    values = json.loads(file.read_text())
    values["detection"] = {"min_score": 0.001, "max_boxes": 10}
    file.write_text(json.dumps(values))
    return file, random_detector(file, folder / "detector", thresholds={"score": 0.002})


@pytest.mark.parametrize("experiment", [phase, phase_ways, engines])
def test_a_small_run_writes_what_the_full_result_holds(experiment, heard, tmp_path, monkeypatch):
    file, model = heard
    out = tmp_path / "result.json"
    monkeypatch.setattr(sys, "argv", ["x", str(file), model, "--recordings", "2", "--out", str(out)])
    monkeypatch.setattr(engines, "PAIRS", engines.PAIRS[:2])
    monkeypatch.setattr(phase, "PHASES_FRAMES", (77, 160))
    monkeypatch.setattr(phase_ways, "RECORDINGS", 2)
    experiment.main()
    small, name = json.loads(out.read_text("utf-8")), experiment.__name__.split(".")[-1]
    full = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    assert small.keys() == full.keys()
    if experiment is phase:
        assert small["events_compared"] > 0 and small["same_in_other_batches"] == 1.0
        assert small["recall_of_the_same_calls"].keys() == full["recall_of_the_same_calls"].keys()
    if experiment is phase_ways:
        assert [row["way"] for row in small["ways"]] == [row["way"] for row in full["ways"]]
        assert small["ways"][0]["ap_gain"] == [0.0, 0.0, 0.0]
