"""Predictions for the choice of a threshold: on validation, and on synthetic calls if that has few boxes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mast.config import Study, load_study
from mast.datasets.background_selection import select_background_chunks
from mast.datasets.loader import ChunkDataset, ChunkLocations, FixedChunkDataset
from mast.datasets.study_datasets import detection_dataset
from mast.datasets.synthetic_calls import MEAN_CALLS_PER_CHUNK
from mast.models.postprocess import ChunkDetections
from mast.storage import join
from mast.store.audio_store import AudioStore
from mast.training import validation
from mast.training.validation import NO_PREDICTIONS, ValidationPredictions, predict, predict_validation


class LevelDetector:
    """Predicts a box in the first second of every chunk; its score is the level of the chunk."""

    batch, frames = 4, 512

    def __call__(self, audio: NDArray[np.int16], valid_samples: NDArray[np.int64]) -> list[ChunkDetections]:
        levels = np.abs(audio.astype(float)).mean(axis=1) / 2**15
        box = torch.tensor([[0.0, 0, 100, 128]])
        return [ChunkDetections(box, torch.tensor([score], dtype=torch.float32)) for score in levels]


@pytest.fixture
def validation_data(study_file: Path) -> tuple[Study, AudioStore, ChunkDataset]:
    study = load_study(study_file)
    store = AudioStore(join(study.work_dir, "audio.lance"))
    return study, store, detection_dataset(study, store, "val").chunks


def background_of(dataset: ChunkDataset) -> ChunkLocations:
    rows = np.arange(len(dataset))
    return dataset.locations(0, np.flatnonzero([not len(boxes) for boxes in dataset.boxes(rows)]))


def test_every_validation_chunk_has_its_detections_and_boxes(
    validation_data: tuple[Study, AudioStore, ChunkDataset],
) -> None:
    study, store, validation_set = validation_data
    real, synthetic = predict_validation(
        LevelDetector(), study, store, validation_set, trained_on_synthetic=False
    )
    assert synthetic == NO_PREDICTIONS  # the detector was not trained on synthetic calls
    assert len(real.predictions) == len(real.ground_truth) == len(validation_set) > LevelDetector.batch
    last = np.array([len(validation_set) - 1])
    (alone,) = predict(
        LevelDetector(),
        store,
        FixedChunkDataset(validation_set.locations(0, last), validation_set.boxes(last)),
    ).predictions
    assert torch.equal(alone.scores, real.predictions[-1].scores)
    assert real.boxes == sum(map(len, validation_set.boxes(np.arange(len(validation_set))))) > 0


def test_synthetic_calls_fill_up_validation_with_few_boxes(
    validation_data: tuple[Study, AudioStore, ChunkDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, store, validation_set = validation_data
    boxes = predict(LevelDetector(), store, validation_set).boxes
    monkeypatch.setattr(validation, "MIN_THRESHOLD_BOXES", 40)
    assert 0 < boxes < 40
    real, synthetic = predict_validation(
        LevelDetector(), study, store, validation_set, trained_on_synthetic=True
    )
    assert real.boxes == boxes
    assert (
        len(synthetic.ground_truth)
        == len(synthetic.predictions)
        == math.ceil((40 - boxes) / MEAN_CALLS_PER_CHUNK)
    )
    assert 0.4 < synthetic.boxes / (40 - boxes) < 1.6
    _, again = predict_validation(LevelDetector(), study, store, validation_set, trained_on_synthetic=True)
    for first, second in zip(synthetic.ground_truth, again.ground_truth, strict=True):
        assert torch.equal(first, second)
    monkeypatch.setattr(validation, "MIN_THRESHOLD_BOXES", boxes)
    assert (
        predict_validation(LevelDetector(), study, store, validation_set, trained_on_synthetic=True)[1]
        == NO_PREDICTIONS
    )


def test_synthetic_calls_are_mixed_into_empty_validation_chunks_or_else_into_unlabelled_background(
    validation_data: tuple[Study, AudioStore, ChunkDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, store, validation_set = validation_data
    locations: list[ChunkLocations] = []

    def record(
        detector: object, spectrogram: object, store: object, background: ChunkLocations, boxes: int
    ) -> ValidationPredictions:
        locations.append(background)
        return NO_PREDICTIONS

    monkeypatch.setattr(validation, "predict_synthetic", record)
    predict_validation(LevelDetector(), study, store, validation_set, trained_on_synthetic=True)
    predict_validation(
        LevelDetector(),
        study,
        store,
        FixedChunkDataset(np.zeros((0, 2), np.int64)),
        trained_on_synthetic=True,
    )
    assert len(locations[0]) and locations[0].tolist() == background_of(validation_set).tolist()
    assert len(locations[1]) and locations[1].tolist() == select_background_chunks(study, store).tolist()


def test_synthetic_calls_are_louder_than_their_background(
    validation_data: tuple[Study, AudioStore, ChunkDataset],
) -> None:
    study, store, validation_set = validation_data
    background = background_of(validation_set)[:1]
    (before,) = predict(LevelDetector(), store, FixedChunkDataset(background)).predictions
    synthetic = validation.predict_synthetic(LevelDetector(), study.spectrogram, store, background, 30)
    with_calls = [
        item.scores
        for item, boxes in zip(synthetic.predictions, synthetic.ground_truth, strict=True)
        if len(boxes) > 1
    ]
    assert with_calls and all(score > before.scores for score in with_calls)


def test_predictions_on_two_datasets_are_matched_within_each_chunk() -> None:
    box, no_boxes = torch.tensor([[0.0, 0, 10, 10]]), torch.zeros(0, 4)
    first = ValidationPredictions([ChunkDetections(box, torch.tensor([0.9]))], [box])
    second = ValidationPredictions([ChunkDetections(box, torch.tensor([0.4]))], [no_boxes])
    ranking = (first + second).ranking()
    assert ranking.score.tolist() == pytest.approx([0.9, 0.4]) and ranking.ground_truth.tolist() == [1, 0]
    assert (ranking.overlap > 0).tolist() == [True, False]
    assert (NO_PREDICTIONS + first).ranking().ground_truth.tolist() == [1]
