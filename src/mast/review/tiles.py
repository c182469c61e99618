"""Tiles: small pictures of any span and band of a recording, from which the page puts its spectrogram together.

A tile is grey: each value is a level above the background in quarters of a dB, and the page gives it colour and
brightness. So a tile is made once, whatever colours people look at it with.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mast.recordings.decode import Audio

Levels = NDArray[np.float32]

STEPS_PER_DB = 4.0
"""Values of a tile for each dB above the background; 255 is 64 dB."""

SHORTEST_WINDOW, LONGEST_WINDOW = 128, 4096
QUIET_SHARE = 0.2
"""Share of moments that animals leave quiet in every band, at least; their level is the background."""

KNOT_S = 300.0
"""So often the background is measured; between two such moments it changes evenly, so that tiles have no seams."""

SPOTS, SPOT_FRAMES = 24, 24
"""Places around a knot, and windows at each, that the background is measured from."""

READ_WHOLE_S = 120.0
"""A longer tile is read in spots: at that scale nobody sees what lies between."""

OVERLAP, MOST_WINDOWS, FEW_WINDOWS = 1.4, 8, 2
"""Windows of a column wider than one overlap a little; there are never more than so many, and fewer in a long tile."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What a tile shows, in seconds and Hz of its recording, and how many pixels it has."""

    start_s: float
    end_s: float
    low_hz: float
    high_hz: float
    width: int = 512
    height: int = 256

    def window(self, rate_hz: int) -> int:
        """Samples of a window that blurs as many pixels in time as in frequency, as a power of two."""
        pixel_s = (self.end_s - self.start_s) / self.width
        pixel_hz = (self.high_hz - self.low_hz) / self.height
        exact = math.sqrt(pixel_s / pixel_hz) * rate_hz
        return int(np.clip(2 ** round(math.log2(exact)), SHORTEST_WINDOW, LONGEST_WINDOW))


def draw_tile(audio: Audio, tile: Tile, background_db: Levels) -> bytes:
    """A tile as a grey PNG, high sounds on top, over the background of each band, (F,), or of each column, (T, F)."""
    levels_db = column_levels(audio, tile) - background_db  # (T, F)
    rows = _rows(levels_db.T, tile, audio.sample_rate_hz)  # (height, T)
    grey = (rows[::-1] * STEPS_PER_DB).clip(0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(grey).save(buffer, "png", compress_level=1)
    return buffer.getvalue()


def column_levels(audio: Audio, tile: Tile) -> Levels:
    """The loudest level of each band in each column, in dB; nothing but silence beyond the recording. → (width, F)"""
    rate_hz, window = audio.sample_rate_hz, tile.window(audio.sample_rate_hz)
    column = (tile.end_s - tile.start_s) * rate_hz / tile.width
    starts = np.round(tile.start_s * rate_hz + np.arange(tile.width) * column).astype(np.int64)
    each = min(max(1, math.ceil(column / window * OVERLAP)), MOST_WINDOWS)
    if tile.end_s - tile.start_s > READ_WHOLE_S:
        each = min(each, FEW_WINDOWS)
    firsts = (starts[:, None] + np.arange(each) * column / each).astype(np.int64).ravel() - window // 2
    power = (
        _powers(_frames(audio, firsts, window)).reshape(tile.width, each, -1).max(axis=1)
    )  # (T, n, F) → (T, F)
    louder = sum(
        1 / number for number in range(1, each + 1)
    )  # the loudest of so many windows of noise, on average
    return _decibels(power / np.float32(louder))


def background(audio: Audio, window: int, knot: int) -> Levels:
    """Level of the quieter moments of each band around a knot, `knot * KNOT_S` into the recording. → (F,)"""
    rate_hz = audio.sample_rate_hz
    reach = max(0, audio.samples - SPOT_FRAMES * window)
    low, high = ((knot + side) * KNOT_S * rate_hz for side in (-0.5, 0.5))
    spots = np.linspace(np.clip(low, 0, reach), np.clip(high, 0, reach), SPOTS).astype(np.int64)
    steps = np.arange(SPOT_FRAMES) * window
    frames = [_frames(audio, spot + steps, window) for spot in np.unique(spots).tolist()]
    levels_db = _decibels(_powers(np.concatenate(frames)))  # (N, F)
    quiet: Levels = np.quantile(levels_db, QUIET_SHARE, axis=0).astype(np.float32)
    padded = np.pad(quiet, 2, mode="edge")
    return np.lib.stride_tricks.sliding_window_view(padded, 5).mean(axis=1)  # type: ignore[no-any-return]


def between_knots(tile: Tile, duration_s: float) -> tuple[int, int, Levels]:
    """The knots around a tile's middle, and how far each column is from the first to the second, 0 to 1. → (width, 1)"""
    last = math.floor(duration_s / KNOT_S)
    knot = min(math.floor((tile.start_s + tile.end_s) / 2 / KNOT_S), last)
    times_s = np.linspace(tile.start_s, tile.end_s, tile.width, dtype=np.float32)
    return knot, min(knot + 1, last), (times_s / KNOT_S - knot).clip(0, 1)[:, None]


def _frames(audio: Audio, firsts: NDArray[np.int64], window: int) -> Levels:
    """Windows of sound from these samples on. (N,) → (N, window)"""
    low, high = int(firsts.min()), int(firsts.max()) + window
    if high - low <= READ_WHOLE_S * audio.sample_rate_hz:
        sound = _read(audio, low, high)
        return np.lib.stride_tricks.sliding_window_view(sound, window)[firsts - low]
    return np.stack([_read(audio, first, first + window) for first in firsts.tolist()])


def _read(audio: Audio, first: int, stop: int) -> Levels:
    """Samples `first` to `stop`, silent where there is no recording."""
    sound = audio.read_samples(first, stop)
    before = min(max(0, -first), stop - first)
    return np.pad(sound, (before, stop - first - before - len(sound)))


def _powers(frames: Levels) -> Levels:
    """(N, window) → (N, F)"""
    window = frames.shape[1]
    shaped = np.fft.rfft(frames * np.hanning(window).astype(np.float32), axis=1)
    return (shaped.real**2 + shaped.imag**2).astype(np.float32) / np.float32(window)


def _decibels(power: Levels) -> Levels:
    return 10 * np.log10(np.maximum(power, np.float32(1e-12)))


def _rows(levels_db: Levels, tile: Tile, rate_hz: int) -> Levels:
    """Bands as rows of pixels, low ones first: the loudest in a row, or between two bands. (F, T) → (height, T)"""
    bins = len(levels_db)
    edges = np.linspace(tile.low_hz, tile.high_hz, tile.height + 1) / (rate_hz / 2) * (bins - 1)
    if (edges[1] - edges[0]) <= 1:
        middles = ((edges[:-1] + edges[1:]) / 2).clip(0, bins - 1)
        below = np.minimum(np.floor(middles).astype(np.int64), bins - 2)
        part = (middles - below).astype(np.float32)[:, None]
        mixed: Levels = levels_db[below] * (1 - part) + levels_db[below + 1] * part
        return mixed
    firsts = np.floor(edges[:-1]).astype(np.int64).clip(0, bins - 1)
    return np.maximum.reduceat(levels_db, firsts, axis=0)  # the top row may reach further, to the last band
