"""Analyse the errors of detectors: loose boxes, faint sounds missed, and false positives.

    python -m experiments.error_analysis shift/small/cells/*/0/evaluation

Writes experiments/results/error_analysis.json. The folders are evaluations of detectors on the shift benchmark. Boxes are
matched again chunk by chunk. At the detector's threshold an annotation is *detected* (IoU of at least 0.5), *loose* (IoU
of at least 0.1) or *missed*; and a prediction is *correct*, *loose*, a *duplicate* of a correct one, or a *false
positive*. The best box of each loose annotation is far too long, short, wide or narrow, or of the right size but
*displaced*. Average precision with a lower minimum IoU is the upper bound of the gain from better edges. Recall is also
reported by loudness and by bandwidth.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from benchmarks.results import write_result

from experiments.shift.summary import SPLITS
from mast.audio.spectrogram import MelGrid, chunk_frames
from mast.box_ops import box_iou
from mast.config import Spectrogram
from mast.evaluation.matching import GroupedBoxes, match
from mast.evaluation.metrics import METRICS, RankedPredictions
from mast.evaluation.results import GROUND_TRUTH, PREDICTIONS
from mast.types import Floats, Integers, Mask

RESULTS = Path(__file__).parent / "results"
MIN_IOU = {"ap_at_50": 0.5, "ap_at_30": 0.3, "ap_at_10": 0.1}
LOOSE_IOU, HIT_IOU = 0.1, 0.5
MAX_SIDE_RATIO = 1.5
"""A side is too long if it is more than this many times the annotated one, and too short if less than its inverse."""

LOUDNESS_GROUPS = 3
"""Number of groups of equal size, from the faintest to the loudest annotations."""

WIDTHS_BINS = (0, 6, 24)
"""Minimum bandwidths of narrow, medium and wide annotations, in mel bins."""


@dataclass(frozen=True, slots=True)
class BoxSet:
    """Predictions of a test set, and its ground truth with signal-to-noise ratios (M,) in dB."""

    predictions: GroupedBoxes
    ground_truth: GroupedBoxes
    snr_db: Floats


def main() -> None:
    """Analyse every evaluation, and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("evaluations", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "error_analysis.json")
    options = parser.parse_args()
    detectors: dict[str, Any] = {}
    for folder in options.evaluations:
        results = json.loads((folder / "results.json").read_text("utf-8"))
        detectors["/".join(folder.parts[-3:-1])] = {
            title: analyse(read_box_set(folder, split, results["settings"]), results["threshold"])
            for split, title in SPLITS.items()
        }
    print(json.dumps(detectors, indent=1))
    write_result(options.out, {"detectors": detectors}, ("numpy",))


def read_box_set(folder: Path, name: str, settings: Mapping[str, Any]) -> BoxSet:
    """Read the boxes of one test set, in frames and bins of their chunks."""
    predictions, ground_truth = (
        pq.read_table(folder / table, filters=pc.field("set") == name)
        for table in (PREDICTIONS, GROUND_TRUTH)
    )
    spectrogram = Spectrogram(**settings["spectrogram"])
    grid = MelGrid(spectrogram, chunk_frames(settings["chunking"]["chunk_s"], spectrogram))
    groups = _groups(predictions, ground_truth)
    annotated = grid.events_to_boxes(_events(ground_truth)).double().numpy()
    predicted = grid.to_exact_boxes(_events(predictions)).numpy()
    return BoxSet(
        GroupedBoxes(groups[: len(predictions)], predicted, predictions["score"].to_numpy()),
        GroupedBoxes(groups[len(predictions) :], annotated),
        ground_truth["snr_db"].to_numpy(zero_copy_only=False),
    )


def _groups(*tables: pa.Table) -> Integers:
    """Return the number of the chunk of every row of all tables."""
    keys = [
        key
        for table in tables
        for key in zip(table["recording_id"].to_pylist(), table["chunk_start_s"].to_pylist(), strict=True)
    ]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([numbers[key] for key in keys], np.int64)


def _events(table: pa.Table) -> torch.Tensor:
    """Return bounds in seconds from the start of the chunk, and in Hz. → (N, 4)"""
    columns = [table[name].to_numpy() for name in ("start_s", "low_hz", "end_s", "high_hz")]
    start_s = table["chunk_start_s"].to_numpy()
    columns[0], columns[2] = columns[0] - start_s, columns[2] - start_s
    return torch.from_numpy(np.stack(columns, axis=1).astype(np.float64))


def analyse(boxes: BoxSet, threshold: float | None) -> dict[str, Any]:
    """Return the outcomes of annotations and predictions at a threshold, and AP with lower minimum IoUs."""
    average_precision = {name: _average_precision(boxes, min_iou) for name, min_iou in MIN_IOU.items()}
    score = np.asarray(boxes.predictions.score)
    kept = score >= (np.inf if threshold is None else threshold)
    reported = GroupedBoxes(boxes.predictions.group[kept], boxes.predictions.bounds[kept], score[kept])
    ground_truth = boxes.ground_truth
    hits = match(reported, ground_truth, min_overlap=HIT_IOU)
    is_detected = hits.is_recalled(len(ground_truth))
    iou = _pairwise_iou(reported, ground_truth)
    is_loose = (iou >= LOOSE_IOU).any(axis=0) & ~is_detected
    is_duplicate = (iou >= HIT_IOU).any(axis=1) & ~hits.is_hit
    is_loose_prediction = (iou >= LOOSE_IOU).any(axis=1) & ~hits.is_hit & ~is_duplicate
    annotations = {"detected": is_detected, "loose": is_loose, "missed": ~is_detected & ~is_loose}
    predictions = {
        "correct": hits.is_hit,
        "loose": is_loose_prediction,
        "duplicate": is_duplicate,
        "false_positive": ~hits.is_hit & ~is_duplicate & ~is_loose_prediction,
    }
    return {
        **average_precision,
        "annotations": {name: int(rows.sum()) for name, rows in annotations.items()},
        "predictions": {name: int(rows.sum()) for name, rows in predictions.items()},
        "loose_reasons": _loose_reasons(reported.bounds, ground_truth.bounds[is_loose], iou[:, is_loose]),
        "by_loudness": _by_loudness(boxes.snr_db, is_detected),
        "by_width": _by_width(ground_truth.bounds, is_detected),
    }


def _average_precision(boxes: BoxSet, min_iou: float) -> float | None:
    """Return COCO's average precision at a minimum IoU; None without annotations."""
    if not len(boxes.ground_truth):
        return None
    matched = match(boxes.predictions, boxes.ground_truth, min_overlap=min_iou)
    unit = np.zeros(len(boxes.predictions), np.int64)
    annotation_unit = np.zeros(len(boxes.ground_truth), np.int64)
    ranking = RankedPredictions.of(
        np.asarray(boxes.predictions.score), matched.overlap, unit, annotation_unit, 1
    )
    return round(METRICS["average_precision_coco"](ranking, None), 4)


def _pairwise_iou(boxes: GroupedBoxes, others: GroupedBoxes) -> Floats:
    """Return the IoU of each box with each other box; 0 for boxes of different chunks. → (N, M)"""
    any_chunk = box_iou(torch.from_numpy(boxes.bounds), torch.from_numpy(others.bounds)).numpy()
    iou: Floats = any_chunk * (boxes.group[:, None] == others.group[None, :])
    return iou


def _loose_reasons(predicted: Floats, annotated: Floats, iou: Floats) -> dict[str, int]:
    """Count annotations by the reason why their best prediction is loose. (N, 4), (M, 4), (N, M)"""
    nearest = predicted[iou.argmax(axis=0)] if len(annotated) else annotated  # (M, 4)
    length, width = ((nearest[:, 2:] - nearest[:, :2]) / (annotated[:, 2:] - annotated[:, :2])).T
    sides = {
        "too long": length > MAX_SIDE_RATIO,
        "too short": length < 1 / MAX_SIDE_RATIO,
        "too wide": width > MAX_SIDE_RATIO,
        "too narrow": width < 1 / MAX_SIDE_RATIO,
    }
    is_displaced = ~np.any([*sides.values()], axis=0)
    return {name: int(rows.sum()) for name, rows in {**sides, "displaced": is_displaced}.items()}


def _by_loudness(snr_db: Floats, is_detected: Mask) -> list[dict[str, float]]:
    """Return recall by loudness, from the faintest third of the annotations to the loudest."""
    parts = np.array_split(np.argsort(snr_db, kind="stable"), LOUDNESS_GROUPS)
    return [
        {
            "min_db": round(float(snr_db[rows].min()), 1),
            "annotations": len(rows),
            "recall": round(float(is_detected[rows].mean()), 3),
        }
        for rows in parts
        if len(rows)
    ]


def _by_width(annotated: Floats, is_detected: Mask) -> list[dict[str, float | None]]:
    """Return recall by bandwidth, from the narrowest annotations. (M, 4), (M,)"""
    group = np.digitize(annotated[:, 3] - annotated[:, 1], WIDTHS_BINS) - 1
    return [
        {
            "min_bins": bins,
            "annotations": int((group == number).sum()),
            "recall": round(float(is_detected[group == number].mean()), 3)
            if (group == number).any()
            else None,
        }
        for number, bins in enumerate(WIDTHS_BINS)
    ]


if __name__ == "__main__":
    main()
