"""Measure the loss of F1 when the threshold is chosen on few validation boxes, by selection rule.

    python -m experiments.threshold_selection shift/small/cells/*/0/evaluation

Writes experiments/results/threshold_selection.json. The recordings of a test set are split at random: recordings with a
given number of boxes are validation, a rule chooses the threshold there, and F1 is measured on the rest and compared with
the maximum F1 there. The folders are evaluations of trained detectors (`mast evaluate`) with several test sets each; sets
with too few boxes for a size are excluded.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.results import write_result
from numpy.random import Generator
from numpy.typing import NDArray

from mast.evaluation.compare import ranking_of
from mast.evaluation.metrics import RankedPredictions, f1, max_f1_threshold, robust_f1_threshold

RESULTS = Path(__file__).parent / "results"
SIZES = (5, 10, 20, 40)
RESAMPLES = 25
MIN_REST = 20
"""Minimum number of boxes in the rest for a meaningful F1."""

Rule = Callable[[RankedPredictions, Generator], float]


def main() -> None:
    """Split, choose thresholds, measure F1, and write the means."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("evaluations", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--out", type=Path, default=RESULTS / "threshold_selection.json")
    options = parser.parse_args()
    rankings = [ranking for folder in options.evaluations for ranking in rankings_in(folder)]
    sizes = {size: loss_by_rule(rankings, size, options.draws) for size in SIZES}
    results = {
        "sizes": {str(size): means for size, means in sizes.items() if means},
        "evaluations": len(options.evaluations),
        "draws": options.draws,
    }
    print(json.dumps(results, indent=1))
    write_result(options.out, results, ("numpy",))


def rankings_in(folder: Path) -> Iterator[RankedPredictions]:
    """Yield the rankings of the test sets of an evaluation."""
    sets = json.loads((folder / "results.json").read_text("utf-8"))["sets"]
    return (ranking_of(str(folder), test_set["name"]) for test_set in sets)


def loss_by_rule(rankings: Sequence[RankedPredictions], size: int, draws: int) -> dict[str, Any]:
    """Return the mean F1 by rule, and the loss against the best threshold: its mean and its 90 % quantile over draws."""
    rng = np.random.default_rng(size)
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in RULES}
    tested = 0
    for ranking in rankings:
        if ranking.ground_truth.sum() < size + MIN_REST:
            continue
        tested += 1
        for _ in range(draws):
            order = rng.permutation(len(ranking.ground_truth))
            cut = int(np.searchsorted(ranking.ground_truth[order].cumsum(), size)) + 1
            validation, rest = select_units(ranking, order[:cut]), select_units(ranking, order[cut:])
            if rest.ground_truth.sum() < MIN_REST / 2:
                continue
            best = f1(rest.with_min_score(max_f1_threshold(rest)))
            for name, rule in RULES.items():
                reached = f1(rest.with_min_score(rule(validation, rng)))
                rows[name].append((reached, best - reached))
    if not tested:
        return {}
    return {"sets": tested, "rules": {name: _means(np.array(values)) for name, values in rows.items()}}


def select_units(ranking: RankedPredictions, units: NDArray[np.int64]) -> RankedPredictions:
    """Return a ranking of the given units only; a unit given twice counts twice."""
    weight = np.bincount(units, minlength=len(ranking.ground_truth))
    rows = np.repeat(np.arange(len(ranking.unit)), weight[ranking.unit])
    return replace(
        ranking,
        score=ranking.score[rows],
        overlap=ranking.overlap[rows],
        unit=ranking.unit[rows],
        ground_truth=ranking.ground_truth * weight,
    )


def _means(rows: NDArray[np.float64]) -> dict[str, float]:
    reached, loss = rows.T
    values = {"f1": reached.mean(), "f1_loss": loss.mean(), "f1_loss_p90": np.quantile(loss, 0.9)}
    return {name: round(float(value), 4) for name, value in values.items()}


def bagged(ranking: RankedPredictions, rng: Generator) -> float:
    """Return the mean of the best thresholds of bootstrap samples of recordings."""
    units = np.flatnonzero(
        ranking.ground_truth + np.bincount(ranking.unit, minlength=len(ranking.ground_truth))
    )
    samples = [select_units(ranking, rng.choice(units, len(units))) for _ in range(RESAMPLES)]
    thresholds = [score for score in map(max_f1_threshold, samples) if np.isfinite(score)]
    return float(np.mean(thresholds)) if thresholds else max_f1_threshold(ranking)


RULES: dict[str, Rule] = {
    "best": lambda ranking, rng: max_f1_threshold(ranking),
    "bagged": bagged,
    "robust": lambda ranking, rng: robust_f1_threshold(ranking),
}

if __name__ == "__main__":
    main()
