"""Predict a teacher's boxes in the unlabelled pool, and select the pseudo-labels for its student (paper, Π_q)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from mast.config import Selftrain, Study
from mast.datasets.loader import ChunkLocations, FixedChunkDataset
from mast.datasets.sampler import evenly_spaced_per_group
from mast.datasets.study_datasets import UNLABELLED, sites_of, split_chunks
from mast.detection.chunk_detector import ModelChunkDetector, predict_chunks
from mast.errors import TrainingError
from mast.evaluation.metrics import RankedPredictions, precision_recall_curve
from mast.models.loading import load_detector
from mast.models.postprocess import ChunkDetections
from mast.normalisation import band_medians
from mast.storage import atomic_write, open_binary
from mast.store.audio_store import AudioStore

BOUNDS = ("start_frame", "low_bin", "end_frame", "high_bin")
HISTOGRAM = np.linspace(0, 1, 21)
OnChunks = Callable[[int, int], None]
"""`on_chunks(done, total)`."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Unlabelled chunks: locations in the store, sites, and the duration of a chunk in hours."""

    locations: ChunkLocations  # (N, 2)
    sites: NDArray[np.object_]  # (N,)
    chunk_hours: float

    @property
    def hours(self) -> dict[str, float]:
        """Hours of processed audio by site; the overlap of two chunks counts twice."""
        names, counts = np.unique(self.sites.astype(str), return_counts=True)
        return {str(name): float(count * self.chunk_hours) for name, count in zip(names, counts, strict=True)}

    def sample(self, count: int) -> Pool:
        """Return at most `count` chunks, split evenly among sites."""
        rows = evenly_spaced_per_group(self.sites, count)
        return Pool(self.locations[rows], self.sites[rows], self.chunk_hours)


def pool_chunks(study: Study, store: AudioStore) -> tuple[pa.Table, ChunkLocations]:
    """Return split-table rows and locations of the unlabelled chunks: all, or `unlabelled_hours` of them."""
    table, locations = split_chunks(study, store, [UNLABELLED])
    if study.selftrain.unlabelled_hours is None:
        return table, locations
    count = max(1, round(study.selftrain.unlabelled_hours * 3600 / study.chunking.chunk_s))
    rows = evenly_spaced_per_group(sites_of(table), count)
    return table.take(rows), locations[rows]


def read_pool(study: Study, store: AudioStore) -> Pool:
    """Return the unlabelled chunks of a study; raise TrainingError if there are none."""
    table, locations = pool_chunks(study, store)
    if not len(locations):
        raise TrainingError(
            "This study has no unlabelled recordings for self-training. Add recordings without annotations to its "
            "collections, and run mast scan, mast split and mast prepare again."
        )
    return Pool(locations, sites_of(table), study.chunking.chunk_s / 3600)


def predict_pool(
    study: Study,
    store: AudioStore,
    model: str,
    pool: Pool,
    device: str = "auto",
    on_chunks: OnChunks = lambda done, total: None,
) -> list[ChunkDetections]:
    """Run a detector on each chunk of a pool, with non-maximum suppression, and return the detections."""
    detector = ModelChunkDetector(load_detector(model, store), study.detection, device)
    return list(predict_chunks(detector, store, pool.locations, on_chunks))


def select_pseudo_labels(
    predictions: list[ChunkDetections], pool: Pool, min_score: float, settings: Selftrain
) -> FixedChunkDataset:
    """Select boxes with at least `min_score` and the minimum size; weight each chunk by their mean score (paper, ḡ).

    A chunk without a selected box has no mean score and is excluded.
    """
    valid = [valid_boxes(item, min_score, settings) for item in predictions]
    rows = np.flatnonzero([len(item.scores) > 0 for item in valid])
    weights = torch.tensor([float(valid[row].scores.mean()) for row in rows])
    return FixedChunkDataset(pool.locations[rows], [valid[row].boxes for row in rows], weights)


def uncertain_boxes(
    predictions: list[ChunkDetections], min_score: float, settings: Selftrain
) -> list[Tensor]:
    """Return the boxes that `select_pseudo_labels` does not select in its chunks: low scores or tiny boxes. → each (n, 4)

    They may or may not be animal sounds, so they are not background either.
    """
    valid = [_is_valid(item, min_score, settings) for item in predictions]
    return [
        item.boxes[~is_valid] for item, is_valid in zip(predictions, valid, strict=True) if is_valid.any()
    ]


def mask_uncertain_regions(
    logmel: Tensor, frames: Tensor, uncertain: list[Tensor], confident: Sequence[Tensor]
) -> Tensor:
    """Replace the log-mel in uncertain boxes with the background of each band, except inside confident boxes.

    The background is the band's median over the first `frames` of a chunk, which contain audio.
    (B, F, T), (B,), twice B × (n, 4) → (B, F, T)
    """
    masked = torch.zeros_like(logmel, dtype=torch.bool)
    for boxes, value in ((uncertain, True), (confident, False)):
        for row, chunk_boxes in enumerate(boxes):
            for start, low, end, high in chunk_boxes.round().int().tolist():
                masked[row, low:high, start:end] = value
    return torch.where(masked, band_medians(logmel, frames), logmel)


def valid_boxes(predictions: ChunkDetections, min_score: float, settings: Selftrain) -> ChunkDetections:
    """Return the boxes to use as pseudo-labels (paper, validity predicate v and confidence policy q)."""
    is_valid = _is_valid(predictions, min_score, settings)
    return ChunkDetections(predictions.boxes[is_valid], predictions.scores[is_valid])


def _is_valid(predictions: ChunkDetections, min_score: float, settings: Selftrain) -> Tensor:
    sides = predictions.boxes[:, 2:] - predictions.boxes[:, :2]
    is_large = (sides[:, 0] >= settings.min_box_frames) & (sides[:, 1] >= settings.min_box_bins)
    return (predictions.scores >= min_score) & is_large


class UncertainTeacherError(TrainingError):
    """Raised for a teacher without usable pseudo-labels."""


def choose_score_threshold(settings: Selftrain, validation: RankedPredictions) -> float:
    """Return the paper's q: a fixed score, or a higher one with sufficient precision of the teacher on `validation`.

    The fixed score is `pseudo_label_threshold`, the required precision `min_pseudo_label_precision`. Without ground-truth
    boxes the precision is undefined, and q is the fixed score.
    """
    if (
        settings.min_pseudo_label_precision is None
        or not len(validation.score)
        or not validation.ground_truth.any()
    ):
        return settings.pseudo_label_threshold
    curve = precision_recall_curve(validation)
    sufficient = curve.score[curve.precision >= settings.min_pseudo_label_precision]
    if not len(sufficient):
        raise UncertainTeacherError(
            f"The teacher's precision on validation is below {settings.min_pseudo_label_precision:.0%} at every score "
            f"(at most {curve.precision.max():.0%}). Lower selftrain.min_pseudo_label_precision, or train a better "
            "teacher first."
        )
    return max(settings.pseudo_label_threshold, float(sufficient.min()))


def detections_per_hour(predictions: list[ChunkDetections], pool: Pool, min_score: float) -> dict[str, float]:
    """Return the number of detections per hour with at least `min_score`, by site."""
    counts = np.array([int((item.scores >= min_score).sum()) for item in predictions], float)
    return {
        str(site): float(counts[pool.sites == site].mean() / pool.chunk_hours)
        for site in np.unique(pool.sites.astype(str))
    }


def statistics(
    predictions: list[ChunkDetections], pool: Pool, min_score: float, settings: Selftrain
) -> dict[str, Any]:
    """Return statistics of the pseudo-labels, for the round's report."""
    selected = [valid_boxes(item, min_score, settings) for item in predictions]
    boxes, scores = (torch.cat([getattr(item, name) for item in selected]) for name in ("boxes", "scores"))
    sides = boxes[:, 2:] - boxes[:, :2]
    has_boxes = np.array([len(item.scores) > 0 for item in selected])
    return {
        "min_score": min_score,
        "chunks": len(selected),
        "chunks_with_boxes": int(has_boxes.sum()),
        "boxes": len(boxes),
        "mean_score": _mean(scores),
        "mean_frames": _mean(sides[:, 0]),
        "mean_bins": _mean(sides[:, 1]),
        "candidates_by_score": np.histogram(
            torch.cat([item.scores for item in predictions]).numpy(), HISTOGRAM
        )[0].tolist(),
        "boxes_per_hour": detections_per_hour(selected, pool, min_score),
    }


def _mean(values: Tensor) -> float | None:
    return round(float(values.mean()), 4) if len(values) else None


def write_labels(predictions: list[ChunkDetections], location: str) -> None:
    """Write a teacher's boxes to a Parquet table: one row per box, with the index of its chunk in the pool."""
    chunk = np.repeat(np.arange(len(predictions)), [len(item.scores) for item in predictions])
    boxes = torch.cat([torch.zeros(0, 4), *(item.boxes for item in predictions)]).numpy()
    scores = torch.cat([torch.zeros(0), *(item.scores for item in predictions)]).numpy()
    columns = {
        "chunk": chunk,
        **{name: boxes[:, column] for column, name in enumerate(BOUNDS)},
        "score": scores,
    }
    table = pa.table(columns).replace_schema_metadata({"chunks": str(len(predictions))})
    with atomic_write(location) as file:
        pq.write_table(table, file)


def read_labels(location: str) -> list[ChunkDetections]:
    """Read a teacher's boxes from a Parquet table, one entry per chunk of the pool."""
    with open_binary(location) as file:
        table = pq.read_table(file)
    boxes = torch.from_numpy(np.stack([table[name].to_numpy() for name in BOUNDS], axis=1))
    scores = torch.from_numpy(table["score"].to_numpy().copy())
    counts = np.bincount(table["chunk"].to_numpy(), minlength=int(table.schema.metadata[b"chunks"]))
    ends = np.cumsum(counts)
    return [
        ChunkDetections(boxes[end - count : end], scores[end - count : end])
        for end, count in zip(ends, counts, strict=True)
    ]
