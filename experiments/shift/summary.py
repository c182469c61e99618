"""Summarise the cells of the benchmark: means over seeds with intervals, paired differences, and targets.

The bootstrap resamples recordings, with the same samples for all seeds and both sides of a difference. An interval so
shows how much a metric depends on the test recordings; `by_seed` shows how much it depends on the seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from benchmarks.results import rounded

from experiments.shift.archive import threshold_of
from experiments.shift.methods import METHODS, RECOMMENDED
from experiments.shift.tables import BASELINE_ROWS
from mast.evaluation.bootstrap import RESAMPLES, Interval, confidence_interval
from mast.evaluation.compare import ranking_of
from mast.evaluation.metrics import METRICS, RankedPredictions, max_f1_threshold
from mast.evaluation.set_metrics import SEED
from mast.types import Floats

SPLITS = {"test": "in_domain", "temporal": "temporal", "site": "site", "unseen": "unseen"}
SUMMARY_METRICS = {"f1": "f1", "max_f1": "f1", "ap": "average_precision_coco"}
"""Metrics of the summary, and their functions; `max_f1` is the maximum F1 over all thresholds."""

HEADLINE = (
    "best_baseline",
    "scratch",
    "mast",
    "mast_selftrain",
    "step_matched_control",
    "fcos_joint_synthetic",
    "recommended",
    "joint_synthetic_hybrid_selftrain",
)
PAIRS = (
    ("recommended", "best_baseline"),
    ("mast_selftrain", "step_matched_control"),
    ("mast", "scratch"),
    ("mast_equal_rates", "scratch"),
    ("synthetic_then_labels_selftrain", "synthetic_then_labels_step_matched_control"),
    ("joint_synthetic_hybrid_selftrain", "joint_synthetic_hybrid_step_matched_control"),
    ("joint_synthetic_hybrid_selftrain", "joint_synthetic_hybrid"),
    ("mean_teacher", "scratch_stage_1"),
    ("synthetic_then_labels", "scratch"),
    ("scratch_hybrid", "scratch"),
    ("joint_synthetic_hybrid", "scratch_hybrid"),
    ("joint_synthetic_hybrid", "synthetic_then_labels"),
    ("joint_synthetic_hybrid", "joint_synthetic"),
    ("joint_synthetic_hybrid", "fcos_joint_synthetic"),
    ("recommended", "faster_rcnn"),
    ("fcos_band_median", "fcos"),
    ("fcos_joint_synthetic", "fcos_band_median"),
    ("joint_synthetic_hybrid_pretrained", "joint_synthetic_hybrid"),
    ("mast", "fcos_band_median"),
    ("mast_selftrain", "mast"),
    ("mast_selftrain", "mast_joint_selftrain"),
    ("scratch_selftrain", "scratch_step_matched_control"),
    ("scratch_selftrain", "scratch_stage_1"),
    ("scratch_selftrain", "scratch_stage_2"),
    ("scratch", "no_contrastive"),
    ("scratch", "no_adapter"),
    ("conv_adapter", "scratch"),
    ("anisotropic_adapter", "scratch"),
    ("conv_adapter", "no_adapter"),
    ("scratch_hybrid", "no_adapter"),
    ("labels_25_time_balanced", "labels_25_sequential"),
    ("labels_25_random", "labels_25_sequential"),
    ("labels_50_time_balanced", "labels_50_sequential"),
    ("labels_50_time_balanced", "labels_25_time_balanced"),
    ("labels_50_sequential", "labels_25_sequential"),
)
CHOSEN = {
    "best_baseline": "highest average precision at other sites",
    "recommended": "results on these sets, confirmed at new simulated sites (experiments/results/new_sites.json)",
}
"""Roles that are filled by a method, and the criterion."""

Cells = Mapping[str, Mapping[int, Path]]
"""Folders of finished cells by method and seed."""

Cell = TypeVar("Cell")
CellRankings = dict[str, dict[str, RankedPredictions]]
"""Rankings of one cell by test set and summary metric."""


@dataclass(frozen=True, slots=True)
class Target:
    """A minimum difference between two methods that is a target of the benchmark."""

    claim: str
    pair: tuple[str, str]
    split: str
    metric: str
    minimum: float


TARGETS = {
    "a_f1": Target(
        "recommended beats the best baseline", ("recommended", "best_baseline"), "site", "f1", 0.10
    ),
    "a_ap": Target(
        "recommended beats the best baseline", ("recommended", "best_baseline"), "site", "ap", 0.10
    ),
    "b_site": Target(
        "self-training beats the same number of steps on annotations only",
        ("mast_selftrain", "step_matched_control"),
        "site",
        "ap",
        0.05,
    ),
    "b_in_domain": Target(
        "self-training loses at most 0.03 in-domain",
        ("mast_selftrain", "step_matched_control"),
        "in_domain",
        "ap",
        -0.03,
    ),
    "b_random_site": Target(
        "self-training from random weights beats its control",
        ("scratch_selftrain", "scratch_step_matched_control"),
        "site",
        "ap",
        0.05,
    ),
    "b_random_in_domain": Target(
        "and loses at most 0.03 in-domain",
        ("scratch_selftrain", "scratch_step_matched_control"),
        "in_domain",
        "ap",
        -0.03,
    ),
    "b_synthetic_site": Target(
        "self-training after training on synthetic calls beats its control",
        ("synthetic_then_labels_selftrain", "synthetic_then_labels_step_matched_control"),
        "site",
        "ap",
        0.05,
    ),
    "b_synthetic_in_domain": Target(
        "and loses at most 0.03 in-domain",
        ("synthetic_then_labels_selftrain", "synthetic_then_labels_step_matched_control"),
        "in_domain",
        "ap",
        -0.03,
    ),
    "b_recommended_site": Target(
        "self-training after the recommended method beats its control",
        ("joint_synthetic_hybrid_selftrain", "joint_synthetic_hybrid_step_matched_control"),
        "site",
        "ap",
        0.05,
    ),
    "b_recommended_in_domain": Target(
        "and loses at most 0.03 in-domain",
        ("joint_synthetic_hybrid_selftrain", "joint_synthetic_hybrid_step_matched_control"),
        "in_domain",
        "ap",
        -0.03,
    ),
    "c": Target("pretraining beats random weights", ("mast", "scratch"), "site", "ap", 0.05),
    "c_equal_rates": Target(
        "pretraining beats random weights at equal learning rates",
        ("mast_equal_rates", "scratch"),
        "site",
        "ap",
        0.05,
    ),
    "c_recommended": Target(
        "pretraining beats random weights for the recommended method",
        ("joint_synthetic_hybrid_pretrained", "joint_synthetic_hybrid"),
        "site",
        "ap",
        0.05,
    ),
}
MIN_F1_RETENTION = 0.65
"""Minimum ratio of the recommended method's F1 at other sites to its in-domain F1: target d."""

JOINT_SELFTRAIN = "mast_joint_selftrain"
"""Joint self-training, which fails according to the paper and must be rolled back: target e."""


def finished_cells(folder: Path) -> dict[str, dict[int, Path]]:
    """Return the evaluated cells below a folder, in the order of `METHODS`."""
    cells: dict[str, dict[int, Path]] = {}
    for name in METHODS:
        seeds = {
            int(path.parts[-3]): path.parents[1] for path in folder.glob(f"{name}/*/evaluation/results.json")
        }
        if seeds:
            cells[name] = dict(sorted(seeds.items()))
    return cells


def validation_ap(cell: Path) -> float:
    """Return the average precision of a cell's model on in-domain validation; 0 if it was not measured."""
    results = json.loads((cell / "model" / "model.json").read_text("utf-8"))["results"]
    return float(results.get("validation_ap_area", 0.0))


def best_baseline(methods: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the baseline with the highest AP at other sites. Selecting it on a test set favours the baseline."""
    baselines = [name for name in BASELINE_ROWS if name in methods]
    return max(baselines, key=lambda name: methods[name]["site"]["ap"] or 0.0, default=None)


def summary(
    cells: Cells,
    earlier: Mapping[str, Any] | None = None,
    resamples: int = RESAMPLES,
) -> dict[str, Any]:
    """Return the metrics of all methods, those of the headline also by role, with differences and targets.

    Methods without cells keep their metrics from an `earlier` summary, as do differences of two such methods.
    """
    before = earlier or {}
    rankings = {
        name: {seed: rankings_of(cell) for seed, cell in seeds.items()} for name, seeds in cells.items()
    }
    measured = {name: mean_metrics([*seeds.values()], resamples) for name, seeds in rankings.items()}
    combined = {**before.get("methods", {}), **measured}
    methods = {name: combined[name] for name in METHODS if name in combined}
    best = best_baseline(methods)
    roles = {name: name for name in METHODS} | {"best_baseline": best, "recommended": RECOMMENDED}
    by_role = {role: methods.get(roles[role] or "") for role in HEADLINE}
    headline: dict[str, Any] = {role: metrics for role, metrics in by_role.items() if metrics}
    for role, criterion in CHOSEN.items():
        if role in headline:
            headline[role] = {"name": roles[role], "chosen_by": criterion, **headline[role]}
    differences = {}
    for pair in PAIRS:
        name, sides = " - ".join(pair), [roles[role] or "" for role in pair]
        first, second = comparable(sides[0], sides[1], rankings)
        if first and second:
            differences[name] = {
                **mean_differences(first, second, resamples),
                "seeds": [len(first), len(second)],
            }
        elif (
            not (first or second) and _is_same(before, roles, pair) and name in before.get("differences", {})
        ):
            differences[name] = {
                **before["differences"][name],
                "seeds": [methods[side]["seeds"] for side in sides],
            }
        elif all(side in methods for side in sides):
            differences[name] = {**_unpaired(*(methods[side] for side in sides)), "seeds": []}
    return {
        **headline,
        "differences": differences,
        "targets": targets(differences, headline.get("recommended"), cells.get(JOINT_SELFTRAIN, {})),
        "methods": methods,
    }


def comparable(
    first: str, second: str, cells: Mapping[str, Mapping[int, Cell]]
) -> tuple[list[Cell], list[Cell]]:
    """Return the cells of two methods to compare: all seeds of both, or, if one has a teacher, the seeds of both.

    The same seed means the same teacher, and teachers differ by more than their students do.
    """
    first_cells, second_cells = cells.get(first, {}), cells.get(second, {})
    has_teacher = any(METHODS[name].teacher for name in (first, second) if name in METHODS)
    seeds = {*first_cells} & {*second_cells} if has_teacher else {*first_cells} | {*second_cells}
    return (
        [cell for seed, cell in first_cells.items() if seed in seeds],
        [cell for seed, cell in second_cells.items() if seed in seeds],
    )


def rankings_of(cell: Path) -> CellRankings:
    """Return the rankings of a cell: complete, from the validation threshold, and from the best threshold."""
    folder = cell / "evaluation"
    rankings: CellRankings = {}
    for split, title in SPLITS.items():
        ranking = ranking_of(str(folder), split)
        rankings[title] = {
            "f1": ranking.with_min_score(threshold_of(folder)),
            "max_f1": ranking.with_min_score(max_f1_threshold(ranking)),
            "ap": ranking,
        }
    return rankings


def mean_interval(
    metric: str,
    rankings: Sequence[RankedPredictions],
    others: Sequence[RankedPredictions] = (),
    resamples: int = RESAMPLES,
) -> Interval:
    """Return the mean of a metric over rankings of the same recordings, minus that over `others`, with its interval."""
    if any(
        not np.array_equal(ranking.ground_truth, rankings[0].ground_truth) for ranking in (*rankings, *others)
    ):
        raise ValueError("rankings must have the same recordings and the same ground truth to be averaged")

    def mean(group: Sequence[RankedPredictions], weight: Floats | None) -> float:
        return sum(METRICS[metric](ranking, weight) for ranking in group) / len(group)

    def difference(_: RankedPredictions, weight: Floats | None) -> float:
        return mean(rankings, weight) - (mean(others, weight) if others else 0.0)

    return confidence_interval(difference, rankings[0], np.random.default_rng(SEED), resamples)


def mean_metrics(cells: Sequence[CellRankings], resamples: int) -> dict[str, Any]:
    """Return means over cells of several seeds by test set, and the value of each seed."""
    metrics: dict[str, Any] = {}
    for split in SPLITS.values():
        metrics[split] = {}
        for name, metric in SUMMARY_METRICS.items():
            rankings = [cell[split][name] for cell in cells]
            metrics[split] |= _with_interval(name, mean_interval(metric, rankings, resamples=resamples))
            metrics[split][f"{name}_by_seed"] = [
                rounded(METRICS[metric](ranking, None)) for ranking in rankings
            ]
    return {**metrics, "seeds": len(cells)}


def mean_differences(
    first: Sequence[CellRankings], second: Sequence[CellRankings], resamples: int
) -> dict[str, Any]:
    """Return the mean over the first cells minus the mean over the second, by test set."""
    metrics: dict[str, Any] = {}
    for split in SPLITS.values():
        metrics[split] = {}
        for name, metric in SUMMARY_METRICS.items():
            rankings, others = ([cell[split][name] for cell in cells] for cells in (first, second))
            metrics[split] |= _with_interval(name, mean_interval(metric, rankings, others, resamples))
    return metrics


def _unpaired(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return differences without intervals, for a method whose cells are gone."""

    def difference(split: str, name: str) -> float | None:
        values = [method[split][name] for method in (first, second)]
        return None if None in values else rounded(values[0] - values[1])

    return {
        split: {
            key: value
            for name in SUMMARY_METRICS
            for key, value in ((name, difference(split, name)), (f"{name}_interval", None))
        }
        for split in SPLITS.values()
    }


def _is_same(before: Mapping[str, Any], roles: Mapping[str, str | None], pair: Sequence[str]) -> bool:
    """Check that the roles of a pair are filled by the same methods as before."""
    return all(before.get(role, {}).get("name") == roles[role] for role in CHOSEN if role in pair)


def rolled_back_fraction(cells: Mapping[int, Path]) -> float | None:
    """Return the fraction of seeds in which a round of self-training was rolled back; None without rounds."""
    rounds = [[*cell.glob("round_*/round.json")] for cell in cells.values()]
    is_rolled_back = [
        any(json.loads(path.read_text("utf-8"))["rollback_reason"] for path in paths) for paths in rounds
    ]
    return sum(is_rolled_back) / len(is_rolled_back) if is_rolled_back else None


def targets(
    differences: Mapping[str, Any], recommended: Mapping[str, Any] | None, joint: Mapping[int, Path]
) -> dict[str, Any]:
    """Return for each target its minimum, value, number of seeds and whether it was reached; None if a row is missing."""
    results: dict[str, Any] = {}
    for name, target in TARGETS.items():
        difference = differences.get(" - ".join(target.pair), {})
        metrics = difference.get(target.split, {})
        results[name] = {
            "claim": f"{target.claim}: {target.metric} on {target.split}",
            "minimum": target.minimum,
            "value": metrics.get(target.metric),
            "interval": metrics.get(f"{target.metric}_interval"),
            "seeds": min(difference.get("seeds", ()), default=None),
        }
    retention = None
    if recommended and recommended["in_domain"]["f1"] and recommended["site"]["f1"] is not None:
        retention = rounded(recommended["site"]["f1"] / recommended["in_domain"]["f1"])
    results["d"] = {
        "claim": "F1 at other sites as a fraction of in-domain F1",
        "minimum": MIN_F1_RETENTION,
        "value": retention,
        "seeds": (recommended or {}).get("seeds"),
    }
    results["e"] = {
        "claim": "fraction of seeds in which joint self-training is rolled back",
        "minimum": 1,
        "value": rolled_back_fraction(joint),
        "seeds": len(joint) or None,
    }
    for result in results.values():
        result["reached"] = None if result["value"] is None else result["value"] >= result["minimum"]
    return results


def _with_interval(name: str, interval: Interval) -> dict[str, Any]:
    """Return a metric and its interval."""
    return {
        name: rounded(interval.value),
        f"{name}_interval": [rounded(interval.low), rounded(interval.high)],
    }


def with_bounds(interval: Interval) -> list[float | None]:
    """Return a metric and the bounds of its interval in a list; None for undefined values."""
    return [rounded(value) for value in (interval.value, interval.low, interval.high)]
