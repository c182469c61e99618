"""Tests of thresholds chosen on few boxes: sampling of recordings, and selection rules."""

import json
import sys

import numpy as np
import pytest
from experiments import synthetic_thresholds, threshold_selection
from experiments.threshold_selection import RULES, bagged, loss_by_rule, select_units
from hypothesis import given
from hypothesis import strategies as st

from mast.evaluation.metrics import RankedPredictions, f1, max_f1_threshold


def ranking(seed: int, units: int = 40, skill: float = 0.3) -> RankedPredictions:
    """Return detections whose scores are higher by `skill` if they are correct."""
    rng = np.random.default_rng(seed)
    units_of_boxes = np.repeat(np.arange(units), rng.integers(1, 4, units))
    wrong = rng.integers(units, size=2 * len(units_of_boxes))
    hits = np.append(np.ones(len(units_of_boxes)), np.zeros(len(wrong)))
    scores = (0.4 + skill * hits + rng.normal(0, 0.1, len(hits))).clip(0, 1)
    return RankedPredictions.of(scores, hits, np.append(units_of_boxes, wrong), units_of_boxes, units)


@given(st.integers(0, 100), st.data())
def test_two_disjoint_selections_add_up_to_all_recordings(seed, data):
    complete = ranking(seed)
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=40, max_size=40)))
    parts = [select_units(complete, np.flatnonzero(chosen)), select_units(complete, np.flatnonzero(~chosen))]
    assert sum(part.ground_truth.sum() for part in parts) == complete.ground_truth.sum()
    assert sorted(np.concatenate([part.score for part in parts])) == sorted(complete.score)
    assert not set(parts[0].unit) & set(parts[1].unit)


@given(st.integers(0, 100), st.integers(0, 60))
def test_a_sample_has_enough_boxes_and_sample_and_rest_give_the_complete_ranking(seed, boxes):
    complete = ranking(seed)
    sampled = synthetic_thresholds.sample_chunks(complete, boxes, np.random.default_rng(seed))
    assert sampled.ground_truth.sum() >= boxes and (boxes or not len(sampled.score))
    rest = select_units(complete, np.flatnonzero(sampled.ground_truth == 0))
    both = synthetic_thresholds.concatenate(sampled, rest)
    assert max_f1_threshold(both) == max_f1_threshold(complete)
    assert [f1(both.with_min_score(score)) for score in (0.2, 0.5, 0.8)] == [
        f1(complete.with_min_score(score)) for score in (0.2, 0.5, 0.8)
    ]


def test_a_recording_selected_twice_counts_twice():
    complete = ranking(0)
    twice = select_units(complete, np.tile(np.arange(40), 2))
    assert len(twice.score) == 2 * len(complete.score)
    assert f1(twice.with_min_score(0.5)) == pytest.approx(f1(complete.with_min_score(0.5)))
    assert (np.diff(twice.score) <= 0).all()


def test_a_detector_with_perfectly_separated_scores_loses_nothing():
    separated = ranking(1, skill=3.0)
    losses = loss_by_rule([separated], 10, 20)
    assert losses["sets"] == 1
    assert all(rule["f1_loss"] <= 0.02 for rule in losses["rules"].values())


def test_with_few_boxes_the_robust_rule_loses_least():
    losses = loss_by_rule([ranking(seed, skill=0.15) for seed in range(6)], 5, 60)["rules"]
    assert losses["robust"]["f1_loss"] < losses["best"]["f1_loss"]
    assert all(rule["f1_loss"] >= 0 for rule in losses.values())


def test_sets_with_too_few_boxes_are_excluded():
    assert loss_by_rule([ranking(0, units=4)], 40, 5) == {}


def test_without_a_threshold_in_any_bootstrap_sample_the_best_score_is_used():
    no_hits = RankedPredictions.of(
        np.array([0.5]), np.zeros(1), np.zeros(1, np.int64), np.zeros(1, np.int64), 1
    )
    assert bagged(no_hits, np.random.default_rng(0)) == max_f1_threshold(no_hits) == np.inf


def test_the_command_writes_the_keys_of_the_full_result(tmp_path, monkeypatch):
    folder, out = tmp_path / "evaluation", tmp_path / "threshold_selection.json"
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps({"sets": [{"name": "site"}]}))
    monkeypatch.setattr(threshold_selection, "ranking_of", lambda folder, name: ranking(0))
    monkeypatch.setattr(sys, "argv", ["threshold_selection", str(folder), "--draws", "3", "--out", str(out)])
    threshold_selection.main()
    small = json.loads(out.read_text())
    assert (
        small.keys()
        == json.loads((threshold_selection.RESULTS / "threshold_selection.json").read_text()).keys()
    )
    assert small["sizes"]["5"]["rules"].keys() == RULES.keys()
