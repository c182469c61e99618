"""Training on synthetic calls: a detector without annotations, from which training can start."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest
from typer.testing import CliRunner

from mast.cli import app
from mast.config import Study, load_study
from mast.datasets.background_selection import select_background_chunks
from mast.errors import TrainingError
from mast.models.encoder import SIZES, EncoderShape
from mast.models.loading import load_detector
from mast.storage import join
from mast.store.audio_store import AudioStore
from mast.training.initialisation import WIDTHS
from mast.training.run_dir import TrainingRun
from mast.training.supervised import DetectorTask, train_study
from tests.training.test_supervised import QUICK

OVERRIDES = (
    *QUICK,
    *(item.replace("train.", "train_synthetic.") for item in QUICK if item.startswith("train.")),
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "tiny", EncoderShape(width=32, heads=2, depth=3))
    monkeypatch.setitem(WIDTHS, "tiny", {"channels": 64, "head_width": 32})


def open_store(study: Study) -> AudioStore:
    return AudioStore(join(study.work_dir, "audio.lance"))


def test_a_detector_is_trained_without_annotations_and_training_starts_from_it(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [word for override in OVERRIDES for word in ("--set", override)]
    result = CliRunner().invoke(app, ["train-synthetic", str(study_file), "--out", str(tmp_path), *options])
    assert result.exit_code == 0, result.output
    assert "Finished. Model:" in result.output
    run = TrainingRun(tmp_path / "train-synthetic" / "main")
    assert (run.folder / "synthetic.png").stat().st_size > 10_000
    description = load_detector(str(run.model)).description
    assert (description.kind, description.source) == (
        "detector",
        "mast train-synthetic, started from random weights",
    )
    trained = TrainingRun(tmp_path / "train")
    study = load_study(study_file, [*OVERRIDES, f"train.init_from={run.model}"])
    assert train_study(study, trained, "cpu") == "finished"
    monkeypatch.delattr(
        "mast.training.synthetic.select_background_chunks"
    )  # a finished run does not read the store
    again = CliRunner().invoke(app, ["train-synthetic", str(study_file), "--out", str(tmp_path), *options])
    assert again.exit_code == 0, again.output
    assert "Finished. Model:" in again.output


def test_supervised_training_can_use_synthetic_calls_as_well(study_file: Path, tmp_path: Path) -> None:
    study = load_study(study_file, [*OVERRIDES, "train.synthetic_fraction=0.25"])
    plain = DetectorTask(load_study(study_file, OVERRIDES), open_store(study))
    task = DetectorTask(study, open_store(study))
    labelled = len(plain.training_set.examples)
    assert task.synthetic_start == labelled
    assert len(task.training_set.examples) == labelled + round(labelled / 3)
    synthetic_rows = np.arange(labelled, len(task.training_set.examples))
    assert sum(len(boxes) for boxes in task.training_set.examples.boxes(synthetic_rows)) == 0
    assert train_study(study, TrainingRun(tmp_path), "cpu") == "finished"


def test_synthetic_calls_are_mixed_into_all_background_chunks_in_turn(study_file: Path) -> None:
    study = load_study(study_file, [*OVERRIDES, "train.synthetic_fraction=0.25"])
    task = DetectorTask(study, open_store(study))
    background = {tuple(location) for location in select_background_chunks(study, open_store(study))}
    synthetic_rows = np.arange(cast(int, task.synthetic_start), len(task.training_set.examples))
    epochs = -(-len(background) // len(synthetic_rows))
    used = [
        tuple(location)
        for epoch in range(epochs)
        for location in task.training_set.examples.locations(epoch, synthetic_rows)
    ]
    assert set(used) == background
    assert max(used.count(location) for location in background) <= -(-len(used) // len(background))


def test_training_without_background_for_synthetic_calls_opens_no_run(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = TrainingRun(tmp_path)
    with monkeypatch.context() as patch:
        for split in ("background_selection.UNLABELLED", "study_datasets.TRAIN"):
            patch.setattr(f"mast.datasets.{split}", "nowhere")
        with pytest.raises(TrainingError, match="no background chunks for synthetic calls"):
            train_study(load_study(study_file, [*OVERRIDES, "train.synthetic_fraction=0.25"]), run, "cpu")
    assert train_study(load_study(study_file, OVERRIDES), run, "cpu") == "finished"
