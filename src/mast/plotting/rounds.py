"""Plot metrics over the rounds of self-training (paper, effect of iterative self-training)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mast.plotting.curves import COLOURS, GRID, HEIGHT_IN, WIDTH_IN


def plot_by_round(rows: Mapping[str, Sequence[float]], title: str, *, is_fraction: bool = True) -> Figure:
    """Plot a line for each name over the rounds; round 0 is the first teacher."""
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
    axes = figure.add_subplot()
    for number, (name, values) in enumerate(rows.items()):
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(
            range(len(values)), values, color=colour, linewidth=1.8, marker="o", label=name or "no site"
        )
    axes.set_xlabel("Round; 0 is the first teacher", fontsize=9)
    axes.set_ylabel(title, fontsize=9)
    axes.set_ylim(bottom=0, top=1.02 if is_fraction else None)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(color=GRID, linewidth=0.6)
    axes.tick_params(labelsize=8, length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    for text in axes.legend(fontsize=8, frameon=False, loc="best").get_texts():
        text.set_parse_math(False)
    return figure
