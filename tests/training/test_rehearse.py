"""Rehearsal: a detector from no label at all, which training can start from."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest
from typer.testing import CliRunner

from mast.cli import app
from mast.config import Study, load_study
from mast.datasets.quiet import quiet_chunks
from mast.errors import TrainingError
from mast.models.encoder import SIZES, EncoderShape
from mast.models.loading import load_detector
from mast.recordings.store import AudioStore
from mast.storage import join
from mast.training.finetune import FinetuneRecipe, train_study
from mast.training.run import Run
from mast.training.starting import WIDTHS
from tests.training.test_finetune import QUICK

SETS = (*QUICK, *(item.replace("train.", "rehearse.") for item in QUICK if item.startswith("train.")))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "tiny", EncoderShape(width=32, heads=2, depth=3))
    monkeypatch.setitem(WIDTHS, "tiny", {"channels": 64, "head_width": 32})


def store_of(study: Study) -> AudioStore:
    return AudioStore(join(study.work, "audio.lance"))


def test_a_detector_comes_of_no_label_and_training_starts_from_it(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = [item for change in SETS for item in ("--set", change)]
    told = CliRunner().invoke(app, ["rehearse", str(study_file), "--out", str(tmp_path), *sets])
    assert told.exit_code == 0, told.output
    assert "Finished. Model:" in told.output
    run = Run(tmp_path / "rehearse" / "main")
    assert (run.folder / "made_up.png").stat().st_size > 10_000
    description = load_detector(str(run.model)).description
    assert (description.kind, description.source) == (
        "detector",
        "mast rehearse, started from random weights",
    )
    trained = Run(tmp_path / "train")
    study = load_study(study_file, [*SETS, f"train.start={run.model}"])
    assert train_study(study, trained, "cpu") == "finished"
    monkeypatch.delattr("mast.training.rehearse.quiet_chunks")  # what is finished listens to nothing any more
    again = CliRunner().invoke(app, ["rehearse", str(study_file), "--out", str(tmp_path), *sets])
    assert again.exit_code == 0, again.output
    assert "Finished. Model:" in again.output


def test_training_may_go_on_rehearsing_beside_the_labels(study_file: Path, tmp_path: Path) -> None:
    study = load_study(study_file, [*SETS, "train.rehearsed_share=0.25"])
    plain = FinetuneRecipe(load_study(study_file, SETS), store_of(study))
    recipe = FinetuneRecipe(study, store_of(study))
    labelled = len(plain.sound.examples)
    assert recipe.made_up_from == labelled
    assert len(recipe.sound.examples) == labelled + round(labelled / 3)
    made_up = np.arange(labelled, len(recipe.sound.examples))
    assert sum(len(own) for own in recipe.sound.examples.boxes(made_up)) == 0
    assert train_study(study, Run(tmp_path), "cpu") == "finished"


def test_made_up_calls_are_laid_over_all_quiet_sound_in_turn(study_file: Path) -> None:
    study = load_study(study_file, [*SETS, "train.rehearsed_share=0.25"])
    recipe = FinetuneRecipe(study, store_of(study))
    quiet = {tuple(place) for place in quiet_chunks(study, store_of(study))}
    made_up = np.arange(cast(int, recipe.made_up_from), len(recipe.sound.examples))
    epochs = -(-len(quiet) // len(made_up))
    heard = [
        tuple(place) for epoch in range(epochs) for place in recipe.sound.examples.places(epoch, made_up)
    ]
    assert set(heard) == quiet
    assert max(heard.count(place) for place in quiet) <= -(-len(heard) // len(quiet))


def test_what_had_nothing_to_rehearse_on_has_opened_no_run(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    with monkeypatch.context() as without:
        for split in ("quiet.UNLABELLED", "examples.TRAIN"):
            without.setattr(f"mast.datasets.{split}", "nowhere")
        with pytest.raises(TrainingError, match="no sound in this study to lay made-up calls over"):
            train_study(load_study(study_file, [*SETS, "train.rehearsed_share=0.25"]), run, "cpu")
    assert train_study(load_study(study_file, SETS), run, "cpu") == "finished"
