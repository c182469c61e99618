"""Every experiment runs in a small version and writes the keys of its full result in the repository."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.small_models import shrink
from tests.test_benchmarks import UNMEASURED

ROOT = Path(__file__).parents[1]
DATA = os.environ.get("MAST_DATA")
SHORT = (
    "train.epochs=1",
    "train.min_steps=0",
    "train.warmup_epochs=0",
    "train_synthetic.epochs=1",
    "train_synthetic.warmup_epochs=0",
    "pretrain.epochs=1",
    "pretrain.warmup_epochs=0",
    "selftrain.rounds=1",
    "selftrain.pseudo_label_stage.epochs=1",
    "selftrain.supervised_stage.epochs=1",
    "selftrain.pseudo_label_threshold=0.001",
    "detection.score_threshold=0.001",
)
SETS = [argument for setting in SHORT for argument in ("--set", setting)]
UNCERTAIN = [
    "--set",
    "selftrain.min_pseudo_label_precision=null",
    "--set",
    "selftrain.curriculum=supervised-only",
]
"""A teacher trained for one step has no reliable score, and too many boxes for a test."""

ROWS = ["--rows", "energy", "synthetic_then_labels_selftrain"]
pytestmark = pytest.mark.slow

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
    "active_learning": (
        [DATA, "--steps", "1", "--rounds", "1"],
        {"reviewers", "steps", "rounds", "span_s", "from_checkpoint"},
    ),
    "real_recordings": (
        [DATA, "--studies", "boobook", "--size", "smoke", "--steps", "1", *ROWS, *SETS, *UNCERTAIN],
        {"studies", "steps", "start_steps", "start_sources"},
    ),
}


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Shrink the models: these tests check the experiments, not the accuracy of models."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        yield
    torch.set_num_threads(threads)


def run(name: str, *arguments: str) -> None:
    """Run `python -m experiments.NAME ARGUMENTS` in this process, with small models."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *arguments])
        importlib.import_module(f"experiments.{name}").main()


def read_result(name: str, path: Path) -> dict[str, Any]:
    """Read the result of a small run, and check that it has the keys of the result in the repository."""
    written: dict[str, Any] = json.loads(path.read_text("utf-8"))
    full = ROOT / "experiments" / "results" / f"{name}.json"
    assert written.keys() == json.loads(full.read_text("utf-8")).keys()
    return written


@pytest.fixture(scope="module")
def smoke(tmp_path_factory) -> list[str]:
    """Run the smallest benchmark; return its arguments, the third from the end of which is its folder."""
    if not DATA:
        pytest.skip("needs real recordings: set MAST_DATA to their folder")
    folder = tmp_path_factory.mktemp("smoke")
    arguments = [
        DATA,
        "--size",
        "smoke",
        *SETS,
        "--only",
        "energy",
        "mast_selftrain",
        "synthetic_then_labels",
        "joint_synthetic_hybrid",
    ]
    arguments += ["--work", str(folder), "--out", str(folder / "shift.json")]
    run("shift.run", *arguments)
    return arguments


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_small_run_writes_the_keys_of_the_full_result(name, tmp_path, request):
    options, keys = EXPERIMENTS[name]
    if None in options:
        pytest.skip("needs real recordings: set MAST_DATA to their folder")
    paths = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "result.json")]
    if name == "real_recordings":
        paths += ["--start", f"{request.getfixturevalue('smoke')[-3]}/smoke"]
    run(name, *options, *paths)
    assert keys <= read_result(name, tmp_path / "result.json").keys()


def test_the_benchmark_runs_from_recordings_to_results_and_a_second_run_repeats_nothing(smoke):
    folder = Path(smoke[-3])
    rows = json.loads((folder / "shift.json").read_text("utf-8"))["rows"]
    assert {(row["method"], row["split"]) for row in rows} == {
        (method, split)
        for method in ("energy", "mast", "mast_selftrain", "synthetic_then_labels", "joint_synthetic_hybrid")
        for split in ("in_domain", "temporal", "site", "unseen")
    }
    summary = json.loads((folder / "shift_summary.json").read_text("utf-8"))
    assert {"f1", "max_f1", "ap", "ap_interval"} <= summary["mast_selftrain"]["site"].keys()
    assert summary["best_baseline"]["name"] == "energy"
    assert summary["recommended"]["name"] == "joint_synthetic_hybrid"
    assert summary["targets"]["a_f1"]["value"] is not None and summary["targets"]["e"]["value"] is None
    models = {path: path.stat().st_mtime_ns for path in folder.rglob("weights.safetensors")}
    command = [sys.executable, "-m", "experiments.shift.run", *smoke]
    subprocess.run(command, cwd=ROOT, env=UNMEASURED, check=True, capture_output=True)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("weights.safetensors")} == models


def test_rounds_are_compared_with_the_calls_of_the_pool_and_tested(smoke, tmp_path):
    cell = f"{smoke[-3]}/smoke/cells/mast_selftrain/0"
    run("selftrain_rounds", cell, "--out", str(tmp_path / "result.json"))
    result = read_result("selftrain_rounds", tmp_path / "result.json")
    first, *others = result["cells"]["mast_selftrain/0"]
    assert first["pseudo_labels"] is None and others
    for number, row in enumerate(others, start=1):
        labels = json.loads(Path(cell, f"round_{number}", "round.json").read_text("utf-8"))["pseudo_labels"]
        assert row["round"] == number and row["pseudo_labels"]["boxes"] == labels["boxes"]
        assert row["pseudo_labels"]["by_site"].keys() == labels["boxes_per_hour"].keys()
        assert row.keys() == first.keys()
        assert {"precision", "recall", "f1", "ap", "ap_interval"} <= row["site"].keys()


def test_rounds_of_cells_that_are_not_given_stay(smoke, tmp_path):
    out, cell = tmp_path / "result.json", f"{smoke[-3]}/smoke/cells/mast_selftrain/0"
    out.write_text(
        json.dumps({"size": "smoke", "cells": {"mast_joint_selftrain/0": ["of another machine"]}}), "utf-8"
    )
    run("selftrain_rounds", cell, "--out", str(out))
    cells = json.loads(out.read_text("utf-8"))["cells"]
    assert cells.keys() == {"mast_joint_selftrain/0", "mast_selftrain/0"} and cells[
        "mast_joint_selftrain/0"
    ] == ["of another machine"]


def test_the_precision_of_a_teacher_is_estimated_and_compared_with_the_calls_of_the_pool(smoke, tmp_path):
    cell = f"{smoke[-3]}/smoke/cells/mast_selftrain/0"
    run("teacher_precision", cell, "--out", str(tmp_path / "result.json"))
    result = read_result("teacher_precision", tmp_path / "result.json")["cells"]["mast_selftrain/0"]
    assert result["boxes"]["both"] == result["boxes"]["validation"] + result["boxes"]["synthetic"] > 100
    for precision in result["precision"].values():
        parts = [precision[name] for name in ("validation", "synthetic") if precision[name] is not None]
        assert precision.keys() == result["boxes"].keys()
        assert (
            min(parts) <= precision["both"] <= max(parts)
            if parts and precision["both"] is not None
            else precision["both"] is None
        )
    labels = json.loads(Path(cell, "round_1", "round.json").read_text("utf-8"))["pseudo_labels"]
    for chosen in result["chosen"].values():  # this round used any score
        assert chosen["score"] == 0.1 and chosen["boxes"] <= labels["boxes"]
        assert (chosen["precision"] is None) == (chosen["boxes"] == 0)


def test_methods_are_compared_at_every_site(smoke, tmp_path):
    run("by_site", "--results", f"{smoke[-3]}/shift.json", "--out", str(tmp_path / "result.json"))
    result = read_result("by_site", tmp_path / "result.json")
    (by_site,) = result["differences"].values()
    assert by_site.keys() == {"B", "C", "D", "Z"} and set(result["shared"]) < by_site.keys()
    for values in by_site.values():
        for value, low, high in (values["f1"], values["ap"]):
            assert -1 <= value <= 1
            assert low is high is None if values["recordings"] == 1 else -1 <= low <= high <= 1


def test_thresholds_with_synthetic_calls_are_tested_on_every_test_set(smoke, tmp_path):
    folder = f"{smoke[-3]}/smoke"
    cells = [f"{folder}/cells/{name}/0" for name in ("energy", "joint_synthetic_hybrid")]
    arguments = [
        f"{folder}/soundscapes/study.yaml",
        *cells,
        "--draws",
        "2",
        "--out",
        str(tmp_path / "result.json"),
    ]
    run("synthetic_thresholds", *arguments)
    result = read_result("synthetic_thresholds", tmp_path / "result.json")
    assert result["cells"].keys() == {"energy/0", "joint_synthetic_hybrid/0"}
    for cell in result["cells"].values():
        assert cell["best"].keys() == {"test", "temporal", "site", "unseen"}
        assert str(cell["boxes"]) in cell["f1"]
        for reached in (sets for totals in cell["f1"].values() for sets in totals.values()):
            assert reached.keys() == cell["best"].keys()
            assert all(f1["p10"] <= f1["mean"] <= cell["best"][name] for name, f1 in reached.items())


def test_detectors_are_evaluated_at_new_simulated_sites(smoke, tmp_path):
    cells = [f"{smoke[-3]}/smoke/cells/{name}/0" for name in ("energy", "synthetic_then_labels")]
    paths = ["--work", str(tmp_path), "--out", str(tmp_path / "result.json")]
    run("new_sites", DATA, *cells, "--size", "smoke", *paths)
    result = read_result("new_sites", tmp_path / "result.json")
    assert result["detectors"].keys() == {"energy", "synthetic_then_labels"}
    assert result["cells"] == ["energy/0", "synthetic_then_labels/0"]
    assert result["differences"].keys() == {"synthetic_then_labels - energy"}
    assert {"f1", "ap", "ap_interval"} <= result["detectors"]["synthetic_then_labels"]["site"].keys()
