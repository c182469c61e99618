"""What thresholds from few boxes cost: dealing recordings, and rules that choose."""

import json
import sys

import numpy as np
import pytest
from experiments import made_up_thresholds, thresholds
from experiments.thresholds import RULES, bagged, lost_by_rule, only
from hypothesis import given
from hypothesis import strategies as st

from mast.evaluation.metrics import Ranking, best_threshold, f1


def ranking(seed: int, units: int = 40, skill: float = 0.3) -> Ranking:
    """Detections whose scores tell by some skill whether they are right."""
    rng = np.random.default_rng(seed)
    truths = np.repeat(np.arange(units), rng.integers(1, 4, units))
    wrong = rng.integers(units, size=2 * len(truths))
    hits = np.append(np.ones(len(truths)), np.zeros(len(wrong)))
    scores = (0.4 + skill * hits + rng.normal(0, 0.1, len(hits))).clip(0, 1)
    return Ranking.of(scores, hits, np.append(truths, wrong), truths, units)


@given(st.integers(0, 100), st.data())
def test_dealt_recordings_add_up_to_the_whole(seed, data):
    whole = ranking(seed)
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=40, max_size=40)))
    parts = [only(whole, np.flatnonzero(chosen)), only(whole, np.flatnonzero(~chosen))]
    assert sum(part.truths.sum() for part in parts) == whole.truths.sum()
    assert sorted(np.concatenate([part.score for part in parts])) == sorted(whole.score)
    assert not set(parts[0].unit) & set(parts[1].unit)


@given(st.integers(0, 100), st.integers(0, 60))
def test_what_is_dealt_holds_enough_boxes_and_put_together_with_the_rest_is_the_whole(seed, boxes):
    whole = ranking(seed)
    dealt = made_up_thresholds.deal(whole, boxes, np.random.default_rng(seed))
    assert dealt.truths.sum() >= boxes and (boxes or not len(dealt.score))
    rest = only(whole, np.flatnonzero(dealt.truths == 0))
    both = made_up_thresholds.together(dealt, rest)
    assert best_threshold(both) == best_threshold(whole)
    assert [f1(both.above(score)) for score in (0.2, 0.5, 0.8)] == [
        f1(whole.above(score)) for score in (0.2, 0.5, 0.8)
    ]


def test_a_recording_drawn_twice_counts_twice():
    whole = ranking(0)
    twice = only(whole, np.tile(np.arange(40), 2))
    assert len(twice.score) == 2 * len(whole.score)
    assert f1(twice.above(0.5)) == pytest.approx(f1(whole.above(0.5)))
    assert (np.diff(twice.score) <= 0).all()


def test_a_detector_that_tells_right_from_wrong_for_sure_loses_nothing():
    sure = ranking(1, skill=3.0)
    found = lost_by_rule([sure], 10, 20)
    assert found["sets"] == 1
    assert all(own["lost"] <= 0.02 for own in found["rules"].values())


def test_with_few_boxes_the_steady_rule_loses_least():
    found = lost_by_rule([ranking(seed, skill=0.15) for seed in range(6)], 5, 60)["rules"]
    assert found["steady"]["lost"] < found["best"]["lost"]
    assert all(own["lost"] >= 0 for own in found.values())


def test_sets_with_too_few_boxes_are_left_out():
    assert lost_by_rule([ranking(0, units=4)], 40, 5) == {}


def test_where_no_resample_finds_anything_the_best_score_stands():
    nothing = Ranking.of(np.array([0.5]), np.zeros(1), np.zeros(1, np.int64), np.zeros(1, np.int64), 1)
    assert bagged(nothing, np.random.default_rng(0)) == best_threshold(nothing) == np.inf


def test_the_command_writes_what_the_full_result_holds(tmp_path, monkeypatch):
    folder, out = tmp_path / "evaluation", tmp_path / "thresholds.json"
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps({"sets": [{"name": "site"}]}))
    monkeypatch.setattr(thresholds, "ranking_of", lambda place, name: ranking(0))
    monkeypatch.setattr(sys, "argv", ["thresholds", str(folder), "--draws", "3", "--out", str(out)])
    thresholds.main()
    small = json.loads(out.read_text())
    assert small.keys() == json.loads((thresholds.RESULTS / "thresholds.json").read_text()).keys()
    assert small["sizes"]["5"]["rules"].keys() == RULES.keys()
