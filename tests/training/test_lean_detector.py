"""Training of a detector with a convolutional encoder, from random weights and from the installed detector."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import mast
from mast.cli import app
from mast.config import load_study
from mast.errors import ConfigError, ModelError
from mast.models.checkpoint import load_model
from mast.models.conv_encoder import ConvEncoder
from mast.models.included import included_models
from mast.storage import join
from mast.store.audio_store import AudioStore
from mast.training.pretrain import initial_model
from mast.training.run_dir import TrainingRun
from mast.training.supervised import DetectorTask, train_study
from mast.version import STARTER

PRESET = (
    "normalisation=band-median",
    "model.encoder=efficientnet_lite0",
    "train.contrastive_weight=0",
    "train.batch_size=8",
    "train.epochs=1",
    "train.warmup_epochs=0",
    "train.plot_every_epochs=1",
)
FROM_STARTER = (*PRESET, "train.init_from=starter", "train.backbone_lr_scale=0.5")


def make_task(study_file: Path, *changes: str) -> DetectorTask:
    study = load_study(study_file, changes)
    return DetectorTask(study, AudioStore(join(study.work_dir, "audio.lance")))


def test_a_detector_trains_is_saved_and_is_loaded_to_detect_and_embed(
    study_file: Path, tmp_path: Path
) -> None:
    study, run = load_study(study_file, PRESET), TrainingRun(tmp_path / "run")
    assert train_study(study, run, "cpu") == "finished"
    model = mast.load_model(run.model)
    assert model.info.architecture["encoder"] == {"network": "efficientnet_lite0", "bins": 128}
    recording = next(path for path in Path(next(iter(study.collections.values())).root).rglob("*.WAV"))
    events = list(model.detect(recording, min_score=0.0))[:3]
    vectors = model.embed(recording, events)
    assert vectors.shape == (3, 496) and np.isfinite(vectors.astype(float)).all()
    resumed = TrainingRun(tmp_path / "run")
    assert train_study(study, resumed, "cpu") == "finished"  # at once


def test_the_lean_networks_have_other_weights_and_the_same_interface(study_file: Path) -> None:
    for network in ("efficientnet_lite0", "yamnet"):
        task = make_task(study_file, *PRESET, f"model.encoder={network}")
        assert isinstance(task.encoder, ConvEncoder) and task.encoder.shape.network == network
        task.begin_epoch(0)
        assert all(item.requires_grad for item in task.module.parameters())


def test_training_from_the_starter_begins_with_its_weights_scale_and_no_frozen_part(study_file: Path) -> None:
    info, tensors = load_model(STARTER)
    task = make_task(study_file, *FROM_STARTER)
    state = task.module.detector.state_dict()
    assert state.keys() == tensors.keys()
    assert all(torch.equal(state[name].float(), value.float()) for name, value in tensors.items())
    assert task.description.normalisation == info.normalisation
    assert task.description.parent == info.identity and task.description.licence == info.licence
    task.begin_epoch(0)
    assert all(item.requires_grad for item in task.module.parameters())
    assert {group.lr_scale for group in task.param_groups()} == {1.0, 0.5}


def test_another_encoder_or_normalisation_than_the_starters_is_refused(study_file: Path) -> None:
    with pytest.raises(ModelError, match="Set model.encoder and model.size"):
        make_task(study_file, *FROM_STARTER, "model.encoder=yamnet")
    with pytest.raises(ModelError, match="Set normalisation=band-median"):
        make_task(study_file, *FROM_STARTER, "normalisation=audiomae")


def test_masked_pretraining_of_a_convolutional_encoder_is_refused(study_file: Path) -> None:
    study = load_study(study_file, PRESET)
    with pytest.raises(ConfigError, match="Set model.encoder to vit"):
        initial_model(study, AudioStore(join(study.work_dir, "audio.lance")))


def test_the_installed_detector_is_listed_with_its_licence_and_card() -> None:
    (model,) = included_models()
    assert (model.name, model.kind) == (STARTER, "detector") and model.megabytes < 12
    shown = CliRunner().invoke(app, ["models"])
    assert shown.exit_code == 0 and "starter: detector, efficientnet_lite0" in shown.output
    card = model.card.read_text("utf-8")
    assert "## Licence" in card and card.count("CC-BY") + card.count("CC0") > 100


def test_kernels_are_stored_in_half_precision_and_other_tensors_in_full() -> None:
    _, tensors = load_model(STARTER)
    assert {value.dtype for value in tensors.values() if value.ndim > 1} == {torch.float16}
    assert torch.float16 not in {value.dtype for value in tensors.values() if value.ndim <= 1}


def test_the_name_of_the_starter_is_no_path(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_study(study_file, FROM_STARTER).train.init_from == STARTER
    assert mast.load_model().info == mast.load_model(STARTER).info
    with pytest.raises(mast.errors.StorageError, match=r"\./starter"):
        mast.load_model("./starter")


def test_detection_without_a_model_uses_the_starter(study_file: Path, tmp_path: Path) -> None:
    study = load_study(study_file)
    card = next(iter(study.collections.values())).root
    done = CliRunner().invoke(app, ["detect", card, "--out", str(tmp_path / "events"), "--workers", "1"])
    assert done.exit_code in (0, 3), done.output
    manifest = json.loads((tmp_path / "events" / "run.json").read_text())
    assert STARTER in json.dumps(manifest)
