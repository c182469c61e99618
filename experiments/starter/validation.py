"""Measure a detector in the validation world: calls, classes and originals that the training world does not contain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from experiments.starter.sources import Clip
from experiments.starter.world import World
from mast.config import Chunking, Detection
from mast.detection.chunk_detector import ModelChunkDetector
from mast.evaluation.metrics import METRICS, robust_f1_threshold
from mast.models.checkpoint import ModelInfo
from mast.models.detector import Detector
from mast.models.frontend import FrontEnd
from mast.models.loading import LoadedModel
from mast.training.validation import ValidationPredictions

EXAMPLES, SEED = 300, 1
"""Number of validation examples, and the seed of the world, which differs from those of training."""

Examples = Sequence[tuple[NDArray[np.int16], Tensor]]


def validation_examples(clips: Sequence[Clip], count: int = EXAMPLES) -> Examples:
    """Mix the validation examples, of the length of a chunk of detection."""
    world = World([clip for clip in clips if clip.part == "validation"], Chunking().chunk_s, 1_000_003 * SEED)
    examples = (world[number] for number in range(count))
    return [(audio.numpy(), boxes) for audio, boxes in examples]


def measure(info: ModelInfo, network: Detector, examples: Examples) -> dict[str, float]:
    """Return threshold, F1 at the threshold, and average precision at IoU 0.5 and 0.25."""
    assert info.normalisation is not None
    frontend = FrontEnd(info.chunking, info.spectrogram, info.normalisation)
    detector = ModelChunkDetector(LoadedModel(info, network, frontend), Detection(score_threshold=0.01))
    predictions = []
    for first in range(0, len(examples), detector.batch):
        batch = examples[first : first + detector.batch]
        audio = np.stack([item[0] for item in batch])
        predictions += detector(audio, np.full(len(batch), audio.shape[1], np.int64))
    found = ValidationPredictions(predictions, [boxes for _, boxes in examples])
    ranking, loose = found.ranking(), found.ranking(0.25)
    threshold = robust_f1_threshold(ranking)
    at = ranking.with_min_score(threshold)
    return {
        "threshold": round(float(threshold), 4),
        "f1": round(float(METRICS["f1"](at, None)), 4),
        "precision": round(float(METRICS["precision"](at, None)), 4),
        "recall": round(float(METRICS["recall"](at, None)), 4),
        "ap": round(float(METRICS["average_precision"](ranking, None)), 4),
        "ap_25": round(float(METRICS["average_precision"](loose, None)), 4),
    }
