"""Boxes of chunks: a trained detector on its device, and over places of the prepared store."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mast.boxes import area, clip
from mast.config import Detection
from mast.datasets.loading import Places
from mast.errors import ModelError
from mast.models.decoding import Detections, find_boxes
from mast.models.detector import Detector
from mast.models.devices import accelerator
from mast.models.engines import EngineName, best_engine, open_engine
from mast.models.loading import Loaded
from mast.models.pooling import unit_vectors
from mast.models.programs import Program
from mast.recordings.store import AudioStore

BATCH = {"cpu": 4, "cuda": 64}
"""Chunks at once; on a CPU more are no faster."""

OnProgress = Callable[[int, int], None]
"""`on_progress(done, total)`, in chunks."""


class ChunkFinder(Protocol):
    """Whatever finds boxes in chunks, some at once."""

    batch: int

    @property
    def frames(self) -> int:
        """Frames of a chunk."""
        ...

    def __call__(self, sound: NDArray[np.int16], filled: NDArray[np.int64]) -> list[Detections]:
        """Boxes of chunks of which the first `filled` (B,) samples are sound, best first. (B, N) → B"""
        ...


class BoxFinder:
    """A detector on a device, in an engine: by default the fastest there that loses nothing.

    An engine that has to be prepared takes the `program` that `mast.models.engines.prepare_engine` made for it. Where it
    `embeds`, boxes come with their vectors, pooled from the encoder's map.
    """

    def __init__(
        self,
        loaded: Loaded[Detector],
        settings: Detection,
        device: str = "auto",
        engine: EngineName | None = None,
        program: Program | None = None,
        *,
        embeds: bool = False,
    ) -> None:
        self.description, self.settings = loaded.description, settings
        self.kind = accelerator(device)
        self.batch = BATCH[self.kind]
        self._network = open_engine(engine or best_engine(self.kind), loaded, self.kind, program)
        self._frontend = loaded.frontend.to(self.kind)
        self._tokens = self._network.tokens if embeds else None
        if embeds and self._tokens is None:
            raise ModelError(
                "Vectors are made from the encoder's map, which int8 without a C++ compiler does not show. Install one "
                "(g++), or use --precision bf16."
            )

    @property
    def frames(self) -> int:
        """Frames of a chunk."""
        return self._frontend.frames

    def __call__(self, sound: NDArray[np.int16], filled: NDArray[np.int64]) -> list[Detections]:
        """Boxes of chunks of which the first `filled` (B,) samples are sound. (B, N) → B

        They are in frames and bins, in float32 on the CPU, best first; none reaches beyond the sound. Vectors are in
        float16, of unit length.
        """
        waves, counts = (torch.from_numpy(values).to(self.kind) for values in (sound, filled))
        with torch.inference_mode():
            read = self._network.encode(self._frontend(waves, counts))  # (B, C', F/16, T/16)
            ends = filled / self._frontend.logmel.shift_samples
            output, own = self._network.predict(read), self.settings
            every = find_boxes(output, own.min_score, own.max_boxes, own.nms_iou)
            found = [up_to(item, end) for item, end in zip(every, ends.tolist(), strict=True)]
            return _with_vectors(found, self._tokens(read)) if self._tokens else found


def up_to(found: Detections, end_frames: float) -> Detections:
    """The boxes on the CPU, cut to where the sound ends."""
    boxes = clip(found.boxes.float().cpu(), (0, 0, end_frames, math.inf))
    is_box = area(boxes) > 0
    return Detections(boxes[is_box], found.scores.float().cpu()[is_box])


def _with_vectors(found: list[Detections], features: Tensor) -> list[Detections]:
    """Boxes of chunks with the vectors of what lies under them. B, (B, C, F/16, T/16) → B"""
    vectors = unit_vectors(features, [item.boxes.to(features.device) for item in found])  # (N, C)
    own = vectors.half().cpu().split_with_sizes([len(item.boxes) for item in found])
    return [replace(item, vectors=rows) for item, rows in zip(found, own, strict=True)]


def predict_chunks(
    finder: ChunkFinder,
    store: AudioStore,
    places: Places,
    on_progress: OnProgress = lambda done, total: None,
) -> Iterator[Detections]:
    """Boxes of each chunk at some places of a store, in order, as the finder gives them. (N, 2) → N"""
    samples = store.layout.step_samples
    for first in range(0, len(places), finder.batch):
        chosen = places[first : first + finder.batch]
        yield from finder(store.read(chosen, samples), store.filled(chosen, samples))  # (B, samples)
        on_progress(first + len(chosen), len(places))
