"""F1 and AP of the headline methods from the labelled day to a site that was never heard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.shift.tables import MAIN, SPLITS
from mast.pictures.curves import COLOURS, GRID, HEIGHT_IN, WIDTH_IN

ROLES = (
    "best_baseline",
    "scratch",
    "mast",
    "mast_st",
    "fcos_at_once",
    "recommended",
    "at_once_detail_st",
)
FIGURES = {"f1": "F1 at the threshold of validation", "ap": "Average precision"}
APART = 0.09
"""Steps between methods of one test set, of the distance between test sets."""


def draw_shift(summary: Mapping[str, Any]) -> Figure:
    """A panel for each figure: test sets along x, methods as lines with their intervals over recordings."""
    figure = Figure(figsize=(2 * WIDTH_IN, HEIGHT_IN), layout="constrained")
    known = [role for role in ROLES if role in summary]
    panels = figure.subplots(1, len(FIGURES))
    for axes, (name, title) in zip(panels, FIGURES.items(), strict=True):
        for number, role in enumerate(known):
            sets = [summary[role][split] for split in SPLITS]
            values, bounds = (
                np.array([own[key] for own in sets], dtype=np.float64) for key in (name, f"{name}_interval")
            )  # (4,), (4, 2)
            axes.errorbar(
                np.arange(len(SPLITS)) + APART * (number - (len(known) - 1) / 2),
                values,
                np.abs(bounds - values[:, None]).T,
                color=COLOURS[number],
                linewidth=1.4,
                marker="o",
                markersize=4,
                elinewidth=1.0,
                label=_title(role, summary),
            )
        axes.set_xticks(range(len(SPLITS)), list(SPLITS.values()))
        axes.set_ylabel(title, fontsize=9)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color=GRID, linewidth=0.6)
        axes.tick_params(labelsize=8, length=0)
        for side in axes.spines.values():
            side.set_visible(False)
    if known:
        lines, titles = panels[0].get_legend_handles_labels()
        figure.legend(lines, titles, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def _title(role: str, summary: Mapping[str, Any]) -> str:
    if role == "best_baseline":
        return f"best baseline: {MAIN[summary[role]['name']]}"
    return MAIN[summary[role].get("name", role)]
