"""A small prepared study of made-up sound, and the smallest thing that can learn from it."""

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
from mast.datasets.examples import pretraining_examples
from mast.datasets.loading import Batch
from mast.example import write_example
from mast.recordings.store import AudioStore
from mast.storage import join
from mast.training.loop import Sound
from mast.training.optimiser import Group
from mast.training.run import Run

SHORT = ("chunking.chunk_s=2.56", "chunking.hop_s=1.28", "model.size=tiny", "normalisation=dataset")
QUICK = Pretrain(
    epochs=6, warmup_epochs=1, batch=8, lr=1e-2, precision="fp32", checkpoint_minutes=0, picture_epochs=100
)


def prepare_example(folder: Path) -> Path:
    """The example's card as a prepared study of short chunks. → its file"""
    write_example(folder / "example")
    study = folder / "study.yaml"
    settings = {
        "work": "work",
        "collections": {"card": {"root": "example/card", "site": "{site}/*", "time_zone": "UTC"}},
        "annotations": [{"path": "example/boxes", "format": "raven"}],
        "splits": {"block_s": 10, "guard_s": 0},
        "chunking": {"chunk_s": 2.56, "hop_s": 1.28},
        "model": {"size": "tiny"},
        "normalisation": "dataset",
    }
    study.write_text(json.dumps(settings))
    for verb in ("scan", "splits", "prepare"):
        done = CliRunner().invoke(app, [verb, str(study)])
        assert done.exit_code == 0, done.output
    return study


def sound_of(study: Study) -> Sound:
    store = AudioStore(join(study.work, "audio.lance"))
    return Sound(store, pretraining_examples(study, store, seed=0))


class Guess(nn.Module):
    """Guesses how loud a chunk is, from nothing but how loud chunks are in general."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout, self.has_kink = dropout, False
        self.level = nn.Parameter(torch.full((2, 2), 3.0))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, levels: Tensor) -> dict[str, Tensor]:
        if self.training:
            self.seen += len(levels)
        noisy = torch.nn.functional.dropout(self.level, self.dropout, training=self.training)
        if self.has_kink:  # a value of 0 whose slope is no number
            noisy = noisy + (self.level - self.level.detach()).abs().sqrt()
        return {"loss": (noisy.mean() - levels).square().mean(), "level": self.level.mean()}


class GuessRecipe:
    """The smallest recipe, with hooks that tests look into."""

    def __init__(self, validation: Sequence[float] = (), dropout: float = 0.5) -> None:
        self.module = Guess(dropout)
        self.epochs: list[int] = []
        self.drawn: list[int] = []
        self.validation = validation
        self.heard: list[list[int]] = []
        self.poison: int | None = None

    def groups(self) -> Sequence[Group]:
        return [Group(tuple(self.module.parameters()))]

    def inputs(self, batch: Batch, step: int, device: torch.device) -> tuple[Any, ...]:
        self.heard.append(batch.examples.tolist())
        levels = batch.sound.float().abs().mean(dim=1) / 1000
        return (levels + (float("nan") if step == self.poison else 0),)

    def begin_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def validate(self, model: nn.Module, device: torch.device) -> float | None:
        return self.validation[len(self.epochs) - 1] if self.validation else None

    def end_epoch(self, model: nn.Module, epoch: int, run: Run) -> None:
        self.drawn.append(epoch)

    def save(self, model: nn.Module, run: Run) -> None:
        run.model.mkdir(parents=True)
        torch.save(model.state_dict(), run.model / "weights.pt")
        (run.model / "model.json").write_text("{}")


def weights(run: Run) -> dict[str, Tensor]:
    kept: dict[str, Tensor] = torch.load(run.model / "weights.pt", weights_only=True)
    return kept


def example_study(path: Path) -> Study:
    return load_study(path)
