"""What is kept of a cell once its model is gone: enough to make every table again, and little enough to be published.

A kept cell is a folder like the cell's own, without weights and pictures. Of predictions only that is kept on which a
figure of the benchmark depends.
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

from mast.evaluation.results import CHUNKS, PREDICTIONS, RESULTS, TRUTHS

MODEL = Path("model", "model.json")
EVALUATION = Path("evaluation")
FOUND = ["set", "recording_id", "score", "overlap"]


def keep(cell: Path, folder: Path) -> None:
    """Write what matters of an evaluated cell to a folder; its evaluation comes last."""
    _write_json(folder / MODEL, {"results": _read_json(cell / MODEL)["results"]})
    for path in cell.glob("round_*/round.json"):
        _write_json(folder / path.relative_to(cell), {"rejected": _read_json(path)["rejected"]})
    keep_together({cell / EVALUATION: folder / EVALUATION})


def threshold_of(evaluation: Path) -> float:
    """The score from which an evaluation counts boxes; infinite where the model has none, so that none counts."""
    threshold: float | None = _read_json(evaluation / RESULTS)["threshold"]
    return math.inf if threshold is None else threshold


def keep_together(evaluations: Mapping[Path, Path]) -> None:
    """Write what matters of evaluations to folders of their own, so that also all of them taken as one say the same.

    Of each, the results come last.
    """
    found = {own: pq.read_table(own / PREDICTIONS, columns=FOUND) for own in evaluations}
    marks = np.unique([threshold_of(own) for own in evaluations])
    for table in found.values():
        score, overlap = (table[name].to_numpy() for name in ("score", "overlap"))
        marks = np.union1d(marks, score[overlap > 0])
    for own, kept in evaluations.items():
        kept.mkdir(parents=True, exist_ok=True)
        chunks = pq.read_table(own / CHUNKS, columns=["set", "recording_id"])
        recordings = [*dict.fromkeys(zip(*(column.to_pylist() for column in chunks.columns), strict=True))]
        columns = dict(zip(chunks.column_names, map(list, zip(*recordings, strict=True)), strict=True))
        _write(pa.table(columns, chunks.schema), kept / CHUNKS)  # in their order, which draws of them follow
        _write(pq.read_table(own / TRUTHS, columns=["set", "recording_id"]), kept / TRUTHS)
        _write(_that_matter(found[own], marks), kept / PREDICTIONS)
        _write_json(kept / RESULTS, _told(_read_json(own / RESULTS)))


def _that_matter(found: pa.Table, marks: NDArray[np.float64]) -> pa.Table:
    """Predictions down to the lowest mark, a threshold or the score of one that is right, with few different scores.

    Of wrong ones it only matters between which marks they rank: all of a stretch get the lowest score of it, and then
    hardly take room.
    """
    score, overlap = (found[name].to_numpy().copy() for name in ("score", "overlap"))
    stretch = np.searchsorted(marks, score, side="right")  # those of at least a mark's score lie above it
    is_between = (overlap == 0) & ~np.isin(score, marks)
    lowest = np.full(len(marks) + 1, np.inf, score.dtype)
    np.minimum.at(lowest, stretch[is_between], score[is_between])
    score[is_between] = lowest[stretch[is_between]]
    names = [found[name].to_numpy(zero_copy_only=False).astype(str) for name in ("recording_id", "set")]
    rows = np.lexsort((names[0], -score, names[1]))
    ranked = found.set_column(found.column_names.index("score"), "score", pa.array(score))
    return ranked.take(rows[stretch[rows] > 0])


def _told(results: dict[str, Any]) -> dict[str, Any]:
    """Figures of each set by IoU, and the threshold."""
    sets = [
        {
            "name": item["name"],
            "recordings": item["recordings"],
            "ways": {"iou": {name: item["ways"]["iou"][name] for name in ("numbers", "best_f1")}},
        }
        for item in results["sets"]
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
