"""Training a baseline: MAST's own loop, examples, variation, normalisation, validation and choice of a threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, cast

import torch
from torch import Generator, Tensor, nn

from experiments.baselines.energy import LEVELS_DB, PAUSES, Energy
from experiments.baselines.finding import BASELINES, BaselineFinder
from experiments.baselines.network import Losses, Network
from mast.config import Study
from mast.datasets.examples import detection_examples
from mast.datasets.preparing import read_normalisation
from mast.datasets.split_table import existing
from mast.errors import ConfigError
from mast.models.checkpoint import Description, save_model
from mast.models.frontend import FrontEnd
from mast.recordings.store import AudioStore
from mast.study.products import STORE
from mast.training.devices import start_fabric
from mast.training.finetune import FinetuneRecipe, learned_under
from mast.training.hearing import hear
from mast.training.lessons import EXPERTS, Lesson
from mast.training.loop import End, OnProgress, train
from mast.training.optimiser import Group
from mast.training.run import Run
from mast.training.thresholds import choose_threshold


class Learning(nn.Module):
    """Chunks with their boxes in, losses out; the detector, and the front end that it hears through."""

    def __init__(self, frontend: FrontEnd, detector: Network) -> None:
        super().__init__()
        self.frontend, self.detector = frontend, detector

    def forward(self, spec: Tensor, boxes: Sequence[Tensor]) -> Losses:
        """Losses of normalised chunks (B, F, T) with boxes, B times (n, 4)."""
        terms = self.detector.losses(spec, boxes)
        detection = torch.stack([*terms.values()]).sum()
        return {"loss": detection, "detection": detection, **terms}


class BaselineRecipe(FinetuneRecipe):
    """MAST's own recipe around another detector; what is not here is as in MAST.

    Losses are means over what a detector takes for positive in a portion: portions, and ranks, add up nearly but not
    quite to a large batch.
    """

    module: Learning  # type: ignore[assignment]  # in place of MAST's own

    def __init__(
        self,
        name: str,
        study: Study,
        store: AudioStore,
        ranks: tuple[int, int] = (0, 1),
        lesson: Lesson = EXPERTS,
    ) -> None:
        super().__init__(study, store, ranks, lesson)
        del self.encoder
        self.description, self.rate = _description(name, study, store), BASELINES[name].rate
        torch.manual_seed(study.train.seed)
        detector = cast(Network, BASELINES[name].make(study.detection, study.model.size))
        detector.to(memory_format=torch.channels_last)
        self.module = Learning(self.module.frontend, detector)

    def groups(self) -> Sequence[Group]:
        """All of the detector."""
        return [Group(tuple(self.module.detector.parameters()), self.rate)]

    def begin_epoch(self, epoch: int) -> None:
        """Say how far learning is; nothing is frozen."""
        self.module.detector.learned = epoch / self.settings.epochs

    def _targets(
        self,
        levels: Tensor,
        filled: Tensor,
        boxes: Sequence[Tensor],
        weights: Tensor,
        rngs: Sequence[Generator],
        shares: Tensor,
    ) -> tuple[Any, ...]:
        """What the module takes of chunks with these boxes; the experts' all count the same."""
        spec = self.module.frontend.normalised(levels, filled.to(levels.device))
        return spec, [own.to(levels.device) for own in boxes]

    def _counts(self, boxes: Sequence[Tensor], device: torch.device) -> Tensor:
        """Nothing: each detector counts its own positives. → (0,)"""
        return torch.zeros(0, device=device)

    def _finder(self, network: Any) -> BaselineFinder:
        """What finds boxes with the network as it is."""
        return BaselineFinder(network.detector, network.frontend, next(network.parameters()).device.type)


def train_baseline(
    name: str,
    study: Study,
    run: Run,
    device: str = "auto",
    on_progress: OnProgress = lambda progress: None,
    lesson: Lesson = EXPERTS,
) -> End:
    """Train a baseline for as many steps as MAST, or go on with it; `run.model` is a model as MAST's are."""
    if study.train.start:
        raise ConfigError(
            f"train.start={study.train.start} is for MAST: baselines start from random weights."
        )
    store = AudioStore(existing(study, STORE))
    run.open({"baseline": name, **learned_under(study, store)})
    if run.is_finished:
        return "finished"
    if name == "energy":
        return _tune(name, study, store, run, device)
    fabric = start_fabric(study.train.precision, run, device)
    ranks = (fabric.global_rank, fabric.world_size)
    recipe = BaselineRecipe(name, study, store, ranks, lesson)
    return train(recipe, recipe.sound, study.train, run, fabric, on_progress)


def _tune(name: str, study: Study, store: AudioStore, run: Run, device: str) -> End:
    """Take the level, the pause, and then the score, of the highest F1 on validation."""
    held = detection_examples(study, store, "val").chunks
    frontend = FrontEnd(study.chunking, study.spectrogram, read_normalisation(study))
    tried = []
    for level_db, pause in product(LEVELS_DB, PAUSES):
        energy = Energy(study.detection, level_db, pause)
        heard = hear(BaselineFinder(energy, frontend, device), store, held)
        tried.append((energy, choose_threshold(heard, study.detection.min_score)))
    energy, chosen = max(tried, key=lambda item: cast(float, item[1].results.get("validation_f1", 0.0)))
    description = replace(
        _description(name, study, store),
        thresholds={"score": chosen.score, "nms_iou": study.detection.nms_iou},
        results={"threshold": chosen.reason, **chosen.results},
    )
    save_model(str(run.model), description, energy.state_dict())
    return "finished"


def _description(name: str, study: Study, store: AudioStore) -> Description:
    """All about a baseline but its weights."""
    return Description(
        kind="detector",
        architecture={"baseline": name, "size": study.model.size},
        spectrogram=study.spectrogram,
        chunking=study.chunking,
        normalisation=read_normalisation(study),
        licence=BASELINES[name].licence,
        source=f"the baseline {name}, started from {study.train.start or 'random weights'}",
        data=store.fingerprint,
    )
