"""The benchmarks of archives in their small version: killed runs end the same, and every figure is there."""

import json
import subprocess
import sys
from pathlib import Path

from tests.test_benchmarks import UNMEASURED

ROOT = Path(__file__).parents[2]


def result(name: str, folder: Path) -> dict:
    command = [sys.executable, "-m", f"benchmarks.{name}", "--small", "--out", str(folder / "result.json")]
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
