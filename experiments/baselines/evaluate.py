"""List the baselines, run them on chunks, and evaluate them with the method of `mast evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments.baselines.base import Network, Size
from experiments.baselines.detr import Detr
from experiments.baselines.energy import Energy
from experiments.baselines.torchvision_detectors import FasterRcnn, Fcos
from experiments.baselines.yolo import Yolo
from mast.config import Detection, Study
from mast.datasets.loader import ChunkLocations
from mast.datasets.split_table import require_artifact
from mast.detection.chunk_detector import BATCH, clip_to_audio, predict_chunks
from mast.errors import ModelError
from mast.evaluation.bootstrap import RESAMPLES
from mast.evaluation.evaluate import EvaluatedModel, EvaluationResult, evaluate_model
from mast.models.checkpoint import load_model
from mast.models.devices import autocast, resolve_device
from mast.models.frontend import FrontEnd
from mast.models.loading import LoadedModel, check_store
from mast.models.postprocess import ChunkDetections
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE
from mast.training.initialisation import ANY_STATISTICS
from mast.types import OnCount


@dataclass(frozen=True, slots=True)
class Baseline:
    """Constructor of a detector, its factor of the study's learning rate, and the licence of its weights."""

    make: Callable[[Detection, Size], Network | Energy]
    rate: float = 1.0
    licence: str = ANY_STATISTICS


BASELINES: Mapping[str, Baseline] = {
    "faster_rcnn": Baseline(FasterRcnn),
    "fcos": Baseline(Fcos),
    "detr": Baseline(Detr, rate=0.1),
    "yolo": Baseline(Yolo, licence="AGPL-3.0, that of ultralytics"),
    "energy": Baseline(lambda settings, size: Energy(settings)),
}
"""The paper's baselines except AudioMAE, which is MAST with `train.init_from`, and `energy`, which has no weights."""


class BaselineDetector:
    """A baseline on a device, under autocast in the fastest precision of the device."""

    def __init__(self, network: Network | Energy, frontend: FrontEnd, device: str = "auto") -> None:
        self.kind = resolve_device(device)
        self.batch = BATCH[self.kind]
        self._network, self._frontend = network.to(self.kind), frontend.to(self.kind)

    @property
    def frames(self) -> int:
        """Number of frames of a chunk."""
        return self._frontend.frames

    def __call__(self, audio: NDArray[np.int16], valid_samples: NDArray[np.int64]) -> list[ChunkDetections]:
        """Predict boxes in chunks whose first `valid_samples` (B,) are audio, and clip the boxes to it. (B, N) → B"""
        waves, counts = (torch.from_numpy(values).to(self.kind) for values in (audio, valid_samples))
        with torch.no_grad(), autocast(self.kind):
            detections = self._predict(waves, counts)
        ends = valid_samples / self._frontend.logmel.shift_samples
        return [clip_to_audio(item, end) for item, end in zip(detections, ends.tolist(), strict=True)]

    def _predict(self, waves: Tensor, counts: Tensor) -> list[ChunkDetections]:
        frontend = self._frontend
        if isinstance(self._network, Energy):
            frames = torch.tensor([frontend.logmel.num_frames(count) for count in counts.tolist()])
            return self._network.predict(frontend.log_mel(waves, counts), frames.to(self.kind))
        return self._network.predict(frontend(waves, counts))


def load_baseline(location: str, settings: Detection, store: AudioStore) -> LoadedModel[Network | Energy]:
    """Load a baseline that `train_baseline` saved; raise ModelError if it does not fit the audio of the store."""
    description, tensors = load_model(location)
    name = description.architecture.get("baseline")
    if name not in BASELINES or description.normalisation is None:
        raise ModelError(
            f"{location} is not a baseline: it has {description.architecture}. Use mast evaluate."
        )
    check_store(location, description, store)
    network = BASELINES[str(name)].make(settings, cast(Size, description.architecture["size"]))
    network.load_state_dict(tensors)
    frontend = FrontEnd(description.chunking, description.spectrogram, description.normalisation)
    return LoadedModel(description, network.eval(), frontend)


def evaluate_baseline(
    study: Study, location: str, out: str | None = None, device: str = "auto", resamples: int = RESAMPLES
) -> EvaluationResult:
    """Evaluate a baseline as `evaluate_study` evaluates MAST, at the threshold chosen on validation."""
    store = AudioStore(require_artifact(study, STORE))
    loaded = load_baseline(location, study.detection, store)
    detector = BaselineDetector(loaded.network, loaded.frontend, device)

    def predict(locations: ChunkLocations, on_chunks: OnCount) -> Iterable[ChunkDetections]:
        return predict_chunks(detector, store, locations, on_chunks)

    return evaluate_model(study, store, EvaluatedModel(location, loaded, predict), out, resamples=resamples)
