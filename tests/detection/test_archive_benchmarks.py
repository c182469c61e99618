"""The benchmarks of archives in their small version: killed runs end the same, and every figure is there."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import throughput

from tests.test_benchmarks import UNMEASURED

ROOT = Path(__file__).parents[2]


def result(name: str, folder: Path, *options: str) -> dict:
    out = str(folder / "result.json")
    command = [sys.executable, "-m", f"benchmarks.{name}", "--small", "--out", out, *options]
    done = subprocess.run(command, cwd=ROOT, env=UNMEASURED, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "result.json").read_text("utf-8"))


def test_runs_that_are_killed_again_and_again_end_as_one_that_was_left_alone(tmp_path):
    found = result("crash", tmp_path)
    assert found["identical"] and found["engine"] == "local"
    assert found["kills"] == sum(found["kills_by_moment"].values()) == 3
    assert found["quarantined"] == found["corrupt"] > 0 and found["events"] > 0


def test_memory_and_plans_are_weighed(tmp_path):
    found = result("memory", tmp_path)
    peaks = [found[f"peak_mb_{name}"] for name in ("10_files", "100k_files", "15h_file")]
    assert 100 < max(peaks) < 1.5 * min(peaks)  # as many processes at work in each
    assert 0 < found["plan_10m_s"] < 60 and 0 < found["plan_10m_mb"] < 2000
    assert found["plan_parts"] > 100


def test_speed_is_measured_against_the_bare_network_and_kept_beside_what_was_measured_before(tmp_path):
    older = {"size": "base", "precision": "fastest", "x_real_time": 40.0, "birdnet_x_real_time": 80.0}
    before = {"models": [older], "shard_ratio": 0.99, "ray_ratio": 0.98, "engines": {"size": "small"}}
    (tmp_path / "result.json").write_text(json.dumps(before))
    found = result("throughput", tmp_path, "--parts", "models", "embed", "--precisions", "float32")
    assert found["models"][0] == older
    row = found["models"][1]
    assert (row["size"], row["precision"], row["engine"]) == ("smallest", "float32", "float32")
    assert row["x_real_time"] > 0 and row["ratio_to_bare"] > 0 and row["start_s"] > 0
    assert {key: found[key] for key in before} == before | {"models": found["models"]}
    assert (tmp_path / "result.png").stat().st_size > 0


def test_the_pace_of_processes_is_that_while_all_are_at_work():
    early, late = [10.0, 20.0, 30.0, 40.0, 50.0], [30.0, 50.0, 70.0, 90.0]
    assert throughput.rate_together([early, late]) == pytest.approx(1 / 10 + 1 / 20)
    assert throughput.rate_together([[10.0, 20.0], [30.0, 40.0]]) is None  # one after the other
    assert throughput.steady_rate([10.0, 80.0, 90.0, 100.0, 110.0, 120.0, 130.0, 200.0]) == 1 / 10
    assert throughput.steady_rate([1.0, 2.0, 3.0, 4.0]) is None  # over too soon
    assert throughput.steady_rate([1.0]) is None


def test_as_many_recordings_are_heard_as_last_long_enough():
    extent = throughput.Extent(64, 19.456, 60.0, 1, "small", 1, 1)  # of two chunks each
    assert [extent.count(chunk_s) for chunk_s in (0.01, 1.0, 100.0)] == [64, 31, 3]
