"""Render spectrogram tiles: small images of a span and band of a recording, which the page combines.

A tile is a grey image: each value is a level above the background in steps of 0.25 dB. The page applies the colour map
and the gain, so a tile is rendered once for all colour maps.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mast.audio.reader import Audio

Levels = NDArray[np.float32]

STEPS_PER_DB = 4.0
"""Grey values per dB above the background; 255 is 64 dB."""

SHORTEST_WINDOW, LONGEST_WINDOW = 128, 4096
BACKGROUND_QUANTILE = 0.2
"""Quantile of the levels of a band that is the background: every band is without calls at least this part of the time."""

KNOT_S = 300.0
"""Interval between background measurements; interpolating between them avoids seams between tiles."""

POSITIONS, POSITION_FRAMES = 24, 24
"""Number of positions around a knot for measuring the background, and windows at each position."""

FULL_READ_S = 120.0
"""Maximum duration that is read completely; of a longer tile only the windows are read."""

OVERLAP, MAX_WINDOWS, LONG_TILE_WINDOWS = 1.4, 8, 2
"""Overlap of windows in a column wider than one window; maximum windows per column, and those in a long tile."""


@dataclass(frozen=True, slots=True)
class TileSpec:
    """Span and band of a tile in seconds and Hz of the recording, and its size in pixels."""

    start_s: float
    end_s: float
    low_hz: float
    high_hz: float
    width: int = 512
    height: int = 256

    def window(self, rate_hz: int) -> int:
        """Return the window length in samples, a power of two that blurs equally many pixels in time and frequency."""
        pixel_s = (self.end_s - self.start_s) / self.width
        pixel_hz = (self.high_hz - self.low_hz) / self.height
        exact = math.sqrt(pixel_s / pixel_hz) * rate_hz
        return int(np.clip(2 ** round(math.log2(exact)), SHORTEST_WINDOW, LONGEST_WINDOW))


def render_tile(audio: Audio, tile: TileSpec, background_db: Levels) -> bytes:
    """Render a tile as a grey PNG, high frequencies at the top, above a background of shape (F,) or (T, F) in dB."""
    levels_db = column_levels(audio, tile) - background_db  # (T, F)
    rows = _rows(levels_db.T, tile, audio.sample_rate_hz)  # (height, T)
    grey = (rows[::-1] * STEPS_PER_DB).clip(0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(grey).save(buffer, "png", compress_level=1)
    return buffer.getvalue()


def column_levels(audio: Audio, tile: TileSpec) -> Levels:
    """Compute the maximum level of each band in each column in dB, with silence beyond the recording, (width, F)."""
    rate_hz, window = audio.sample_rate_hz, tile.window(audio.sample_rate_hz)
    column = (tile.end_s - tile.start_s) * rate_hz / tile.width  # samples
    starts = np.round(tile.start_s * rate_hz + np.arange(tile.width) * column).astype(np.int64)
    each = min(max(1, math.ceil(column / window * OVERLAP)), MAX_WINDOWS)
    if tile.end_s - tile.start_s > FULL_READ_S:
        each = min(each, LONG_TILE_WINDOWS)
    firsts = (starts[:, None] + np.arange(each) * column / each).astype(np.int64).ravel() - window // 2
    # (T, n, F) → (T, F)
    power = _powers(_frames(audio, firsts, window)).reshape(tile.width, each, -1).max(axis=1)
    # mean of the maximum of n exponential powers, such as those of noise
    expected_max = sum(1 / number for number in range(1, each + 1))
    return _decibels(power / np.float32(expected_max))


def background_levels(audio: Audio, window: int, knot: int) -> Levels:
    """Measure the background of each band around a knot, at `knot * KNOT_S` in the recording, in dB, (F,)."""
    rate_hz = audio.sample_rate_hz
    reach = max(0, audio.samples - POSITION_FRAMES * window)
    low, high = ((knot + side) * KNOT_S * rate_hz for side in (-0.5, 0.5))
    positions = np.linspace(np.clip(low, 0, reach), np.clip(high, 0, reach), POSITIONS).astype(np.int64)
    steps = np.arange(POSITION_FRAMES) * window
    frames = [_frames(audio, position + steps, window) for position in np.unique(positions).tolist()]
    levels_db = _decibels(_powers(np.concatenate(frames)))  # (N, F)
    background_level: Levels = np.quantile(levels_db, BACKGROUND_QUANTILE, axis=0).astype(np.float32)
    padded = np.pad(background_level, 2, mode="edge")
    return np.lib.stride_tricks.sliding_window_view(padded, 5).mean(axis=1)  # type: ignore[no-any-return]


def knot_weights(tile: TileSpec, duration_s: float) -> tuple[int, int, Levels]:
    """Return the knots around the middle of a tile, and the weight of the second knot for each column, (width, 1)."""
    last = math.floor(duration_s / KNOT_S)
    knot = min(math.floor((tile.start_s + tile.end_s) / 2 / KNOT_S), last)
    times_s = np.linspace(tile.start_s, tile.end_s, tile.width, dtype=np.float32)
    return knot, min(knot + 1, last), (times_s / KNOT_S - knot).clip(0, 1)[:, None]


def _frames(audio: Audio, firsts: NDArray[np.int64], window: int) -> Levels:
    """Read windows of audio that start at the given samples, (N,) → (N, window)."""
    low, high = int(firsts.min()), int(firsts.max()) + window
    if high - low <= FULL_READ_S * audio.sample_rate_hz:
        samples = _read(audio, low, high)
        return np.lib.stride_tricks.sliding_window_view(samples, window)[firsts - low]
    return np.stack([_read(audio, first, first + window) for first in firsts.tolist()])


def _read(audio: Audio, first: int, stop: int) -> Levels:
    """Read samples `first` to `stop`, with zeros outside the recording."""
    samples = audio.read_samples(first, stop)
    before = min(max(0, -first), stop - first)
    return np.pad(samples, (before, stop - first - before - len(samples)))


def _powers(frames: Levels) -> Levels:
    """Compute power spectra, (N, window) → (N, F)."""
    window = frames.shape[1]
    spectrum = np.fft.rfft(frames * np.hanning(window).astype(np.float32), axis=1)
    return (spectrum.real**2 + spectrum.imag**2).astype(np.float32) / np.float32(window)


def _decibels(power: Levels) -> Levels:
    return 10 * np.log10(np.maximum(power, np.float32(1e-12)))


def _rows(levels_db: Levels, tile: TileSpec, rate_hz: int) -> Levels:
    """Map bands to rows of pixels, low bands first: the maximum in a row, or interpolated, (F, T) → (height, T)."""
    bins = len(levels_db)
    edges = np.linspace(tile.low_hz, tile.high_hz, tile.height + 1) / (rate_hz / 2) * (bins - 1)
    if (edges[1] - edges[0]) <= 1:
        middles = ((edges[:-1] + edges[1:]) / 2).clip(0, bins - 1)
        below = np.minimum(np.floor(middles).astype(np.int64), bins - 2)
        weight = (middles - below).astype(np.float32)[:, None]
        mixed: Levels = levels_db[below] * (1 - weight) + levels_db[below + 1] * weight
        return mixed
    firsts = np.floor(edges[:-1]).astype(np.int64).clip(0, bins - 1)
    return np.maximum.reduceat(levels_db, firsts, axis=0)  # the top row includes all bands up to the last
