"""Format the benchmark's result files as tables for a page. Needs no import of `mast`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count, islice
from typing import Any

from experiments.markdown import format_metric, grid, interval
from experiments.shift.paper_comparison import claims, ideas

SPLITS = {"in_domain": "in-domain", "temporal": "other days", "site": "other sites", "unseen": "unseen site"}
COLUMNS = [(split, metric) for split in SPLITS for metric in ("f1", "ap")]

MAIN = {
    "energy": "energy threshold",
    "faster_rcnn": "Faster R-CNN",
    "fcos": "FCOS",
    "fcos_band_median": "FCOS, band medians",
    "detr": "DETR",
    "yolo": "YOLO26",
    "transfer": "MAST from a given checkpoint",
    "transfer_hybrid": "MAST from a detector of simulated sites, hybrid adapter",
    "scratch": "MAST from random weights",
    "mast_zscore": "MAST, z-score",
    "mast": "MAST",
    "step_matched_control": "MAST + step-matched control",
    "mast_selftrain": "MAST + self-training",
    "synthetic_only": "synthetic calls only (annotations choose the threshold)",
    "synthetic_then_labels": "synthetic calls, then annotations",
    "synthetic_then_labels_step_matched_control": "synthetic calls, then annotations + step-matched control",
    "synthetic_then_labels_selftrain": "synthetic calls, then annotations + self-training",
    "fcos_joint_synthetic": "FCOS, band medians, joint with synthetic calls",
    "joint_synthetic_hybrid": "joint with synthetic calls, hybrid adapter (recommended)",
    "joint_synthetic_hybrid_step_matched_control": "recommended + step-matched control",
    "joint_synthetic_hybrid_selftrain": "recommended + self-training",
}
ROLES = {"best_baseline": "the best baseline", "recommended": "the recommended method"}
BASELINE_ROWS = ("energy", "faster_rcnn", "fcos", "fcos_band_median", "detr", "yolo")
ABLATIONS = {
    "mast": "MAST",
    "scratch": "pretraining: none",
    "no_contrastive": "pretraining: none, without the contrastive loss",
    "no_adapter": "pretraining: none, without an adapter",
    "conv_adapter": "pretraining: none, conv adapter",
    "anisotropic_adapter": "pretraining: none, anisotropic adapter",
    "scratch_hybrid": "pretraining: none, hybrid adapter",
    "scratch_selftrain": "pretraining: none, self-training",
    "scratch_step_matched_control": "pretraining: none, step-matched control",
    "scratch_stage_1": "pretraining: none, self-training, stage 1 only",
    "scratch_stage_2": "pretraining: none, self-training, stage 2 only",
    "mean_teacher": "pretraining: none, self-training, stage 1 only, pseudo-labels predicted at every step",
    "mast_pretrain_third": "pretraining: 1/3 of the epochs",
    "mast_equal_rates": "pretrained, fully unfrozen from the start at the full learning rate",
    "mast_selftrain": "MAST + self-training",
    "step_matched_control": "MAST + step-matched control",
    "mast_joint_selftrain": "MAST + self-training in one joint stage",
    "synthetic_then_labels": "synthetic calls, then annotations",
    "joint_synthetic": "joint with synthetic calls",
    "joint_synthetic_hybrid": "joint with synthetic calls, hybrid adapter",
    "joint_synthetic_hybrid_pretrained": "joint with synthetic calls, adapter detail, pretrained",
}
BUDGET = {
    f"labels_{percent}_{strategy.replace('-', '_')}": f"{percent} %, {strategy}, FCOS with half of the steps"
    for percent in (25, 50)
    for strategy in ("sequential", "random", "time-balanced")
} | {
    "fcos_band_median": "100 %, FCOS",
    "joint_synthetic_hybrid_tenth_once": "10 %, random, recommended method, each annotation once per epoch",
    "joint_synthetic_hybrid_tenth": "10 %, random, recommended method, the steps of 100 %",
    "joint_synthetic_hybrid": "100 %, recommended method",
}

SEEDS = dict.fromkeys(
    (
        *("fcos_band_median", "scratch", "mast", "step_matched_control", "mast_selftrain"),
        *(
            "joint_synthetic_hybrid",
            "joint_synthetic_hybrid_step_matched_control",
            "joint_synthetic_hybrid_selftrain",
        ),
    ),
    3,
)
"""Required number of seeds of rows that need more than one: the rows of the headline."""

CHECKPOINT_ROWS = ("transfer", "transfer_hybrid")
"""Rows that start from a given checkpoint and need one to be measured."""

DETAILS = {
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "max_f1": "max F1",
    "average_precision": "AP, area",
    "average_precision_voc": "AP, 11 points",
    "mean_iou": "mean IoU",
}


def by_split(titles: Mapping[str, str], methods: Mapping[str, Any]) -> str:
    """Return F1 and AP of methods on every test set: means over seeds with intervals; the best of a column is bold."""
    shown = {name: title for name, title in titles.items() if name in methods}
    best = {
        (split, metric): max((methods[name][split][metric] or 0.0 for name in shown), default=0.0)
        for split, metric in COLUMNS
    }
    lines = []
    for name, title in shown.items():
        cells = [title, str(methods[name]["seeds"])]
        for (split, metric), text in zip(COLUMNS, metric_cells(methods[name]), strict=True):
            value = methods[name][split][metric]
            cells.append(f"**{text}**" if value and value == best[split, metric] else text)
        lines.append(cells)
    return grid(["method", "seeds", *column_titles(SPLITS)], lines)


def headline(summary: Mapping[str, Any]) -> str:
    """Return F1 of the energy threshold, the best baseline and the recommended method on every test set."""
    methods = {**summary["methods"], "`mast train`": summary.get("recommended")}
    best = summary.get("best_baseline", {}).get("name")
    shown = {
        MAIN.get(name, name): methods[name] for name in ("energy", best, "`mast train`") if methods.get(name)
    }
    lines = [
        [title, *(format_metric(metrics[split], "f1") for metrics in shown.values())]
        for split, title in SPLITS.items()
    ]
    return grid(["F1", *shown], lines)


def column_titles(titles: Mapping[str, str]) -> list[str]:
    """Return the column titles of `metric_cells` from the titles of the test sets."""
    return [f"{titles[split]}, {metric.upper()}" for split, metric in COLUMNS]


def metric_cells(sets: Mapping[str, Any]) -> list[str]:
    """Return F1 and AP on every test set, each with its interval if it has one."""
    return [format_metric(sets[split], metric) for split, metric in COLUMNS]


def details(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return all metrics of every cell with intervals over recordings; cells have the names of the command's options."""
    lines = [
        [
            f"`{row['method']}`, {row['seed']}",
            SPLITS[row["split"]],
            *(interval(_with_bounds(row[metric])) for metric in DETAILS),
        ]
        for row in rows
    ]
    return grid(["method, seed", "test set", *DETAILS.values()], lines)


def reached(targets: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table of the targets and whether they were reached."""
    answers = {True: "yes", False: "no", None: "not measured"}
    lines = [
        [
            target["claim"],
            f"{target['minimum']:+.2f}" if "interval" in target else f"{target['minimum']:.2f}",
            interval([target["value"], *(target.get("interval") or [])]),
            str(target["seeds"] or "–"),
            answers[target["reached"]],
        ]
        for target in targets.values()
    ]
    return grid(["target", "minimum", "measured", "seeds", "reached"], lines)


def differences(pairs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return differences of methods on every test set, with intervals over recordings if both have cells."""
    titles = BUDGET | ABLATIONS | MAIN | ROLES
    lines = []
    for pair, sets in pairs.items():
        first, second = (titles[side] for side in pair.split(" - "))
        lines.append([f"{first} − {second}", *metric_cells(sets)])
    return grid(["difference", *column_titles(SPLITS)], lines)


def baseline_note(summary: Mapping[str, Any]) -> str:
    """Return a note with the name of the best baseline, and of baselines without results."""
    best = summary.get("best_baseline", {}).get("name")
    missing = [MAIN[name] for name in BASELINE_ROWS if name not in summary["methods"]]
    note = f"The best baseline: {MAIN[best]}." if best else ""
    if missing:
        note += f" Not measured yet, so the choice is provisional: {', '.join(missing)}."
    return f"\n{note.strip()}\n"


def missing(rows: Sequence[Mapping[str, Any]], size: str) -> str:
    """Return a table of rows that lack seeds, with the command that measures them."""
    done: dict[str, set[int]] = {}
    for row in rows:
        done.setdefault(row["method"], set()).add(row["seed"])
    lines, titles = [], BUDGET | ABLATIONS | MAIN
    for name in MAIN | ABLATIONS | BUDGET:
        required, measured = SEEDS.get(name, 1), done.get(name, set())
        if name not in CHECKPOINT_ROWS and len(measured) < required:
            unused = (seed for seed in count() if seed not in measured)
            seeds = " ".join(map(str, islice(unused, required - len(measured))))
            command = f"`python -m experiments.shift.run DATA --size {size} --only {name} --seeds {seeds}`"
            lines.append([titles[name], f"{len(measured)} of {required}", command])
    return grid(["method", "seeds", "command for the missing seeds"], lines)


def _with_bounds(number: Mapping[str, float | None] | float) -> list[float | None]:
    """Return the value and the bounds of a metric of a row; some metrics have no bounds."""
    if isinstance(number, Mapping):
        return [number[name] for name in ("value", "low", "high")]
    return [number]


TABLES: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], str]] = {
    "headline": lambda result, summary: headline(summary),
    "main": lambda result, summary: by_split(MAIN, summary["methods"]),
    "details": lambda result, summary: details(result["rows"]),
    "ablations": lambda result, summary: by_split(ABLATIONS, summary["methods"]),
    "budget": lambda result, summary: by_split(BUDGET, summary["methods"]),
    "missing": lambda result, summary: missing(result["rows"], result["size"]),
    "claims": lambda result, summary: claims(summary["differences"]),
    "ideas": lambda result, summary: ideas(summary["differences"]),
    "differences": lambda result, summary: differences(summary["differences"]),
    "targets": lambda result, summary: reached(summary["targets"]) + baseline_note(summary),
}
"""Functions of the tables by name, with `shift.json` and `shift_summary.json` as arguments."""
