"""Plot F1 and AP of the headline methods on all test sets, from in-domain to the unseen site."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.shift.tables import MAIN, SPLITS
from mast.plotting.curves import COLOURS, GRID, HEIGHT_IN, WIDTH_IN

ROLES = (
    "best_baseline",
    "scratch",
    "mast",
    "mast_selftrain",
    "fcos_joint_synthetic",
    "recommended",
    "joint_synthetic_hybrid_selftrain",
)
METRICS = {"f1": "F1 at the validation threshold", "ap": "Average precision"}
METHOD_OFFSET = 0.09
"""Distance between methods of one test set, as a fraction of the distance between test sets."""


def plot_shift(summary: Mapping[str, Any]) -> Figure:
    """Return a figure with a panel per metric: test sets along x, methods as lines with intervals over recordings."""
    figure = Figure(figsize=(2 * WIDTH_IN, HEIGHT_IN), layout="constrained")
    roles = [role for role in ROLES if role in summary]
    panels = figure.subplots(1, len(METRICS))
    for axes, (name, title) in zip(panels, METRICS.items(), strict=True):
        for number, role in enumerate(roles):
            sets = [summary[role][split] for split in SPLITS]
            values, bounds = (
                np.array([metrics[key] for metrics in sets], dtype=np.float64)
                for key in (name, f"{name}_interval")
            )  # (4,), (4, 2)
            axes.errorbar(
                np.arange(len(SPLITS)) + METHOD_OFFSET * (number - (len(roles) - 1) / 2),
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
    if roles:
        lines, titles = panels[0].get_legend_handles_labels()
        figure.legend(lines, titles, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def _title(role: str, summary: Mapping[str, Any]) -> str:
    if role == "best_baseline":
        return f"best baseline: {MAIN[summary[role]['name']]}"
    return MAIN[summary[role].get("name", role)]
