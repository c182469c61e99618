"""Render a small spectrogram of a few seconds with boxes, as a thumbnail in a page.

A page may contain hundreds, so thumbnails are rendered pixel by pixel: a figure with axes takes several times as long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import matplotlib as mpl
import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from mast.plotting.spectrogram import BRIGHTEST_DB, DARKEST_DB

WIDTH, HEIGHT = 432, 228
LEFT, TOP, RIGHT, BOTTOM = 34, 6, 426, 206
"""Size of a thumbnail in pixels, and the edges of the spectrogram in it."""

WINDOW, HOP = 512, 128
BACKGROUND_QUANTILE = 0.2
"""Quantile of each bin's levels taken as background; noise at this quantile is about 5 dB below its median."""

Bounds = tuple[float, float, float, float]
"""start_s, low_hz, end_s, high_hz"""

Box = tuple[Literal["expert", "model"], Bounds]
"""Origin and bounds of a box."""

COLOURS = {"expert": "#35d0ff", "model": "#ffd23f"}
"""Colour of a box by origin; boxes of a model are dashed."""

DASH, GAP = 7, 4
PAPER, INK, SHADE = "#ffffff", "#222222", "#000000"
THIN, THICK = 1, 3
"""Line widths of context boxes and of the main box."""

MAX_TICKS, ROUND = 5, (1, 2, 5, 10)
FONT_SIZE, EDGE = 12, 20
"""Font size; a label closer than `EDGE` pixels to an edge is aligned with it."""

Line = tuple[float, float, float, float]
"""Line from x, y to x, y, in pixels."""


def render_thumbnail(
    wave: NDArray[np.float32],
    sample_rate_hz: float,
    start_s: float,
    boxes: Sequence[Box],
) -> Image.Image:
    """Render audio that starts at `start_s` of its recording; the first box is the main one and is drawn thicker."""
    span_s = (start_s, start_s + len(wave) / sample_rate_hz)
    image = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    image.paste(_colourise(_levels_db(wave)), (LEFT, TOP))
    canvas = ImageDraw.Draw(image)
    for number, box in reversed([*enumerate(boxes)]):
        _outline(canvas, box, span_s, sample_rate_hz / 2, THIN if number else THICK)
    _label_axes(canvas, span_s, sample_rate_hz / 2)
    return image


def to_pixels(bounds: Bounds, span_s: tuple[float, float], top_hz: float) -> Line:
    """Return a box in pixels, clipped to the spectrogram: left, top, right, bottom."""
    start_s, low_hz, end_s, high_hz = bounds
    across = (RIGHT - LEFT) / (span_s[1] - span_s[0])
    left, right = (
        LEFT + across * (min(max(at_s, span_s[0]), span_s[1]) - span_s[0]) for at_s in (start_s, end_s)
    )
    top, bottom = (BOTTOM - (BOTTOM - TOP) * min(max(hz, 0.0), top_hz) / top_hz for hz in (high_hz, low_hz))
    return left, top, right, bottom


def _colourise(levels_db: NDArray[np.float64]) -> Image.Image:
    """Convert levels to an image of the spectrogram's size, high frequencies on top. (F, T)"""
    darkest, brightest = DARKEST_DB + 6, BRIGHTEST_DB + 12
    grey = np.clip((levels_db[::-1] - darkest) / (brightest - darkest), 0, 1) * 255
    size = (RIGHT - LEFT, BOTTOM - TOP)
    scaled = Image.fromarray(grey.astype(np.uint8)).resize(size, Image.Resampling.BILINEAR)
    return Image.fromarray(_palette()[np.asarray(scaled)])


@cache
def _palette() -> NDArray[np.uint8]:
    """Return the colours from darkest to brightest. (256, 3)"""
    colours: NDArray[np.uint8] = (mpl.colormaps["magma"](np.arange(256))[:, :3] * 255).astype(np.uint8)
    return colours


def _outline(
    canvas: ImageDraw.ImageDraw, box: Box, span_s: tuple[float, float], top_hz: float, thickness: int
) -> None:
    """Draw the four sides of a box over a dark outline that separates them from bright pixels."""
    origin, bounds = box
    left, top, right, bottom = to_pixels(bounds, span_s, top_hz)
    sides = (
        (left, top, right, top),
        (right, top, right, bottom),
        (left, bottom, right, bottom),
        (left, top, left, bottom),
    )
    for colour, width in ((SHADE, thickness + 2), (COLOURS[origin], thickness)):
        for side in sides:
            for part in _dashes(side) if origin == "model" else (side,):
                canvas.line(part, colour, width)


def _dashes(side: Line) -> Iterator[Line]:
    """Yield the dashes of a line."""
    x, y, end_x, end_y = side
    length = math.hypot(end_x - x, end_y - y)
    for begin in np.arange(0, max(length, 1), DASH + GAP):
        first, last = begin / max(length, 1), min(begin + DASH, length) / max(length, 1)
        yield (
            x + first * (end_x - x),
            y + first * (end_y - y),
            x + last * (end_x - x),
            y + last * (end_y - y),
        )


def _label_axes(canvas: ImageDraw.ImageDraw, span_s: tuple[float, float], top_hz: float) -> None:
    """Label the seconds of the recording below and kHz on the left."""
    for at_s, text in ticks(*span_s):
        x = to_pixels((at_s, 0, at_s, 0), span_s, top_hz)[0]
        canvas.line((x, BOTTOM, x, BOTTOM + 3), INK)
        anchor = "la" if x < LEFT + EDGE else "ra" if x > RIGHT - EDGE else "ma"
        canvas.text((x, BOTTOM + 5), text, INK, _font(), anchor)
    for khz, text in ticks(0.0, top_hz / 1000):
        y = to_pixels((0, 1000 * khz, 0, 1000 * khz), span_s, top_hz)[1]
        canvas.line((LEFT - 3, y, LEFT, y), INK)
        canvas.text((LEFT - 5, y), text, INK, _font(), "rm")
    canvas.text((LEFT - 5, HEIGHT - 3), "kHz", INK, _font(), "rb")


def ticks(start: float, end: float) -> list[tuple[float, str]]:
    """Return a few round numbers between `start` and `end`, each with its text."""
    values = [float(value) for value in MaxNLocator(MAX_TICKS, steps=ROUND).tick_values(start, end)]
    step = values[1] - values[0]
    digits = max(0, -math.floor(math.log10(step) + 1e-6))
    return [(value, f"{value:.{digits}f}") for value in values if start <= value <= end]


@cache
def _font() -> ImageFont.FreeTypeFont:
    """Return the font of the other figures."""
    return ImageFont.truetype(Path(mpl.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"), FONT_SIZE)


def _levels_db(wave: NDArray[np.float32]) -> NDArray[np.float64]:
    """Compute levels in dB above the quieter part of each bin, because a long call fills most of a clip. (N,) → (F, T)"""
    padded = np.pad(wave, (WINDOW // 2, WINDOW // 2 + HOP))
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]  # (T, window)
    levels_db = 10 * np.log10(np.abs(np.fft.rfft(frames * np.hanning(WINDOW))).T ** 2 + 1e-9)
    above_background: NDArray[np.float64] = levels_db - np.quantile(
        levels_db, BACKGROUND_QUANTILE, axis=1, keepdims=True
    )
    return above_background
