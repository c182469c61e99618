"""An evaluation on disk: `results.json`, and tables of all chunks, truths, predictions and events."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mast.evaluation.figures import SetResults
from mast.evaluation.matching import Floats, Integers
from mast.evaluation.trial import Matched, Trial, Truths, match_chunks, match_recordings
from mast.storage import join, written_whole
from mast.study.products import fingerprint

RESULTS, REPORT = "results.json", "report.html"
CHUNKS, TRUTHS, PREDICTIONS = "chunks.parquet", "truths.parquet", "predictions.parquet"
EVENTS = "events.parquet"
FORMAT = 1
"""Changes whenever an older MAST could misread what a newer one writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All numbers of a model on a study, and where they come from.

    `model` says which model it was, `made_from` holds fingerprints of the study's tables and sound, `truths` is that of
    what was to be found: only evaluations with the same one can be compared. `threshold` is the least score of what
    counts as found, infinite where no score found anything; `threshold_source` tells where it was chosen.
    """

    model: dict[str, Any]
    made_from: dict[str, str]
    truths: str
    threshold: float
    threshold_source: str
    settings: dict[str, Any]
    sets: list[SetResults]
    version: str
    created_utc: str
    format_version: int = FORMAT


def to_json(results: Results) -> str:
    """The results as JSON; what cannot be told is null."""
    return json.dumps(_told(asdict(results)), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _told(value: Any) -> Any:
    """Plain values, with None for numbers that are none."""
    if isinstance(value, Mapping):
        return {key: _told(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_told(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def fingerprint_truths(sets: Sequence[Truths]) -> str:
    """A short name for all that there was to find: equal sets, chunks and boxes, equal name."""
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


def write_results(folder: str, results: Results, sets: Sequence[Trial]) -> None:
    """Write the tables, then `results.json`: its existence means that the evaluation is whole."""
    tables = {
        CHUNKS: [_chunks(item.truths) for item in sets],
        TRUTHS: [_truths(item, results.threshold) for item in sets],
        PREDICTIONS: [_predictions(item) for item in sets],
        EVENTS: [_events(item) for item in sets],
    }
    for name, parts in tables.items():
        with written_whole(join(folder, name)) as file:
            pq.write_table(pa.concat_tables(parts), file, compression="zstd")
    with written_whole(join(folder, RESULTS)) as file:
        file.write(to_json(results).encode())


def _chunks(truths: Truths) -> pa.Table:
    """Every chunk that was tested, also those in which nobody found anything."""
    recording = pa.array(truths.chunk_recording)
    return pa.table(
        {
            "set": pa.array([truths.name] * len(recording), pa.string()),
            "recording_id": pa.array(truths.recordings, pa.string()).take(recording),
            "site": pa.array(truths.sites, pa.string()).take(recording),
            "start_s": truths.chunk_start_s,
            "hour": pa.array(truths.chunk_hour, mask=truths.chunk_hour < 0),
        }
    )


def _truths(trial: Trial, threshold: float) -> pa.Table:
    """Every part of an expert's box in a chunk, with the whole box it belongs to."""
    truths = trial.truths
    found = match_chunks(trial.above(threshold)).matches.is_found(len(truths.boxes))
    columns = _boxes_in_chunks(truths, truths.boxes.group, truths.events.bounds[truths.box_event])
    labels = np.array(truths.event_labels, dtype=object)[truths.box_event]
    snr_db = truths.event_snr_db[truths.box_event]
    return pa.table(
        columns
        | {
            "label": pa.array(labels, pa.string()),
            "snr_db": pa.array(snr_db, mask=np.isnan(snr_db)),
            "found": found,
        }
    )


def _predictions(trial: Trial) -> pa.Table:
    """Every prediction of every score in every chunk, and the overlap with the truth it found there."""
    columns = _boxes_in_chunks(trial.truths, trial.found.group, trial.found_events)
    return pa.table(columns | _found(match_chunks(trial)))


def _events(trial: Trial) -> pa.Table:
    """The model's sounds of every score in whole recordings, and the overlap with the expert's sound each found."""
    sounds = trial.stitched
    return pa.table(_boxes(trial.truths, sounds.group, sounds.bounds) | _found(match_recordings(trial)))


def _found(matched: Matched) -> dict[str, Any]:
    """Columns that say what became of predictions."""
    matches = matched.matches
    return {"score": matched.found.score, "matched": matches.is_hit, "overlap": matches.overlap}


def _boxes_in_chunks(truths: Truths, chunk: Integers, events: Floats) -> dict[str, Any]:
    """Columns that say where boxes are, and in which chunk."""
    columns = _boxes(truths, truths.chunk_recording[chunk], events)
    return columns | {"chunk_start_s": truths.chunk_start_s[chunk]}


def _boxes(truths: Truths, recording: Integers, events: Floats) -> dict[str, Any]:
    """Columns that say where boxes are: the test set, the recording, and bounds in seconds and Hz."""
    start_s, low_hz, end_s, high_hz = events.T
    return {
        "set": pa.array([truths.name] * len(recording), pa.string()),
        "recording_id": pa.array(truths.recordings, pa.string()).take(pa.array(recording)),
        "start_s": start_s,
        "end_s": end_s,
        "low_hz": low_hz,
        "high_hz": high_hz,
    }
