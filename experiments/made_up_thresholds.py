"""What made-up calls add to a threshold that comes from a few validation boxes.

    python -m experiments.made_up_thresholds shift/small/soundscapes/study.yaml shift/small/cells/at_once_detail/*

writes experiments/results/made_up_thresholds.json. A cell of `experiments.run` has a detector and its evaluation.
Validation chunks are dealt until they hold some boxes, made-up calls over quiet ones fill up to a number, and the
threshold of both is tried on every test set, beside the best that any would have had there. Test sets choose nothing.
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

from experiments.baselines.finding import BaselineFinder, load_baseline
from experiments.run import RESULTS
from experiments.thresholds import only
from mast.config import Study, load_study
from mast.datasets.examples import detection_examples
from mast.datasets.split_table import existing
from mast.detection.chunks import BoxFinder, ChunkFinder
from mast.evaluation.compare import ranking_of
from mast.evaluation.metrics import Ranking, best_threshold, f1, steady_threshold
from mast.models.checkpoint import load_model
from mast.models.loading import load_detector
from mast.recordings.store import AudioStore
from mast.study.products import STORE
from mast.training.hearing import chunks_for, hear, hear_made_up

SIZES = (0, 5, 10, 20)
"""Boxes that validation is dealt; beside them, all of it is tried."""

TOTALS = (0, 50, 100, 200, 400)
"""Boxes that made-up calls fill up to."""


def main() -> None:
    """Hear, deal, choose, measure, and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path)
    parser.add_argument("cells", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--out", type=Path, default=RESULTS / "made_up_thresholds.json")
    options = parser.parse_args()
    study = load_study(options.study)
    cells = {"/".join(cell.parts[-2:]): cell for cell in options.cells}
    told = {}
    for name, cell in cells.items():
        told[name] = thresholds_of(study, cell, options.draws)
        print(f"{name}: done", flush=True)
    print(json.dumps(told, indent=1))
    write_result(options.out, {"cells": told, "draws": options.draws}, ("numpy", "torch"))


def thresholds_of(study: Study, cell: Path, draws: int) -> dict[str, Any]:
    """F1 of a detector on each test set, by how many boxes its threshold comes from."""
    real, made_up = heard_on_validation(study, str(cell / "model"))
    folder = cell / "evaluation"
    sets = json.loads((folder / "results.json").read_text("utf-8"))["sets"]
    tests = {item["name"]: ranking_of(str(folder), item["name"]) for item in sets}
    rng = np.random.default_rng(0)
    boxes = int(real.truths.sum())
    sizes = [size for size in SIZES if size < boxes]
    dealt = {size: [deal(real, size, rng) for _ in range(draws if size else 1)] for size in sizes}
    dealt[boxes] = [real]
    return {
        "boxes": boxes,
        "best": {name: rounded(f1(item.above(best_threshold(item)))) for name, item in tests.items()},
        "f1": {
            str(size): {str(total): reached(drawn, made_up, total, tests) for total in TOTALS if size + total}
            for size, drawn in dealt.items()
        },
    }


def heard_on_validation(study: Study, model: str) -> tuple[Ranking, Ranking]:
    """What a detector makes of a study's validation sound, and of made-up calls over its quiet chunks."""
    store = AudioStore(existing(study, STORE))
    held = detection_examples(study, store, "val").chunks
    finder = finder_of(study, store, model)
    real = hear(finder, store, held)
    quiet = held.places(0, np.flatnonzero([not len(own) for own in real.truths]))
    made_up = hear_made_up(finder, study.spectrogram, store, quiet, max(TOTALS))
    return real.ranking(), made_up.ranking()


def finder_of(study: Study, store: AudioStore, model: str) -> ChunkFinder:
    """A detector of MAST or a baseline."""
    if "baseline" in load_model(model)[0].architecture:
        baseline = load_baseline(model, study.detection, store)
        return BaselineFinder(baseline.network, baseline.frontend)
    return BoxFinder(load_detector(model, store), study.detection)


def deal(real: Ranking, boxes: int, rng: np.random.Generator) -> Ranking:
    """Some of the chunks, in which there are about so many boxes."""
    order = rng.permutation(len(real.truths))
    count = int(np.searchsorted(real.truths[order].cumsum(), boxes)) + 1
    return only(real, order[: count if boxes else 0])


def together(first: Ranking, second: Ranking) -> Ranking:
    """Chunks of both."""
    score = np.concatenate([first.score, second.score])
    order = np.argsort(-score, kind="stable")
    return Ranking(
        score[order],
        np.concatenate([first.overlap, second.overlap])[order],
        np.concatenate([first.unit, second.unit + len(first.truths)])[order],
        np.concatenate([first.truths, second.truths]),
    )


def reached(
    drawn: list[Ranking], made_up: Ranking, total: int, tests: Mapping[str, Ranking]
) -> dict[str, dict[str, float | None]]:
    """F1 on each test set: its mean over all that validation was dealt, and what a tenth of them do not exceed."""
    scores = []
    for real in drawn:
        added = only(made_up, np.arange(chunks_for(total - int(real.truths.sum()))))
        scores.append(steady_threshold(together(real, added)))
    found = {
        name: [f1(item.above(score)) if math.isfinite(score) else 0.0 for score in scores]
        for name, item in tests.items()
    }
    return {
        name: {"mean": rounded(np.mean(own)), "tenth": rounded(np.quantile(own, 0.1))}
        for name, own in found.items()
    }


if __name__ == "__main__":
    main()
