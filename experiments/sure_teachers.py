"""How often a teacher of self-training is right: by its validation boxes, by made-up calls, and in truth.

    python -m experiments.sure_teachers shift/small/cells/at_once_detail_st/2

writes experiments/results/sure_teachers.json. The folders are finished cells of the shift benchmark, whose soundscapes
know every call of the pool that is unlabelled for detectors. A teacher teaches boxes of a score from which enough of them
are right; it is told here what it would teach by each way to know that score.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.results import rounded, write_result

from experiments.rounds import calls_of_pool, shares
from experiments.run import RESULTS
from experiments.shift.methods import METHODS
from mast.config import load_study
from mast.datasets.examples import detection_examples
from mast.datasets.split_table import existing
from mast.detection.chunks import BoxFinder
from mast.evaluation.metrics import Ranking
from mast.models.loading import load_detector
from mast.recordings.store import AudioStore
from mast.study.products import STORE
from mast.training.hearing import Heard, hear_validation
from mast.training.pseudo_labels import UnsureTeacherError, read_labels, score_to_learn_from, valid_boxes

SCORES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)


def main() -> None:
    """Ask every teacher, hold what it drew in the pool against the truth, and write both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cells", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "sure_teachers.json")
    options = parser.parse_args()
    told = {"/".join(cell.parts[-2:]): surety_of(cell) for cell in options.cells}
    print(json.dumps(told, indent=1))
    write_result(options.out, {"size": options.cells[0].parents[2].name, "cells": told}, ("torch", "numpy"))


def surety_of(cell: Path) -> dict[str, Any]:
    """Of the first round's teacher: how much is right from each score on, and the score that each way chooses."""
    method, soundscapes = METHODS[cell.parts[-2]], cell.parents[2] / "soundscapes"
    study = load_study(soundscapes / "study.yaml", method.settings)
    store = AudioStore(existing(study, STORE))
    teacher = cell.parents[1] / str(method.teacher) / cell.parts[-1] / "model"
    finder = BoxFinder(load_detector(str(teacher), store), study.detection)
    held = detection_examples(study, store, "val").chunks
    real, made_up = hear_validation(finder, study, store, held, knows_made_up=True)
    drawn = [
        valid_boxes(found, 0.0, study.selftrain)
        for found in read_labels(str(cell / "round_1" / "pseudo.parquet"))
    ]
    pool = Heard(drawn, calls_of_pool(study, store, soundscapes))
    ways = {"validation": real, "made_up": made_up, "both": real + made_up, "pool": pool}
    rankings = {name: heard.ranking() for name, heard in ways.items()}

    def chosen(ranking: Ranking) -> dict[str, Any] | None:
        try:
            score = score_to_learn_from(study.selftrain, ranking)
        except UnsureTeacherError:
            return None
        return {"score": rounded(score), **taught(rankings["pool"], score)}

    return {
        "min_precision": study.selftrain.min_precision,
        "boxes": {name: heard.boxes for name, heard in ways.items()},
        "right": {
            str(score): {name: shares(own.above(score))["precision"] for name, own in rankings.items()}
            for score in SCORES
        },
        "chosen": {name: chosen(rankings[name]) for name in ("validation", "both")},
    }


def taught(pool: Ranking, score: float) -> dict[str, Any]:
    """What a teacher teaches from a score on: how many boxes, how many of them are calls, and of how many calls."""
    own = pool.above(score)
    return {"boxes": len(own.score), **shares(own)}


if __name__ == "__main__":
    main()
