"""Evaluate a model on the test sets of a study (`mast evaluate`; paper, Evaluation Details)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from mast.audio.spectrogram import MelGrid
from mast.config import Study
from mast.datasets.loader import ChunkLocations
from mast.datasets.split_table import SPLITS_TABLE, require_artifact
from mast.datasets.splits import IN_DOMAIN_SPLITS
from mast.detection.chunk_detector import ModelChunkDetector, predict_chunks
from mast.detection.stitching import stitch
from mast.errors import ConfigError, ModelError
from mast.evaluation.bootstrap import RESAMPLES
from mast.evaluation.evaluation_set import EvaluationSet, GroundTruth, match_chunks, rows_of_each
from mast.evaluation.ground_truth import grid_of, read_ground_truth, to_recording_coordinates
from mast.evaluation.matching import GroupedBoxes
from mast.evaluation.metrics import robust_f1_threshold
from mast.evaluation.report import write_report
from mast.evaluation.results import REPORT, Results, fingerprint_ground_truth, write_results
from mast.evaluation.set_metrics import evaluate_set
from mast.models.checkpoint import ModelInfo
from mast.models.frontend import FrontEnd
from mast.models.loading import LoadedModel, load_detector
from mast.models.postprocess import ChunkDetections
from mast.storage import exists, join
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE, fingerprint_file
from mast.types import OnCount
from mast.version import __version__
from mast.wording import counted

TEST, VALIDATION = "test", "val"
OnProgress = Callable[[str, int, int], None]
"""`on_progress(test set, done, total)`, in chunks."""

PredictChunks = Callable[[ChunkLocations, OnCount], Iterable[ChunkDetections]]
"""Function `predict(locations, on_chunks)` that returns the detections of each chunk at `locations` of the store."""


@dataclass(frozen=True, slots=True)
class EvaluatedModel:
    """Model to evaluate: its location, its description and the function that predicts boxes."""

    location: str
    loaded: LoadedModel[Any]
    predict: PredictChunks


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Results of an evaluation, and the folder with its files."""

    results: Results
    folder: str

    def summary(self) -> str:
        """Return the threshold, a line for each test set, and the path of the report."""
        threshold = self.results.threshold
        heading = "Score threshold: none" if math.isinf(threshold) else f"Score threshold: {threshold:.3f}"
        lines = [f"{heading} ({self.results.threshold_source})"]
        for item in self.results.sets:
            metrics = item.matching_modes["iou"]
            summary = ", ".join(
                f"{title} {metrics.metrics[name].format()}"
                for name, title in (("f1", "F1"), ("precision", "precision"), ("recall", "recall"))
            )
            lines.append(
                f"{item.name}: {summary}; {counted(item.recordings, 'recording')}, "
                f"{counted(metrics.ground_truth, 'box', 'boxes')}"
            )
        return "\n".join([*lines, f"Report: {join(self.folder, REPORT)}"])


def evaluate_study(
    study: Study,
    model_location: str,
    out: str | None = None,
    splits: Sequence[str] = (),
    device: str = "auto",
    on_progress: OnProgress = lambda name, done, total: None,
    resamples: int = RESAMPLES,
) -> EvaluationResult:
    """Evaluate a detector on splits of a study and write the results.

    The score threshold is the one saved with the model, or else chosen on the validation split; never on a test set.

    Args:
        study: Prepared study with its splits.
        model_location: Trained detector: a folder, s3://… or hf://owner/name.
        out: Folder for the results, by default in the study's `work_dir`.
        splits: Splits to evaluate on, by default the in-domain test set and every held-out set.
        device: "auto", "cpu" or "cuda".
        on_progress: Called with the test set, the chunks done and their total.
        resamples: Number of bootstrap resamples for the confidence intervals.

    Returns:
        The results and the folder they were written to.

    Raises:
        ConfigError: If a split is unknown or all are empty.
        ModelError: If the model has another spectrogram grid than the study, or has no threshold and
            the validation split has no boxes.
    """
    store = AudioStore(require_artifact(study, STORE))
    loaded = load_detector(model_location, store)
    detector = ModelChunkDetector(loaded, study.detection, device)

    def predict(locations: ChunkLocations, on_chunks: OnCount) -> Iterable[ChunkDetections]:
        return predict_chunks(detector, store, locations, on_chunks)

    evaluated = EvaluatedModel(model_location, loaded, predict)
    return evaluate_model(study, store, evaluated, out, splits, on_progress, resamples)


def evaluate_model(
    study: Study,
    store: AudioStore,
    evaluated: EvaluatedModel,
    out: str | None = None,
    splits: Sequence[str] = (),
    on_progress: OnProgress = lambda name, done, total: None,
    resamples: int = RESAMPLES,
) -> EvaluationResult:
    """Evaluate any model that predicts boxes, as `evaluate_study` does for a MAST detector."""
    names = _chosen_splits(study, splits)
    _check_grid(evaluated, study)
    validate = partial(_predict_split, study, store, evaluated, on_progress)
    sets = [validate(name) for name in names]
    if not any(len(item.ground_truth.chunk_recording) for item in sets):
        raise ConfigError(
            f"{require_artifact(study, SPLITS_TABLE)}: no chunk in {', '.join(names)} to test on. Annotate more "
            "recordings, or set a larger splits.test or a lower splits.block_s, and run mast split again."
        )
    threshold, source = resolve_threshold(evaluated.location, evaluated.loaded, validate)
    description = evaluated.loaded.description
    results = Results(
        model=_model_identity(evaluated.location, description),
        provenance=_provenance(study),
        ground_truth=fingerprint_ground_truth([item.ground_truth for item in sets]),
        threshold=threshold,
        threshold_source=source,
        settings=study.model_dump(mode="json", include={"detection", "splits", "chunking", "spectrogram"}),
        sets=[evaluate_set(item, threshold, resamples) for item in sets],
        version=__version__,
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    folder = out or join(study.work_dir, f"evaluations/{description.identity}")
    write_report(folder, results, sets, store)
    write_results(folder, results, sets)
    return EvaluationResult(results, folder)


def _predict_split(
    study: Study, store: AudioStore, evaluated: EvaluatedModel, on_progress: OnProgress, split: str
) -> EvaluationSet:
    """Read the ground truth of a split and predict on its chunks."""
    frontend = FrontEnd(study.chunking, study.spectrogram, evaluated.loaded.frontend.normalisation)
    ground_truth, locations = read_ground_truth(study, store, split, frontend)
    return attach_predictions(
        ground_truth, evaluated.predict(locations, partial(on_progress, split)), grid_of(study)
    )


def attach_predictions(
    ground_truth: GroundTruth, detections: Iterable[ChunkDetections], grid: MelGrid
) -> EvaluationSet:
    """Combine ground truth with a model's detections, chunk by chunk, and with the events stitched from them."""
    predicted = list(detections)
    if len(predicted) != len(ground_truth.chunk_recording):
        raise ValueError(
            f"{len(predicted)} chunks of predictions for {len(ground_truth.chunk_recording)} chunks"
        )
    predictions = GroupedBoxes(
        np.repeat(np.arange(len(predicted)), [len(item.scores) for item in predicted]),
        np.concatenate([np.zeros((0, 4)), *(item.boxes.double().numpy() for item in predicted)]),
        np.concatenate([np.zeros(0), *(item.scores.double().numpy() for item in predicted)]),
    )
    events = to_recording_coordinates(
        predictions, grid, ground_truth.chunk_start_s, ground_truth.chunk_expansion
    )
    return EvaluationSet(ground_truth, predictions, events, _stitch_recordings(ground_truth, predicted, grid))


def _stitch_recordings(
    ground_truth: GroundTruth, predicted: Sequence[ChunkDetections], grid: MelGrid
) -> GroupedBoxes:
    """Stitch events of whole recordings as `mast.detect` does; in seconds and Hz of their recording, the group."""
    starts_frames = ground_truth.chunk_start_s * ground_truth.chunk_expansion / grid.settings.frame_shift_s
    events = [
        (ground_truth.chunk_recording[chunks[0]], event)
        for chunks in rows_of_each(ground_truth.chunk_recording)
        for event in stitch(((starts_frames[chunk], predicted[chunk]) for chunk in chunks), grid.frames)
    ]
    bounds = [(event.start_frames, event.low_bins, event.end_frames, event.high_bins) for _, event in events]
    recording = np.array([recording_index for recording_index, _ in events], dtype=np.int64)
    in_frames = GroupedBoxes(recording, np.array(bounds, dtype=np.float64).reshape(-1, 4))
    expansion = np.ones(len(ground_truth.recordings))
    expansion[ground_truth.chunk_recording] = ground_truth.chunk_expansion
    event_bounds = to_recording_coordinates(in_frames, grid, np.zeros(len(expansion)), expansion)
    return GroupedBoxes(
        recording, event_bounds, np.array([event.score for _, event in events], dtype=np.float64)
    )


def _chosen_splits(study: Study, splits: Sequence[str]) -> tuple[str, ...]:
    """Return the splits to evaluate on, each once, in the given order."""
    existing = (*IN_DOMAIN_SPLITS, *study.splits.held_out)
    unknown = [name for name in splits if name not in existing]
    if unknown:
        raise ConfigError(
            f"--split {unknown[0]}: no annotated split has this name. This study has {', '.join(existing)}."
        )
    return tuple(dict.fromkeys(splits)) or (TEST, *study.splits.held_out)


def _check_grid(evaluated: EvaluatedModel, study: Study) -> None:
    """Raise ModelError if the model's spectrogram grid differs from the study's."""
    model = evaluated.loaded.description
    if model.spectrogram != study.spectrogram:
        raise ModelError(
            f"{evaluated.location} was trained with another spectrogram grid than this study's. Set spectrogram to "
            f"the model's: {model.spectrogram.model_dump()}, and run mast split again."
        )


def resolve_threshold(
    location: str, loaded: LoadedModel[Any], validate: Callable[[str], EvaluationSet]
) -> tuple[float, str]:
    """Return the minimum score of a detection that counts, and a description of its source."""
    if "score" in loaded.description.thresholds:
        return loaded.description.thresholds["score"], "the threshold the model was saved with"
    validation = validate(VALIDATION)
    if not len(validation.ground_truth.boxes):
        raise ModelError(
            f"{location} was saved without a threshold, and the validation split has no box to choose one on. "
            "Set a larger splits.val and run mast split again, or train the model with mast train."
        )
    threshold = robust_f1_threshold(match_chunks(validation).ranking)
    if math.isinf(threshold):
        return (
            threshold,
            "the model was saved without a threshold, and no prediction on the validation split is correct",
        )
    return threshold, "the model was saved without a threshold; chosen for a high F1 on the validation split"


def _model_identity(location: str, description: ModelInfo) -> dict[str, Any]:
    """Return the identity, location and provenance of a model."""
    fields = ("source", "licence", "architecture", "parent", "data", "versions")
    return {"identity": description.identity, "location": location} | {
        name: getattr(description, name) for name in fields
    }


def _provenance(study: Study) -> dict[str, str]:
    """Return fingerprints of the study's tables and audio that the results depend on."""
    names = [SPLITS_TABLE, "annotations.parquet", STORE]
    return {
        name: fingerprint_file(join(study.work_dir, name))
        for name in names
        if exists(join(study.work_dir, name))
    }
