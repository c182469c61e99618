"""What is kept of a cell once its model is gone: enough to make every table again, and little enough to be published.

A kept cell is a folder like the cell's own, without weights and pictures. Of predictions only that is kept on which a
figure of the benchmark depends.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mast.evaluation.results import CHUNKS, PREDICTIONS, RESULTS, TRUTHS

MODEL = Path("model", "model.json")
EVALUATION = Path("evaluation")


def keep(cell: Path, folder: Path) -> None:
    """Write what matters of an evaluated cell to a folder; its evaluation comes last."""
    _write_json(folder / MODEL, {"results": _read_json(cell / MODEL)["results"]})
    for path in cell.glob("round_*/round.json"):
        _write_json(folder / path.relative_to(cell), {"rejected": _read_json(path)["rejected"]})
    keep_evaluation(cell / EVALUATION, folder / EVALUATION)


def keep_evaluation(own: Path, kept: Path) -> None:
    """Write what matters of an evaluation to another folder; its results come last."""
    kept.mkdir(parents=True, exist_ok=True)
    chunks = pq.read_table(own / CHUNKS, columns=["set", "recording_id"])
    recordings = [*dict.fromkeys(zip(*(column.to_pylist() for column in chunks.columns), strict=True))]
    columns = dict(zip(chunks.column_names, map(list, zip(*recordings, strict=True)), strict=True))
    _write(pa.table(columns, chunks.schema), kept / CHUNKS)  # in their order, which draws of them follow
    _write(pq.read_table(own / TRUTHS, columns=["set", "recording_id"]), kept / TRUTHS)
    found = pq.read_table(own / PREDICTIONS, columns=["set", "recording_id", "score", "overlap"])
    results = _read_json(own / RESULTS)
    threshold = math.inf if results["threshold"] is None else results["threshold"]
    _write(_that_matter(found, threshold), kept / PREDICTIONS)
    _write_json(kept / RESULTS, _told(results))


def _that_matter(found: pa.Table, threshold: float) -> pa.Table:
    """Predictions of each set down to the threshold and to the last that is right, with as few scores as say the same.

    Of wrong ones it only matters between which right ones they rank, and on which side of the threshold: all of a stretch
    get the lowest score of it, and then hardly take room.
    """
    parts = []
    for name in found["set"].unique().to_pylist():
        own = found.filter(pc.field("set") == name)
        score, overlap = (own[column].to_numpy().copy() for column in ("score", "overlap"))
        marks = np.unique(np.append(score[overlap > 0], threshold))
        stretch = np.searchsorted(marks, score, side="right")  # those of at least a mark's score lie above it
        is_between = (overlap == 0) & ~np.isin(score, marks)
        for number in np.unique(stretch[is_between]):
            rows = is_between & (stretch == number)
            score[rows] = score[rows].min()
        rows = np.lexsort((own["recording_id"].to_numpy(zero_copy_only=False).astype(str), -score))
        kept = rows[stretch[rows] > 0]
        parts.append(own.set_column(own.column_names.index("score"), "score", pa.array(score)).take(kept))
    return pa.concat_tables(parts) if parts else found


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
