"""Predict on chunks with ground truth: the validation split, and synthetic calls if that has few boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mast.config import Spectrogram, Study
from mast.datasets.background_selection import select_background_chunks
from mast.datasets.loader import ChunkDataset, ChunkLocations, FixedChunkDataset, read_batch
from mast.datasets.synthetic_calls import MEAN_CALLS_PER_CHUNK, SyntheticCallMixer
from mast.detection.chunk_detector import ChunkDetector, predict_chunks
from mast.evaluation.matching import GroupedBoxes, match
from mast.evaluation.metrics import RankedPredictions
from mast.models.postprocess import ChunkDetections
from mast.store.audio_store import AudioStore

MIN_THRESHOLD_BOXES = 200
"""Number of ground-truth boxes for a robust choice of the threshold; synthetic calls can fill up a smaller split."""


@dataclass(frozen=True, slots=True)
class ValidationPredictions:
    """Detections and ground-truth boxes of chunks."""

    predictions: Sequence[ChunkDetections] = ()
    ground_truth: Sequence[Tensor] = ()

    @property
    def boxes(self) -> int:
        """Number of ground-truth boxes."""
        return sum(map(len, self.ground_truth))

    def __add__(self, other: ValidationPredictions) -> ValidationPredictions:
        """Concatenate the chunks of both."""
        return ValidationPredictions(
            [*self.predictions, *other.predictions], [*self.ground_truth, *other.ground_truth]
        )

    def ranking(self, min_iou: float = 0.5) -> RankedPredictions:
        """Match detections to ground truth within each chunk and rank them by score; each chunk is a bootstrap unit."""
        detected = _boxes(
            [item.boxes for item in self.predictions], [item.scores for item in self.predictions]
        )
        targets = _boxes(self.ground_truth)
        matches = match(detected, targets, min_overlap=min_iou)
        score = detected.score if detected.score is not None else np.zeros(0)
        return RankedPredictions.of(
            score, matches.overlap, detected.group, targets.group, len(self.ground_truth)
        )


NO_PREDICTIONS = ValidationPredictions()


def predict(detector: ChunkDetector, store: AudioStore, examples: ChunkDataset) -> ValidationPredictions:
    """Predict on all examples of a dataset, and return the detections with the ground truth."""
    rows = np.arange(len(examples))
    predictions = predict_chunks(detector, store, examples.locations(0, rows))
    return ValidationPredictions(list(predictions), examples.boxes(rows))


def predict_validation(
    detector: ChunkDetector,
    study: Study,
    store: AudioStore,
    examples: ChunkDataset,
    *,
    trained_on_synthetic: bool,
) -> tuple[ValidationPredictions, ValidationPredictions]:
    """Predict on the validation split; below 200 boxes, also predict on enough synthetic calls to make up the difference.

    Synthetic calls are used only if the detector was `trained_on_synthetic` calls. They are mixed into validation chunks
    without boxes or, if there are none, into unlabelled background chunks.
    """
    real = predict(detector, store, examples)
    missing = MIN_THRESHOLD_BOXES - real.boxes
    if not trained_on_synthetic or missing <= 0:
        return real, NO_PREDICTIONS
    background_rows = np.flatnonzero([not len(boxes) for boxes in real.ground_truth])
    locations = (
        examples.locations(0, background_rows)
        if len(background_rows)
        else select_background_chunks(study, store)
    )
    return real, predict_synthetic(detector, study.spectrogram, store, locations, missing)


def predict_synthetic(
    detector: ChunkDetector,
    spectrogram: Spectrogram,
    store: AudioStore,
    background_locations: ChunkLocations,
    boxes: int,
) -> ValidationPredictions:
    """Predict on about `boxes` synthetic calls in background chunks, which are repeated in order if they are too few."""
    calls = SyntheticCallMixer(spectrogram, store.layout.sample_rate_hz, detector.frames)
    chunks, rows = (
        FixedChunkDataset(background_locations),
        np.resize(np.arange(len(background_locations)), chunks_for(boxes)),
    )
    predictions = NO_PREDICTIONS
    for first in range(0, len(rows), detector.batch):
        batch_rows = rows[first : first + detector.batch]
        rngs = [np.random.default_rng(first + row) for row in range(len(batch_rows))]
        mixed = calls.mix_into(
            read_batch(store, chunks, batch_rows), rngs, torch.ones(len(batch_rows), dtype=torch.bool)
        )
        predictions += ValidationPredictions(
            detector(mixed.audio.numpy(), mixed.valid_samples.numpy()), mixed.boxes
        )
    return predictions


def chunks_for(boxes: int) -> int:
    """Return the number of chunks that have about `boxes` synthetic calls."""
    return math.ceil(max(0, boxes) / MEAN_CALLS_PER_CHUNK)


def _boxes(boxes: Sequence[Tensor], scores: Sequence[Tensor] | None = None) -> GroupedBoxes:
    group = np.repeat(np.arange(len(boxes)), [len(item) for item in boxes])
    bounds = np.concatenate([np.zeros((0, 4)), *(item.double().numpy() for item in boxes)])
    score = (
        None if scores is None else np.concatenate([np.zeros(0), *(item.double().numpy() for item in scores)])
    )
    return GroupedBoxes(group, bounds, score)
