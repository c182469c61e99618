"""A small spectrogram of a few seconds with boxes in it, as a thumbnail in a page.

A page may hold hundreds. So tiles are painted pixel by pixel: a figure with axes takes several times as long.
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

from mast.pictures.spectrogram import BRIGHTEST_DB, DARKEST_DB

WIDTH, HEIGHT = 432, 228
LEFT, TOP, RIGHT, BOTTOM = 34, 6, 426, 206
"""Pixels of a tile, and where in it the spectrogram lies."""

WINDOW, HOP = 512, 128
QUIET_SHARE = 0.2
"""Share of a tile's moments that a call leaves quiet, at least; noise there is about 5 dB below its median."""

Bounds = tuple[float, float, float, float]
"""start_s, low_hz, end_s, high_hz"""

Box = tuple[Literal["expert", "model"], Bounds]
"""Who drew it, and where it is."""

COLOURS = {"expert": "#35d0ff", "model": "#ffd23f"}
"""Colour of a box by who drew it; a model's lines are dashed."""

DASH, GAP = 7, 4
PAPER, INK, SHADE = "#ffffff", "#222222", "#000000"
THIN, THICK = 1, 3
"""Lines of boxes: of those around, and of the one meant."""

MOST_TICKS, ROUND = 5, (1, 2, 5, 10)
FONT_SIZE, EDGE = 12, 20
"""Size of letters; a number so near to an edge leans against it."""

Line = tuple[float, float, float, float]
"""From x, y to x, y, in pixels."""


def draw_tile(
    wave: NDArray[np.float32],
    sample_rate_hz: float,
    start_s: float,
    boxes: Sequence[Box],
) -> Image.Image:
    """Picture of a wave that begins `start_s` into its recording; the first box is the one meant and stands out."""
    span_s = (start_s, start_s + len(wave) / sample_rate_hz)
    picture = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    picture.paste(_coloured(_levels_db(wave)), (LEFT, TOP))
    draw = ImageDraw.Draw(picture)
    for number, box in reversed([*enumerate(boxes)]):
        _outline(draw, box, span_s, sample_rate_hz / 2, THIN if number else THICK)
    _label_axes(draw, span_s, sample_rate_hz / 2)
    return picture


def place(bounds: Bounds, span_s: tuple[float, float], top_hz: float) -> Line:
    """Where a box lies in a tile, cut to what the tile shows: left, top, right, bottom."""
    start_s, low_hz, end_s, high_hz = bounds
    across = (RIGHT - LEFT) / (span_s[1] - span_s[0])
    left, right = (
        LEFT + across * (min(max(at_s, span_s[0]), span_s[1]) - span_s[0]) for at_s in (start_s, end_s)
    )
    top, bottom = (BOTTOM - (BOTTOM - TOP) * min(max(hz, 0.0), top_hz) / top_hz for hz in (high_hz, low_hz))
    return left, top, right, bottom


def _coloured(levels_db: NDArray[np.float64]) -> Image.Image:
    """Levels as a picture of the size of a tile's spectrogram, high frequencies on top. (F, T)"""
    darkest, brightest = DARKEST_DB + 6, BRIGHTEST_DB + 12
    grey = np.clip((levels_db[::-1] - darkest) / (brightest - darkest), 0, 1) * 255
    size = (RIGHT - LEFT, BOTTOM - TOP)
    scaled = Image.fromarray(grey.astype(np.uint8)).resize(size, Image.Resampling.BILINEAR)
    return Image.fromarray(_palette()[np.asarray(scaled)])


@cache
def _palette() -> NDArray[np.uint8]:
    """Colours from the darkest to the brightest. (256, 3)"""
    colours: NDArray[np.uint8] = (mpl.colormaps["magma"](np.arange(256))[:, :3] * 255).astype(np.uint8)
    return colours


def _outline(
    draw: ImageDraw.ImageDraw, box: Box, span_s: tuple[float, float], top_hz: float, thickness: int
) -> None:
    """A box's four sides, with a shade beneath that parts them from what is bright."""
    who, bounds = box
    left, top, right, bottom = place(bounds, span_s, top_hz)
    sides = (
        (left, top, right, top),
        (right, top, right, bottom),
        (left, bottom, right, bottom),
        (left, top, left, bottom),
    )
    for colour, width in ((SHADE, thickness + 2), (COLOURS[who], thickness)):
        for side in sides:
            for part in _dashes(side) if who == "model" else (side,):
                draw.line(part, colour, width)


def _dashes(side: Line) -> Iterator[Line]:
    """A line in pieces."""
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


def _label_axes(draw: ImageDraw.ImageDraw, span_s: tuple[float, float], top_hz: float) -> None:
    """Seconds of the recording below, kHz on the left."""
    for at_s, text in ticks(*span_s):
        x = place((at_s, 0, at_s, 0), span_s, top_hz)[0]
        draw.line((x, BOTTOM, x, BOTTOM + 3), INK)
        anchor = "la" if x < LEFT + EDGE else "ra" if x > RIGHT - EDGE else "ma"
        draw.text((x, BOTTOM + 5), text, INK, _font(), anchor)
    for khz, text in ticks(0.0, top_hz / 1000):
        y = place((0, 1000 * khz, 0, 1000 * khz), span_s, top_hz)[1]
        draw.line((LEFT - 3, y, LEFT, y), INK)
        draw.text((LEFT - 5, y), text, INK, _font(), "rm")
    draw.text((LEFT - 5, HEIGHT - 3), "kHz", INK, _font(), "rb")


def ticks(start: float, end: float) -> list[tuple[float, str]]:
    """A few round numbers between two others, each with its text."""
    values = [float(value) for value in MaxNLocator(MOST_TICKS, steps=ROUND).tick_values(start, end)]
    step = values[1] - values[0]
    digits = max(0, -math.floor(math.log10(step) + 1e-6))
    return [(value, f"{value:.{digits}f}") for value in values if start <= value <= end]


@cache
def _font() -> ImageFont.FreeTypeFont:
    """The letters of all other pictures."""
    return ImageFont.truetype(Path(mpl.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"), FONT_SIZE)


def _levels_db(wave: NDArray[np.float32]) -> NDArray[np.float64]:
    """Levels in dB over each band's quieter moments: a long call fills most of a tile. (N,) → (F, T)"""
    padded = np.pad(wave, (WINDOW // 2, WINDOW // 2 + HOP))
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]  # (T, window)
    levels_db = 10 * np.log10(np.abs(np.fft.rfft(frames * np.hanning(WINDOW))).T ** 2 + 1e-9)
    above: NDArray[np.float64] = levels_db - np.quantile(levels_db, QUIET_SHARE, axis=1, keepdims=True)
    return above
