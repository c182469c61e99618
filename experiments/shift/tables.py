"""The benchmark's result files as tables for a page. Nothing of MAST is needed to make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count, islice
from typing import Any

from experiments.markdown import figure_of, grid, interval
from experiments.shift.claims import claims, ideas

SPLITS = {"in_domain": "in-domain", "temporal": "other days", "site": "other sites", "unseen": "unseen site"}
COLUMNS = [(split, figure) for split in SPLITS for figure in ("f1", "ap")]

MAIN = {
    "energy": "energy threshold",
    "faster_rcnn": "Faster R-CNN",
    "fcos": "FCOS",
    "fcos_band_median": "FCOS, band medians",
    "detr": "DETR",
    "yolo": "YOLO26",
    "transfer": "MAST from a given checkpoint",
    "transfer_detail": "from a detector of made-up sites, adapter detail",
    "scratch": "MAST from random weights",
    "mast_zscore": "MAST, z-score",
    "mast": "MAST",
    "control": "MAST + as many steps on labels alone",
    "mast_st": "MAST + self-training",
    "rehearsed_only": "rehearsed, labels for the threshold alone",
    "rehearsed": "rehearsed, then labels",
    "rehearsed_control": "rehearsed + as many steps on labels alone",
    "rehearsed_st": "rehearsed + self-training",
    "fcos_at_once": "FCOS, band medians, labels and made-up calls at once",
    "at_once_detail": "labels and made-up calls at once, adapter detail (recommended)",
    "at_once_detail_control": "recommended + as many steps on labels and made-up calls",
    "at_once_detail_st": "recommended + self-training",
}
ROLES = {"best_baseline": "the best baseline", "recommended": "what is recommended"}
BASELINE_ROWS = ("energy", "faster_rcnn", "fcos", "fcos_band_median", "detr", "yolo")
ABLATIONS = {
    "mast": "MAST",
    "scratch": "pretraining: none",
    "no_contrastive": "pretraining: none, without the contrastive loss",
    "no_adapter": "pretraining: none, without an adapter",
    "conv_adapter": "pretraining: none, adapter conv",
    "anisotropic_adapter": "pretraining: none, adapter anisotropic",
    "scratch_detail": "pretraining: none, adapter detail",
    "scratch_st": "pretraining: none, self-training",
    "scratch_control": "pretraining: none, labels alone for as many steps",
    "scratch_stage_1": "pretraining: none, self-training, stage 1 alone",
    "scratch_stage_2": "pretraining: none, self-training, stage 2 alone",
    "scratch_stage_1_redrawn": "pretraining: none, self-training, stage 1 alone, boxes drawn anew at every step",
    "mast_pretrain_third": "pretraining: a third",
    "mast_equal_rates": "pretrained, but all at the full rate from the start",
    "mast_st": "MAST + self-training",
    "control": "control: labels alone for as many steps",
    "st_union": "both in one stage",
    "rehearsed": "rehearsed, then labels",
    "at_once": "labels and made-up calls at once",
    "at_once_detail": "labels and made-up calls at once, adapter detail",
    "at_once_detail_pretrained": "labels and made-up calls at once, adapter detail, pretrained",
}
BUDGET = {
    f"labels_{share}_{strategy.replace('-', '_')}": f"{share} %, {strategy}, by FCOS in half of the steps"
    for share in (25, 50)
    for strategy in ("sequential", "random", "time-balanced")
} | {
    "fcos_band_median": "all of them, by FCOS",
    "at_once_detail_tenth_once": "10 %, random, by what is recommended, each label once an epoch",
    "at_once_detail_tenth": "10 %, random, by what is recommended, as many steps as with all",
    "at_once_detail": "all of them, by what is recommended",
}

SEEDS = dict.fromkeys(
    (
        *("fcos_band_median", "scratch", "mast", "control", "mast_st"),
        *("at_once_detail", "at_once_detail_control", "at_once_detail_st"),
    ),
    3,
)
"""Rows that take more than one seed: the headline's."""

GIVEN = ("transfer", "transfer_detail")
"""Rows that go on from somebody's checkpoint; without one there is nothing to measure."""

DETAILS = {
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "best_f1": "best F1",
    "ap_area": "AP, area",
    "ap_11_points": "AP, 11 points",
    "mean_iou": "mean IoU",
}


def by_split(titles: Mapping[str, str], methods: Mapping[str, Any]) -> str:
    """F1 and AP of methods on every test set, means over seeds with their intervals; the best of a column is bold."""
    known = {name: title for name, title in titles.items() if name in methods}
    best = {
        (split, figure): max((methods[name][split][figure] or 0.0 for name in known), default=0.0)
        for split, figure in COLUMNS
    }
    lines = []
    for name, title in known.items():
        cells = [title, str(methods[name]["seeds"])]
        for (split, figure), text in zip(COLUMNS, figures(methods[name]), strict=True):
            value = methods[name][split][figure]
            cells.append(f"**{text}**" if value and value == best[split, figure] else text)
        lines.append(cells)
    return grid(["method", "seeds", *heads(SPLITS)], lines)


def headline(summary: Mapping[str, Any]) -> str:
    """F1 of what people have, of the best usual detector, and of what is recommended, on every test set."""
    every = {**summary["methods"], "`mast train`": summary.get("recommended")}
    best = summary.get("best_baseline", {}).get("name")
    known = {
        MAIN.get(name, name): every[name] for name in ("energy", best, "`mast train`") if every.get(name)
    }
    lines = [
        [title, *(figure_of(own[split], "f1") for own in known.values())] for split, title in SPLITS.items()
    ]
    return grid(["F1", *known], lines)


def heads(titles: Mapping[str, str]) -> list[str]:
    """Heads of the columns of `figures`, by titles of the test sets."""
    return [f"{titles[split]}, {figure.upper()}" for split, figure in COLUMNS]


def figures(sets: Mapping[str, Any]) -> list[str]:
    """F1 and AP on every test set, each with its interval if it has one."""
    return [figure_of(sets[split], figure) for split, figure in COLUMNS]


def details(rows: Sequence[Mapping[str, Any]]) -> str:
    """All figures of every cell, with intervals over recordings; a cell is named as the driver's options have it."""
    lines = [
        [
            f"`{row['method']}`, {row['seed']}",
            SPLITS[row["split"]],
            *(interval(_three(row[figure])) for figure in DETAILS),
        ]
        for row in rows
    ]
    return grid(["method, seed", "test set", *DETAILS.values()], lines)


def reached(targets: Mapping[str, Mapping[str, Any]]) -> str:
    """What was asked for and what came out."""
    words = {True: "yes", False: "no", None: "not measured"}
    lines = [
        [
            item["claim"],
            f"{item['least']:+.2f}" if "interval" in item else f"{item['least']:.2f}",
            interval([item["value"], *(item.get("interval") or [])]),
            str(item["seeds"] or "–"),
            words[item["reached"]],
        ]
        for item in targets.values()
    ]
    return grid(["target", "at least", "found", "seeds", "reached"], lines)


def differences(pairs: Mapping[str, Mapping[str, Any]]) -> str:
    """One method less another on every test set, with intervals over recordings where both were kept."""
    titles = BUDGET | ABLATIONS | MAIN | ROLES
    lines = []
    for pair, sets in pairs.items():
        first, second = (titles[side] for side in pair.split(" - "))
        lines.append([f"{first}, less {second}", *figures(sets)])
    return grid(["difference", *heads(SPLITS)], lines)


def known_baselines(summary: Mapping[str, Any]) -> str:
    """Which baseline that is, and which of them nobody has measured yet."""
    best = summary.get("best_baseline", {}).get("name")
    missing = [MAIN[name] for name in BASELINE_ROWS if name not in summary["methods"]]
    told = f"The best baseline: {MAIN[best]}." if best else ""
    if missing:
        told += f" Not measured yet, so that nothing is decided: {', '.join(missing)}."
    return f"\n{told.strip()}\n"


def missing(rows: Sequence[Mapping[str, Any]], size: str) -> str:
    """Rows that are not measured yet, or in fewer seeds than they should be, with what would do it."""
    done: dict[str, set[int]] = {}
    for row in rows:
        done.setdefault(row["method"], set()).add(row["seed"])
    lines, titles = [], BUDGET | ABLATIONS | MAIN
    for name in MAIN | ABLATIONS | BUDGET:
        wanted, known = SEEDS.get(name, 1), done.get(name, set())
        if name not in GIVEN and len(known) < wanted:
            left = (seed for seed in count() if seed not in known)
            seeds = " ".join(map(str, islice(left, wanted - len(known))))
            command = f"`python -m experiments.run DATA --size {size} --only {name} --seeds {seeds}`"
            lines.append([titles[name], f"{len(known)} of {wanted}", command])
    return grid(["method", "seeds", "what makes the rest"], lines)


def _three(number: Mapping[str, float | None] | float) -> list[float | None]:
    """Value and bounds of a figure of a row; some have no bounds."""
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
    "targets": lambda result, summary: reached(summary["targets"]) + known_baselines(summary),
}
"""Tables by name, each made of `shift.json` and `shift_summary.json`."""
