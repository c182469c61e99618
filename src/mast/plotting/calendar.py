"""Plot a calendar of sites and days: the split of every day, or unlabelled."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

DPI = 200
CELL_IN, MIN_CELL_IN = 0.42, 0.055
"""Width of a day; with many days they become narrower, down to the second value."""

ROW_IN = 0.34
MAX_WIDTH_IN = 13.0
MARGINS_IN = (2.4, 1.13)

COLOURS = {
    "train": "#2f6db5",
    "val": "#7fb2e5",
    "test": "#e69f00",
    "guard": "#8a8f98",
    "unlabelled": "#d9dce1",
}
HELD_OUT_COLOURS = ("#c8452d", "#2a9d72", "#a45fb0", "#b8a100", "#5d4037", "#00a3b4")
EMPTY = "#f5f6f8"

MIN_FRACTION = 0.22
"""Minimum fraction of a day's height for a split, so that an hour of labels is visible next to an unlabelled day. Guards,
which are only gaps, may be thinner."""


@dataclass(frozen=True, slots=True)
class SiteDay:
    """Hours of one split at one site on one day of the recorder's clock."""

    site: str
    day: date
    split: str
    hours: float


def plot_calendar(days: Sequence[SiteDay], splits: Sequence[str], title: str = "") -> Figure:
    """Plot sites (rows) by days (columns), each day coloured by its splits, in the order of `splits`."""
    sites = sorted({item.site for item in days})
    first = min((item.day for item in days), default=date(2000, 1, 1))
    last = max((item.day for item in days), default=first)
    count = (last - first).days + 1
    present = [split for split in splits if any(item.split == split for item in days)]
    colours = colours_of(splits)
    cell_in = min(CELL_IN, max(MIN_CELL_IN, (MAX_WIDTH_IN - MARGINS_IN[0]) / count))
    width_in = min(MAX_WIDTH_IN, max(5.0, MARGINS_IN[0] + count * cell_in))
    handles = [Patch(color=colours[split], label=split) for split in present]
    if len({(item.site, item.day) for item in days}) < len(sites) * count:
        handles.append(Patch(facecolor=EMPTY, edgecolor="#c9cdd3", linewidth=0.6, label="no audio"))
    columns = max(1, int(width_in / (0.5 + 0.08 * max(map(len, [*present, "no audio"])))))
    legend_in = 0.22 * math.ceil(len(handles) / columns)
    height_in = MARGINS_IN[1] + max(1, len(sites)) * ROW_IN + legend_in
    figure = Figure(figsize=(width_in, height_in), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    _fill(axes, _cells(days, splits), {site: row for row, site in enumerate(sites)}, colours, (first, count))
    _label(axes, sites, first, count)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    figure.legend(
        handles=handles,
        loc="outside lower left",
        ncols=columns,
        fontsize=8,
        frameon=False,
        handlelength=1.1,
    )
    return figure


def colours_of(splits: Sequence[str]) -> dict[str, str]:
    """Return a colour for each split: fixed ones for the usual splits, the next strong one for each held-out set."""
    held_out_colours = cycle(HELD_OUT_COLOURS)
    return {split: COLOURS.get(split) or next(held_out_colours) for split in splits}


def _cells(days: Sequence[SiteDay], splits: Sequence[str]) -> Mapping[tuple[str, date], dict[str, float]]:
    """Return hours by split of every site and day, in the order of the splits."""
    cells: dict[tuple[str, date], dict[str, float]] = defaultdict(dict)
    for item in sorted(days, key=lambda item: splits.index(item.split)):
        cell = cells[item.site, item.day]
        cell[item.split] = cell.get(item.split, 0.0) + item.hours
    return cells


def _fill(
    axes: Axes,
    cells: Mapping[tuple[str, date], dict[str, float]],
    rows: Mapping[str, int],
    colours: Mapping[str, str],
    span: tuple[date, int],
) -> None:
    """Plot every day as a stack of its splits, on a pale background that marks days without audio."""
    first, count = span
    gap = 0.06 if count <= 60 else 0.0
    patches = [Rectangle((-0.5, row - 0.42), count, 0.84) for row in rows.values()]
    faces = [EMPTY] * len(patches)
    for (site, day), hours in cells.items():
        left, top = (day - first).days - 0.5 + gap / 2, rows[site] - 0.42
        for split, fraction in _fractions(hours).items():
            patches.append(Rectangle((left, top), 1 - gap, 0.84 * fraction))
            faces.append(colours[split])
            top += 0.84 * fraction
    axes.add_collection(
        PatchCollection(patches, facecolors=faces, edgecolors="none", antialiased=count <= 60)
    )


def _fractions(hours: Mapping[str, float]) -> dict[str, float]:
    """Return the fraction of a day's height for each split, at least `MIN_FRACTION` except for guards."""
    total = sum(hours.values()) or 1.0
    minimum = {split: 0.0 if split == "guard" else MIN_FRACTION for split in hours}
    raised = {split: max(minimum[split], value / total) for split, value in hours.items()}
    return {split: value / sum(raised.values()) for split, value in raised.items()}


def _label(axes: Axes, sites: Sequence[str], first: date, count: int) -> None:
    """Label sites on the left and days below, and mark months if there are too many days to label."""
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_ylim(max(1, len(sites)) - 0.5, -0.5)
    axes.set_yticks(range(len(sites)), labels=list(sites), fontsize=9)
    days = [first + timedelta(days=offset) for offset in range(count)]
    ticks = _ticks(days)
    labels = [f"{days[tick].day} {days[tick]:%b}" for tick in ticks]
    years = dict.fromkeys(str(day.year) for day in (days[0], days[-1]))
    axes.set_xticks(ticks, labels=labels, fontsize=8)
    axes.set_title(" – ".join(years), loc="right", fontsize=9)
    for offset, day in enumerate(days):
        if day.day == 1 and offset:
            axes.axvline(offset - 0.5, color="white", linewidth=1.2)
    axes.tick_params(length=0)
    axes.tick_params(axis="x", length=3, color="#8a8f98")
    for side in axes.spines.values():
        side.set_visible(False)


def _ticks(days: Sequence[date]) -> list[int]:
    """Return the days to label: each day, one a week, or the first of each month, depending on the room."""
    if len(days) <= 70:
        return list(range(0, len(days), 1 if len(days) <= 16 else 7))
    firsts = [offset for offset, day in enumerate(days) if day.day == 1]
    return firsts[:: 1 + len(firsts) // 14]
