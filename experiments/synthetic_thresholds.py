"""Measure the effect of synthetic calls on a threshold that is chosen on few validation boxes.

    python -m experiments.synthetic_thresholds shift/small/soundscapes/study.yaml shift/small/cells/joint_synthetic*/*

Writes experiments/results/synthetic_thresholds.json. A cell of `experiments.shift.run` contains a detector and its
evaluation. Validation chunks are sampled until they contain a number of boxes, synthetic calls in background chunks are
added up to a total number, and the threshold of both is tested on every test set and compared with the maximum F1 there.
Test sets are not used for any choice.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.results import rounded, write_result

from experiments.baselines.evaluate import BaselineDetector, load_baseline
from experiments.shift.run import RESULTS
from experiments.threshold_selection import select_units
from mast.config import Study, load_study
from mast.datasets.split_table import require_artifact
from mast.datasets.study_datasets import detection_dataset
from mast.detection.chunk_detector import ChunkDetector, ModelChunkDetector
from mast.evaluation.compare import ranking_of
from mast.evaluation.metrics import RankedPredictions, f1, max_f1_threshold, robust_f1_threshold
from mast.models.checkpoint import load_model
from mast.models.loading import load_detector
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE
from mast.training.validation import chunks_for, predict, predict_synthetic

SIZES = (0, 5, 10, 20)
"""Number of validation boxes in a sample; the complete validation split is tested too."""

TOTALS = (0, 50, 100, 200, 400)
"""Total number of boxes, reached by adding synthetic calls."""


def main() -> None:
    """Predict on validation, sample, choose thresholds, measure F1, and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path)
    parser.add_argument("cells", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--out", type=Path, default=RESULTS / "synthetic_thresholds.json")
    options = parser.parse_args()
    study = load_study(options.study)
    cells = {"/".join(cell.parts[-2:]): cell for cell in options.cells}
    results = {}
    for name, cell in cells.items():
        results[name] = f1_by_boxes(study, cell, options.draws)
        print(f"{name}: done", flush=True)
    print(json.dumps(results, indent=1))
    write_result(options.out, {"cells": results, "draws": options.draws}, ("numpy", "torch"))


def f1_by_boxes(study: Study, cell: Path, draws: int) -> dict[str, Any]:
    """Return F1 of a detector on each test set, by the number of boxes its threshold is chosen on."""
    real, synthetic = validation_rankings(study, str(cell / "model"))
    folder = cell / "evaluation"
    sets = json.loads((folder / "results.json").read_text("utf-8"))["sets"]
    names = [test_set["name"] for test_set in sets]
    tests = {name: ranking_of(str(folder), name) for name in names}
    rng = np.random.default_rng(0)
    boxes = int(real.ground_truth.sum())
    sizes = [size for size in SIZES if size < boxes]
    samples = {size: [sample_chunks(real, size, rng) for _ in range(draws if size else 1)] for size in sizes}
    samples[boxes] = [real]
    return {
        "boxes": boxes,
        "best": {
            name: rounded(f1(ranking.with_min_score(max_f1_threshold(ranking))))
            for name, ranking in tests.items()
        },
        "f1": {
            str(size): {
                str(total): f1_on_tests(sampled, synthetic, total, tests) for total in TOTALS if size + total
            }
            for size, sampled in samples.items()
        },
    }


def validation_rankings(study: Study, model: str) -> tuple[RankedPredictions, RankedPredictions]:
    """Return a detector's predictions on validation, and on synthetic calls in its background chunks."""
    store = AudioStore(require_artifact(study, STORE))
    validation = detection_dataset(study, store, "val").chunks
    detector = load_chunk_detector(study, store, model)
    real = predict(detector, store, validation)
    is_background = [not len(boxes) for boxes in real.ground_truth]
    background = validation.locations(0, np.flatnonzero(is_background))
    synthetic = predict_synthetic(detector, study.spectrogram, store, background, max(TOTALS))
    return real.ranking(), synthetic.ranking()


def load_chunk_detector(study: Study, store: AudioStore, model: str) -> ChunkDetector:
    """Load a detector of MAST or a baseline."""
    if "baseline" in load_model(model)[0].architecture:
        baseline = load_baseline(model, study.detection, store)
        return BaselineDetector(baseline.network, baseline.frontend)
    return ModelChunkDetector(load_detector(model, store), study.detection)


def sample_chunks(real: RankedPredictions, boxes: int, rng: np.random.Generator) -> RankedPredictions:
    """Return a random sample of the chunks, with at least `boxes` boxes."""
    order = rng.permutation(len(real.ground_truth))
    count = int(np.searchsorted(real.ground_truth[order].cumsum(), boxes)) + 1
    return select_units(real, order[: count if boxes else 0])


def concatenate(first: RankedPredictions, second: RankedPredictions) -> RankedPredictions:
    """Return a ranking of the chunks of both rankings."""
    score = np.concatenate([first.score, second.score])
    order = np.argsort(-score, kind="stable")
    return RankedPredictions(
        score[order],
        np.concatenate([first.overlap, second.overlap])[order],
        np.concatenate([first.unit, second.unit + len(first.ground_truth)])[order],
        np.concatenate([first.ground_truth, second.ground_truth]),
    )


def f1_on_tests(
    samples: list[RankedPredictions],
    synthetic: RankedPredictions,
    total: int,
    tests: Mapping[str, RankedPredictions],
) -> dict[str, dict[str, float | None]]:
    """Return F1 on each test set: its mean and its 10 % quantile over the samples of validation chunks."""
    scores = []
    for real in samples:
        added = select_units(synthetic, np.arange(chunks_for(total - int(real.ground_truth.sum()))))
        scores.append(robust_f1_threshold(concatenate(real, added)))
    values = {
        name: [f1(ranking.with_min_score(score)) if math.isfinite(score) else 0.0 for score in scores]
        for name, ranking in tests.items()
    }
    return {
        name: {"mean": rounded(np.mean(row)), "p10": rounded(np.quantile(row, 0.1))}
        for name, row in values.items()
    }


if __name__ == "__main__":
    main()
