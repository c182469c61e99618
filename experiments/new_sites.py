"""Evaluate trained detectors at new simulated sites that were not used for any choice.

    python -m experiments.new_sites DATA shift/small/cells/fcos_band_median/0 shift/small/cells/joint_synthetic_hybrid/0

The folders are cells of the shift benchmark; cells of one method are its seeds, and the other methods are compared with
the first method. Sites, days and minutes are sampled with another seed, and no detector was trained on them, not even
without annotations. The partitions of animals and backgrounds stay the same: the test sets temporal, site and unseen
contain no animal and no background from any training data; the in-domain set contains those of the annotated training
data, at another site. Detectors use their saved thresholds. Writes experiments/results/new_sites.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.results import write_result

from experiments.baselines.evaluate import evaluate_baseline
from experiments.shift.methods import METHODS
from experiments.shift.run import RESULTS, Benchmark
from experiments.shift.summary import CellRankings, mean_differences, mean_metrics, rankings_of
from experiments.soundscapes.sites import SIZES
from mast.config import load_study
from mast.evaluation.bootstrap import RESAMPLES
from mast.evaluation.evaluate import evaluate_study
from mast.models.checkpoint import load_model


def main() -> None:
    """Evaluate every cell at the new sites, and write metrics and differences."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of the source recordings")
    parser.add_argument("cells", nargs="+", type=Path)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument(
        "--world", type=int, default=1, help="seed of the new sites; that of the benchmark is 0"
    )
    parser.add_argument("--work", type=Path, default=Path("new_sites"))
    parser.add_argument("--out", type=Path, default=RESULTS / "new_sites.json")
    options = parser.parse_args()
    folder = options.work / f"{options.size}_{options.world}"
    benchmark = Benchmark(options.data, folder, options.size, (), world=options.world)
    rankings: dict[str, list[CellRankings]] = {}
    for cell in options.cells:
        method, seed = cell.parts[-2:]
        evaluated = evaluate_cell(benchmark, method, int(seed), cell / "model")
        rankings.setdefault(method, []).append(rankings_of(evaluated))
        print(f"{method} {seed}", flush=True)
    first, *others = rankings
    results = {
        "world": options.world,
        "cells": ["/".join(cell.parts[-2:]) for cell in options.cells],
        "detectors": {name: mean_metrics(cells, RESAMPLES) for name, cells in rankings.items()},
        "differences": {
            f"{name} - {first}": mean_differences(rankings[name], rankings[first], RESAMPLES)
            for name in others
        },
    }
    write_result(options.out, {"size": options.size, **results}, ("torch", "numpy"))
    print(json.dumps(results, indent=1))


def evaluate_cell(benchmark: Benchmark, method: str, seed: int, model: Path) -> Path:
    """Return the folder of a detector's evaluation on all sets of another world; evaluate it if necessary."""
    folder = benchmark.cells / method / str(seed) / load_model(str(model))[0].identity
    if not (folder / "evaluation" / "results.json").exists():
        study = load_study(benchmark.study_file, METHODS[method].settings)
        evaluate = evaluate_baseline if METHODS[method].baseline else evaluate_study
        evaluate(study, str(model), str(folder / "evaluation"))
    return folder


if __name__ == "__main__":
    main()
