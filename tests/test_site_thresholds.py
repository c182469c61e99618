"""Tests of thresholds per site: predictions by site, and methods that choose a score without annotations."""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from experiments import site_thresholds
from experiments.site_thresholds import Site, f1_at, f1_by_method, nth_score, pool_sites, sites_of, valley
from hypothesis import given
from hypothesis import strategies as st


def site(seed: int, shift: float = 0.0, chunks: int = 50) -> Site:
    """Return a site where correct detections have higher scores; `shift` is added to all scores."""
    rng = np.random.default_rng(seed)
    is_right = np.repeat([True, False], [30, 60])
    score = (0.3 + 0.4 * is_right + shift + rng.normal(0, 0.05, 90)).clip(0.01, 0.99)
    return Site(score, is_right, 40, chunks)


def test_a_valley_lies_between_two_modes_wherever_they_are():
    for shift in (-0.2, 0.0, 0.2):
        shifted = site(0, shift)
        wrong, right = shifted.score[~shifted.is_right], shifted.score[shifted.is_right]
        assert wrong.max() < valley(shifted.score) < right.min()
    assert valley(np.array([0.4, 0.4])) == 0.4 and valley(np.zeros(0)) == 1.0


def test_the_nth_score_is_the_threshold_for_n_detections_or_for_all():
    scores = np.array([0.2, 0.9, 0.5])
    assert [nth_score(scores, count) for count in (1, 2, 9)] == [0.9, 0.5, 0.2]
    assert nth_score(scores, 0) == nth_score(np.zeros(0), 3) == np.inf


def test_if_sites_shift_their_scores_thresholds_per_site_beat_a_single_one():
    in_domain, sites = {"A": site(0)}, {"B": site(1, 0.25), "C": site(2, -0.25)}
    f1 = f1_by_method(in_domain, sites, 0.5)
    assert f1["best for each"] == pytest.approx(2 * 60 / (60 + 80))
    for method in ("valley", "equal rate"):
        assert f1[method] == pytest.approx(f1["best for each"], abs=0.05)
    assert f1["validation"] <= f1["best for all"] < f1["best for each"]


@given(st.integers(0, 300), st.floats(0, 1))
def test_no_threshold_beats_the_oracle(seed, score):
    sites = {"B": site(seed), "C": site(seed + 1, 0.1)}
    best = f1_at(sites, [each.best() for each in sites.values()])
    assert f1_at(sites, [score, score]) <= f1_at(sites, [pool_sites(sites).best()] * 2) <= best + 1e-9


def test_the_command_writes_the_keys_of_the_full_result(tmp_path, monkeypatch):
    folder, out = tmp_path / "synthetic_then_labels" / "0" / "evaluation", tmp_path / "out.json"
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps({"threshold": 0.5}))
    sets, names = ["test", "site", "site"], ["a", "b", "c"]
    tables = {
        "chunks": {"set": sets, "recording_id": names, "site": ["A", "B", "C"]},
        "ground_truth": {"set": sets, "recording_id": names},
        "predictions": {
            "set": sets, "recording_id": names, "score": [0.9, 0.8, 0.3], "overlap": [0.7, 0.6, 0.0],
        },
    }  # fmt: skip
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    sites = sites_of(folder, "site")
    assert sites["B"].annotations == 1 and not sites["C"].is_right.any()
    monkeypatch.setattr(sys, "argv", ["site_thresholds", str(folder), "--out", str(out)])
    site_thresholds.main()
    small = json.loads(out.read_text())
    full = json.loads((site_thresholds.RESULTS / "site_thresholds.json").read_text())
    assert small.keys() == full.keys()
    assert (
        small["detectors"]["synthetic_then_labels/0"].keys() == next(iter(full["detectors"].values())).keys()
    )
    assert small["detectors"]["synthetic_then_labels/0"]["validation"] == pytest.approx(2 / 3, abs=1e-4)
