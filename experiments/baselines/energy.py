"""What stands out from the background: the classical detector, which learns nothing but two thresholds and a pause."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.baselines.network import best_boxes, optional
from mast.config import Detection
from mast.evaluation.matching import Mask
from mast.models.decoding import Detections
from mast.normalisation import band_medians

LEVELS_DB = (4.0, 6.0, 8.0, 10.0, 12.0, 15.0)
"""Levels above the background from which a cell is part of a sound; validation says which serves best."""

PAUSES = (0, 10, 25, 50)
"""Frames of quiet within a sound; so calls of several notes are one, if validation says so."""

SMOOTHING = (3, 5)
"""Bins and frames that a cell is averaged over; a region of fewer cells than these is a speckle of noise."""

DB_PER_LEVEL = 10 / math.log(10)
"""Log-mel is the natural logarithm of a power."""

DB_PER_SCORE = 100.0
"""A score of 0.12 is 12 dB: scores lie between 0 and 1, and no 16-bit recording spans 100 dB."""


class Energy(nn.Module):
    """Connected regions of cells that are louder than their band's median, also across pauses."""

    level_db: Tensor
    pause: Tensor

    def __init__(self, settings: Detection, level_db: float = LEVELS_DB[0], pause: int = PAUSES[0]) -> None:
        super().__init__()
        self.settings = settings
        self.register_buffer("level_db", torch.tensor(level_db))
        self.register_buffer("pause", torch.tensor(pause))

    def find(self, levels: Tensor, frames: Tensor) -> list[Detections]:
        """Boxes of log-mel chunks of which the first `frames` (B,) hold sound, loudest first. (B, F, T) → B

        A score is the mean level of a region above the background.
        """
        above_db = (levels - band_medians(levels, frames)) * DB_PER_LEVEL
        bins, wide = SMOOTHING
        smooth_db = functional.avg_pool2d(
            above_db, SMOOTHING, stride=1, padding=(bins // 2, wide // 2), count_include_pad=False
        )
        is_loud = smooth_db > self.level_db
        every = zip(above_db.cpu(), is_loud.cpu(), frames.tolist(), strict=True)
        return [self._regions(own[:, :end], loud[:, :end]) for own, loud, end in every]

    def _regions(self, above_db: Tensor, is_loud: Tensor) -> Detections:
        """Boxes around the connected loud cells of one chunk. (F, T), (F, T)"""
        ndimage = optional("scipy.ndimage", "The energy baseline", "baselines")
        number, count = ndimage.label(self._closed(is_loud.numpy()))
        of_each = range(1, count + 1)
        number = number * is_loud.numpy()
        cells = torch.as_tensor(ndimage.sum_labels(is_loud.numpy(), number, of_each))
        mean_db = torch.as_tensor(ndimage.mean(above_db.numpy(), number, of_each), dtype=torch.float32)
        bounds = [
            (time.start, band.start, time.stop, band.stop)
            for band, time in ndimage.find_objects(number, count)
        ]
        boxes = torch.tensor(bounds, dtype=torch.float32).reshape(-1, 4)
        scores = (mean_db / DB_PER_SCORE).clamp(0, 1)
        large = cells >= math.prod(SMOOTHING)
        extent = (above_db.shape[1], above_db.shape[0])
        return best_boxes(boxes[large], scores[large], extent, self.settings)

    def _closed(self, is_loud: Mask) -> Mask:
        """Loud cells, and what lies between two of them that are no more than a pause apart. (F, T) → (F, T)"""
        ndimage = optional("scipy.ndimage", "The energy baseline", "baselines")
        across = np.ones((SMOOTHING[0], int(self.pause) + 1), bool)
        wide = ndimage.binary_dilation(is_loud, across)
        return is_loud | ndimage.binary_erosion(wide, across, border_value=1) if self.pause else is_loud
