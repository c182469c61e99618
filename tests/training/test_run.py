"""A run's folder: what it is called, what it remembers, and what it forgets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mast.errors import ConfigError, TrainingError
from mast.training.run import Run, run_folder

SETTINGS = {"data": "abc", "pretrain": {"lr": 1e-3, "betas": (0.9, 0.95), "checkpoint_minutes": 10.0}}


def test_a_run_lies_below_the_work_folder_by_stage_and_name(tmp_path: Path) -> None:
    run = run_folder(str(tmp_path), "pretrain", "first")
    assert run.folder == tmp_path / "runs" / "pretrain" / "first"


def test_a_run_may_be_kept_elsewhere(tmp_path: Path) -> None:
    assert run_folder("s3://bucket/work", "train", "main", tmp_path).folder == tmp_path / "train" / "main"


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "../../elsewhere", "/etc", "a\\b"])
def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="use letters, digits"):
        run_folder(str(tmp_path), "pretrain", name)


def test_a_work_folder_in_a_bucket_needs_a_disk_for_runs() -> None:
    with pytest.raises(
        ConfigError, match=r"this study's work is on s3://bucket/work\. Give a folder with --out"
    ):
        run_folder("s3://bucket/work", "pretrain", "main")


def test_a_new_run_is_empty(tmp_path: Path) -> None:
    run = Run(tmp_path / "new")
    assert run.read() == []
    assert not run.is_finished
    run.forget_after(0)
    assert not run.folder.exists()


def test_a_run_is_finished_once_its_model_is_described(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.model.mkdir()
    (run.model / "weights.safetensors").touch()
    assert not run.is_finished
    (run.model / "model.json").touch()
    assert run.is_finished


def test_the_same_settings_open_a_run_again(tmp_path: Path) -> None:
    for _ in range(2):
        Run(tmp_path).open(SETTINGS)


def test_settings_that_change_nothing_that_is_learned_may_change(tmp_path: Path) -> None:
    Run(tmp_path).open(SETTINGS)
    pretrain = {**SETTINGS["pretrain"], "checkpoint_minutes": 1.0, "device_batch": 4, "precision": "fp32"}
    Run(tmp_path).open({**SETTINGS, "pretrain": pretrain})


def test_other_settings_are_refused_each_by_its_name(tmp_path: Path) -> None:
    Run(tmp_path).open(SETTINGS)
    pretrain = {**SETTINGS["pretrain"], "lr": 2e-3}
    with pytest.raises(TrainingError) as refused:
        Run(tmp_path).open({**SETTINGS, "data": "xyz", "pretrain": pretrain})
    message = str(refused.value)
    assert "data was abc, is now xyz" in message
    assert "pretrain.lr was 0.001, is now 0.002" in message
    assert "betas" not in message
    assert "--name" in message


def test_settings_are_checked_without_opening_anything(tmp_path: Path) -> None:
    run = Run(tmp_path / "new")
    run.check(SETTINGS)
    assert not run.folder.exists()
    run.open(SETTINGS)
    with pytest.raises(TrainingError, match="data was abc, is now xyz"):
        run.check({**SETTINGS, "data": "xyz"})


def test_a_setting_that_came_or_went_is_a_change_as_well(tmp_path: Path) -> None:
    Run(tmp_path).open({"data": "abc", "old": 1})
    with pytest.raises(TrainingError, match="old was 1, is now None; new was None, is now 2"):
        Run(tmp_path).open({"data": "abc", "new": 2})


def test_a_run_goes_on_after_an_update_that_brought_a_setting_unless_that_is_used(tmp_path: Path) -> None:
    older = {"train": {"lr": 1e-3, "unfreezing": {"blocks": 3}}}
    Run(tmp_path).open(older)
    newer = {"train": {"lr": 1e-3, "unfreezing": {"blocks": 3}, "rehearsed_share": 0.0}}
    Run(tmp_path).open(newer)
    used = {"train": {**newer["train"], "rehearsed_share": 0.5}}
    with pytest.raises(TrainingError, match=r"settings: train.rehearsed_share was 0.0, is now 0.5\. Give"):
        Run(tmp_path).open(used)


@pytest.mark.parametrize("name", ["annotations.parquet", "splits.parquet", "started_from"])
def test_a_run_of_other_labels_or_of_another_start_is_refused(name: str, tmp_path: Path) -> None:
    Run(tmp_path).open({**SETTINGS, name: "a"})
    Run(tmp_path).check({**SETTINGS, name: "a"})
    with pytest.raises(
        TrainingError, match=f"other labels or settings: {name} was a, is now b. Give.*--name"
    ):
        Run(tmp_path).check({**SETTINGS, name: "b"})


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ({}, {"started_from": "b"}),
        ({"started_from": "a"}, {}),
        ({}, {"annotations.parquet": "b", "splits.parquet": "b"}),
        ({"annotations.parquet": "a"}, {"annotations.parquet": None}),
    ],
)
def test_a_run_may_not_know_what_it_started_from_or_learned_from(
    then: dict[str, str], now: dict[str, str | None], tmp_path: Path
) -> None:
    Run(tmp_path).open(SETTINGS | then)
    Run(tmp_path).check(SETTINGS | now)


def test_what_was_measured_is_read_back_in_order(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for step in (10, 20):
        run.write({"step": step, "loss": 1 / step})
    assert run.read() == [{"step": 10, "loss": 0.1}, {"step": 20, "loss": 0.05}]


def test_the_loss_that_is_told_is_that_of_the_epoch_that_is_kept(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.validation_loss(is_best_kept=True) == run.validation_loss(is_best_kept=False) == {}
    for step, loss in enumerate((0.5, 0.3, 0.4)):
        run.write({"step": step, "loss": 0.1})
        run.write({"step": step, "validation_loss": loss})
    assert run.validation_loss(is_best_kept=True) == {"validation_loss": 0.3}
    assert run.validation_loss(is_best_kept=False) == {"validation_loss": 0.4}


def test_steps_that_will_be_taken_again_are_forgotten_and_so_is_half_a_line(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for step in (10, 20, 20, 30):
        run.write({"step": step})
    with run.metrics.open("a") as file:
        file.write(json.dumps({"step": 5})[:-1])  # killed while writing
    run.forget_after(20)
    assert [line["step"] for line in run.read()] == [10, 20, 20]
    run.forget_after(0)
    assert run.read() == []
