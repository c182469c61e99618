"""Every experiment runs in a small version and writes the figures it promises; its full result is in the repository."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DATA = os.environ.get("MAST_DATA")
EXPERIMENTS = {
    "knn_probe": (
        [DATA, "--files", "2", "--epochs", "1", "--seeds", "1"],
        {"random", "logmel", "pretrained", "gain_over_random", "gain_over_logmel"},
    ),
    "overfit": (
        [DATA and f"{DATA}/birdeep-am1", "--chunks", "1", "--steps", "2"],
        {"f1", "boxes", "chunks", "steps", "train_s"},
    ),
    "narrow_band": (["--minutes", "6", "--epochs", "1"], {"recall", "precision", "mean_iou"}),
    "real_small": (
        [DATA, "--studies", "bats", "--steps", "1", "--pretrain-steps", "1"],
        {"studies", "steps", "pretrained_on"},
    ),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_small_run_writes_what_the_full_result_holds(name, tmp_path):
    options, figures = EXPERIMENTS[name]
    if None in options:
        pytest.skip("needs real recordings: set MAST_DATA to their folder")
    places = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "result.json")]
    command = [sys.executable, "-m", f"experiments.{name}", *options, *places]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    small = json.loads((tmp_path / "result.json").read_text("utf-8"))
    full = json.loads((ROOT / "experiments" / "results" / f"{name}.json").read_text("utf-8"))
    assert figures <= small.keys()
    assert small.keys() == full.keys()
