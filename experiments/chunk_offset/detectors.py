"""Modified detectors whose events may depend less on chunk offsets, for `experiments.chunk_offset.variants`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from mast.config import Detection
from mast.detection.chunk_detector import ModelChunkDetector
from mast.detection.detect import CHUNK_HOP_FRACTION
from mast.errors import ModelError
from mast.models.checkpoint import ModelInfo
from mast.models.detector import Detector
from mast.models.frontend import FrontEnd
from mast.models.loading import LoadedModel
from mast.models.postprocess import VOTING_IOU, ChunkDetections
from mast.normalisation import EPSILON, band_medians

FADE_FRAMES = 32.0
REACH_CELLS, REACH_FRACTION = 4, 0.25
"""Maximum shift of an edge, in frames and as a fraction of the box side; in bins the maximum is half of it."""

CONTRAST = 0.1
"""Difference in normalised level that makes a position e times as likely to be the edge."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of detection: `hop` in chunks, minus `hop_reduction_frames`, and the IoU of duplicates that vote.

    With `fades_scores`, scores decrease near chunk edges. With `averages_boxes`, the boxes of one event from several
    chunks vote on its edges. With `snaps_edges`, edges move slightly to where the level changes most. With
    `shares_background`, the background level is measured on the whole recording.
    """

    hop: float = CHUNK_HOP_FRACTION
    hop_reduction_frames: int = 0
    voting_iou: float = VOTING_IOU
    fades_scores: bool = False
    averages_boxes: bool = False
    snaps_edges: bool = False
    shares_background: bool = False


class RecordingBackground(FrontEnd):
    """A front end that first collects the band medians of all chunks, and then normalises each chunk by their median."""

    def __init__(self, description: ModelInfo) -> None:
        if description.normalisation is None:
            raise ModelError("This model does not state how its spectrograms are normalised.")
        super().__init__(description.chunking, description.spectrogram, description.normalisation)
        self.is_collecting = False
        self.medians: list[Tensor] = []

    def normalise(self, levels: Tensor, valid_samples: Tensor) -> Tensor:
        """Normalise like `FrontEnd`, but around the median of all chunks' band medians. (B, F, T) → (B, F, T)"""
        frames = (valid_samples - self.logmel.window_samples) // self.logmel.shift_samples + 1
        if self.is_collecting:
            self.medians.append(band_medians(levels, frames.clamp(min=0)))  # (B, F, 1)
        default = super().normalise(levels, valid_samples)
        deviation = self.normalisation.band_deviation
        if self.is_collecting or self.normalisation.kind != "band-median" or deviation is None:
            return default
        median = torch.cat(self.medians).median(dim=0).values  # (F, 1)
        is_valid = torch.arange(levels.shape[-1]) < frames.view(-1, 1, 1)  # (B, 1, T)
        return (levels - median) / (deviation + EPSILON) * is_valid


class VariantDetector(ModelChunkDetector):
    """A detector that applies a variant to its boxes, and keeps the detections of every chunk."""

    def __init__(self, loaded: LoadedModel[Detector], settings: Detection, variant: Variant) -> None:
        super().__init__(loaded, settings, "cpu")
        self.variant = variant
        self.chunk_detections: list[ChunkDetections] = []
        self.background = RecordingBackground(self.description)
        if variant.shares_background:
            self._frontend = self.background

    def __call__(self, audio: NDArray[np.int16], valid_samples: NDArray[np.int64]) -> list[ChunkDetections]:
        """Predict boxes like `ModelChunkDetector`; while collecting the background, return no boxes."""
        if self.background.is_collecting:
            self._frontend(torch.from_numpy(audio), torch.from_numpy(valid_samples))
            return [ChunkDetections(torch.zeros(0, 4), torch.zeros(0))] * len(audio)
        detections = super().__call__(audio, valid_samples)
        if self.variant.fades_scores:
            detections = [fade_scores(item, self.frames) for item in detections]
        if self.variant.snaps_edges:
            specs = self._frontend(torch.from_numpy(audio), torch.from_numpy(valid_samples))  # (B, F, T)
            detections = [
                replace(item, boxes=snap_edges(item.boxes, spec))
                for item, spec in zip(detections, specs, strict=True)
            ]
        self.chunk_detections += detections
        return detections


def fade_scores(detections: ChunkDetections, frames: int) -> ChunkDetections:
    """Reduce scores by up to half within `FADE_FRAMES` of a chunk's edges; return the boxes by decreasing score."""
    distance = torch.minimum(detections.boxes[:, 0], frames - detections.boxes[:, 2])
    scores = detections.scores * (0.5 + 0.5 * (distance / FADE_FRAMES).clamp(0, 1))
    order = scores.argsort(descending=True, stable=True)
    return ChunkDetections(detections.boxes[order], scores[order])


def snap_edges(boxes: Tensor, spec: Tensor) -> Tensor:
    """Move the edges of boxes slightly to where the normalised level between the other two edges changes most.

    (n, 4), (F, T) → (n, 4)
    """
    sums = functional.pad(spec.double().cumsum(0).cumsum(1), (1, 0, 1, 0))  # (F + 1, T + 1)
    start, low, end, high = boxes.double().T
    frames, bins = REACH_FRACTION * (end - start), REACH_FRACTION * (high - low)
    moved = torch.stack(
        [
            _snap_edge(sums, start, (low, high), frames.clamp(max=REACH_CELLS)),
            _snap_edge(sums.T, low, (start, end), bins.clamp(max=REACH_CELLS / 2)),
            _snap_edge(-sums, end, (low, high), frames.clamp(max=REACH_CELLS)),
            _snap_edge(-sums.T, high, (start, end), bins.clamp(max=REACH_CELLS / 2)),
        ],
        dim=1,
    )
    is_box = (moved[:, 2:] > moved[:, :2]).all(dim=1, keepdim=True)
    return torch.where(is_box, moved, boxes.double()).float()


def _snap_edge(sums: Tensor, edge: Tensor, sides: tuple[Tensor, Tensor], reach: Tensor) -> Tensor:
    """Return the mean of positions near an edge, weighted by the rise in level. (F + 1, T + 1), (n,) … → (n,)"""
    last, width = sums.shape[1] - 1, REACH_CELLS
    position = edge.round()[:, None] + torch.arange(-REACH_CELLS, REACH_CELLS + 1)  # (n, 9)
    is_near = ((position - edge[:, None]).abs() <= reach[:, None]) & (position >= 1) & (position < last)
    at = position.clamp(1, last - 1).long()
    after, before = (at + width).clamp(max=last), (at - width).clamp(min=0)
    first = sides[0].round().long().clamp(0, sums.shape[0] - 2)
    stop = torch.maximum(sides[1].round().long().clamp(max=sums.shape[0] - 1), first + 1)
    totals = [sums[stop[:, None], column] - sums[first[:, None], column] for column in (before, at, after)]
    rise = (totals[2] - totals[1]) / (after - at) - (totals[1] - totals[0]) / (at - before)
    rise = rise / (stop - first)[:, None]
    penalty = (position - edge[:, None]) ** 2 / (2 * (reach[:, None] / 2) ** 2)
    weights = (rise / CONTRAST - penalty).masked_fill(~is_near, -torch.inf).softmax(dim=1)
    return torch.where(is_near.any(dim=1), (weights * position).nansum(dim=1), edge)
