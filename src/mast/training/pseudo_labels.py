"""Boxes that a teacher draws in the unlabelled pool, and which of them a student learns from (paper, Π_q)."""

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
from mast.datasets.examples import UNLABELLED, prepared_chunks, sites_of
from mast.datasets.loading import FixedChunks, Places
from mast.datasets.order import spread_among
from mast.detection.chunks import BoxFinder, predict_chunks
from mast.errors import TrainingError
from mast.evaluation.metrics import Ranking, precision_recall_curve
from mast.models.decoding import Detections
from mast.models.loading import load_detector
from mast.normalisation import band_medians
from mast.recordings.store import AudioStore
from mast.storage import open_binary, written_whole

BOUNDS = ("start_frame", "low_bin", "end_frame", "high_bin")
HISTOGRAM = np.linspace(0, 1, 21)
OnChunks = Callable[[int, int], None]
"""`on_chunks(done, total)`."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Unlabelled chunks: where each lies in the store, its site, and how many hours a chunk has."""

    places: Places  # (N, 2)
    sites: NDArray[np.object_]  # (N,)
    chunk_hours: float

    @property
    def hours(self) -> dict[str, float]:
        """Hours that a teacher listens, by site; what two chunks share is heard twice."""
        names, counts = np.unique(self.sites.astype(str), return_counts=True)
        return {str(name): float(count * self.chunk_hours) for name, count in zip(names, counts, strict=True)}

    def some(self, count: int) -> Pool:
        """At most so many chunks, shared among sites."""
        chosen = spread_among(self.sites, count)
        return Pool(self.places[chosen], self.sites[chosen], self.chunk_hours)


def pool_chunks(study: Study, store: AudioStore) -> tuple[pa.Table, Places]:
    """Rows of the split table, and places, of the unlabelled chunks that a teacher listens to: all, or some hours."""
    table, places = prepared_chunks(study, store, [UNLABELLED])
    if study.selftrain.pool_hours is None:
        return table, places
    most = max(1, round(study.selftrain.pool_hours * 3600 / study.chunking.chunk_s))
    chosen = spread_among(sites_of(table), most)
    return table.take(chosen), places[chosen]


def pool_of(study: Study, store: AudioStore) -> Pool:
    """The unlabelled chunks of a study that a teacher listens to."""
    table, places = pool_chunks(study, store)
    if not len(places):
        raise TrainingError(
            "There is no unlabelled sound in this study to learn from. Add recordings without annotations to its "
            "collections, and run mast scan, mast splits and mast prepare again."
        )
    return Pool(places, sites_of(table), study.chunking.chunk_s / 3600)


def label_pool(
    study: Study,
    store: AudioStore,
    model: str,
    pool: Pool,
    device: str = "auto",
    on_chunks: OnChunks = lambda done, total: None,
) -> list[Detections]:
    """What a detector finds in each chunk of a pool, after suppression of duplicates."""
    finder = BoxFinder(load_detector(model, store), study.detection, device)
    return list(predict_chunks(finder, store, pool.places, on_chunks))


def learned_from(found: list[Detections], pool: Pool, min_score: float, settings: Selftrain) -> FixedChunks:
    """Chunks with the boxes that score enough and are no slivers, each chunk weighted by their mean score (paper, ḡ).

    A chunk without a box has no mean score and is left out.
    """
    chosen = [valid_boxes(item, min_score, settings) for item in found]
    kept = np.flatnonzero([len(item.scores) > 0 for item in chosen])
    weights = torch.tensor([float(chosen[item].scores.mean()) for item in kept])
    return FixedChunks(pool.places[kept], [chosen[item].boxes for item in kept], weights)


def unsure_of(found: list[Detections], min_score: float, settings: Selftrain) -> list[Tensor]:
    """What is not learned from in the chunks that `learned_from` takes: boxes of a lower score, or slivers. → each (n, 4)

    Of these nobody can say that there is no animal.
    """
    valid = [_is_valid(item, min_score, settings) for item in found]
    return [item.boxes[~kept] for item, kept in zip(found, valid, strict=True) if kept.any()]


def silenced(levels: Tensor, frames: Tensor, unsure: list[Tensor], sure: Sequence[Tensor]) -> Tensor:
    """Log-mel with each band's own background where a teacher is unsure, but for what is in a box that it is sure of.

    Of the background, only a chunk's first `frames` tell, which hold sound. (B, F, T), (B,), twice B × (n, 4) → (B, F, T)
    """
    hidden = torch.zeros_like(levels, dtype=torch.bool)
    for boxes, value in ((unsure, True), (sure, False)):
        for row, own in enumerate(boxes):
            for start, low, end, high in own.round().int().tolist():
                hidden[row, low:high, start:end] = value
    return torch.where(hidden, band_medians(levels, frames), levels)


def valid_boxes(found: Detections, min_score: float, settings: Selftrain) -> Detections:
    """The boxes to learn from (paper, validity predicate v and confidence policy q)."""
    kept = _is_valid(found, min_score, settings)
    return Detections(found.boxes[kept], found.scores[kept])


def _is_valid(found: Detections, min_score: float, settings: Selftrain) -> Tensor:
    sides = found.boxes[:, 2:] - found.boxes[:, :2]
    is_large = (sides[:, 0] >= settings.min_frames) & (sides[:, 1] >= settings.min_bins)
    return (found.scores >= min_score) & is_large


class UnsureTeacherError(TrainingError):
    """A teacher that has nothing to teach."""


def score_to_learn_from(settings: Selftrain, validation: Ranking) -> float:
    """The paper's q: a fixed score, or a higher one from which enough of the teacher's boxes on `validation` are right.

    Where there is no true box, nothing tells which are.
    """
    if settings.min_precision is None or not len(validation.score) or not validation.truths.any():
        return settings.min_score
    curve = precision_recall_curve(validation)
    enough = curve.score[curve.precision >= settings.min_precision]
    if not len(enough):
        raise UnsureTeacherError(
            f"At no score are {settings.min_precision:.0%} of the teacher's boxes on validation right (at best "
            f"{curve.precision.max():.0%}). Lower selftrain.min_precision, or train a better teacher first."
        )
    return max(settings.min_score, float(enough.min()))


def rate_by_site(found: list[Detections], pool: Pool, min_score: float) -> dict[str, float]:
    """Boxes an hour of at least a score, by site."""
    counts = np.array([int((item.scores >= min_score).sum()) for item in found], float)
    return {
        str(site): float(counts[pool.sites == site].mean() / pool.chunk_hours)
        for site in np.unique(pool.sites.astype(str))
    }


def statistics(found: list[Detections], pool: Pool, min_score: float, settings: Selftrain) -> dict[str, Any]:
    """What the student will be shown, in numbers."""
    chosen = [valid_boxes(item, min_score, settings) for item in found]
    boxes, scores = (torch.cat([getattr(item, name) for item in chosen]) for name in ("boxes", "scores"))
    sides = boxes[:, 2:] - boxes[:, :2]
    has_any = np.array([len(item.scores) > 0 for item in chosen])
    return {
        "min_score": min_score,
        "chunks": len(chosen),
        "chunks_with_boxes": int(has_any.sum()),
        "boxes": len(boxes),
        "mean_score": _mean(scores),
        "mean_frames": _mean(sides[:, 0]),
        "mean_bins": _mean(sides[:, 1]),
        "candidates_by_score": np.histogram(torch.cat([item.scores for item in found]).numpy(), HISTOGRAM)[
            0
        ].tolist(),
        "boxes_per_hour": rate_by_site(chosen, pool, min_score),
    }


def _mean(values: Tensor) -> float | None:
    return round(float(values.mean()), 4) if len(values) else None


def write_labels(found: list[Detections], location: str) -> None:
    """Keep a teacher's boxes: a row each, with the number of its chunk in the pool."""
    chunk = np.repeat(np.arange(len(found)), [len(item.scores) for item in found])
    boxes = torch.cat([torch.zeros(0, 4), *(item.boxes for item in found)]).numpy()
    scores = torch.cat([torch.zeros(0), *(item.scores for item in found)]).numpy()
    columns = {"chunk": chunk, **{name: boxes[:, at] for at, name in enumerate(BOUNDS)}, "score": scores}
    table = pa.table(columns).replace_schema_metadata({"chunks": str(len(found))})
    with written_whole(location) as file:
        pq.write_table(table, file)


def read_labels(location: str) -> list[Detections]:
    """A teacher's boxes as they were kept."""
    with open_binary(location) as file:
        table = pq.read_table(file)
    boxes = torch.from_numpy(np.stack([table[name].to_numpy() for name in BOUNDS], axis=1))
    scores = torch.from_numpy(table["score"].to_numpy().copy())
    counts = np.bincount(table["chunk"].to_numpy(), minlength=int(table.schema.metadata[b"chunks"]))
    ends = np.cumsum(counts)
    return [
        Detections(boxes[end - count : end], scores[end - count : end])
        for end, count in zip(ends, counts, strict=True)
    ]
