"""Compare methods of the shift benchmark at each site.

    python -m experiments.by_site             reads the archived cells, writes experiments/results/by_site.json

The shifted test sets are split by the site of their recordings. Some sites share a recorder and day with a background of
the unlabelled pool, others share nothing with it: methods that train on the pool could have an advantage at the former.
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

from experiments.shift.archive import threshold_of
from experiments.shift.run import DEFAULT_OUT, RESULTS, archive_folder, summary_path
from experiments.shift.summary import SUMMARY_METRICS, comparable, finished_cells, mean_interval, with_bounds
from mast.evaluation.bootstrap import RESAMPLES
from mast.evaluation.compare import ranking_of
from mast.evaluation.metrics import RankedPredictions
from mast.evaluation.results import CHUNKS

SITES = {"B": "site", "C": "site", "D": "site", "Z": "unseen"}
"""Test set that contains the recordings of a site."""

SHARED = ("B", "C", "Z")
"""Sites with a background, loud or soft, of a recorder and day of which the pool contains other minutes."""

PAIRS = (
    ("recommended", "best_baseline"),
    ("fcos_joint_synthetic", "best_baseline"),
    ("joint_synthetic_hybrid_selftrain", "joint_synthetic_hybrid_step_matched_control"),
)
METRICS = {name: SUMMARY_METRICS[name] for name in ("f1", "ap")}


def main() -> None:
    """Compare pairs of methods at every site, and write the differences."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--results", type=Path, default=DEFAULT_OUT, help="result file of experiments.shift.run"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "by_site.json")
    options = parser.parse_args()
    roles = json.loads(summary_path(options.results).read_text("utf-8"))
    cells = finished_cells(archive_folder(options.results))
    differences = {}
    for pair in PAIRS:
        names = [roles.get(role, {}).get("name", role) for role in pair]
        sides = comparable(names[0], names[1], cells)
        if all(sides):
            differences[" - ".join(pair)] = {site: difference(sides[0], sides[1], site) for site in SITES}
    print(json.dumps(differences, indent=1))
    write_result(options.out, {"shared": SHARED, "differences": differences}, ("numpy",))


def difference(first: Sequence[Path], second: Sequence[Path], site: str) -> dict[str, Any]:
    """Return the mean over seeds of one method minus that of another at a site, with intervals."""
    result: dict[str, Any] = {"seeds": [len(first), len(second)]}
    for name, metric in METRICS.items():
        rankings, others = (
            [ranking_at_site(cell / "evaluation", site, at_threshold=name == "f1") for cell in cells]
            for cells in (first, second)
        )
        result[name] = with_bounds(mean_interval(metric, rankings, others, RESAMPLES))
    return {**result, "recordings": len(rankings[0].ground_truth)}


def ranking_at_site(folder: Path, site: str, *, at_threshold: bool) -> RankedPredictions:
    """Return the predictions of a detector at a site: all, or those above its threshold."""
    name = SITES[site]
    chunks = pq.read_table(folder / CHUNKS, filters=pc.field("set") == name)
    recordings = chunks["recording_id"].unique().to_pylist()
    is_here = np.array([Path(recording).parts[-2] == site for recording in recordings])
    number = np.cumsum(is_here) - 1
    ranking = ranking_of(str(folder), name)
    ranking = ranking.with_min_score(threshold_of(folder)) if at_threshold else ranking
    kept = is_here[ranking.unit]
    return RankedPredictions(
        ranking.score[kept], ranking.overlap[kept], number[ranking.unit[kept]], ranking.ground_truth[is_here]
    )


if __name__ == "__main__":
    main()
