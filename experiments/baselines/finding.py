"""Which baselines there are, the boxes they find in chunks, and their evaluation: as `mast evaluate` does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments.baselines.detr import Detr
from experiments.baselines.energy import Energy
from experiments.baselines.network import Network, Size
from experiments.baselines.pyramids import FasterRcnn, Fcos
from experiments.baselines.yolo import Yolo
from mast.config import Detection, Study
from mast.datasets.loading import Places
from mast.datasets.split_table import existing
from mast.detection.chunks import BATCH, OnProgress, predict_chunks, up_to
from mast.detection.evaluate import Evaluated, Tested, evaluate_model
from mast.errors import ModelError
from mast.evaluation.intervals import RESAMPLES
from mast.models.checkpoint import load_model
from mast.models.decoding import Detections
from mast.models.devices import accelerator, autocast
from mast.models.frontend import FrontEnd
from mast.models.loading import Loaded, check_store
from mast.recordings.store import AudioStore
from mast.study.products import STORE
from mast.training.starting import UNBOUND


@dataclass(frozen=True, slots=True)
class Baseline:
    """A detector to make from settings, the share of a study's learning rate that suits it, and its weights' licence."""

    make: Callable[[Detection, Size], Network | Energy]
    rate: float = 1.0
    licence: str = UNBOUND


BASELINES: Mapping[str, Baseline] = {
    "faster_rcnn": Baseline(FasterRcnn),
    "fcos": Baseline(Fcos),
    "detr": Baseline(Detr, rate=0.1),
    "yolo": Baseline(Yolo, licence="AGPL-3.0, that of ultralytics"),
    "energy": Baseline(lambda settings, size: Energy(settings)),
}
"""The paper's baselines, but for AudioMAE, which is MAST with `train.start`; and `energy`, which learns nothing."""


class BaselineFinder:
    """A baseline on a device, under autocast in the fastest arithmetic there."""

    def __init__(self, network: Network | Energy, frontend: FrontEnd, device: str = "auto") -> None:
        self.kind = accelerator(device)
        self.batch = BATCH[self.kind]
        self._network, self._frontend = network.to(self.kind), frontend.to(self.kind)

    @property
    def frames(self) -> int:
        """Frames of a chunk."""
        return self._frontend.frames

    def __call__(self, sound: NDArray[np.int16], filled: NDArray[np.int64]) -> list[Detections]:
        """Boxes of chunks of which the first `filled` (B,) samples are sound; none reaches beyond it. (B, N) → B"""
        waves, counts = (torch.from_numpy(values).to(self.kind) for values in (sound, filled))
        with torch.no_grad(), autocast(self.kind):
            found = self._found(waves, counts)
        ends = filled / self._frontend.logmel.shift_samples
        return [up_to(item, end) for item, end in zip(found, ends.tolist(), strict=True)]

    def _found(self, waves: Tensor, counts: Tensor) -> list[Detections]:
        frontend = self._frontend
        if isinstance(self._network, Energy):
            frames = torch.tensor([frontend.logmel.frames_in(count) for count in counts.tolist()])
            return self._network.find(frontend.levels(waves, counts), frames.to(self.kind))
        return self._network.find(frontend(waves, counts))


def load_baseline(location: str, settings: Detection, store: AudioStore) -> Loaded[Network | Energy]:
    """A baseline as `train_baseline` left it; refused if it cannot hear the sound of a store."""
    description, tensors = load_model(location)
    name = description.architecture.get("baseline")
    if name not in BASELINES or description.normalisation is None:
        raise ModelError(f"{location} is no baseline: it has {description.architecture}. Use mast evaluate.")
    check_store(location, description, store)
    network = BASELINES[str(name)].make(settings, cast(Size, description.architecture["size"]))
    network.load_state_dict(tensors)
    frontend = FrontEnd(description.chunking, description.spectrogram, description.normalisation)
    return Loaded(description, network.eval(), frontend)


def evaluate_baseline(
    study: Study, location: str, out: str | None = None, device: str = "auto", resamples: int = RESAMPLES
) -> Evaluated:
    """Evaluate a baseline as `evaluate_study` does a detector of MAST, at the threshold that validation chose."""
    store = AudioStore(existing(study, STORE))
    loaded = load_baseline(location, study.detection, store)
    finder = BaselineFinder(loaded.network, loaded.frontend, device)

    def find(places: Places, on_chunks: OnProgress) -> Iterable[Detections]:
        return predict_chunks(finder, store, places, on_chunks)

    return evaluate_model(study, store, Tested(location, loaded, find), out, resamples=resamples)
