"""Archive cells: keep the parts from which every table can be made again without the model, small enough to publish.

An archived cell is a folder with the layout of the cell, without weights and figures. Of the predictions, only what
the benchmark's metrics depend on is kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mast.evaluation.results import CHUNKS, GROUND_TRUTH, PREDICTIONS, RESULTS

MODEL = Path("model", "model.json")
EVALUATION = Path("evaluation")
PREDICTION_COLUMNS = ["set", "recording_id", "score", "overlap"]


def archive_cell(cell: Path, folder: Path) -> None:
    """Archive an evaluated cell in a folder; its evaluation is written last."""
    _write_json(folder / MODEL, {"results": _read_json(cell / MODEL)["results"]})
    for path in cell.glob("round_*/round.json"):
        _write_json(folder / path.relative_to(cell), {"rollback_reason": _read_json(path)["rollback_reason"]})
    archive_evaluations({cell / EVALUATION: folder / EVALUATION})


def threshold_of(evaluation: Path) -> float:
    """Return the score threshold of an evaluation; infinite if the model has none, so that no prediction counts."""
    threshold: float | None = _read_json(evaluation / RESULTS)["threshold"]
    return math.inf if threshold is None else threshold


def archive_evaluations(evaluations: Mapping[Path, Path]) -> None:
    """Archive evaluations, source folder → archive folder, so that metrics of all of them pooled also stay the same.

    The results of each evaluation are written last.
    """
    predictions = {
        source: pq.read_table(source / PREDICTIONS, columns=PREDICTION_COLUMNS) for source in evaluations
    }
    marks = np.unique([threshold_of(source) for source in evaluations])
    for table in predictions.values():
        score, overlap = (table[name].to_numpy() for name in ("score", "overlap"))
        marks = np.union1d(marks, score[overlap > 0])
    for source, target in evaluations.items():
        target.mkdir(parents=True, exist_ok=True)
        chunks = pq.read_table(source / CHUNKS, columns=["set", "recording_id"])
        recordings = [*dict.fromkeys(zip(*(column.to_pylist() for column in chunks.columns), strict=True))]
        columns = dict(zip(chunks.column_names, map(list, zip(*recordings, strict=True)), strict=True))
        _write(
            pa.table(columns, chunks.schema), target / CHUNKS
        )  # in their order: bootstrap samples depend on it
        _write(pq.read_table(source / GROUND_TRUTH, columns=["set", "recording_id"]), target / GROUND_TRUTH)
        _write(_compress_predictions(predictions[source], marks), target / PREDICTIONS)
        _write_json(target / RESULTS, _archived_results(_read_json(source / RESULTS)))


def _compress_predictions(predictions: pa.Table, marks: NDArray[np.float64]) -> pa.Table:
    """Return the predictions down to the lowest mark, with few distinct scores.

    Marks are the thresholds and the scores of true positives. The rank of a false positive matters only relative to the
    marks: all false positives between two marks get the lowest score among them, which compresses well.
    """
    score, overlap = (predictions[name].to_numpy().copy() for name in ("score", "overlap"))
    interval = np.searchsorted(marks, score, side="right")  # a score equal to a mark lies above it
    is_between = (overlap == 0) & ~np.isin(score, marks)
    lowest = np.full(len(marks) + 1, np.inf, score.dtype)
    np.minimum.at(lowest, interval[is_between], score[is_between])
    score[is_between] = lowest[interval[is_between]]
    names = [predictions[name].to_numpy(zero_copy_only=False).astype(str) for name in ("recording_id", "set")]
    rows = np.lexsort((names[0], -score, names[1]))
    ranked = predictions.set_column(predictions.column_names.index("score"), "score", pa.array(score))
    return ranked.take(rows[interval[rows] > 0])


def _archived_results(results: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics of each set by IoU matching, and the threshold."""
    sets = [
        {
            "name": set_results["name"],
            "recordings": set_results["recordings"],
            "matching_modes": {
                "iou": {name: set_results["matching_modes"]["iou"][name] for name in ("metrics", "max_f1")}
            },
        }
        for set_results in results["sets"]
    ]
    return {"threshold": results["threshold"], "sets": sets}


def _read_json(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return values


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values) + "\n", encoding="utf-8")


def _write(table: pa.Table, path: Path) -> None:
    pq.write_table(table.replace_schema_metadata(None), path, compression="zstd", compression_level=19)
