"""A map of chunks by how they sound, coloured by site, hour and number of boxes (paper, Representation Analysis)."""

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
TITLES = ("Site", "Hour of the recorder's clock", "Expert boxes in the chunk")
UNKNOWN, OTHER = "#d3d7dd", "#8a8f98"
GROUND = "#fafbfc"

SITE_COLOURS = (
    "#2f6db5", "#e69f00", "#2a9d72", "#c8452d", "#a45fb0", "#00a3b4", "#b8a100", "#5d4037", "#e377a2",
)  # fmt: skip
"""Most frequent site first; more cannot be told apart."""

LONGEST_NAME = 16

HOURS = LinearSegmentedColormap.from_list(
    "hours",
    ["#1b2559", "#24568f", "#2a9d8f", "#a3c95a", "#f6c431", "#ee8434", "#d1403f", "#7b2d6b", "#1b2559"],
)
"""Blue night, green morning, golden noon, red evening and night again: 23:59 is beside 00:00."""

FEW_TO_MANY = LinearSegmentedColormap.from_list("few to many", ["#f7c97c", "#f1605d", "#a3307e", "#1d1147"])
"""Magma without its bright end, light to dark for a light ground."""

MAP_PT2, SMALLEST_PT2, LARGEST_PT2 = 15_000.0, 2.5, 26.0
"""What all points cover together; a single one is neither smaller nor larger than the bounds."""


@dataclass(frozen=True, slots=True)
class ChunkPoint:
    """A chunk and its place on the map; a row of its table.

    `hour` is that of the recorder's clock at the chunk's start, 7.5 for half past seven, None where no clock can be
    trusted. `boxes` is None where no expert has reviewed the chunk as a whole.
    """

    recording_id: str
    start_s: float
    site: str | None
    hour: float | None
    boxes: int | None
    x: float
    y: float


def draw_chunk_map(points: Sequence[ChunkPoint], title: str = "") -> Figure:
    """Picture of one map three times: by site, by hour, by number of expert boxes."""
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), dpi=DPI, layout="constrained")
    panels, keys = figure.subplots(2, len(TITLES), height_ratios=PANEL_TO_KEY)
    places = np.array([(point.x, point.y) for point in points]).reshape(-1, 2)
    hours, boxes = (
        np.array([np.nan if value is None else value for value in values])
        for values in ([point.hour for point in points], [point.boxes for point in points])
    )
    scales = (_scale(HOURS, 24.0), _scale(FEW_TO_MANY, max(1.0, np.nanmax(boxes, initial=0.0))))
    _draw_sites(panels[0], keys[0], places, [point.site for point in points])
    for panel, values, scale in zip(panels[1:], (hours, boxes), scales, strict=True):
        _draw_numbers(panel, places, values, scale)
    _draw_bar(figure, keys[1], scales[0], MultipleLocator(6))
    _draw_bar(figure, keys[2], scales[1], MaxNLocator(6, integer=True))
    for key, values, why in zip(keys[1:], (hours, boxes), ("no clock", "not reviewed"), strict=True):
        if np.isnan(values).any():
            _draw_legend(key, [_dot(why, UNKNOWN)], "upper right")
    for panel, key, name in zip(panels, keys, TITLES, strict=True):
        panel.set_title(name, loc="left", fontsize=12, fontweight="bold")
        panel.set(xticks=[], yticks=[], facecolor=GROUND)
        panel.margins(0.05)
        panel.spines[:].set_visible(False)
        key.set_axis_off()
    figure.suptitle(title, x=0.005, ha="left", fontsize=10, color="#5b626d")
    return figure


def site_colours(sites: Sequence[str | None]) -> dict[str, str]:
    """A colour for each of the most frequent sites, in that order; ties go by name."""
    counts = Counter(site for site in sites if site is not None)
    ranked = sorted(counts, key=lambda site: (-counts[site], site))
    return dict(zip(ranked, SITE_COLOURS, strict=False))


def _draw_sites(panel: Axes, key: Axes, places: NDArray[np.float64], sites: Sequence[str | None]) -> None:
    """Points in the colour of their site, and the most frequent ones by name."""
    colours = site_colours(sites)
    every = [UNKNOWN if site is None else colours.get(site, OTHER) for site in sites]
    order = _mixed(len(places))
    _scatter(panel, places[order], to_rgba_array([every[row] for row in order]), len(places))
    named = [_dot(_shortened(site), colour) for site, colour in colours.items()]
    others = len(set(sites) - {None} - colours.keys())
    if others:
        named.append(_dot(f"{others} more", OTHER))
    if None in sites:
        named.append(_dot("no site", UNKNOWN))
    _draw_legend(key, named, "upper left")


def _draw_numbers(
    panel: Axes, places: NDArray[np.float64], values: NDArray[np.float64], scale: ScalarMappable
) -> None:
    """Points in the colour of their number, those without one in grey below them."""
    order = _mixed(len(places))
    is_known = ~np.isnan(values[order])
    unknown, known = order[~is_known], order[is_known]
    _scatter(panel, places[unknown], to_rgba_array([UNKNOWN] * len(unknown)), len(places))
    _scatter(panel, places[known], scale.to_rgba(values[known]), len(places))


def _draw_bar(figure: Figure, key: Axes, scale: ScalarMappable, ticks: Locator) -> None:
    """Which colour is which number."""
    place = key.inset_axes((0.02, 0.72, 0.6, 0.16))
    bar = figure.colorbar(scale, cax=place, orientation="horizontal", ticks=ticks)
    bar.outline.set_visible(False)
    place.tick_params(labelsize=8, length=2)


def _draw_legend(key: Axes, dots: list[Line2D], corner: Literal["upper left", "upper right"]) -> None:
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


def _scale(colours: Colormap, most: float) -> ScalarMappable:
    return ScalarMappable(Normalize(0.0, most), colours)


def _dot(name: str, colour: str) -> Line2D:
    return Line2D([], [], linestyle="", marker="o", markersize=6, color=colour, label=name)


def _scatter(panel: Axes, places: NDArray[np.float64], colours: ArrayLike, all_points: int) -> None:
    """Points of a size that suits how many there are in all. (N, 2), (N, 4)"""
    size_pt2 = float(np.clip(MAP_PT2 / max(1, all_points), SMALLEST_PT2, LARGEST_PT2))
    panel.scatter(
        places[:, 0], places[:, 1], s=size_pt2, c=colours, linewidths=0, alpha=0.85, rasterized=True
    )


def _mixed(count: int) -> NDArray[np.int64]:
    """An order in which to draw points, always the same, so that none lies on top for coming late in the table."""
    return np.random.default_rng(0).permutation(count)


def _shortened(name: str) -> str:
    """A name that has room in the legend, both its ends kept."""
    half = LONGEST_NAME // 2
    return name if len(name) <= LONGEST_NAME else f"{name[: half - 1]}…{name[-half:]}"
