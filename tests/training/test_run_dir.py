"""Folder of a run: its path, its settings, and its metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mast.errors import ConfigError, TrainingError
from mast.training.run_dir import TrainingRun, run_folder

SETTINGS = {"data": "abc", "pretrain": {"lr": 1e-3, "betas": (0.9, 0.95), "checkpoint_minutes": 10.0}}


def test_a_run_is_in_the_work_folder_by_stage_and_name(tmp_path: Path) -> None:
    run = run_folder(str(tmp_path), "pretrain", "first")
    assert run.folder == tmp_path / "runs" / "pretrain" / "first"


def test_a_run_can_be_in_another_folder(tmp_path: Path) -> None:
    assert run_folder("s3://bucket/work", "train", "main", tmp_path).folder == tmp_path / "train" / "main"


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "../../elsewhere", "/etc", "a\\b"])
def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="use letters, digits"):
        run_folder(str(tmp_path), "pretrain", name)


def test_a_work_folder_in_a_bucket_needs_a_local_folder_for_runs() -> None:
    with pytest.raises(
        ConfigError, match=r"this study's work folder is s3://bucket/work\. Specify a folder with --out"
    ):
        run_folder("s3://bucket/work", "pretrain", "main")


def test_a_new_run_is_empty(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path / "new")
    assert run.read() == []
    assert not run.is_finished
    run.truncate_after(0)
    assert not run.folder.exists()


def test_a_run_is_finished_once_its_model_has_metadata(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.model.mkdir()
    (run.model / "weights.safetensors").touch()
    assert not run.is_finished
    (run.model / "model.json").touch()
    assert run.is_finished


def test_the_same_settings_open_a_run_again(tmp_path: Path) -> None:
    for _ in range(2):
        TrainingRun(tmp_path).open(SETTINGS)


def test_settings_that_do_not_affect_the_weights_may_change(tmp_path: Path) -> None:
    TrainingRun(tmp_path).open(SETTINGS)
    pretrain = {**SETTINGS["pretrain"], "checkpoint_minutes": 1.0, "micro_batch_size": 4, "precision": "fp32"}
    TrainingRun(tmp_path).open({**SETTINGS, "pretrain": pretrain})


def test_other_settings_are_refused_and_named(tmp_path: Path) -> None:
    TrainingRun(tmp_path).open(SETTINGS)
    pretrain = {**SETTINGS["pretrain"], "lr": 2e-3}
    with pytest.raises(TrainingError) as raised:
        TrainingRun(tmp_path).open({**SETTINGS, "data": "xyz", "pretrain": pretrain})
    message = str(raised.value)
    assert "data was abc, is now xyz" in message
    assert "pretrain.lr was 0.001, is now 0.002" in message
    assert "betas" not in message
    assert "--run-name" in message


def test_a_check_of_settings_creates_no_folder(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path / "new")
    run.check(SETTINGS)
    assert not run.folder.exists()
    run.open(SETTINGS)
    with pytest.raises(TrainingError, match="data was abc, is now xyz"):
        run.check({**SETTINGS, "data": "xyz"})


def test_an_added_or_removed_setting_is_a_change_as_well(tmp_path: Path) -> None:
    TrainingRun(tmp_path).open({"data": "abc", "old": 1})
    with pytest.raises(TrainingError, match="old was 1, is now None; new was None, is now 2"):
        TrainingRun(tmp_path).open({"data": "abc", "new": 2})


def test_a_run_resumes_after_an_update_that_added_a_setting_unless_the_setting_is_used(
    tmp_path: Path,
) -> None:
    older = {"train": {"lr": 1e-3, "unfreezing": {"blocks_per_step": 3}}}
    TrainingRun(tmp_path).open(older)
    newer = {"train": {"lr": 1e-3, "unfreezing": {"blocks_per_step": 3}, "synthetic_fraction": 0.0}}
    TrainingRun(tmp_path).open(newer)
    used = {"train": {**newer["train"], "synthetic_fraction": 0.5}}
    with pytest.raises(TrainingError, match=r"settings: train.synthetic_fraction was 0.0, is now 0.5\. Give"):
        TrainingRun(tmp_path).open(used)


@pytest.mark.parametrize("name", ["annotations.parquet", "splits.parquet", "started_from"])
def test_a_run_with_other_training_data_or_another_initial_model_is_refused(
    name: str, tmp_path: Path
) -> None:
    TrainingRun(tmp_path).open({**SETTINGS, name: "a"})
    TrainingRun(tmp_path).check({**SETTINGS, name: "a"})
    with pytest.raises(
        TrainingError, match=f"other training data or settings: {name} was a, is now b. Give.*--run-name"
    ):
        TrainingRun(tmp_path).check({**SETTINGS, name: "b"})


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ({}, {"started_from": "b"}),
        ({"started_from": "a"}, {}),
        ({}, {"annotations.parquet": "b", "splits.parquet": "b"}),
        ({"annotations.parquet": "a"}, {"annotations.parquet": None}),
    ],
)
def test_a_run_may_lack_the_identity_of_its_initial_model_or_of_its_tables(
    then: dict[str, str], now: dict[str, str | None], tmp_path: Path
) -> None:
    TrainingRun(tmp_path).open(SETTINGS | then)
    TrainingRun(tmp_path).check(SETTINGS | now)


def test_metrics_are_read_back_in_order(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    for step in (10, 20):
        run.write({"step": step, "loss": 1 / step})
    assert run.read() == [{"step": 10, "loss": 0.1}, {"step": 20, "loss": 0.05}]


def test_the_validation_loss_is_that_of_the_saved_epoch(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    assert run.validation_loss(keep_best=True) == run.validation_loss(keep_best=False) == {}
    for step, loss in enumerate((0.5, 0.3, 0.4)):
        run.write({"step": step, "loss": 0.1})
        run.write({"step": step, "validation_loss": loss})
    assert run.validation_loss(keep_best=True) == {"validation_loss": 0.3}
    assert run.validation_loss(keep_best=False) == {"validation_loss": 0.4}


def test_metrics_of_repeated_steps_and_an_incomplete_line_are_deleted(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    for step in (10, 20, 20, 30):
        run.write({"step": step})
    with run.metrics.open("a") as file:
        file.write(json.dumps({"step": 5})[:-1])  # killed while writing
    run.truncate_after(20)
    assert [line["step"] for line in run.read()] == [10, 20, 20]
    run.truncate_after(0)
    assert run.read() == []
