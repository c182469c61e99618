"""A threshold for each site: what was found where, and ways to choose a score without labels."""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from experiments import site_thresholds
from experiments.site_thresholds import Site, f1_at, f1_by_way, nth_score, sites_of, together, valley
from hypothesis import given
from hypothesis import strategies as st


def site(seed: int, shift: float = 0.0, chunks: int = 50) -> Site:
    """Right detections score higher than wrong ones; a site may shift all of its scores."""
    rng = np.random.default_rng(seed)
    is_right = np.repeat([True, False], [30, 60])
    score = (0.3 + 0.4 * is_right + shift + rng.normal(0, 0.05, 90)).clip(0.01, 0.99)
    return Site(score, is_right, 40, chunks)


def test_a_valley_lies_between_two_heaps_wherever_they_are():
    for shift in (-0.2, 0.0, 0.2):
        own = site(0, shift)
        assert own.score[~own.is_right].max() < valley(own.score) < own.score[own.is_right].min()
    assert valley(np.array([0.4, 0.4])) == 0.4 and valley(np.zeros(0)) == 1.0


def test_so_many_are_told_or_as_many_as_there_are():
    scores = np.array([0.2, 0.9, 0.5])
    assert [nth_score(scores, count) for count in (1, 2, 9)] == [0.9, 0.5, 0.2]
    assert nth_score(scores, 0) == nth_score(np.zeros(0), 3) == np.inf


def test_where_sites_shift_their_scores_a_score_for_each_is_better_than_one_for_all():
    own, sites = {"A": site(0)}, {"B": site(1, 0.25), "C": site(2, -0.25)}
    found = f1_by_way(own, sites, 0.5)
    assert found["best for each"] == pytest.approx(2 * 60 / (60 + 80))
    for way in ("valley", "equal rate"):
        assert found[way] == pytest.approx(found["best for each"], abs=0.05)
    assert found["validation"] <= found["best for all"] < found["best for each"]


@given(st.integers(0, 300), st.floats(0, 1))
def test_no_score_beats_hindsight(seed, score):
    sites = {"B": site(seed), "C": site(seed + 1, 0.1)}
    best = f1_at(sites, [item.best() for item in sites.values()])
    assert f1_at(sites, [score, score]) <= f1_at(sites, [together(sites).best()] * 2) <= best + 1e-9


def test_the_command_reads_evaluations_and_writes_what_the_full_result_holds(tmp_path, monkeypatch):
    folder, out = tmp_path / "rehearsed" / "0" / "evaluation", tmp_path / "out.json"
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps({"threshold": 0.5}))
    sets, names = ["test", "site", "site"], ["a", "b", "c"]
    tables = {
        "chunks": {"set": sets, "recording_id": names, "site": ["A", "B", "C"]},
        "truths": {"set": sets, "recording_id": names},
        "predictions": {
            "set": sets, "recording_id": names, "score": [0.9, 0.8, 0.3], "overlap": [0.7, 0.6, 0.0],
        },
    }  # fmt: skip
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    assert sites_of(folder, "site")["B"].truths == 1 and not sites_of(folder, "site")["C"].is_right.any()
    monkeypatch.setattr(sys, "argv", ["site_thresholds", str(folder), "--out", str(out)])
    site_thresholds.main()
    small = json.loads(out.read_text())
    full = json.loads((site_thresholds.RESULTS / "site_thresholds.json").read_text())
    assert small.keys() == full.keys()
    assert small["detectors"]["rehearsed/0"].keys() == next(iter(full["detectors"].values())).keys()
    assert small["detectors"]["rehearsed/0"]["validation"] == pytest.approx(2 / 3, abs=1e-4)
