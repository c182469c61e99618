"""What the cells of the benchmark come to: means over seeds with intervals, paired differences, and the targets.

Recordings are drawn again and again, the same for all seeds and for both sides of a difference. An interval so says how
far a figure depends on which recordings were tested; `by_seed` shows how far on the seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from benchmarks.results import rounded

from experiments.shift.kept import threshold_of
from experiments.shift.methods import METHODS, RECOMMENDED
from experiments.shift.tables import BASELINE_ROWS
from mast.evaluation.compare import ranking_of
from mast.evaluation.figures import SEED
from mast.evaluation.intervals import RESAMPLES, Interval, confidence_interval
from mast.evaluation.matching import Floats
from mast.evaluation.metrics import METRICS, Ranking, best_threshold

SPLITS = {"test": "in_domain", "temporal": "temporal", "site": "site", "unseen": "unseen"}
FIGURES = {"f1": "f1", "best_f1": "f1", "ap": "ap_101_points"}
"""Figures of the summary, and their metric; `best_f1` is F1 at the threshold that would have suited the set best."""

HEADLINE = (
    "best_baseline",
    "scratch",
    "mast",
    "mast_st",
    "control",
    "fcos_at_once",
    "recommended",
    "at_once_detail_st",
)
PAIRS = (
    ("recommended", "best_baseline"),
    ("mast_st", "control"),
    ("mast", "scratch"),
    ("mast_equal_rates", "scratch"),
    ("rehearsed_st", "rehearsed_control"),
    ("at_once_detail_st", "at_once_detail_control"),
    ("at_once_detail_st", "at_once_detail"),
    ("scratch_stage_1_redrawn", "scratch_stage_1"),
    ("rehearsed", "scratch"),
    ("scratch_detail", "scratch"),
    ("at_once_detail", "scratch_detail"),
    ("at_once_detail", "rehearsed"),
    ("at_once_detail", "at_once"),
    ("at_once_detail", "fcos_at_once"),
    ("recommended", "faster_rcnn"),
    ("fcos_band_median", "fcos"),
    ("fcos_at_once", "fcos_band_median"),
    ("at_once_detail_pretrained", "at_once_detail"),
    ("mast", "fcos_band_median"),
    ("mast_st", "mast"),
    ("mast_st", "st_union"),
    ("scratch_st", "scratch_control"),
    ("scratch_st", "scratch_stage_1"),
    ("scratch_st", "scratch_stage_2"),
    ("scratch", "no_contrastive"),
    ("scratch", "no_adapter"),
    ("conv_adapter", "scratch"),
    ("anisotropic_adapter", "scratch"),
    ("conv_adapter", "no_adapter"),
    ("scratch_detail", "no_adapter"),
    ("labels_25_time_balanced", "labels_25_sequential"),
    ("labels_25_random", "labels_25_sequential"),
    ("labels_50_time_balanced", "labels_50_sequential"),
    ("labels_50_time_balanced", "labels_25_time_balanced"),
    ("labels_50_sequential", "labels_25_sequential"),
)
CHOSEN = {
    "best_baseline": "average precision at other sites: the one that is hardest to beat there",
    "recommended": "what was seen on these sets, confirmed at sites made up anew (experiments/results/new_sites.json)",
}
"""Roles that a method is chosen for, and by what."""

Cells = Mapping[str, Mapping[int, Path]]
"""Folders of finished cells by method and seed."""

Cell = TypeVar("Cell")
Held = dict[str, dict[str, Ranking]]
"""Of one cell: by test set and figure, the ranking to take the figure's metric of."""


@dataclass(frozen=True, slots=True)
class Target:
    """A difference of two methods, or a share of one, that the benchmark asks for."""

    claim: str
    pair: tuple[str, str]
    split: str
    figure: str
    least: float


TARGETS = {
    "a_f1": Target(
        "recommended beats the best baseline", ("recommended", "best_baseline"), "site", "f1", 0.10
    ),
    "a_ap": Target(
        "recommended beats the best baseline", ("recommended", "best_baseline"), "site", "ap", 0.10
    ),
    "b_site": Target(
        "self-training beats as many steps on labels alone", ("mast_st", "control"), "site", "ap", 0.05
    ),
    "b_in_domain": Target(
        "and loses no more than 0.03 in-domain", ("mast_st", "control"), "in_domain", "ap", -0.03
    ),
    "b_random_site": Target(
        "so it does from random weights", ("scratch_st", "scratch_control"), "site", "ap", 0.05
    ),
    "b_random_in_domain": Target(
        "and loses no more there", ("scratch_st", "scratch_control"), "in_domain", "ap", -0.03
    ),
    "b_rehearsed_site": Target(
        "so it does after rehearsal", ("rehearsed_st", "rehearsed_control"), "site", "ap", 0.05
    ),
    "b_rehearsed_in_domain": Target(
        "and loses no more there", ("rehearsed_st", "rehearsed_control"), "in_domain", "ap", -0.03
    ),
    "b_recommended_site": Target(
        "so it does after what is recommended",
        ("at_once_detail_st", "at_once_detail_control"),
        "site",
        "ap",
        0.05,
    ),
    "b_recommended_in_domain": Target(
        "and loses no more there", ("at_once_detail_st", "at_once_detail_control"), "in_domain", "ap", -0.03
    ),
    "c": Target("pretraining beats random weights", ("mast", "scratch"), "site", "ap", 0.05),
    "c_equal_rates": Target(
        "so it does at equal learning rates", ("mast_equal_rates", "scratch"), "site", "ap", 0.05
    ),
    "c_recommended": Target(
        "so it does for what is recommended",
        ("at_once_detail_pretrained", "at_once_detail"),
        "site",
        "ap",
        0.05,
    ),
}
KEPT = 0.65
"""Share of its in-domain F1 that `recommended` is to keep at other sites: target d."""

UNION = "st_union"
"""Self-training that fails by the paper's account; its guard is to take it back: target e."""


def finished_cells(folder: Path) -> dict[str, dict[int, Path]]:
    """The cells below a folder that were evaluated, in the order of `METHODS`."""
    found: dict[str, dict[int, Path]] = {}
    for name in METHODS:
        seeds = {
            int(path.parts[-3]): path.parents[1] for path in folder.glob(f"{name}/*/evaluation/results.json")
        }
        if seeds:
            found[name] = dict(sorted(seeds.items()))
    return found


def validation_ap(cell: Path) -> float:
    """Average precision of a cell's model on in-domain validation; 0 where there was nothing to measure."""
    results = json.loads((cell / "model" / "model.json").read_text("utf-8"))["results"]
    return float(results.get("validation_ap_area", 0.0))


def best_baseline(methods: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The baseline to beat: that it is chosen on a test set can only make it harder to."""
    known = [name for name in BASELINE_ROWS if name in methods]
    return max(known, key=lambda name: methods[name]["site"]["ap"] or 0.0, default=None)


def summary(
    cells: Cells,
    earlier: Mapping[str, Any] | None = None,
    resamples: int = RESAMPLES,
) -> dict[str, Any]:
    """Figures of all methods, those of the headline also by their role, with differences and targets.

    What an `earlier` summary tells of methods that have no cell here stays, and so do differences of two such.
    """
    before = earlier or {}
    held = {name: {seed: held_of(cell) for seed, cell in seeds.items()} for name, seeds in cells.items()}
    found = {name: figures_of([*seeds.values()], resamples) for name, seeds in held.items()}
    every = {**before.get("methods", {}), **found}
    methods = {name: every[name] for name in METHODS if name in every}
    chosen = best_baseline(methods)
    roles = {name: name for name in METHODS} | {"best_baseline": chosen, "recommended": RECOMMENDED}
    known = {role: methods.get(roles[role] or "") for role in HEADLINE}
    told: dict[str, Any] = {role: figures for role, figures in known.items() if figures}
    for role, why in CHOSEN.items():
        if role in told:
            told[role] = {"name": roles[role], "chosen_by": why, **told[role]}
    differences = {}
    for pair in PAIRS:
        name, sides = " - ".join(pair), [roles[role] or "" for role in pair]
        first, second = comparable(sides[0], sides[1], held)
        if first and second:
            differences[name] = {
                **differences_of(first, second, resamples),
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
        **told,
        "differences": differences,
        "targets": targets(differences, told.get("recommended"), cells.get(UNION, {})),
        "methods": methods,
    }


def comparable(
    first: str, second: str, cells: Mapping[str, Mapping[int, Cell]]
) -> tuple[list[Cell], list[Cell]]:
    """What to compare of two methods: all seeds of both, but of one that has a teacher those alone that both have.

    For the same seed means the same teacher, and teachers differ by more than what they teach.
    """
    own, others = cells.get(first, {}), cells.get(second, {})
    has_teacher = any(METHODS[name].teacher for name in (first, second) if name in METHODS)
    seeds = {*own} & {*others} if has_teacher else {*own} | {*others}
    return [own[seed] for seed in own if seed in seeds], [others[seed] for seed in others if seed in seeds]


def held_of(cell: Path) -> Held:
    """The rankings of a cell, cut at the threshold of validation and at the best one."""
    folder = cell / "evaluation"
    held: Held = {}
    for split, title in SPLITS.items():
        ranking = ranking_of(str(folder), split)
        held[title] = {
            "f1": ranking.above(threshold_of(folder)),
            "best_f1": ranking.above(best_threshold(ranking)),
            "ap": ranking,
        }
    return held


def mean_interval(
    metric: str, rankings: Sequence[Ranking], others: Sequence[Ranking] = (), resamples: int = RESAMPLES
) -> Interval:
    """Mean of a metric over rankings of the same recordings, less that over others, each draw serving all."""
    if any(not np.array_equal(item.truths, rankings[0].truths) for item in (*rankings, *others)):
        raise ValueError("only rankings of the same recordings with the same truths can be averaged")

    def mean(chosen: Sequence[Ranking], weight: Floats | None) -> float:
        return sum(METRICS[metric](item, weight) for item in chosen) / len(chosen)

    def figure(_: Ranking, weight: Floats | None) -> float:
        return mean(rankings, weight) - (mean(others, weight) if others else 0.0)

    return confidence_interval(figure, rankings[0], np.random.default_rng(SEED), resamples)


def figures_of(cells: Sequence[Held], resamples: int) -> dict[str, Any]:
    """Means of cells over seeds by test set, each seed's own value beside."""
    figures: dict[str, Any] = {}
    for split in SPLITS.values():
        figures[split] = {}
        for name, metric in FIGURES.items():
            rankings = [cell[split][name] for cell in cells]
            figures[split] |= _told(name, mean_interval(metric, rankings, resamples=resamples))
            figures[split][f"{name}_by_seed"] = [rounded(METRICS[metric](item, None)) for item in rankings]
    return {**figures, "seeds": len(cells)}


def differences_of(first: Sequence[Held], second: Sequence[Held], resamples: int) -> dict[str, Any]:
    """What the mean over the first cells is more than that over the second, by test set."""
    figures: dict[str, Any] = {}
    for split in SPLITS.values():
        figures[split] = {}
        for name, metric in FIGURES.items():
            own, others = ([cell[split][name] for cell in cells] for cells in (first, second))
            figures[split] |= _told(name, mean_interval(metric, own, others, resamples))
    return figures


def _unpaired(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Differences where the cells of one method are gone, so that recordings cannot be compared: without intervals."""

    def less(split: str, name: str) -> float | None:
        values = [method[split][name] for method in (first, second)]
        return None if None in values else rounded(values[0] - values[1])

    return {
        split: {
            key: value
            for name in FIGURES
            for key, value in ((name, less(split, name)), (f"{name}_interval", None))
        }
        for split in SPLITS.values()
    }


def _is_same(before: Mapping[str, Any], roles: Mapping[str, str | None], pair: Sequence[str]) -> bool:
    """Whether the roles of a pair are filled as they were."""
    return all(before.get(role, {}).get("name") == roles[role] for role in CHOSEN if role in pair)


def taken_back(cells: Mapping[int, Path]) -> float | None:
    """Share of seeds in which a guard took a round of self-training back; None where there are none."""
    rounds = [[*cell.glob("round_*/round.json")] for cell in cells.values()]
    caught = [any(json.loads(path.read_text("utf-8"))["rejected"] for path in paths) for paths in rounds]
    return sum(caught) / len(caught) if caught else None


def targets(
    differences: Mapping[str, Any], recommended: Mapping[str, Any] | None, unions: Mapping[int, Path]
) -> dict[str, Any]:
    """What was asked for, what came out, of how many seeds, and whether that is enough; None where a row is missing."""
    told: dict[str, Any] = {}
    for name, target in TARGETS.items():
        found = differences.get(" - ".join(target.pair), {})
        own = found.get(target.split, {})
        told[name] = {
            "claim": f"{target.claim}: {target.figure} on {target.split}",
            "least": target.least,
            "value": own.get(target.figure),
            "interval": own.get(f"{target.figure}_interval"),
            "seeds": min(found.get("seeds", ()), default=None),
        }
    kept = None
    if recommended and recommended["in_domain"]["f1"] and recommended["site"]["f1"] is not None:
        kept = rounded(recommended["site"]["f1"] / recommended["in_domain"]["f1"])
    told["d"] = {
        "claim": "share of in-domain F1 kept on site",
        "least": KEPT,
        "value": kept,
        "seeds": (recommended or {}).get("seeds"),
    }
    told["e"] = {
        "claim": "share of seeds in which the guard takes the union back",
        "least": 1,
        "value": taken_back(unions),
        "seeds": len(unions) or None,
    }
    for item in told.values():
        item["reached"] = None if item["value"] is None else item["value"] >= item["least"]
    return told


def _told(name: str, interval: Interval) -> dict[str, Any]:
    """A figure, and its interval beside it."""
    return {
        name: rounded(interval.value),
        f"{name}_interval": [rounded(interval.low), rounded(interval.high)],
    }


def with_bounds(interval: Interval) -> list[float | None]:
    """A figure and the bounds of its interval as one row, None where there is none."""
    return [rounded(value) for value in (interval.value, interval.low, interval.high)]
