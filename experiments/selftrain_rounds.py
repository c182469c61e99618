"""Evaluate self-training round by round: the precision of the pseudo-labels, and the student's metrics.

    python -m experiments.selftrain_rounds shift/small/cells/mast_selftrain/0 shift/small/cells/mast_joint_selftrain/0

The folders are finished cells of the shift benchmark. Every call of its soundscapes is known, also in the pool that is
unlabelled for detectors, so pseudo-labels can be compared with the ground truth. Rounds that are rolled back, or would be
with the default criteria, are tested like those that are kept; detectors use their saved thresholds. Writes
experiments/results/selftrain_rounds.json; cells that are not given on the command line stay in it.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.results import rounded, write_result
from torch import Tensor

from experiments.shift.methods import METHODS
from experiments.shift.run import RESULTS, read_earlier
from experiments.shift.summary import mean_metrics, rankings_of
from mast.config import RollbackCriteria, Study, load_study
from mast.datasets.split_table import require_artifact
from mast.datasets.study_datasets import boxes_of_chunks
from mast.evaluation.bootstrap import RESAMPLES
from mast.evaluation.evaluate import evaluate_study
from mast.evaluation.metrics import METRICS, RankedPredictions
from mast.models.checkpoint import load_model
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE
from mast.training.pseudo_labels import Pool, pool_chunks, read_labels, read_pool, valid_boxes
from mast.training.rounds import Round, read_round, rollback_reason
from mast.training.selftrain import CURRICULA
from mast.training.validation import ValidationPredictions
from mast.types import Floats

BOUNDS = ("start_s", "low_hz", "end_s", "high_hz")


def main() -> None:
    """Compare every round's pseudo-labels with the ground truth, evaluate its model, and write both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cells", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "selftrain_rounds.json")
    options = parser.parse_args()
    size = options.cells[0].parents[2].name
    cells = read_earlier(options.out, size=size).get("cells", {})
    for cell in options.cells:
        cells["/".join(cell.parts[-2:])] = rounds_of(cell)
        print(cell, flush=True)
    write_result(options.out, {"size": size, "cells": cells}, ("torch", "numpy"))
    print(json.dumps(cells, indent=1))


def rounds_of(cell: Path) -> list[dict[str, Any]]:
    """Return the metrics of the first teacher as round 0, and of every round."""
    method, seed = METHODS[cell.parts[-2]], cell.parts[-1]
    soundscapes = cell.parents[2] / "soundscapes"
    study = load_study(soundscapes / "study.yaml", method.settings)
    first = {
        "round": 0,
        "pseudo_labels": None,
        "rollback_reason": None,
        **metrics_on_tests(cell.parents[1] / str(method.teacher) / seed),
    }
    rounds = [first]
    stages = CURRICULA[study.selftrain.curriculum]
    uses_pseudo_labels = not {"pseudo-labels", "joint"}.isdisjoint(stages)
    store = AudioStore(require_artifact(study, STORE))
    pool, ground_truth = read_pool(study, store), pool_ground_truth(study, store, soundscapes)
    for path in sorted(cell.glob("round_*/round.json")):
        finished, model = read_round(path), path.parent / stages[-1] / "model"
        rounds.append(
            {
                "round": finished.number,
                "pseudo_labels": pseudo_label_metrics(study, pool, ground_truth, path.parent, finished)
                if uses_pseudo_labels
                else None,
                "rollback_reason": rollback_reason(finished.before, finished.after, RollbackCriteria()),
                **metrics_on_tests(_evaluate(study, cell, model)),
            }
        )
    return rounds


def pseudo_label_metrics(
    study: Study, pool: Pool, ground_truth: list[Tensor], folder: Path, finished: Round
) -> dict[str, Any]:
    """Return the number of pseudo-labels of a round, and their precision and recall, also by site."""
    predictions = read_labels(str(folder / "pseudo.parquet"))
    min_score = finished.pseudo_labels["min_score"]
    selected = [valid_boxes(detections, min_score, study.selftrain) for detections in predictions]
    ranking = ValidationPredictions(selected, ground_truth).ranking()
    sites = {str(site): (pool.sites == site).astype(float) for site in np.unique(pool.sites.astype(str))}
    return {
        "min_score": min_score,
        "boxes": len(ranking.score),
        **precision_and_recall(ranking),
        "by_site": {site: precision_and_recall(ranking, weight) for site, weight in sites.items()},
    }


def pool_ground_truth(study: Study, store: AudioStore, soundscapes: Path) -> list[Tensor]:
    """Return the boxes of all calls in every chunk of the pool, which no detector is trained on."""
    calls: dict[str, list[list[float]]] = {}
    with (soundscapes / "calls.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            calls.setdefault(f"card/{row['recording']}", []).append([float(row[name]) for name in BOUNDS])
    table, _ = pool_chunks(study, store)
    return boxes_of_chunks(study, table, {name: np.array(boxes) for name, boxes in calls.items()})[0]


def metrics_on_tests(folder: Path) -> dict[str, Any]:
    """Return the metrics of an evaluation on every test set, with precision and recall at its threshold."""
    rankings = rankings_of(folder)
    metrics = mean_metrics([rankings], RESAMPLES)
    return {
        split: {**metrics[split], **precision_and_recall(by_metric["f1"])}
        for split, by_metric in rankings.items()
    }


def precision_and_recall(ranking: RankedPredictions, weight: Floats | None = None) -> dict[str, float | None]:
    """Return precision and recall of a ranking; None for undefined values."""
    return {name: rounded(METRICS[name](ranking, weight)) for name in ("precision", "recall")}


def _evaluate(study: Study, cell: Path, model: Path) -> Path:
    """Return the folder with the evaluation of a round's model: the cell's if it is the same model."""
    identities = [load_model(str(folder))[0].identity for folder in (model, cell / "model")]
    folder = cell if identities[0] == identities[1] else model.parent
    if not (folder / "evaluation" / "results.json").exists():
        evaluate_study(study, str(model), str(folder / "evaluation"))
    return folder


if __name__ == "__main__":
    main()
