"""Plot a map of chunk embeddings, coloured by site, hour and number of boxes (paper, Representation Analysis)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import Locator, MaxNLocator, MultipleLocator
from numpy.typing import ArrayLike, NDArray

WIDTH_IN, HEIGHT_IN, DPI = 13.0, 5.7, 200
PANEL_TO_KEY = (4.2, 0.75)
TITLES = ("Site", "Hour of the recorder's clock", "Annotated boxes in the chunk")
UNKNOWN, OTHER = "#d3d7dd", "#8a8f98"
GROUND = "#fafbfc"

SITE_COLOURS = (
    "#2f6db5", "#e69f00", "#2a9d72", "#c8452d", "#a45fb0", "#00a3b4", "#b8a100", "#5d4037", "#e377a2",
)  # fmt: skip
"""Colours of the most frequent sites, in order; more colours would not be distinguishable."""

LONGEST_NAME = 16

HOURS = LinearSegmentedColormap.from_list(
    "hours",
    ["#1b2559", "#24568f", "#2a9d8f", "#a3c95a", "#f6c431", "#ee8434", "#d1403f", "#7b2d6b", "#1b2559"],
)
"""Blue night, green morning, golden noon, red evening and blue night again: 23:59 is next to 00:00."""

SEQUENTIAL_COLOURS = LinearSegmentedColormap.from_list(
    "few to many", ["#f7c97c", "#f1605d", "#a3307e", "#1d1147"]
)
"""Magma without its bright end, light to dark for a light background."""

MAP_PT2, SMALLEST_PT2, LARGEST_PT2 = 15_000.0, 2.5, 26.0
"""Total area of all points, and the bounds for the area of a single one."""


@dataclass(frozen=True, slots=True)
class ChunkPoint:
    """Chunk and its position on the map; a row of its table.

    `hour` is that of the recorder's clock at the chunk's start, 7.5 for half past seven, None if the clock is unknown.
    `boxes` is None unless the whole chunk has been reviewed.
    """

    recording_id: str
    start_s: float
    site: str | None
    hour: float | None
    boxes: int | None
    x: float
    y: float


def plot_chunk_map(points: Sequence[ChunkPoint], title: str = "") -> Figure:
    """Plot one map three times: coloured by site, by hour, by number of annotated boxes."""
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), dpi=DPI, layout="constrained")
    panels, keys = figure.subplots(2, len(TITLES), height_ratios=PANEL_TO_KEY)
    coordinates = np.array([(point.x, point.y) for point in points]).reshape(-1, 2)
    hours, boxes = (
        np.array([np.nan if value is None else value for value in values])
        for values in ([point.hour for point in points], [point.boxes for point in points])
    )
    scales = (_scale(HOURS, 24.0), _scale(SEQUENTIAL_COLOURS, max(1.0, np.nanmax(boxes, initial=0.0))))
    _plot_sites(panels[0], keys[0], coordinates, [point.site for point in points])
    for panel, values, scale in zip(panels[1:], (hours, boxes), scales, strict=True):
        _plot_values(panel, coordinates, values, scale)
    _plot_colourbar(figure, keys[1], scales[0], MultipleLocator(6))
    _plot_colourbar(figure, keys[2], scales[1], MaxNLocator(6, integer=True))
    for key, values, reason in zip(keys[1:], (hours, boxes), ("no clock", "not reviewed"), strict=True):
        if np.isnan(values).any():
            _plot_legend(key, [_dot(reason, UNKNOWN)], "upper right")
    for panel, key, name in zip(panels, keys, TITLES, strict=True):
        panel.set_title(name, loc="left", fontsize=12, fontweight="bold")
        panel.set(xticks=[], yticks=[], facecolor=GROUND)
        panel.margins(0.05)
        panel.spines[:].set_visible(False)
        key.set_axis_off()
    figure.suptitle(title, x=0.005, ha="left", fontsize=10, color="#5b626d")
    return figure


def site_colours(sites: Sequence[str | None]) -> dict[str, str]:
    """Return a colour for each of the most frequent sites, in that order; ties go by name."""
    counts = Counter(site for site in sites if site is not None)
    ranked = sorted(counts, key=lambda site: (-counts[site], site))
    return dict(zip(ranked, SITE_COLOURS, strict=False))


def _plot_sites(
    panel: Axes, key: Axes, coordinates: NDArray[np.float64], sites: Sequence[str | None]
) -> None:
    """Plot points in the colour of their site, with a legend of the most frequent sites."""
    colours = site_colours(sites)
    point_colours = [UNKNOWN if site is None else colours.get(site, OTHER) for site in sites]
    order = _random_order(len(coordinates))
    _scatter(
        panel, coordinates[order], to_rgba_array([point_colours[row] for row in order]), len(coordinates)
    )
    handles = [_dot(_shortened(site), colour) for site, colour in colours.items()]
    others = len(set(sites) - {None} - colours.keys())
    if others:
        handles.append(_dot(f"{others} more", OTHER))
    if None in sites:
        handles.append(_dot("no site", UNKNOWN))
    _plot_legend(key, handles, "upper left")


def _plot_values(
    panel: Axes, coordinates: NDArray[np.float64], values: NDArray[np.float64], scale: ScalarMappable
) -> None:
    """Plot points in the colour of their value, those without a value in grey below them."""
    order = _random_order(len(coordinates))
    is_labelled = ~np.isnan(values[order])
    unlabelled, labelled = order[~is_labelled], order[is_labelled]
    _scatter(panel, coordinates[unlabelled], to_rgba_array([UNKNOWN] * len(unlabelled)), len(coordinates))
    _scatter(panel, coordinates[labelled], scale.to_rgba(values[labelled]), len(coordinates))


def _plot_colourbar(figure: Figure, key: Axes, scale: ScalarMappable, ticks: Locator) -> None:
    """Plot the colour bar of a value."""
    inset = key.inset_axes((0.02, 0.72, 0.6, 0.16))
    bar = figure.colorbar(scale, cax=inset, orientation="horizontal", ticks=ticks)
    bar.outline.set_visible(False)
    inset.tick_params(labelsize=8, length=2)


def _plot_legend(key: Axes, dots: list[Line2D], corner: Literal["upper left", "upper right"]) -> None:
    key.legend(
        handles=dots,
        loc=corner,
        ncols=3,
        fontsize=8,
        frameon=False,
        borderpad=0,
        handletextpad=0.1,
        columnspacing=1.2,
    )


def _scale(colours: Colormap, maximum: float) -> ScalarMappable:
    return ScalarMappable(Normalize(0.0, maximum), colours)


def _dot(name: str, colour: str) -> Line2D:
    return Line2D([], [], linestyle="", marker="o", markersize=6, color=colour, label=name)


def _scatter(panel: Axes, coordinates: NDArray[np.float64], colours: ArrayLike, all_points: int) -> None:
    """Plot points of a size that depends on their total number. (N, 2), (N, 4)"""
    size_pt2 = float(np.clip(MAP_PT2 / max(1, all_points), SMALLEST_PT2, LARGEST_PT2))
    panel.scatter(
        coordinates[:, 0], coordinates[:, 1], s=size_pt2, c=colours, linewidths=0, alpha=0.85, rasterized=True
    )


def _random_order(count: int) -> NDArray[np.int64]:
    """Return a fixed random order of the points, so that the last of the table do not cover the others."""
    return np.random.default_rng(0).permutation(count)


def _shortened(name: str) -> str:
    """Shorten a name to fit in the legend, keeping both ends."""
    half = LONGEST_NAME // 2
    return name if len(name) <= LONGEST_NAME else f"{name[: half - 1]}…{name[-half:]}"
