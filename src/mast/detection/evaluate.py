"""`mast evaluate`: a model over the test sets of a study, its numbers and its report (paper, Evaluation Details)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from mast import __version__
from mast.config import Study
from mast.datasets.loading import Places
from mast.datasets.split_table import SPLITS_TABLE, existing
from mast.datasets.splits import SHARED
from mast.detection.chunks import BoxFinder, predict_chunks
from mast.detection.chunks import OnProgress as OnChunks
from mast.detection.stitching import stitch
from mast.errors import ConfigError, ModelError
from mast.evaluation.figures import set_results
from mast.evaluation.intervals import RESAMPLES
from mast.evaluation.matching import Boxes
from mast.evaluation.metrics import steady_threshold
from mast.evaluation.report import write_report
from mast.evaluation.results import REPORT, Results, fingerprint_truths, write_results
from mast.evaluation.trial import Trial, Truths, match_chunks, rows_of_each
from mast.evaluation.truths import grid_of, in_recordings, read_truths
from mast.models.checkpoint import Description
from mast.models.decoding import Detections
from mast.models.frontend import FrontEnd
from mast.models.loading import Loaded, load_detector
from mast.recordings.store import AudioStore
from mast.spectrogram import MelGrid
from mast.storage import exists, join
from mast.study.products import STORE, fingerprint_file

TEST, VALIDATION = "test", "val"
OnProgress = Callable[[str, int, int], None]
"""`on_progress(test set, done, total)`, in chunks."""

Find = Callable[[Places, OnChunks], Iterable[Detections]]
"""`find(places, on_chunks)`: the boxes of each chunk at some places of the store, in order."""


@dataclass(frozen=True, slots=True)
class Tested:
    """What an evaluation is about: a model, where it lies, and how it finds boxes."""

    location: str
    loaded: Loaded[Any]
    find: Find


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What an evaluation came to, and where it is."""

    results: Results
    folder: str

    def summary(self) -> str:
        """A line for each test set, then where to read on."""
        threshold = self.results.threshold
        counted = "No box counts" if math.isinf(threshold) else f"Boxes of a score of {threshold:.3f} or more"
        lines = [f"{counted}: {self.results.threshold_source}"]
        for item in self.results.sets:
            figures = item.ways["iou"]
            told = ", ".join(
                f"{title} {figures.numbers[name].told()}"
                for name, title in (("f1", "F1"), ("precision", "precision"), ("recall", "recall"))
            )
            lines.append(f"{item.name}: {told}; {item.recordings:,} recordings, {figures.truths:,} boxes")
        return "\n".join([*lines, f"Report: {join(self.folder, REPORT)}"])


def evaluate_study(
    study: Study,
    model_location: str,
    out: str | None = None,
    splits: Sequence[str] = (),
    device: str = "auto",
    on_progress: OnProgress = lambda name, done, total: None,
    resamples: int = RESAMPLES,
) -> Evaluated:
    """Evaluate a model on splits of a study, by default the in-domain test and every held-out set; write the results.

    The threshold is the one the model was saved with, or else tuned on the validation split; never on a test set.
    """
    store = AudioStore(existing(study, STORE))
    loaded = load_detector(model_location, store)
    finder = BoxFinder(loaded, study.detection, device)

    def find(places: Places, on_chunks: OnChunks) -> Iterable[Detections]:
        return predict_chunks(finder, store, places, on_chunks)

    tested = Tested(model_location, loaded, find)
    return evaluate_model(study, store, tested, out, splits, on_progress, resamples)


def evaluate_model(
    study: Study,
    store: AudioStore,
    tested: Tested,
    out: str | None = None,
    splits: Sequence[str] = (),
    on_progress: OnProgress = lambda name, done, total: None,
    resamples: int = RESAMPLES,
) -> Evaluated:
    """Evaluate anything that finds boxes, as `evaluate_study` does a detector of MAST."""
    names = _chosen(study, splits)
    _check_grid(tested, study)
    hear = partial(_hear, study, store, tested, on_progress)
    sets = [hear(name) for name in names]
    if not any(len(item.truths.chunk_recording) for item in sets):
        raise ConfigError(
            f"{existing(study, SPLITS_TABLE)}: nothing in {', '.join(names)} to test on. Label more sound, or give "
            "splits.test a larger share or splits.block_s a lower value, and run mast splits again."
        )
    threshold, source = threshold_of(tested.location, tested.loaded, hear)
    description = tested.loaded.description
    results = Results(
        model=_identified(tested.location, description),
        made_from=_made_from(study),
        truths=fingerprint_truths([item.truths for item in sets]),
        threshold=threshold,
        threshold_source=source,
        settings=study.model_dump(mode="json", include={"detection", "splits", "chunking", "spectrogram"}),
        sets=[set_results(item, threshold, resamples) for item in sets],
        version=__version__,
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    folder = out or join(study.work, f"evaluations/{description.identity}")
    write_report(folder, results, sets, store)
    write_results(folder, results, sets)
    return Evaluated(results, folder)


def _hear(study: Study, store: AudioStore, tested: Tested, on_progress: OnProgress, split: str) -> Trial:
    """What experts and the model find in a split."""
    frontend = FrontEnd(study.chunking, study.spectrogram, tested.loaded.frontend.normalisation)
    truths, places = read_truths(study, store, split, frontend)
    return with_predictions(truths, tested.find(places, partial(on_progress, split)), grid_of(study))


def with_predictions(truths: Truths, detections: Iterable[Detections], grid: MelGrid) -> Trial:
    """A test set with a model's boxes, chunk after chunk, and the sounds that they make of its recordings."""
    heard = list(detections)
    if len(heard) != len(truths.chunk_recording):
        raise ValueError(f"{len(heard)} chunks of predictions for {len(truths.chunk_recording)} chunks")
    found = Boxes(
        np.repeat(np.arange(len(heard)), [len(item.scores) for item in heard]),
        np.concatenate([np.zeros((0, 4)), *(item.boxes.double().numpy() for item in heard)]),
        np.concatenate([np.zeros(0), *(item.scores.double().numpy() for item in heard)]),
    )
    events = in_recordings(found, grid, truths.chunk_start_s, truths.chunk_expansion)
    return Trial(truths, found, events, _stitched(truths, heard, grid))


def _stitched(truths: Truths, heard: Sequence[Detections], grid: MelGrid) -> Boxes:
    """Sounds of whole recordings, put together as `mast.detect` does; in seconds and Hz of their recording, the group."""
    starts_frames = truths.chunk_start_s * truths.chunk_expansion / grid.settings.shift_s
    sounds = [
        (truths.chunk_recording[chunks[0]], sound)
        for chunks in rows_of_each(truths.chunk_recording)
        for sound in stitch(((starts_frames[chunk], heard[chunk]) for chunk in chunks), grid.frames)
    ]
    bounds = [(sound.start_frames, sound.low_bins, sound.end_frames, sound.high_bins) for _, sound in sounds]
    recording = np.array([number for number, _ in sounds], dtype=np.int64)
    in_frames = Boxes(recording, np.array(bounds, dtype=np.float64).reshape(-1, 4))
    expansion = np.ones(len(truths.recordings))
    expansion[truths.chunk_recording] = truths.chunk_expansion
    events = in_recordings(in_frames, grid, np.zeros(len(expansion)), expansion)
    return Boxes(recording, events, np.array([sound.score for _, sound in sounds], dtype=np.float64))


def _chosen(study: Study, splits: Sequence[str]) -> tuple[str, ...]:
    """Splits to evaluate on, each once, in the order they were asked for."""
    known = (*SHARED, *study.splits.held_out)
    unknown = [name for name in splits if name not in known]
    if unknown:
        raise ConfigError(
            f"--split {unknown[0]}: no such split with labels. This study has {', '.join(known)}."
        )
    return tuple(dict.fromkeys(splits)) or (TEST, *study.splits.held_out)


def _check_grid(tested: Tested, study: Study) -> None:
    """Refuse a model that draws its boxes on another grid than the study."""
    model = tested.loaded.description
    if model.spectrogram != study.spectrogram:
        raise ModelError(
            f"{tested.location} draws its boxes on another grid than this study. Set spectrogram to the model's: "
            f"{model.spectrogram.model_dump()}, and run mast splits again."
        )


def threshold_of(location: str, loaded: Loaded[Any], hear: Callable[[str], Trial]) -> tuple[float, str]:
    """The least score to report, and where it was chosen."""
    if "score" in loaded.description.thresholds:
        return loaded.description.thresholds["score"], "the threshold the model was saved with"
    validation = hear(VALIDATION)
    if not len(validation.truths.boxes):
        raise ModelError(
            f"{location} was saved without a threshold, and the validation split has no box to choose one on. "
            "Give splits.val a larger share and run mast splits again, or train the model with mast train."
        )
    steady = steady_threshold(match_chunks(validation).ranking)
    if math.isinf(steady):
        return (
            steady,
            "the model was saved without a threshold, and no box is right on the validation split at any",
        )
    return steady, "the model was saved without a threshold; this one has a good F1 on the validation split"


def _identified(location: str, description: Description) -> dict[str, Any]:
    """Which model it was, and where that comes from."""
    told = ("source", "licence", "architecture", "parent", "data", "versions")
    return {"identity": description.identity, "location": location} | {
        name: getattr(description, name) for name in told
    }


def _made_from(study: Study) -> dict[str, str]:
    """Fingerprints of what the numbers depend on, beside the model."""
    names = [SPLITS_TABLE, "annotations.parquet", STORE]
    return {
        name: fingerprint_file(join(study.work, name)) for name in names if exists(join(study.work, name))
    }
