"""Energy detector: regions above the background level; only the level, the pause and the score threshold are tuned."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.baselines.base import best_boxes, optional
from mast.config import Detection
from mast.models.postprocess import ChunkDetections
from mast.normalisation import band_medians
from mast.types import Mask

LEVELS_DB = (4.0, 6.0, 8.0, 10.0, 12.0, 15.0)
"""Candidate levels above the background at which a cell is part of a sound; the best on validation is chosen."""

PAUSES = (0, 10, 25, 50)
"""Candidate numbers of background frames within a sound, to join the notes of a call; chosen on validation."""

SMOOTHING = (3, 5)
"""Bins and frames of the moving average; a region with fewer cells than this window is discarded as noise."""

DB_PER_LEVEL = 10 / math.log(10)
"""Decibels per unit of log-mel, which is the natural logarithm of a power."""

DB_PER_SCORE = 100.0
"""Decibels per unit of score: 12 dB are a score of 0.12. Scores lie in 0…1, and no 16-bit recording spans 100 dB."""


class Energy(nn.Module):
    """Detector of connected regions of cells that are louder than their band's median, also across pauses."""

    level_db: Tensor
    pause: Tensor

    def __init__(self, settings: Detection, level_db: float = LEVELS_DB[0], pause: int = PAUSES[0]) -> None:
        super().__init__()
        self.settings = settings
        self.register_buffer("level_db", torch.tensor(level_db))
        self.register_buffer("pause", torch.tensor(pause))

    def predict(self, logmel: Tensor, frames: Tensor) -> list[ChunkDetections]:
        """Predict boxes in log-mel chunks whose first `frames` (B,) contain audio, loudest first. (B, F, T) → B

        The score is the mean level of a region above the background.
        """
        above_db = (logmel - band_medians(logmel, frames)) * DB_PER_LEVEL
        bins, width = SMOOTHING
        smooth_db = functional.avg_pool2d(
            above_db, SMOOTHING, stride=1, padding=(bins // 2, width // 2), count_include_pad=False
        )
        is_loud = smooth_db > self.level_db
        chunks = zip(above_db.cpu(), is_loud.cpu(), frames.tolist(), strict=True)
        return [self._regions(level_db[:, :end], loud[:, :end]) for level_db, loud, end in chunks]

    def _regions(self, above_db: Tensor, is_loud: Tensor) -> ChunkDetections:
        """Return the boxes of the connected loud regions of one chunk. (F, T), (F, T)"""
        ndimage = optional("scipy.ndimage", "The energy baseline", "baselines")
        region, count = ndimage.label(self._closed(is_loud.numpy()))
        labels = range(1, count + 1)
        region = region * is_loud.numpy()
        cells = torch.as_tensor(ndimage.sum_labels(is_loud.numpy(), region, labels))
        mean_db = torch.as_tensor(ndimage.mean(above_db.numpy(), region, labels), dtype=torch.float32)
        bounds = [
            (time.start, band.start, time.stop, band.stop)
            for band, time in ndimage.find_objects(region, count)
        ]
        boxes = torch.tensor(bounds, dtype=torch.float32).reshape(-1, 4)
        scores = (mean_db / DB_PER_SCORE).clamp(0, 1)
        large = cells >= math.prod(SMOOTHING)
        extent = (above_db.shape[1], above_db.shape[0])
        return best_boxes(boxes[large], scores[large], extent, self.settings)

    def _closed(self, is_loud: Mask) -> Mask:
        """Fill the gaps between loud cells that are at most a pause apart. (F, T) → (F, T)"""
        ndimage = optional("scipy.ndimage", "The energy baseline", "baselines")
        window = np.ones((SMOOTHING[0], int(self.pause) + 1), bool)
        dilated = ndimage.binary_dilation(is_loud, window)
        return is_loud | ndimage.binary_erosion(dilated, window, border_value=1) if self.pause else is_loud
