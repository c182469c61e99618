"""How much F1 is lost because a threshold comes from a few validation boxes, by the rule that chooses it.

    python -m experiments.thresholds shift/small/cells/*/0/evaluation       writes experiments/results/thresholds.json

Recordings of a test set are dealt: as many as hold some boxes are validation, a rule chooses the threshold there, and F1
is measured on the rest, beside the best that any threshold would have had there. The folders are evaluations of trained
detectors (`mast evaluate`), each of which has several test sets; sets with too few boxes for a size are left out of it.
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
from mast.evaluation.metrics import Ranking, best_threshold, f1, steady_threshold

RESULTS = Path(__file__).parent / "results"
SIZES = (5, 10, 20, 40)
RESAMPLES = 25
MIN_REST = 20
"""Boxes that the rest must have for its F1 to mean something."""

Rule = Callable[[Ranking, Generator], float]


def main() -> None:
    """Deal, choose, measure, and write the means."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("evaluations", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--out", type=Path, default=RESULTS / "thresholds.json")
    options = parser.parse_args()
    rankings = [ranking for folder in options.evaluations for ranking in rankings_in(folder)]
    sizes = {size: lost_by_rule(rankings, size, options.draws) for size in SIZES}
    found = {
        "sizes": {str(size): means for size, means in sizes.items() if means},
        "evaluations": len(options.evaluations),
        "draws": options.draws,
    }
    print(json.dumps(found, indent=1))
    write_result(options.out, found, ("numpy",))


def rankings_in(folder: Path) -> Iterator[Ranking]:
    """The test sets of an evaluation."""
    sets = json.loads((folder / "results.json").read_text("utf-8"))["sets"]
    return (ranking_of(str(folder), item["name"]) for item in sets)


def lost_by_rule(rankings: Sequence[Ranking], size: int, draws: int) -> dict[str, Any]:
    """Mean F1 by rule, and what is lost against the best threshold: its mean, and what a tenth of all draws exceed."""
    rng = np.random.default_rng(size)
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in RULES}
    tested = 0
    for ranking in rankings:
        if ranking.truths.sum() < size + MIN_REST:
            continue
        tested += 1
        for _ in range(draws):
            order = rng.permutation(len(ranking.truths))
            cut = int(np.searchsorted(ranking.truths[order].cumsum(), size)) + 1
            validation, rest = only(ranking, order[:cut]), only(ranking, order[cut:])
            if rest.truths.sum() < MIN_REST / 2:
                continue
            best = f1(rest.above(best_threshold(rest)))
            for name, rule in RULES.items():
                reached = f1(rest.above(rule(validation, rng)))
                rows[name].append((reached, best - reached))
    if not tested:
        return {}
    return {"sets": tested, "rules": {name: _means(np.array(own)) for name, own in rows.items()}}


def only(ranking: Ranking, units: NDArray[np.int64]) -> Ranking:
    """A ranking of some units alone."""
    weight = np.bincount(units, minlength=len(ranking.truths))
    rows = np.repeat(np.arange(len(ranking.unit)), weight[ranking.unit])
    return replace(
        ranking,
        score=ranking.score[rows],
        overlap=ranking.overlap[rows],
        unit=ranking.unit[rows],
        truths=ranking.truths * weight,
    )


def _means(rows: NDArray[np.float64]) -> dict[str, float]:
    reached, lost = rows.T
    figures = {"f1": reached.mean(), "lost": lost.mean(), "lost_by_a_tenth": np.quantile(lost, 0.9)}
    return {name: round(float(value), 4) for name, value in figures.items()}


def bagged(ranking: Ranking, rng: Generator) -> float:
    """The mean of the best thresholds of resampled recordings."""
    units = np.flatnonzero(ranking.truths + np.bincount(ranking.unit, minlength=len(ranking.truths)))
    drawn = [only(ranking, rng.choice(units, len(units))) for _ in range(RESAMPLES)]
    found = [score for score in map(best_threshold, drawn) if np.isfinite(score)]
    return float(np.mean(found)) if found else best_threshold(ranking)


RULES: dict[str, Rule] = {
    "best": lambda ranking, rng: best_threshold(ranking),
    "bagged": bagged,
    "steady": lambda ranking, rng: steady_threshold(ranking),
}

if __name__ == "__main__":
    main()
