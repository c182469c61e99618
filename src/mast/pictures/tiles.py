"""A small spectrogram of a few seconds with boxes in it, as a thumbnail in a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from mast.pictures.spectrogram import BRIGHTEST_DB, DARKEST_DB

WIDTH_IN, HEIGHT_IN = 3.6, 1.9
WINDOW, HOP = 512, 128
QUIET_SHARE = 0.2
"""Share of a tile's moments that a call leaves quiet, at least; noise there is about 5 dB below its median."""

Bounds = tuple[float, float, float, float]
"""start_s, low_hz, end_s, high_hz"""

Box = tuple[Literal["expert", "model"], Bounds]
"""Who drew it, and where it is."""

STYLES = {"expert": ("#35d0ff", "-"), "model": ("#ffd23f", (0, (4, 2)))}
"""Colour and line of a box, by who drew it."""


def draw_tile(
    wave: NDArray[np.float32],
    sample_rate_hz: float,
    start_s: float,
    boxes: Sequence[Box],
) -> Figure:
    """Picture of a wave that begins `start_s` into its recording; the first box is the one meant and stands out."""
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
    axes = figure.add_subplot()
    end_s = start_s + len(wave) / sample_rate_hz
    axes.imshow(
        _levels_db(wave),
        origin="lower",
        aspect="auto",
        extent=(start_s, end_s, 0.0, sample_rate_hz / 2000),
        cmap="magma",
        vmin=DARKEST_DB + 6,
        vmax=BRIGHTEST_DB + 12,
        interpolation="bilinear",
    )
    _draw_boxes(axes, boxes[1:], linewidth=1.0, alpha=0.8)
    _draw_boxes(axes, boxes[:1], linewidth=2.0, alpha=1.0)
    axes.set(xlim=(start_s, end_s), ylim=(0.0, sample_rate_hz / 2000))
    axes.set_ylabel("kHz", fontsize=7)
    axes.tick_params(labelsize=7, length=2)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.ticklabel_format(useOffset=False)
    for side in axes.spines.values():
        side.set_visible(False)
    return figure


def _draw_boxes(axes: Axes, boxes: Sequence[Box], linewidth: float, alpha: float) -> None:
    """Outlines, all at once: of a model that has learned little there may be hundreds in a tile."""
    corners = [
        [(start_s, low_hz / 1000), (start_s, high_hz / 1000), (end_s, high_hz / 1000), (end_s, low_hz / 1000)]
        for _, (start_s, low_hz, end_s, high_hz) in boxes
    ]
    outlines = PolyCollection(
        corners, facecolors="none", edgecolors=[STYLES[origin][0] for origin, _ in boxes],
        linestyles=[STYLES[origin][1] for origin, _ in boxes], linewidth=linewidth, alpha=alpha,
        path_effects=[patheffects.withStroke(linewidth=linewidth + 1.4, foreground="#000000aa")],
    )  # fmt: skip
    axes.add_collection(outlines)


def _levels_db(wave: NDArray[np.float32]) -> NDArray[np.float64]:
    """Levels in dB over each band's quieter moments: a long call fills most of a tile. (N,) → (F, T)"""
    padded = np.pad(wave, (WINDOW // 2, WINDOW // 2 + HOP))
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]  # (T, window)
    levels_db = 10 * np.log10(np.abs(np.fft.rfft(frames * np.hanning(WINDOW))).T ** 2 + 1e-9)
    above: NDArray[np.float64] = levels_db - np.quantile(levels_db, QUIET_SHARE, axis=1, keepdims=True)
    return above
