"""A small prepared study of synthetic recordings, and the smallest model that can be trained on it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from mast.cli import app
from mast.config import Pretrain, Study, load_study
from mast.datasets.loader import Batch
from mast.datasets.study_datasets import pretraining_dataset
from mast.example_data import write_example
from mast.storage import join
from mast.store.audio_store import AudioStore
from mast.training.loop import TrainingSet
from mast.training.optimiser import ParamGroup
from mast.training.run_dir import TrainingRun

SHORT = ("chunking.chunk_s=2.56", "chunking.hop_s=1.28", "model.size=tiny", "normalisation=dataset")
QUICK = Pretrain(
    epochs=6,
    warmup_epochs=1,
    batch_size=8,
    lr=1e-2,
    precision="fp32",
    checkpoint_minutes=0,
    plot_every_epochs=100,
)


def prepare_example(folder: Path) -> Path:
    """Write the example data as a prepared study of short chunks, and return its file."""
    write_example(folder / "example")
    study = folder / "study.yaml"
    settings = {
        "work_dir": "work",
        "collections": {"card": {"root": "example/card", "site": "{site}/*", "time_zone": "UTC"}},
        "annotations": [{"path": "example/boxes", "format": "raven"}],
        "splits": {"block_s": 10, "guard_s": 0},
        "chunking": {"chunk_s": 2.56, "hop_s": 1.28},
        "model": {"size": "tiny"},
        "normalisation": "dataset",
    }
    study.write_text(json.dumps(settings))
    for command in ("scan", "split", "prepare"):
        result = CliRunner().invoke(app, [command, str(study)])
        assert result.exit_code == 0, result.output
    return study


def make_training_set(study: Study) -> TrainingSet:
    store = AudioStore(join(study.work_dir, "audio.lance"))
    return TrainingSet(store, pretraining_dataset(study, store, seed=0))


class LevelModel(nn.Module):
    """Predicts the level of a chunk with one constant, the mean level of all chunks."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout, self.has_kink = dropout, False
        self.level = nn.Parameter(torch.full((2, 2), 3.0))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, levels: Tensor) -> dict[str, Tensor]:
        if self.training:
            self.seen += len(levels)
        noisy = torch.nn.functional.dropout(self.level, self.dropout, training=self.training)
        if self.has_kink:  # a value of 0 with a NaN gradient
            noisy = noisy + (self.level - self.level.detach()).abs().sqrt()
        return {"loss": (noisy.mean() - levels).square().mean(), "level": self.level.mean()}


class LevelTask:
    """The smallest training task; it records the calls of its methods for tests."""

    def __init__(self, validation: Sequence[float] = (), dropout: float = 0.5) -> None:
        self.module = LevelModel(dropout)
        self.epochs: list[int] = []
        self.plotted_epochs: list[int] = []
        self.validation = validation
        self.batches: list[list[int]] = []
        self.nan_step: int | None = None

    def param_groups(self) -> Sequence[ParamGroup]:
        return [ParamGroup(tuple(self.module.parameters()))]

    def prepare_batch(self, batch: Batch, step: int, device: torch.device) -> tuple[Any, ...]:
        self.batches.append(batch.examples.tolist())
        levels = batch.audio.float().abs().mean(dim=1) / 1000
        return (levels + (float("nan") if step == self.nan_step else 0),)

    def begin_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def validate(self, model: nn.Module, device: torch.device) -> float | None:
        return self.validation[len(self.epochs) - 1] if self.validation else None

    def end_epoch(self, model: nn.Module, epoch: int, run: TrainingRun) -> None:
        self.plotted_epochs.append(epoch)

    def save(self, model: nn.Module, run: TrainingRun) -> None:
        run.model.mkdir(parents=True)
        torch.save(model.state_dict(), run.model / "weights.pt")
        (run.model / "model.json").write_text("{}")


def weights(run: TrainingRun) -> dict[str, Tensor]:
    state: dict[str, Tensor] = torch.load(run.model / "weights.pt", weights_only=True)
    return state


def example_study(path: Path) -> Study:
    return load_study(path)
