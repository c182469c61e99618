"""What is kept of a cell once its model is gone: enough to make every table again, and little enough to be published.

A kept cell is a folder like the cell's own, without weights and pictures. Predictions below both the threshold and the
last that is right are left out: no figure of the benchmark depends on them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mast.evaluation.results import CHUNKS, PREDICTIONS, RESULTS, TRUTHS

MODEL = Path("model", "model.json")
EVALUATION = Path("evaluation")


def keep(cell: Path, folder: Path) -> None:
    """Write what matters of an evaluated cell to a folder; its evaluation's results come last."""
    _write_json(folder / MODEL, {"results": _read_json(cell / MODEL)["results"]})
    for path in cell.glob("round_*/round.json"):
        _write_json(folder / path.relative_to(cell), {"rejected": _read_json(path)["rejected"]})
    own, kept = cell / EVALUATION, folder / EVALUATION
    kept.mkdir(parents=True, exist_ok=True)
    recordings = pq.read_table(own / CHUNKS, columns=["set", "recording_id"])
    _write(recordings.group_by(["set", "recording_id"], use_threads=False).aggregate([]), kept / CHUNKS)
    _write(pq.read_table(own / TRUTHS, columns=["set", "recording_id"]), kept / TRUTHS)
    found = pq.read_table(own / PREDICTIONS, columns=["set", "recording_id", "score", "overlap"])
    results = _read_json(own / RESULTS)
    threshold = math.inf if results["threshold"] is None else results["threshold"]
    _write(_that_matter(found, threshold), kept / PREDICTIONS)
    _write_json(kept / RESULTS, _told(results))


def _that_matter(found: pa.Table, threshold: float) -> pa.Table:
    """Predictions of each set down to the threshold, and down to the last that is right."""
    last = found.filter(pc.field("overlap") > 0).group_by("set").aggregate([("score", "min")])
    lowest = dict(zip(last["set"].to_pylist(), last["score_min"].to_pylist(), strict=True))
    floor = [min(lowest.get(name, math.inf), threshold) for name in found["set"].to_pylist()]
    return found.filter(pc.greater_equal(found["score"], pa.array(floor, pa.float64())))


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
