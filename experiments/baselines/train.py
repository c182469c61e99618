"""Train a baseline with MAST's loop, examples, augmentation, normalisation, validation and choice of the threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, cast

import torch
from torch import Generator, Tensor, nn

from experiments.baselines.base import Losses, Network
from experiments.baselines.energy import LEVELS_DB, PAUSES, Energy
from experiments.baselines.evaluate import BASELINES, BaselineDetector
from mast.config import Study
from mast.datasets.prepare import read_normalisation
from mast.datasets.split_table import require_artifact
from mast.datasets.study_datasets import detection_dataset
from mast.errors import ConfigError
from mast.models.checkpoint import ModelInfo, save_model
from mast.models.frontend import FrontEnd
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE
from mast.training.loop import End, OnProgress, run_training
from mast.training.optimiser import ParamGroup
from mast.training.run_dir import TrainingRun
from mast.training.supervised import DetectorTask, run_fingerprint
from mast.training.thresholds import choose_threshold
from mast.training.training_data import LABELLED_ONLY, TrainingData
from mast.training.validation import predict


class BaselineTrainingModule(nn.Module):
    """Baseline detector with the front end: from chunks and boxes to losses."""

    def __init__(self, frontend: FrontEnd, detector: Network) -> None:
        super().__init__()
        self.frontend, self.detector = frontend, detector

    def forward(self, spec: Tensor, boxes: Sequence[Tensor]) -> Losses:
        """Compute the losses of normalised chunks (B, F, T) with boxes, B times (n, 4)."""
        terms = self.detector.losses(spec, boxes)
        detection = torch.stack([*terms.values()]).sum()
        return {"loss": detection, "detection": detection, **terms}


class BaselineTask(DetectorTask):
    """MAST's training task with another detector.

    Losses are means over the positives of a micro-batch, so the sum over micro-batches and ranks is only approximately
    that of one large batch.
    """

    module: BaselineTrainingModule  # type: ignore[assignment]  # in place of MAST's module

    def __init__(
        self,
        name: str,
        study: Study,
        store: AudioStore,
        ranks: tuple[int, int] = (0, 1),
        training_data: TrainingData = LABELLED_ONLY,
    ) -> None:
        super().__init__(study, store, ranks, training_data)
        del self.encoder
        self.description, self.rate = _description(name, study, store), BASELINES[name].rate
        torch.manual_seed(study.train.seed)
        detector = cast(Network, BASELINES[name].make(study.detection, study.model.size))
        detector.to(memory_format=torch.channels_last)
        self.module = BaselineTrainingModule(self.module.frontend, detector)

    def param_groups(self) -> Sequence[ParamGroup]:
        """Return all parameters of the detector as one group."""
        return [ParamGroup(tuple(self.module.detector.parameters()), self.rate)]

    def begin_epoch(self, epoch: int) -> None:
        """Pass the training progress to the detector; nothing is frozen."""
        self.module.detector.progress = epoch / self.settings.epochs

    def _module_inputs(
        self,
        logmel: Tensor,
        valid_samples: Tensor,
        boxes: Sequence[Tensor],
        weights: Tensor,
        rngs: Sequence[Generator],
        fractions: Tensor,
    ) -> tuple[Any, ...]:
        """Return the module's inputs for chunks with boxes; all boxes have the same weight."""
        spec = self.module.frontend.normalise(logmel, valid_samples.to(logmel.device))
        return spec, [item.to(logmel.device) for item in boxes]

    def _divisors(self, boxes: Sequence[Tensor], device: torch.device) -> Tensor:
        """Return no divisors: each detector normalises its losses itself. → (0,)"""
        return torch.zeros(0, device=device)

    def _chunk_detector(self, network: Any) -> BaselineDetector:
        """Create a chunk detector with the current weights of the network."""
        return BaselineDetector(network.detector, network.frontend, next(network.parameters()).device.type)


def train_baseline(
    name: str,
    study: Study,
    run: TrainingRun,
    device: str = "auto",
    on_progress: OnProgress = lambda progress: None,
    training_data: TrainingData = LABELLED_ONLY,
) -> End:
    """Train a baseline for the number of steps of MAST, or resume; `run.model` has the format of MAST's models."""
    if study.train.init_from:
        raise ConfigError(
            f"train.init_from={study.train.init_from} is for MAST: baselines start from random weights."
        )
    store = AudioStore(require_artifact(study, STORE))
    fingerprint = {"baseline": name, **run_fingerprint(study, store)}
    if name == "energy":
        run.open(fingerprint)
        return "finished" if run.is_finished else _tune(name, study, store, run, device)
    return run_training(
        lambda ranks: BaselineTask(name, study, store, ranks, training_data),
        study.train,
        run,
        fingerprint,
        device,
        on_progress,
    )


def _tune(name: str, study: Study, store: AudioStore, run: TrainingRun, device: str) -> End:
    """Choose the level, the pause, and then the score threshold, with the highest F1 on validation."""
    validation_set = detection_dataset(study, store, "val").chunks
    frontend = FrontEnd(study.chunking, study.spectrogram, read_normalisation(study))
    candidates = []
    for level_db, pause in product(LEVELS_DB, PAUSES):
        energy = Energy(study.detection, level_db, pause)
        predictions = predict(BaselineDetector(energy, frontend, device), store, validation_set)
        candidates.append((energy, choose_threshold(predictions, study.detection.score_threshold)))
    energy, threshold = max(
        candidates, key=lambda item: cast(float, item[1].results.get("validation_f1", 0.0))
    )
    description = replace(
        _description(name, study, store),
        thresholds={"score": threshold.score, "nms_iou_threshold": study.detection.nms_iou_threshold},
        results={"threshold": threshold.reason, **threshold.results},
    )
    save_model(str(run.model), description, energy.state_dict())
    return "finished"


def _description(name: str, study: Study, store: AudioStore) -> ModelInfo:
    """Return the metadata of a baseline."""
    return ModelInfo(
        kind="detector",
        architecture={"baseline": name, "size": study.model.size},
        spectrogram=study.spectrogram,
        chunking=study.chunking,
        normalisation=read_normalisation(study),
        licence=BASELINES[name].licence,
        source=f"the baseline {name}, started from {study.train.init_from or 'random weights'}",
        data=store.fingerprint,
    )
