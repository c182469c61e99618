"""Plot precision-recall and calibration curves of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

WIDTH_IN, HEIGHT_IN = 5.2, 4.4
COLOURS = ("#2f6db5", "#e69f00", "#2a9d72", "#c8452d", "#a45fb0", "#00a3b4", "#b8a100", "#5d4037")
GRID, GREY = "#e3e6ea", "#8a8f98"
F1_LINES = (0.2, 0.4, 0.6, 0.8)


@dataclass(frozen=True, slots=True)
class Line:
    """Named curve, and a point on it to mark, NaN for none."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    mark: tuple[float, float] = (np.nan, np.nan)


def plot_precision_recall(lines: Sequence[Line]) -> Figure:
    """Plot precision (y) against recall (x) with the chosen threshold marked, over faint lines of equal F1."""
    figure, axes = _frame(
        "Recall: fraction of annotations detected", "Precision: fraction of predictions correct"
    )
    recall = np.linspace(0.001, 1, 200)
    for level in F1_LINES:
        with np.errstate(divide="ignore"):
            precision = np.where(2 * recall > level, level * recall / (2 * recall - level), np.nan)
        precision[(precision < 0) | (precision > 1)] = np.nan
        axes.plot(recall, precision, color=GRID, linewidth=1.0, zorder=0)
        axes.annotate(
            f"F1 {level:g}", (1.0, level / (2 - level)), (-2, 2), textcoords="offset points", ha="right",
            fontsize=7, color=GREY,
        )  # fmt: skip
    for line, colour in zip(lines, _colours(lines), strict=True):
        axes.plot(line.x, line.y, color=colour, linewidth=1.8, label=line.name)
        axes.plot(*line.mark, "o", color=colour, markersize=8, markeredgecolor="white", markeredgewidth=1.5)
    _legend(axes)
    return figure


def plot_calibration(lines: Sequence[Line]) -> Figure:
    """Plot the fraction of correct predictions (y) against their score (x)."""
    figure, axes = _frame("Score", "Fraction of predictions correct")
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1.0, linestyle=(0, (4, 3)), zorder=0)
    for line, colour in zip(lines, _colours(lines), strict=True):
        axes.plot(line.x, line.y, color=colour, linewidth=1.8, marker="o", markersize=4, label=line.name)
    _legend(axes)
    return figure


@dataclass(frozen=True, slots=True)
class Bar:
    """Fraction with its bounds, over a range of scores."""

    left: float
    right: float
    fraction: float
    low: float
    high: float


def plot_precision(bars: Sequence[Bar], target: float, threshold: float | None) -> Figure:
    """Plot precision (y) by score (x) with bounds, the target precision, and the threshold that reaches it."""
    figure, axes = _frame("Score", "Fraction of events correct")
    axes.axhline(target, color=GREY, linewidth=1.0, linestyle=(0, (4, 3)), zorder=0)
    if threshold is not None:
        axes.axvspan(threshold, 1.0, color=COLOURS[2], alpha=0.12, linewidth=0, zorder=0)
        axes.annotate(f"{threshold:.2f}", (threshold, 0), (3, 4), textcoords="offset points", fontsize=8)
    for bar in bars:
        middle = (bar.left + bar.right) / 2
        axes.plot([middle, middle], [bar.low, bar.high], color=COLOURS[0], linewidth=1.4)
        axes.plot([bar.left, bar.right], [bar.fraction, bar.fraction], color=COLOURS[0], linewidth=2.4)
    return figure


def _frame(x_label: str, y_label: str) -> tuple[Figure, Axes]:
    """Create axes from 0 to 1 in both directions."""
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.02))
    axes.set_xlabel(x_label, fontsize=9)
    axes.set_ylabel(y_label, fontsize=9)
    axes.tick_params(labelsize=8, length=0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MultipleLocator(0.2))
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)
    return figure, axes


def _colours(lines: Sequence[Line]) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(len(lines))]


def _legend(axes: Axes) -> None:
    """Plot a legend in which a dollar sign does not start a formula."""
    if not axes.get_legend_handles_labels()[0]:
        return
    for text in axes.legend(fontsize=8, frameon=False, loc="best").get_texts():
        text.set_parse_math(False)
