"""Predict boxes in chunks: a trained detector on its device, applied to locations in the prepared audio store."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mast.box_ops import box_area, clip_boxes
from mast.config import Detection
from mast.datasets.loader import ChunkLocations
from mast.errors import ModelError
from mast.models.detector import Detector
from mast.models.devices import resolve_device
from mast.models.inference_engines import EngineName, best_engine, open_engine
from mast.models.loading import LoadedModel
from mast.models.openvino import OpenVINOModel
from mast.models.pooling import unit_vectors
from mast.models.postprocess import ChunkDetections, decode_detections
from mast.store.audio_store import AudioStore
from mast.types import OnCount

BATCH = {"cpu": 4, "cuda": 64}
"""Chunks in a batch; on a CPU larger batches are no faster."""


class ChunkDetector(Protocol):
    """Interface of any detector that predicts boxes in batches of chunks."""

    batch: int

    @property
    def frames(self) -> int:
        """Number of frames in a chunk."""
        ...

    def __call__(self, audio: NDArray[np.int16], valid_samples: NDArray[np.int64]) -> list[ChunkDetections]:
        """Predict boxes in chunks whose first `valid_samples` (B,) samples are audio, highest score first. (B, N) → B"""
        ...


class ModelChunkDetector:
    """Trained detector on a device in an inference engine, by default the fastest engine there that loses no accuracy.

    An engine that needs preparation takes the `program` from `mast.models.inference_engines.prepare_engine`. With
    `embeds`, each box gets an embedding vector pooled from the encoder's feature map.
    """

    def __init__(
        self,
        loaded: LoadedModel[Detector],
        settings: Detection,
        device: str = "auto",
        engine: EngineName | None = None,
        program: OpenVINOModel | None = None,
        *,
        embeds: bool = False,
    ) -> None:
        self.description, self.settings = loaded.description, settings
        self.kind = resolve_device(device)
        self.batch = BATCH[self.kind]
        self._network = open_engine(engine or best_engine(self.kind), loaded, self.kind, program)
        self._frontend = loaded.frontend.to(self.kind)
        self._tokens = self._network.tokens if embeds else None
        if embeds and self._tokens is None:
            raise ModelError(
                "Embeddings need encoder features, and the int8 engine exposes them only when a C++ compiler is "
                "installed. Install one (g++), or use --precision bf16."
            )

    @property
    def frames(self) -> int:
        """Number of frames in a chunk."""
        return self._frontend.frames

    def __call__(self, audio: NDArray[np.int16], valid_samples: NDArray[np.int64]) -> list[ChunkDetections]:
        """Predict boxes in chunks whose first `valid_samples` (B,) samples are audio. (B, N) → B

        Boxes are in frames and bins, in float32 on the CPU, highest score first; none extends beyond the end of the
        audio. Vectors are in float16, of unit length.
        """
        waves, counts = (torch.from_numpy(values).to(self.kind) for values in (audio, valid_samples))
        with torch.inference_mode():
            features = self._network.encode(self._frontend(waves, counts))  # (B, C', F/16, T/16)
            ends = valid_samples / self._frontend.logmel.shift_samples
            output, settings = self._network.predict(features), self.settings
            decoded = decode_detections(
                output, settings.score_threshold, settings.max_detections, settings.nms_iou_threshold
            )
            detections = [
                clip_to_audio(chunk, end) for chunk, end in zip(decoded, ends.tolist(), strict=True)
            ]
            return _attach_vectors(detections, self._tokens(features)) if self._tokens else detections


def clip_to_audio(detections: ChunkDetections, end_frames: float) -> ChunkDetections:
    """Move boxes to the CPU, clip them to the end of the audio, and drop empty ones."""
    boxes = clip_boxes(detections.boxes.float().cpu(), (0, 0, end_frames, math.inf))
    is_box = box_area(boxes) > 0
    return ChunkDetections(boxes[is_box], detections.scores.float().cpu()[is_box])


def _attach_vectors(detections: list[ChunkDetections], features: Tensor) -> list[ChunkDetections]:
    """Attach to each box the unit vector pooled from the features under it. B, (B, C, F/16, T/16) → B"""
    vectors = unit_vectors(features, [chunk.boxes.to(features.device) for chunk in detections])  # (N, C)
    chunk_vectors = vectors.half().cpu().split_with_sizes([len(chunk.boxes) for chunk in detections])
    return [replace(chunk, vectors=rows) for chunk, rows in zip(detections, chunk_vectors, strict=True)]


def predict_chunks(
    detector: ChunkDetector,
    store: AudioStore,
    locations: ChunkLocations,
    on_progress: OnCount = lambda done, total: None,
) -> Iterator[ChunkDetections]:
    """Yield the detections of each chunk at `locations` of a store, in order. (N, 2) → N"""
    samples = store.layout.block_samples
    for first in range(0, len(locations), detector.batch):
        batch_locations = locations[first : first + detector.batch]
        yield from detector(
            store.read(batch_locations, samples), store.valid_lengths(batch_locations, samples)
        )  # (B, samples)
        on_progress(first + len(batch_locations), len(locations))
