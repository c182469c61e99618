"""Self-training round by round: how much of what a teacher taught was right, and what came of it.

    python -m experiments.rounds shift/small/cells/mast_st/0 shift/small/cells/st_union/0

The folders are finished cells of the shift benchmark. Its soundscapes know every call, also those of the pool that is
unlabelled for detectors, so that a teacher's boxes can be held against the truth. Rounds that the guard takes back, or
would if it were on, are tested like those that stand; thresholds are those that detectors were saved with. Writes
experiments/results/rounds.json, in which cells stay that are not named.
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

from experiments.run import RESULTS, earlier
from experiments.shift.methods import METHODS
from experiments.shift.summary import figures_of, held_of
from mast.config import Guard, Study, load_study
from mast.datasets.examples import boxes_of_chunks
from mast.datasets.split_table import existing
from mast.detection.evaluate import evaluate_study
from mast.evaluation.intervals import RESAMPLES
from mast.evaluation.matching import Floats
from mast.evaluation.metrics import METRICS, Ranking
from mast.models.checkpoint import load_model
from mast.recordings.store import AudioStore
from mast.study.products import STORE
from mast.training.hearing import Heard
from mast.training.pseudo_labels import Pool, pool_chunks, pool_of, read_labels, valid_boxes
from mast.training.rounds import Round, read_round, why_rejected
from mast.training.selftrain import CURRICULA

BOUNDS = ("start_s", "low_hz", "end_s", "high_hz")


def main() -> None:
    """Hold every round's lesson against the truth, test its model, and write both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cells", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "rounds.json")
    options = parser.parse_args()
    size = options.cells[0].parents[2].name
    told = earlier(options.out, size=size).get("cells", {})
    for cell in options.cells:
        told["/".join(cell.parts[-2:])] = rounds_of(cell)
        print(cell, flush=True)
    write_result(options.out, {"size": size, "cells": told}, ("torch", "numpy"))
    print(json.dumps(told, indent=1))


def rounds_of(cell: Path) -> list[dict[str, Any]]:
    """The first teacher as round 0, and every round after it."""
    method, seed = METHODS[cell.parts[-2]], cell.parts[-1]
    soundscapes = cell.parents[2] / "soundscapes"
    study = load_study(soundscapes / "study.yaml", method.settings)
    first = {
        "round": 0,
        "lesson": None,
        "taken_back": None,
        **tested(cell.parents[1] / str(method.teacher) / seed),
    }
    told = [first]
    stages = CURRICULA[study.selftrain.curriculum]
    is_taught = not {"pseudo", "union"}.isdisjoint(stages)
    store = AudioStore(existing(study, STORE))
    pool, truths = pool_of(study, store), calls_of_pool(study, store, soundscapes)
    for path in sorted(cell.glob("round_*/round.json")):
        done, model = read_round(path), path.parent / stages[-1] / "model"
        told.append(
            {
                "round": done.number,
                "lesson": lesson_of(study, pool, truths, path.parent, done) if is_taught else None,
                "taken_back": why_rejected(done.before, done.after, Guard()),
                **tested(_evaluated(study, cell, model)),
            }
        )
    return told


def lesson_of(study: Study, pool: Pool, truths: list[Tensor], folder: Path, done: Round) -> dict[str, Any]:
    """How many boxes a student learned from, how many of them are calls, and how many calls that is, also by site."""
    found = read_labels(str(folder / "pseudo.parquet"))
    chosen = [valid_boxes(item, done.pseudo["min_score"], study.selftrain) for item in found]
    ranking = Heard(chosen, truths).ranking()
    sites = {str(site): (pool.sites == site).astype(float) for site in np.unique(pool.sites.astype(str))}
    return {
        "min_score": done.pseudo["min_score"],
        "boxes": len(ranking.score),
        **shares(ranking),
        "by_site": {site: shares(ranking, weight) for site, weight in sites.items()},
    }


def calls_of_pool(study: Study, store: AudioStore, soundscapes: Path) -> list[Tensor]:
    """The calls in every chunk that a teacher listens to, which no detector is told of."""
    calls: dict[str, list[list[float]]] = {}
    with (soundscapes / "calls.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            calls.setdefault(f"card/{row['recording']}", []).append([float(row[name]) for name in BOUNDS])
    table, _ = pool_chunks(study, store)
    return boxes_of_chunks(study, table, {name: np.array(own) for name, own in calls.items()})[0]


def tested(folder: Path) -> dict[str, Any]:
    """Figures of an evaluation on every test set, with precision and recall at its threshold."""
    held = held_of(folder)
    figures = figures_of([held], RESAMPLES)
    return {split: {**figures[split], **shares(own["f1"])} for split, own in held.items()}


def shares(ranking: Ranking, weight: Floats | None = None) -> dict[str, float | None]:
    """Precision and recall of boxes; None where there are none."""
    return {name: rounded(METRICS[name](ranking, weight)) for name in ("precision", "recall")}


def _evaluated(study: Study, cell: Path, model: Path) -> Path:
    """The folder with the evaluation of a round's model: the cell's own if that is what came of it."""
    identities = [load_model(str(place))[0].identity for place in (model, cell / "model")]
    folder = cell if identities[0] == identities[1] else model.parent
    if not (folder / "evaluation" / "results.json").exists():
        evaluate_study(study, str(model), str(folder / "evaluation"))
    return folder


if __name__ == "__main__":
    main()
