"""Where detectors lose: to loose edges, to faint sounds, or to what is no sound at all.

    python -m experiments.anatomy shift/small/cells/*/0/evaluation       writes experiments/results/anatomy.json

The folders are evaluations of detectors on the shift benchmark. Boxes are matched again chunk by chunk. At the detector's
own threshold a sound is *found* (IoU of 0.5 or more), *loose* (at least 0.1, so that something was drawn about it) or
*missed*; and a prediction is *right*, *loose*, a *double* of one that is right, or an *alarm*. Of the boxes about loose
sounds it is told how many are far too long, short, wide or narrow, or of the right size *beside* the sound. Average
precision with a lower least IoU says what sharper edges could win at most. Sounds are also told apart by how faint they
are, and by how narrow their band is.
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
from mast.boxes import iou
from mast.config import Spectrogram
from mast.evaluation.matching import Boxes, Floats, Integers, Mask, match
from mast.evaluation.metrics import METRICS, Ranking
from mast.evaluation.results import PREDICTIONS, TRUTHS
from mast.spectrogram import MelGrid, frames_of

RESULTS = Path(__file__).parent / "results"
LEAST = {"ap_at_50": 0.5, "ap_at_30": 0.3, "ap_at_10": 0.1}
TOUCH, HIT = 0.1, 0.5
FAR = 1.5
"""A side is far too long if it is so many times the true one, and far too short the other way round."""

LOUDNESSES = 3
"""Parts, of as many sounds each, from the faintest to the loudest."""

WIDTHS_BINS = (0, 6, 24)
"""From how many mel bins on a sound's band is narrow, middling or wide."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Predictions of a test set, and its truths with how far each stands above its background (M,), in dB."""

    found: Boxes
    truths: Boxes
    snr_db: Floats


def main() -> None:
    """Take every evaluation apart, and write what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("evaluations", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "anatomy.json")
    options = parser.parse_args()
    detectors: dict[str, Any] = {}
    for folder in options.evaluations:
        results = json.loads((folder / "results.json").read_text("utf-8"))
        detectors["/".join(folder.parts[-3:-1])] = {
            title: anatomy(read_trial(folder, split, results["settings"]), results["threshold"])
            for split, title in SPLITS.items()
        }
    print(json.dumps(detectors, indent=1))
    write_result(options.out, {"detectors": detectors}, ("numpy",))


def read_trial(folder: Path, name: str, settings: Mapping[str, Any]) -> Trial:
    """The boxes of one test set, in frames and bins of their chunks."""
    found, truths = (
        pq.read_table(folder / table, filters=pc.field("set") == name) for table in (PREDICTIONS, TRUTHS)
    )
    spectrogram = Spectrogram(**settings["spectrogram"])
    grid = MelGrid(spectrogram, frames_of(settings["chunking"]["chunk_s"], spectrogram))
    groups = _groups(found, truths)
    asked = grid.to_boxes(_events(truths)).double().numpy()
    told = grid.to_exact_boxes(_events(found)).numpy()
    return Trial(
        Boxes(groups[: len(found)], told, found["score"].to_numpy()),
        Boxes(groups[len(found) :], asked),
        truths["snr_db"].to_numpy(zero_copy_only=False),
    )


def _groups(*tables: pa.Table) -> Integers:
    """A number for the chunk of every row of all tables."""
    keys = [
        key
        for table in tables
        for key in zip(table["recording_id"].to_pylist(), table["chunk_start_s"].to_pylist(), strict=True)
    ]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([numbers[key] for key in keys], np.int64)


def _events(table: pa.Table) -> torch.Tensor:
    """Bounds in seconds from the chunk's start and Hz. → (N, 4)"""
    columns = [table[name].to_numpy() for name in ("start_s", "low_hz", "end_s", "high_hz")]
    start_s = table["chunk_start_s"].to_numpy()
    columns[0], columns[2] = columns[0] - start_s, columns[2] - start_s
    return torch.from_numpy(np.stack(columns, axis=1).astype(np.float64))


def anatomy(trial: Trial, threshold: float | None) -> dict[str, Any]:
    """What became of sounds and predictions at a threshold, and average precision with lower least IoUs."""
    told = {name: _average_precision(trial, least) for name, least in LEAST.items()}
    score = np.asarray(trial.found.score)
    kept = score >= (np.inf if threshold is None else threshold)
    found = Boxes(trial.found.group[kept], trial.found.bounds[kept], score[kept])
    hits = match(found, trial.truths, min_overlap=HIT)
    is_found = hits.is_found(len(trial.truths))
    shared = _shared(found, trial.truths)
    is_about = (shared >= TOUCH).any(axis=0) & ~is_found
    is_double = (shared >= HIT).any(axis=1) & ~hits.is_hit
    is_loose = (shared >= TOUCH).any(axis=1) & ~hits.is_hit & ~is_double
    sounds = {"found": is_found, "loose": is_about, "missed": ~is_found & ~is_about}
    predictions = {
        "right": hits.is_hit,
        "loose": is_loose,
        "double": is_double,
        "alarm": ~hits.is_hit & ~is_double & ~is_loose,
    }
    return {
        **told,
        "sounds": {name: int(rows.sum()) for name, rows in sounds.items()},
        "predictions": {name: int(rows.sum()) for name, rows in predictions.items()},
        "loose_because": _off(found.bounds, trial.truths.bounds[is_about], shared[:, is_about]),
        "by_loudness": _by_loudness(trial.snr_db, is_found),
        "by_width": _by_width(trial.truths.bounds, is_found),
    }


def _average_precision(trial: Trial, least: float) -> float | None:
    """COCO's average precision where an IoU of `least` is enough; None where there was nothing to find."""
    if not len(trial.truths):
        return None
    matched = match(trial.found, trial.truths, min_overlap=least)
    one = np.zeros(len(trial.found), np.int64)
    ranking = Ranking.of(
        np.asarray(trial.found.score), matched.overlap, one, np.zeros(len(trial.truths), np.int64), 1
    )
    return round(METRICS["ap_101_points"](ranking, None), 4)


def _shared(boxes: Boxes, others: Boxes) -> Floats:
    """IoU of each box with each of the others, of another chunk none. (N, M)"""
    anywhere = iou(torch.from_numpy(boxes.bounds), torch.from_numpy(others.bounds)).numpy()
    shared: Floats = anywhere * (boxes.group[:, None] == others.group[None, :])
    return shared


def _off(drawn: Floats, true: Floats, shared: Floats) -> dict[str, int]:
    """To how many true boxes the one that shares most with them has a side far from theirs. (N, 4), (M, 4), (N, M)"""
    nearest = drawn[shared.argmax(axis=0)] if len(true) else true  # (M, 4)
    length, width = ((nearest[:, 2:] - nearest[:, :2]) / (true[:, 2:] - true[:, :2])).T
    sides = {
        "too long": length > FAR,
        "too short": length < 1 / FAR,
        "too wide": width > FAR,
        "too narrow": width < 1 / FAR,
    }
    elsewhere = ~np.any([*sides.values()], axis=0)
    return {name: int(rows.sum()) for name, rows in {**sides, "beside": elsewhere}.items()}


def _by_loudness(snr_db: Floats, is_found: Mask) -> list[dict[str, float]]:
    """Share of sounds found, from the faintest third to the loudest."""
    parts = np.array_split(np.argsort(snr_db, kind="stable"), LOUDNESSES)
    return [
        {
            "from_db": round(float(snr_db[rows].min()), 1),
            "sounds": len(rows),
            "found": round(float(is_found[rows].mean()), 3),
        }
        for rows in parts
        if len(rows)
    ]


def _by_width(true: Floats, is_found: Mask) -> list[dict[str, float | None]]:
    """Share of sounds found, by the width of their band, from the narrowest on. (M, 4), (M,)"""
    kind = np.digitize(true[:, 3] - true[:, 1], WIDTHS_BINS) - 1
    return [
        {
            "from_bins": bins,
            "sounds": int((kind == number).sum()),
            "found": round(float(is_found[kind == number].mean()), 3) if (kind == number).any() else None,
        }
        for number, bins in enumerate(WIDTHS_BINS)
    ]


if __name__ == "__main__":
    main()
