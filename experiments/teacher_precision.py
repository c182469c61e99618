"""Compare estimates of a self-training teacher's precision: on validation boxes, on synthetic calls, and in the pool.

    python -m experiments.teacher_precision shift/small/cells/joint_synthetic_hybrid_selftrain/2

Writes experiments/results/teacher_precision.json. The folders are finished cells of the shift benchmark, in whose
soundscapes every call of the unlabelled pool is known. The student is trained on detections above the score with a
sufficient precision; this experiment reports the pseudo-labels that each estimate of that score would give.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.results import rounded, write_result

from experiments.selftrain_rounds import pool_ground_truth, precision_and_recall
from experiments.shift.methods import METHODS
from experiments.shift.run import RESULTS
from mast.config import load_study
from mast.datasets.split_table import require_artifact
from mast.datasets.study_datasets import detection_dataset
from mast.detection.chunk_detector import ModelChunkDetector
from mast.evaluation.metrics import RankedPredictions
from mast.models.loading import load_detector
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE
from mast.training.pseudo_labels import (
    UncertainTeacherError,
    choose_score_threshold,
    read_labels,
    valid_boxes,
)
from mast.training.validation import ValidationPredictions, predict_validation

SCORES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)


def main() -> None:
    """Measure the precision of every teacher by each estimate, and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cells", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "teacher_precision.json")
    options = parser.parse_args()
    cells = {"/".join(cell.parts[-2:]): precision_of_teacher(cell) for cell in options.cells}
    print(json.dumps(cells, indent=1))
    write_result(options.out, {"size": options.cells[0].parents[2].name, "cells": cells}, ("torch", "numpy"))


def precision_of_teacher(cell: Path) -> dict[str, Any]:
    """Return the precision of the first round's teacher by minimum score, and the score that each estimate chooses."""
    method, soundscapes = METHODS[cell.parts[-2]], cell.parents[2] / "soundscapes"
    study = load_study(soundscapes / "study.yaml", method.settings)
    store = AudioStore(require_artifact(study, STORE))
    teacher = cell.parents[1] / str(method.teacher) / cell.parts[-1] / "model"
    detector = ModelChunkDetector(load_detector(str(teacher), store), study.detection)
    validation = detection_dataset(study, store, "val").chunks
    real, synthetic = predict_validation(detector, study, store, validation, trained_on_synthetic=True)
    selected = [
        valid_boxes(detections, 0.0, study.selftrain)
        for detections in read_labels(str(cell / "round_1" / "pseudo.parquet"))
    ]
    pool = ValidationPredictions(selected, pool_ground_truth(study, store, soundscapes))
    sources = {"validation": real, "synthetic": synthetic, "both": real + synthetic, "pool": pool}
    rankings = {name: predictions.ranking() for name, predictions in sources.items()}

    def chosen(ranking: RankedPredictions) -> dict[str, Any] | None:
        try:
            score = choose_score_threshold(study.selftrain, ranking)
        except UncertainTeacherError:
            return None
        return {"score": rounded(score), **pseudo_labels(rankings["pool"], score)}

    return {
        "min_pseudo_label_precision": study.selftrain.min_pseudo_label_precision,
        "boxes": {name: predictions.boxes for name, predictions in sources.items()},
        "precision": {
            str(score): {
                name: precision_and_recall(ranking.with_min_score(score))["precision"]
                for name, ranking in rankings.items()
            }
            for score in SCORES
        },
        "chosen": {name: chosen(rankings[name]) for name in ("validation", "both")},
    }


def pseudo_labels(pool: RankedPredictions, score: float) -> dict[str, Any]:
    """Return the number of pseudo-labels with at least a score, and their precision and recall."""
    selected = pool.with_min_score(score)
    return {"boxes": len(selected.score), **precision_and_recall(selected)}


if __name__ == "__main__":
    main()
