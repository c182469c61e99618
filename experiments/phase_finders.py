"""Detectors altered so that their events may depend less on where chunks begin, for `experiments.phase_ways`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from mast.config import Detection
from mast.detection.chunks import BoxFinder
from mast.detection.recording import HOP
from mast.errors import ModelError
from mast.models.checkpoint import Description
from mast.models.decoding import VOTING_IOU, Detections
from mast.models.detector import Detector
from mast.models.frontend import FrontEnd
from mast.models.loading import Loaded
from mast.normalisation import EPSILON, band_medians

FADES_FRAMES = 32.0
REACH_CELLS, SHARE = 4, 0.25
"""An edge may be drawn so far, and no further than this share of its side; in frequency half as far."""

CONTRAST = 0.1
"""Difference in normalised level that makes one place e times as likely an edge as another."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to hear: chunks `hop` apart, less some frames; which duplicates vote; whether boxes fade at chunks' edges.

    Where it `averages`, the boxes that several chunks draw of a sound vote about its edges. Where it `draws`, edges move
    a little, to where the level changes most. Where it is `steady`, what counts as background is the whole recording's.
    """

    hop: float = HOP
    less_frames: int = 0
    voting_iou: float = VOTING_IOU
    fades: bool = False
    averages: bool = False
    draws: bool = False
    steady: bool = False


class Background(FrontEnd):
    """A front end that first listens to all chunks of a recording, and then takes the same band medians off each."""

    def __init__(self, description: Description) -> None:
        if description.normalisation is None:
            raise ModelError("This model does not say how spectrograms are scaled for it.")
        super().__init__(description.chunking, description.spectrogram, description.normalisation)
        self.listens = False
        self.medians: list[Tensor] = []

    def normalised(self, levels: Tensor, filled: Tensor) -> Tensor:
        """As `FrontEnd`, but around the median of all chunks' band medians. (B, F, T) → (B, F, T)"""
        frames = (filled - self.logmel.window_samples) // self.logmel.shift_samples + 1
        if self.listens:
            self.medians.append(band_medians(levels, frames.clamp(min=0)))  # (B, F, 1)
        usual = super().normalised(levels, filled)
        deviation = self.normalisation.band_deviation
        if self.listens or self.normalisation.kind != "band-median" or deviation is None:
            return usual
        steady = torch.cat(self.medians).median(dim=0).values  # (F, 1)
        is_sound = torch.arange(levels.shape[-1]) < frames.view(-1, 1, 1)  # (B, 1, T)
        return (levels - steady) / (deviation + EPSILON) * is_sound


class Altered(BoxFinder):
    """A detector whose boxes may fade towards a chunk's edges or be drawn to the sound, and that keeps what it found."""

    def __init__(self, loaded: Loaded[Detector], settings: Detection, way: Way) -> None:
        super().__init__(loaded, settings, "cpu")
        self.way = way
        self.kept: list[Detections] = []
        self.background = Background(self.description)
        if way.steady:
            self._frontend = self.background

    def __call__(self, sound: NDArray[np.int16], filled: NDArray[np.int64]) -> list[Detections]:
        """As `BoxFinder`; nothing while it only listens to the background."""
        if self.background.listens:
            self._frontend(torch.from_numpy(sound), torch.from_numpy(filled))
            return [Detections(torch.zeros(0, 4), torch.zeros(0))] * len(sound)
        found = super().__call__(sound, filled)
        if self.way.fades:
            found = [faded(item, self.frames) for item in found]
        if self.way.draws:
            specs = self._frontend(torch.from_numpy(sound), torch.from_numpy(filled))  # (B, F, T)
            found = [
                replace(item, boxes=drawn(item.boxes, spec)) for item, spec in zip(found, specs, strict=True)
            ]
        self.kept += found
        return found


def faded(found: Detections, frames: int) -> Detections:
    """Boxes that lose up to half their score within `FADES_FRAMES` of a chunk's edges, best first."""
    room = torch.minimum(found.boxes[:, 0], frames - found.boxes[:, 2])
    scores = found.scores * (0.5 + 0.5 * (room / FADES_FRAMES).clamp(0, 1))
    order = scores.argsort(descending=True, stable=True)
    return Detections(found.boxes[order], scores[order])


def drawn(boxes: Tensor, spec: Tensor) -> Tensor:
    """Boxes with edges a little moved, to where the normalised level within their other sides changes most.

    (n, 4), (F, T) → (n, 4)
    """
    sums = functional.pad(spec.double().cumsum(0).cumsum(1), (1, 0, 1, 0))  # (F + 1, T + 1)
    start, low, end, high = boxes.double().T
    frames, bins = SHARE * (end - start), SHARE * (high - low)
    moved = torch.stack(
        [
            _to_change(sums, start, (low, high), frames.clamp(max=REACH_CELLS)),
            _to_change(sums.T, low, (start, end), bins.clamp(max=REACH_CELLS / 2)),
            _to_change(-sums, end, (low, high), frames.clamp(max=REACH_CELLS)),
            _to_change(-sums.T, high, (start, end), bins.clamp(max=REACH_CELLS / 2)),
        ],
        dim=1,
    )
    is_box = (moved[:, 2:] > moved[:, :2]).all(dim=1, keepdim=True)
    return torch.where(is_box, moved, boxes.double()).float()


def _to_change(sums: Tensor, edge: Tensor, sides: tuple[Tensor, Tensor], reach: Tensor) -> Tensor:
    """Mean of the places near an edge, those counting most where the level rises most. (F + 1, T + 1), (n,) … → (n,)"""
    last, width = sums.shape[1] - 1, REACH_CELLS
    place = edge.round()[:, None] + torch.arange(-REACH_CELLS, REACH_CELLS + 1)  # (n, 9)
    is_near = ((place - edge[:, None]).abs() <= reach[:, None]) & (place >= 1) & (place < last)
    at = place.clamp(1, last - 1).long()
    until, since = (at + width).clamp(max=last), (at - width).clamp(min=0)
    first = sides[0].round().long().clamp(0, sums.shape[0] - 2)
    beyond = torch.maximum(sides[1].round().long().clamp(max=sums.shape[0] - 1), first + 1)
    whole = [sums[beyond[:, None], column] - sums[first[:, None], column] for column in (since, at, until)]
    rise = (whole[2] - whole[1]) / (until - at) - (whole[1] - whole[0]) / (at - since)
    rise = rise / (beyond - first)[:, None]
    doubt = (place - edge[:, None]) ** 2 / (2 * (reach[:, None] / 2) ** 2)
    weights = (rise / CONTRAST - doubt).masked_fill(~is_near, -torch.inf).softmax(dim=1)
    return torch.where(is_near.any(dim=1), (weights * place).nansum(dim=1), edge)
