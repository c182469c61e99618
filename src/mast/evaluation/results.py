"""Write an evaluation: `results.json`, and tables of all chunks, ground truth, predictions and events."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mast.evaluation.evaluation_set import (
    EvaluationSet,
    GroundTruth,
    MatchedSet,
    match_chunks,
    match_recordings,
)
from mast.evaluation.set_metrics import SetResults
from mast.storage import atomic_write, join
from mast.study.artifacts import fingerprint
from mast.types import Floats, Integers

RESULTS, REPORT = "results.json", "report.html"
CHUNKS, GROUND_TRUTH, PREDICTIONS = "chunks.parquet", "ground_truth.parquet", "predictions.parquet"
EVENTS = "events.parquet"
FORMAT = 1
"""Version of the format; increased when an older MAST could misread the files of a newer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All metrics of a model on a study, and their provenance.

    `model` identifies the model, `provenance` holds fingerprints of the study's tables and audio, `ground_truth` is the
    fingerprint of the ground truth: only evaluations with the same one can be compared. `threshold` is the minimum
    score of a detection that counts, infinite if no score gives a correct detection; `threshold_source` describes where
    it was chosen.
    """

    model: dict[str, Any]
    provenance: dict[str, str]
    ground_truth: str
    threshold: float
    threshold_source: str
    settings: dict[str, Any]
    sets: list[SetResults]
    version: str
    created_utc: str
    format_version: int = FORMAT


def to_json(results: Results) -> str:
    """Return the results as JSON; undefined metrics are null."""
    return json.dumps(_format_number(asdict(results)), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _format_number(value: Any) -> Any:
    """Replace non-finite numbers by None, recursively."""
    if isinstance(value, Mapping):
        return {key: _format_number(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_format_number(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def fingerprint_ground_truth(sets: Sequence[GroundTruth]) -> str:
    """Return a fingerprint of the ground truth: equal for equal sets, chunks and boxes."""
    return fingerprint(
        content
        for item in sets
        for content in (
            json.dumps([item.name, item.recordings]).encode(),
            *(
                np.ascontiguousarray(values).tobytes()
                for values in (
                    item.chunk_recording,
                    item.chunk_start_s,
                    item.boxes.group,
                    item.boxes.bounds,
                )
            ),
        )
    )


def write_results(folder: str, results: Results, sets: Sequence[EvaluationSet]) -> None:
    """Write the tables, then `results.json`: its existence means that the evaluation is complete."""
    tables = {
        CHUNKS: [_chunks(item.ground_truth) for item in sets],
        GROUND_TRUTH: [_ground_truth(item, results.threshold) for item in sets],
        PREDICTIONS: [_predictions(item) for item in sets],
        EVENTS: [_events(item) for item in sets],
    }
    for name, parts in tables.items():
        with atomic_write(join(folder, name)) as file:
            pq.write_table(pa.concat_tables(parts), file, compression="zstd")
    with atomic_write(join(folder, RESULTS)) as file:
        file.write(to_json(results).encode())


def _chunks(ground_truth: GroundTruth) -> pa.Table:
    """Build a table of every chunk that was tested, including chunks without any box."""
    recording = pa.array(ground_truth.chunk_recording)
    return pa.table(
        {
            "set": pa.array([ground_truth.name] * len(recording), pa.string()),
            "recording_id": pa.array(ground_truth.recordings, pa.string()).take(recording),
            "site": pa.array(ground_truth.sites, pa.string()).take(recording),
            "start_s": ground_truth.chunk_start_s,
            "hour": pa.array(ground_truth.chunk_hour, mask=ground_truth.chunk_hour < 0),
        }
    )


def _ground_truth(evaluation_set: EvaluationSet, threshold: float) -> pa.Table:
    """Build a table of every part of an annotation in a chunk, with the complete annotation it belongs to."""
    ground_truth = evaluation_set.ground_truth
    is_recalled = match_chunks(evaluation_set.with_min_score(threshold)).matches.is_recalled(
        len(ground_truth.boxes)
    )
    columns = _chunk_box_columns(
        ground_truth, ground_truth.boxes.group, ground_truth.events.bounds[ground_truth.box_event]
    )
    labels = np.array(ground_truth.event_labels, dtype=object)[ground_truth.box_event]
    snr_db = ground_truth.event_snr_db[ground_truth.box_event]
    return pa.table(
        columns
        | {
            "label": pa.array(labels, pa.string()),
            "snr_db": pa.array(snr_db, mask=np.isnan(snr_db)),
            "recalled": is_recalled,
        }
    )


def _predictions(evaluation_set: EvaluationSet) -> pa.Table:
    """Build a table of every prediction of any score in every chunk, with the overlap of its match."""
    columns = _chunk_box_columns(
        evaluation_set.ground_truth, evaluation_set.predictions.group, evaluation_set.prediction_events
    )
    return pa.table(columns | _match_columns(match_chunks(evaluation_set)))


def _events(evaluation_set: EvaluationSet) -> pa.Table:
    """Build a table of the stitched events of any score in whole recordings, with the overlap of their matches."""
    stitched = evaluation_set.stitched
    return pa.table(
        _box_columns(evaluation_set.ground_truth, stitched.group, stitched.bounds)
        | _match_columns(match_recordings(evaluation_set))
    )


def _match_columns(matched: MatchedSet) -> dict[str, Any]:
    """Return the columns with score, match and overlap of predictions."""
    matches = matched.matches
    return {"score": matched.predictions.score, "matched": matches.is_hit, "overlap": matches.overlap}


def _chunk_box_columns(ground_truth: GroundTruth, chunk: Integers, events: Floats) -> dict[str, Any]:
    """Return the columns with the bounds of boxes and the start of their chunk."""
    columns = _box_columns(ground_truth, ground_truth.chunk_recording[chunk], events)
    return columns | {"chunk_start_s": ground_truth.chunk_start_s[chunk]}


def _box_columns(ground_truth: GroundTruth, recording: Integers, events: Floats) -> dict[str, Any]:
    """Return the columns with test set, recording, and bounds in seconds and Hz of boxes."""
    start_s, low_hz, end_s, high_hz = events.T
    return {
        "set": pa.array([ground_truth.name] * len(recording), pa.string()),
        "recording_id": pa.array(ground_truth.recordings, pa.string()).take(pa.array(recording)),
        "start_s": start_s,
        "end_s": end_s,
        "low_hz": low_hz,
        "high_hz": high_hz,
    }
