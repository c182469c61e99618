"""What methods are worth at each site of the shift benchmark, one by one.

    python -m experiments.by_site                   reads the kept cells, writes experiments/results/by_site.json

All sets under shift are taken apart by the site of their recordings. Sites whose background comes of the same recorder on
the same day as a background of the unlabelled pool are told apart from those that share nothing with it: what hears the
pool could know the one and not the other.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from benchmarks.results import write_result

from experiments.run import DEFAULT_OUT, RESULTS, kept_of, summary_of
from experiments.shift.kept import threshold_of
from experiments.shift.summary import FIGURES, comparable, finished_cells, mean_interval, with_bounds
from mast.evaluation.compare import ranking_of
from mast.evaluation.intervals import RESAMPLES
from mast.evaluation.metrics import Ranking
from mast.evaluation.results import CHUNKS

SITES = {"B": "site", "C": "site", "D": "site", "Z": "unseen"}
"""The test set that the recordings of a site are in."""

SHARED = ("B", "C", "Z")
"""Sites under which, loud or soft, the quiet of one recorder on one day lies, of which the pool has other minutes."""

PAIRS = (
    ("recommended", "best_baseline"),
    ("fcos_at_once", "best_baseline"),
    ("at_once_detail_st", "at_once_detail_control"),
)
METRICS = {name: FIGURES[name] for name in ("f1", "ap")}


def main() -> None:
    """Compare pairs of methods at every site, and write what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=DEFAULT_OUT, help="what experiments.run has written")
    parser.add_argument("--out", type=Path, default=RESULTS / "by_site.json")
    options = parser.parse_args()
    roles = json.loads(summary_of(options.results).read_text("utf-8"))
    cells = finished_cells(kept_of(options.results))
    told = {}
    for pair in PAIRS:
        names = [roles.get(role, {}).get("name", role) for role in pair]
        sides = comparable(names[0], names[1], cells)
        if all(sides):
            told[" - ".join(pair)] = {site: difference(sides[0], sides[1], site) for site in SITES}
    print(json.dumps(told, indent=1))
    write_result(options.out, {"shared": SHARED, "differences": told}, ("numpy",))


def difference(first: Sequence[Path], second: Sequence[Path], site: str) -> dict[str, Any]:
    """What the mean over the seeds of one method is more than that of another at a site, with intervals."""
    told: dict[str, Any] = {"seeds": [len(first), len(second)]}
    for figure, metric in METRICS.items():
        own, others = (
            [at_site(cell / "evaluation", site, cuts=figure == "f1") for cell in cells]
            for cells in (first, second)
        )
        found = mean_interval(metric, own, others, RESAMPLES)
        told[figure] = with_bounds(found)
    return {**told, "recordings": len(own[0].truths)}


def at_site(folder: Path, site: str, *, cuts: bool) -> Ranking:
    """What a detector found at a site: all of it, or what its threshold cuts."""
    name = SITES[site]
    chunks = pq.read_table(folder / CHUNKS, filters=pc.field("set") == name)
    recordings = chunks["recording_id"].unique().to_pylist()
    here = np.array([Path(recording).parts[-2] == site for recording in recordings])
    number = np.cumsum(here) - 1
    ranking = ranking_of(str(folder), name)
    ranking = ranking.above(threshold_of(folder)) if cuts else ranking
    kept = here[ranking.unit]
    return Ranking(
        ranking.score[kept], ranking.overlap[kept], number[ranking.unit[kept]], ranking.truths[here]
    )


if __name__ == "__main__":
    main()
