"""Benchmarks of runs in their small version: killed runs give the same results, and every metric is present."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import throughput

from tests.test_benchmarks import UNMEASURED

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def result(name: str, folder: Path, *options: str) -> dict:
    out = str(folder / "result.json")
    command = [sys.executable, "-m", f"benchmarks.{name}", "--small", "--out", out, *options]
    done = subprocess.run(command, cwd=ROOT, env=UNMEASURED, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "result.json").read_text("utf-8"))


def test_runs_that_are_killed_repeatedly_equal_an_uninterrupted_run(tmp_path):
    measured = result("detect_crash_recovery", tmp_path)
    assert measured["identical"] and measured["engine"] == "local"
    assert measured["kills"] == sum(measured["kills_by_moment"].values()) == 3
    assert measured["quarantined"] == measured["corrupt"] > 0 and measured["events"] > 0


def test_memory_of_runs_and_plans_is_measured(tmp_path):
    measured = result("memory", tmp_path)
    peaks = [measured[f"peak_mb_{name}"] for name in ("10_files", "100k_files", "15h_file")]
    assert 100 < max(peaks) < 1.5 * min(peaks)  # the same number of processes in each
    assert 0 < measured["plan_10m_s"] < 60 and 0 < measured["plan_10m_mb"] < 2000
    assert measured["plan_parts"] > 100


def test_speed_is_measured_relative_to_the_bare_network_and_added_to_earlier_results(tmp_path):
    earlier = {"size": "base", "precision": "fastest", "x_real_time": 40.0, "birdnet_x_real_time": 80.0}
    before = {"models": [earlier], "shard_ratio": 0.99, "ray_ratio": 0.98, "engines": {"size": "small"}}
    (tmp_path / "result.json").write_text(json.dumps(before))
    measured = result("throughput", tmp_path, "--parts", "models", "embed", "--precisions", "float32")
    assert measured["models"][0] == earlier
    row = measured["models"][1]
    assert (row["size"], row["precision"], row["engine"]) == ("smallest", "float32", "float32")
    assert row["x_real_time"] > 0 and row["ratio_to_bare"] > 0 and row["start_s"] > 0
    assert {key: measured[key] for key in before} == before | {"models": measured["models"]}
    assert (tmp_path / "result.png").stat().st_size > 0


def test_the_rate_of_processes_is_measured_while_all_are_working():
    early, late = [10.0, 20.0, 30.0, 40.0, 50.0], [30.0, 50.0, 70.0, 90.0]
    assert throughput.rate_together([early, late]) == pytest.approx(1 / 10 + 1 / 20)
    assert throughput.rate_together([[10.0, 20.0], [30.0, 40.0]]) is None  # one after the other
    assert throughput.steady_rate([10.0, 80.0, 90.0, 100.0, 110.0, 120.0, 130.0, 200.0]) == 1 / 10
    assert throughput.steady_rate([1.0, 2.0, 3.0, 4.0]) is None  # over too soon
    assert throughput.steady_rate([1.0]) is None


def test_the_number_of_recordings_gives_a_minimum_duration():
    extent = throughput.Extent(64, 19.456, 60.0, 1, "small", 1, 1)  # of two chunks each
    assert [extent.count(chunk_s) for chunk_s in (0.01, 1.0, 100.0)] == [64, 31, 3]
