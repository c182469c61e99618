"""Every experiment runs in a small version and writes the figures that its full result in the repository holds."""

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
    "rehearse.epochs=1",
    "rehearse.warmup_epochs=0",
    "pretrain.epochs=1",
    "pretrain.warmup_epochs=0",
    "selftrain.rounds=1",
    "selftrain.pseudo.epochs=1",
    "selftrain.expert.epochs=1",
    "selftrain.min_score=0.001",
    "detection.min_score=0.001",
)
SETS = [word for item in SHORT for word in ("--set", item)]
UNSURE = ["--set", "selftrain.min_precision=null", "--set", "selftrain.curriculum=expert"]
"""A teacher of one step is never sure, and its boxes are too many to learn from in a test."""

ROWS = ["--rows", "energy", "rehearsed_st"]
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
    "review_loop": (
        [DATA, "--steps", "1", "--rounds", "1"],
        {"reviewers", "steps", "rounds", "span_s", "started"},
    ),
    "real": (
        [DATA, "--studies", "boobook", "--size", "smoke", "--steps", "1", *ROWS, *SETS, *UNSURE],
        {"studies", "steps", "start_steps", "start_heard"},
    ),
}


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """What an experiment does is tested here, not what a model learns: a tiny one may be tinier."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        yield
    torch.set_num_threads(threads)


def run(name: str, *words: str) -> None:
    """`python -m experiments.NAME WORDS` in this process, where models are small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *words])
        importlib.import_module(f"experiments.{name}").main()


def like_the_full_result(name: str, path: Path) -> dict[str, Any]:
    """What a small run has written, which tells all that the result in the repository does."""
    written: dict[str, Any] = json.loads(path.read_text("utf-8"))
    full = ROOT / "experiments" / "results" / f"{name}.json"
    assert written.keys() == json.loads(full.read_text("utf-8")).keys()
    return written


@pytest.fixture(scope="module")
def smoke(tmp_path_factory) -> list[str]:
    """The words of the smallest benchmark, which has run: its folder is the last but two of them."""
    if not DATA:
        pytest.skip("needs real recordings: set MAST_DATA to their folder")
    folder = tmp_path_factory.mktemp("smoke")
    words = [DATA, "--size", "smoke", *SETS, "--only", "energy", "mast_st", "rehearsed", "at_once_detail"]
    words += ["--work", str(folder), "--out", str(folder / "shift.json")]
    run("run", *words)
    return words


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_small_run_writes_what_the_full_result_holds(name, tmp_path, request):
    options, figures = EXPERIMENTS[name]
    if None in options:
        pytest.skip("needs real recordings: set MAST_DATA to their folder")
    places = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "result.json")]
    if name == "real":
        places += ["--start", f"{request.getfixturevalue('smoke')[-3]}/smoke"]
    run(name, *options, *places)
    assert figures <= like_the_full_result(name, tmp_path / "result.json").keys()


def test_the_whole_path_runs_from_a_card_of_recordings_and_a_second_run_has_nothing_to_do(smoke):
    folder = Path(smoke[-3])
    rows = json.loads((folder / "shift.json").read_text("utf-8"))["rows"]
    assert {(row["method"], row["split"]) for row in rows} == {
        (method, split)
        for method in ("energy", "mast", "mast_st", "rehearsed", "at_once_detail")
        for split in ("in_domain", "temporal", "site", "unseen")
    }
    told = json.loads((folder / "shift_summary.json").read_text("utf-8"))
    assert {"f1", "best_f1", "ap", "ap_interval"} <= told["mast_st"]["site"].keys()
    assert told["best_baseline"]["name"] == "energy" and told["recommended"]["name"] == "at_once_detail"
    assert told["targets"]["a_f1"]["value"] is not None and told["targets"]["e"]["value"] is None
    models = {path: path.stat().st_mtime_ns for path in folder.rglob("weights.safetensors")}
    command = [sys.executable, "-m", "experiments.run", *smoke]
    subprocess.run(command, cwd=ROOT, env=UNMEASURED, check=True, capture_output=True)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("weights.safetensors")} == models


def test_rounds_are_held_against_the_calls_of_the_pool_and_tested(smoke, tmp_path):
    cell = f"{smoke[-3]}/smoke/cells/mast_st/0"
    run("rounds", cell, "--out", str(tmp_path / "result.json"))
    told = like_the_full_result("rounds", tmp_path / "result.json")
    first, *others = told["cells"]["mast_st/0"]
    assert first["lesson"] is None and others
    for number, item in enumerate(others, start=1):
        taught = json.loads(Path(cell, f"round_{number}", "round.json").read_text("utf-8"))["pseudo"]
        assert item["round"] == number and item["lesson"]["boxes"] == taught["boxes"]
        assert item["lesson"]["by_site"].keys() == taught["boxes_per_hour"].keys()
        assert item.keys() == first.keys()
        assert {"precision", "recall", "f1", "ap", "ap_interval"} <= item["site"].keys()


def test_rounds_of_cells_that_are_not_named_again_stay(smoke, tmp_path):
    out, cell = tmp_path / "result.json", f"{smoke[-3]}/smoke/cells/mast_st/0"
    out.write_text(json.dumps({"size": "smoke", "cells": {"st_union/0": ["of another machine"]}}), "utf-8")
    run("rounds", cell, "--out", str(out))
    cells = json.loads(out.read_text("utf-8"))["cells"]
    assert cells.keys() == {"st_union/0", "mast_st/0"} and cells["st_union/0"] == ["of another machine"]


def test_a_teacher_is_asked_how_sure_it_is_and_held_against_the_calls_of_the_pool(smoke, tmp_path):
    cell = f"{smoke[-3]}/smoke/cells/mast_st/0"
    run("sure_teachers", cell, "--out", str(tmp_path / "result.json"))
    told = like_the_full_result("sure_teachers", tmp_path / "result.json")["cells"]["mast_st/0"]
    assert told["boxes"]["both"] == told["boxes"]["validation"] + told["boxes"]["made_up"] > 100
    for right in told["right"].values():
        known = [right[way] for way in ("validation", "made_up") if right[way] is not None]
        assert right.keys() == told["boxes"].keys()
        assert (
            min(known) <= right["both"] <= max(known)
            if known and right["both"] is not None
            else right["both"] is None
        )
    taught = json.loads(Path(cell, "round_1", "round.json").read_text("utf-8"))["pseudo"]
    for chosen in told["chosen"].values():  # this round took any score
        assert chosen["score"] == 0.1 and chosen["boxes"] <= taught["boxes"]
        assert (chosen["precision"] is None) == (chosen["boxes"] == 0)


def test_methods_are_compared_at_every_site(smoke, tmp_path):
    run("by_site", "--results", f"{smoke[-3]}/shift.json", "--out", str(tmp_path / "result.json"))
    told = like_the_full_result("by_site", tmp_path / "result.json")
    (own,) = told["differences"].values()
    assert own.keys() == {"B", "C", "D", "Z"} and set(told["shared"]) < own.keys()
    for item in own.values():
        for value, low, high in (item["f1"], item["ap"]):
            assert -1 <= value <= 1
            assert low is high is None if item["recordings"] == 1 else -1 <= low <= high <= 1


def test_thresholds_with_made_up_calls_are_tried_on_every_test_set(smoke, tmp_path):
    folder = f"{smoke[-3]}/smoke"
    cells = [f"{folder}/cells/{name}/0" for name in ("energy", "at_once_detail")]
    words = [
        f"{folder}/soundscapes/study.yaml",
        *cells,
        "--draws",
        "2",
        "--out",
        str(tmp_path / "result.json"),
    ]
    run("made_up_thresholds", *words)
    told = like_the_full_result("made_up_thresholds", tmp_path / "result.json")
    assert told["cells"].keys() == {"energy/0", "at_once_detail/0"}
    for cell in told["cells"].values():
        assert (
            cell["best"].keys() == {"test", "temporal", "site", "unseen"} and str(cell["boxes"]) in cell["f1"]
        )
        for reached in (sets for totals in cell["f1"].values() for sets in totals.values()):
            assert reached.keys() == cell["best"].keys()
            assert all(own["tenth"] <= own["mean"] <= cell["best"][name] for name, own in reached.items())


def test_detectors_are_heard_at_sites_that_are_made_up_anew(smoke, tmp_path):
    cells = [f"{smoke[-3]}/smoke/cells/{name}/0" for name in ("energy", "rehearsed")]
    places = ["--work", str(tmp_path), "--out", str(tmp_path / "result.json")]
    run("new_sites", DATA, *cells, "--size", "smoke", *places)
    told = like_the_full_result("new_sites", tmp_path / "result.json")
    assert told["detectors"].keys() == {"energy", "rehearsed"}
    assert told["cells"] == ["energy/0", "rehearsed/0"]
    assert told["differences"].keys() == {"rehearsed - energy"}
    assert {"f1", "ap", "ap_interval"} <= told["detectors"]["rehearsed"]["site"].keys()
