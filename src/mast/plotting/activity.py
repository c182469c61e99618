"""Plot activity: events by hour and frequency, calendars of sites and days, and a histogram of scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, timedelta

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from mast.plotting.curves import COLOURS, GREY, GRID
from mast.types import Floats

WIDE_IN, NARROW_IN = 8.6, 4.4
"""Width of a figure for a desktop and for a phone; the font size is the same."""

DIEL_HEIGHT_IN = 4.9
SCORES_IN = (5.2, 3.4)
ROW_IN, CALENDAR_MARGIN_IN = 0.27, 0.95
MAX_ROWS = 32
"""Maximum rows of the map; bands are joined to fit."""

MAX_COLUMNS = 366
"""Maximum columns of a calendar; days are joined to fit."""

NO_EFFORT_COLOUR = "#e9ecf0"
"""Colour of hours and days without audio."""

EVENT_COLOURS = LinearSegmentedColormap.from_list(
    "events", ["#fff8e8", "#f7c97c", "#f1605d", "#a3307e", "#1d1147"]
)
HOURS = LinearSegmentedColormap.from_list("hours of audio", ["#e8f1fa", "#7fb2e5", "#2f6db5", "#173a63"])


def plot_diel(rates: Floats, effort_h: Floats, band_hz: float, width_in: float = WIDE_IN) -> Figure:
    """Plot events per hour of audio by hour of the day and frequency, and above it the hours of audio.

    `rates` (24, B) are of bands of `band_hz` from 0 Hz up, NaN where there is no audio; `effort_h` (24,) are hours.
    """
    joined, height_hz = _joined(rates, band_hz)
    figure = Figure(figsize=(width_in, min(DIEL_HEIGHT_IN, width_in)), layout="constrained")
    above, axes = figure.subplots(2, 1, sharex=True, height_ratios=(1, 5))
    above.bar(np.arange(24) + 0.5, effort_h, width=0.92, color=COLOURS[0])
    above.set_ylabel("Hours\nof audio", fontsize=9)
    above.yaxis.set_major_locator(MaxNLocator(2))
    image = axes.imshow(
        joined.T,
        origin="lower",
        aspect="auto",
        extent=(0, 24, 0, joined.shape[1] * height_hz / 1000),
        cmap=EVENT_COLOURS,
        vmin=0,
        vmax=_maximum(joined),
        interpolation="nearest",
    )
    axes.set_facecolor(NO_EFFORT_COLOUR)
    axes.set_ylabel("Frequency (kHz)", fontsize=10)
    axes.set_xlabel("Hour of the recorder’s clock", fontsize=10)
    hours = range(0, 25, 3 if width_in > NARROW_IN else 6)
    axes.set_xticks(hours, labels=[f"{hour:02d}" for hour in hours])
    _bar(figure, axes, image, "Events per hour")
    for panel in (above, axes):
        _bare(panel)
    return figure


def plot_site_days(
    values: Mapping[tuple[str, date], float],
    sites: Sequence[str],
    span: tuple[date, date],
    label: str,
    colours: Colormap = EVENT_COLOURS,
    width_in: float = WIDE_IN,
) -> Figure:
    """Plot a value for every site (rows) and day (columns) as colour; grey where there is none."""
    first, last = span
    count = (last - first).days + 1
    per = math.ceil(count / MAX_COLUMNS)
    grid = np.full((max(1, len(sites)), math.ceil(count / per), per), np.nan)
    rows = {site: row for row, site in enumerate(sites)}
    for (site, day), value in values.items():
        if site in rows:
            grid[rows[site], (day - first).days // per, (day - first).days % per] = value
    mean = _mean(grid)
    height_in = CALENDAR_MARGIN_IN + ROW_IN * len(grid)
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    axes = figure.add_subplot()
    extent = (-0.5, grid.shape[1] * per - 0.5, len(grid) - 0.5, -0.5)
    image = axes.imshow(
        mean,
        aspect="auto",
        extent=extent,
        cmap=colours,
        vmin=0,
        vmax=_maximum(mean),
        interpolation="nearest",
    )
    axes.set_facecolor(NO_EFFORT_COLOUR)
    axes.hlines(np.arange(len(grid) - 1) + 0.5, *extent[:2], color="white", linewidth=2)
    axes.set_yticks(range(len(sites)), labels=[_short(site) for site in sites], fontsize=10)
    _label_days(axes, first, count, round(width_in))
    _bar(figure, axes, image, label)
    _bare(axes)
    return figure


def plot_scores(counts: NDArray[np.int64], threshold: float) -> Figure:
    """Plot a histogram of scores from 0 to 1 in equal steps; no event is below `threshold`."""
    figure = Figure(figsize=SCORES_IN, layout="constrained")
    axes = figure.add_subplot()
    edges = np.linspace(0, 1, len(counts) + 1)
    axes.bar(edges[:-1], counts, width=np.diff(edges) * 0.9, align="edge", color=COLOURS[0])
    axes.axvline(threshold, color=GREY, linewidth=1.0, linestyle=(0, (4, 3)))
    axes.set(xlim=(max(0.0, threshold - 0.05), 1.0))
    axes.set_xlabel("Score", fontsize=10)
    axes.set_ylabel("Events", fontsize=10)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.0f}"))
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    _bare(axes)
    return figure


def _joined(rates: Floats, band_hz: float) -> tuple[Floats, float]:
    """Join bands, up to the highest with an event, until at most `MAX_ROWS` are left; the maximum of joined bands counts.

    The shape is (24, B'); also return the height of a joined band in Hz.
    """
    used = np.flatnonzero(np.nan_to_num(rates).any(axis=0))
    count = max(8, int(used.max(initial=0)) + 2)
    per = math.ceil(count / MAX_ROWS)
    count = math.ceil(count / per) * per
    padded = np.pad(rates, ((0, 0), (0, max(0, count - rates.shape[1]))))[:, :count]
    return padded.reshape(24, -1, per).max(axis=2), band_hz * per


def _mean(grid: Floats) -> Floats:
    """Return the mean of the joined days, NaN where none has a value. (S, C, per) → (S, C)"""
    is_defined = ~np.isnan(grid)
    total = np.where(is_defined, grid, 0.0).sum(axis=2)
    means: Floats = np.where(is_defined.any(axis=2), total / np.maximum(is_defined.sum(axis=2), 1), np.nan)
    return means


def _maximum(values: Floats) -> float:
    """Return the upper limit of the colour scale: a quantile, so that a single outlier does not make all others pale."""
    defined = values[~np.isnan(values)]
    limit = float(np.quantile(defined, 0.995)) if defined.size else 0.0
    return limit or float(defined.max(initial=0.0)) or 1.0


def _label_days(axes: Axes, first: date, count: int, max_labels: int) -> None:
    """Label days below, at most `max_labels`, with the year at its first label."""
    step = max(1, math.ceil(count / max_labels))
    days = [first + timedelta(days=offset) for offset in range(0, count, step)]
    names = [
        f"{day.day} {day:%b}" + (f"\n{day.year}" if not number or day.year != days[number - 1].year else "")
        for number, day in enumerate(days)
    ]
    axes.set_xticks(range(0, count, step), labels=names, fontsize=9)


def _bar(figure: Figure, axes: Axes, image: ScalarMappable, label: str) -> None:
    bar = figure.colorbar(image, ax=axes, pad=0.01, aspect=18, ticks=MaxNLocator(4))
    bar.set_label(label, fontsize=9)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=2)


def _bare(axes: Axes) -> None:
    axes.tick_params(labelsize=9, length=0, pad=5)
    for side in axes.spines.values():
        side.set_visible(False)


def _short(name: str) -> str:
    """Shorten a name to fit next to its row, keeping both ends; escape dollar signs, which start formulas."""
    text = name or "no site"
    return (text if len(text) <= 20 else f"{text[:9]}…{text[-10:]}").replace("$", r"\$")
