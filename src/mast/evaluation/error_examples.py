"""Select the worst errors of a model: the clearest missed events and the false positives with the highest scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mast.evaluation.evaluation_set import EvaluationSet, match_recordings
from mast.plotting.html import audio_data_uri, image_uri
from mast.plotting.thumbnails import Bounds, render_thumbnail
from mast.store.audio_store import AudioStore, to_float
from mast.types import Floats, Integers

TILES = 9
"""Errors of each kind to show: three rows of three."""

CONTEXT_S = 1.0
"""Seconds of audio before and after a box, as processed."""

LONGEST_S = 12.0
"""Maximum length of a clip; longer events are cut."""


@dataclass(frozen=True, slots=True)
class ErrorExample:
    """Missed annotation or false positive, with all boxes around it, in seconds and Hz of its recording.

    `label` is the annotated label, `score` the model's score, and `snr_db` the signal-to-noise ratio of a missed event.
    """

    kind: Literal["miss", "false positive"]
    recording_id: str
    bounds: Bounds
    expansion: float
    label: str = ""
    score: float = np.nan
    snr_db: float = np.nan
    annotated_boxes: tuple[Bounds, ...] = ()
    model_boxes: tuple[Bounds, ...] = ()


@dataclass(frozen=True, slots=True)
class ErrorTile:
    """Error with its spectrogram and audio."""

    error: ErrorExample
    image: str
    audio: str


def worst_errors(
    evaluation_set: EvaluationSet, threshold: float, count: int = TILES
) -> tuple[list[ErrorExample], list[ErrorExample]]:
    """Return misses, highest signal-to-noise first, and false positives, highest score first, of whole recordings."""
    matched = match_recordings(evaluation_set.with_min_score(threshold))
    ground_truth, predictions = evaluation_set.ground_truth, matched.predictions
    score = np.zeros(0) if predictions.score is None else predictions.score
    is_miss = ~matched.matches.is_recalled(len(matched.ground_truth))
    misses = _first(is_miss, np.nan_to_num(ground_truth.event_snr_db, nan=-np.inf), count)
    false_positives = _first(~matched.matches.is_hit, score, count)
    expansion = np.ones(len(ground_truth.recordings))
    expansion[ground_truth.chunk_recording] = ground_truth.chunk_expansion

    def error(kind: Literal["miss", "false positive"], row: int) -> ErrorExample:
        boxes = matched.ground_truth if kind == "miss" else predictions
        recording, bounds = int(boxes.group[row]), boxes.bounds[row]
        around_s = CONTEXT_S / expansion[recording]
        return ErrorExample(
            kind,
            ground_truth.recordings[recording],
            _bounds(bounds),
            float(expansion[recording]),
            label=ground_truth.event_labels[row] if kind == "miss" else "",
            score=np.nan if kind == "miss" else float(score[row]),
            snr_db=float(ground_truth.event_snr_db[row]) if kind == "miss" else np.nan,
            annotated_boxes=_around(
                matched.ground_truth.group, matched.ground_truth.bounds, recording, bounds, around_s
            ),
            model_boxes=_around(predictions.group, predictions.bounds, recording, bounds, around_s),
        )

    return [error("miss", row) for row in misses], [error("false positive", row) for row in false_positives]


def tile_of(error: ErrorExample, store: AudioStore) -> ErrorTile:
    """Read the audio of an error from the store, with one second of context, and plot its spectrogram."""
    start_s, _, end_s, _ = error.bounds
    rate_hz = store.layout.sample_rate_hz
    recording = store.recordings["recording_id"].index(error.recording_id).as_py()
    first = max(0, round((start_s * error.expansion - CONTEXT_S) * rate_hz))
    stop = round((end_s * error.expansion + CONTEXT_S) * rate_hz)
    stop = min(stop, first + round(LONGEST_S * rate_hz), store.recordings["samples"][recording].as_py())
    first_row = store.recordings["first_row"][recording].as_py()
    wave = to_float(store.read([[first_row, first]], max(1, stop - first))[0])
    recording_rate_hz = rate_hz * error.expansion
    origins: list[tuple[Literal["expert", "model"], Sequence[Bounds]]] = [
        ("expert", error.annotated_boxes),
        ("model", error.model_boxes),
    ]
    error_origin: Literal["expert", "model"] = "expert" if error.kind == "miss" else "model"
    others = [
        (origin, box)
        for origin, boxes in origins
        for box in boxes
        if (origin, box) != (error_origin, error.bounds)
    ]
    image = render_thumbnail(
        wave, recording_rate_hz, first / recording_rate_hz, [(error_origin, error.bounds), *others]
    )
    return ErrorTile(error, image_uri(image), audio_data_uri(wave, rate_hz))


def _first(is_error: np.ndarray[tuple[int], np.dtype[np.bool_]], severity: Floats, count: int) -> Integers:
    """Return the rows of errors, the most severe first, ties in their order."""
    rows = np.flatnonzero(is_error)
    return rows[np.argsort(-severity[rows], kind="stable")][:count]


def _around(
    group: Integers, bounds: Floats, recording: int, box: Floats, around_s: float
) -> tuple[Bounds, ...]:
    """Return the boxes of a recording that overlap a box in time, or the seconds around it."""
    near = (group == recording) & (bounds[:, 2] > box[0] - around_s) & (bounds[:, 0] < box[2] + around_s)
    return tuple(_bounds(item) for item in bounds[near])


def _bounds(row: Floats) -> Bounds:
    start_s, low_hz, end_s, high_hz = row.tolist()
    return start_s, low_hz, end_s, high_hz
