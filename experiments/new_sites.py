"""Trained detectors at sites that are made up anew, and that played no part in any choice.

    python -m experiments.new_sites DATA shift/small/cells/fcos_band_median/0 shift/small/cells/at_once_detail/0

The folders are cells of the shift benchmark; those of one method are its seeds, and the first method is what the others
are compared with. Sites, days and minutes follow from another seed, and no detector has heard any of them, not even
without labels. Which animal and which background stands on which shelf stays as it was: on the sets that are called
temporal, site and unseen no detector has heard an animal or a background before; on the in-domain set they are those of
the labels, at another site. Thresholds are those that detectors were saved with. Writes
experiments/results/new_sites.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.results import write_result

from experiments.baselines.finding import evaluate_baseline
from experiments.run import RESULTS, Table
from experiments.shift.methods import METHODS
from experiments.shift.summary import Held, differences_of, figures_of, held_of
from experiments.soundscapes.world import SIZES
from mast.config import load_study
from mast.detection.evaluate import evaluate_study
from mast.evaluation.intervals import RESAMPLES
from mast.models.checkpoint import load_model


def main() -> None:
    """Evaluate every cell at the new sites, and write figures and differences."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of the sources")
    parser.add_argument("cells", nargs="+", type=Path)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument(
        "--world", type=int, default=1, help="seed of the new sites; the benchmark's own is 0"
    )
    parser.add_argument("--work", type=Path, default=Path("new_sites"))
    parser.add_argument("--out", type=Path, default=RESULTS / "new_sites.json")
    options = parser.parse_args()
    folder = options.work / f"{options.size}_{options.world}"
    table = Table(options.data, folder, options.size, (), world=options.world)
    held: dict[str, list[Held]] = {}
    for cell in options.cells:
        method, seed = cell.parts[-2:]
        held.setdefault(method, []).append(held_of(heard(table, method, int(seed), cell / "model")))
        print(f"{method} {seed}", flush=True)
    first, *others = held
    told = {
        "world": options.world,
        "cells": ["/".join(cell.parts[-2:]) for cell in options.cells],
        "detectors": {name: figures_of(own, RESAMPLES) for name, own in held.items()},
        "differences": {
            f"{name} - {first}": differences_of(held[name], held[first], RESAMPLES) for name in others
        },
    }
    write_result(options.out, {"size": options.size, **told}, ("torch", "numpy"))
    print(json.dumps(told, indent=1))


def heard(table: Table, method: str, seed: int, model: Path) -> Path:
    """A detector's evaluation on all sets of another world, made if it is not there. → the folder it is in"""
    folder = table.cells / method / str(seed) / load_model(str(model))[0].identity
    if not (folder / "evaluation" / "results.json").exists():
        study = load_study(table.study_file, METHODS[method].settings)
        evaluate = evaluate_baseline if METHODS[method].baseline else evaluate_study
        evaluate(study, str(model), str(folder / "evaluation"))
    return folder


if __name__ == "__main__":
    main()
