"""Short-time Fourier transform and its inverse at one sample rate.

Boxes are measured on a linear frequency axis, not on a mel scale.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 16_000
WINDOW, HOP = 512, 128
BIN_HZ, FRAME_S = RATE_HZ / WINDOW, HOP / RATE_HZ

Wave = NDArray[np.float32]
Spectrum = NDArray[np.complex64]
Power = NDArray[np.float32]
Floats = NDArray[np.float64]

SHAPE: Floats = np.hanning(WINDOW + 1)[:-1]


def spectrum_of(wave: Wave) -> Spectrum:
    """Compute the short-time spectrum; windows are centred on every hop, the first on the first sample. (N,) → (T, F)"""
    padded = np.pad(wave, (WINDOW // 2, WINDOW // 2 + HOP))
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]  # (T, window)
    return np.fft.rfft(frames * SHAPE).astype(np.complex64)


def wave_of(spectrum: Spectrum, samples: int) -> Wave:
    """Invert `spectrum_of` by overlap-add. (T, F) → (N,)"""
    frames = np.fft.irfft(spectrum, WINDOW) * SHAPE  # (T, window)
    audio, weight = np.zeros((2, len(frames) + WINDOW // HOP - 1, HOP))
    for part in range(WINDOW // HOP):  # hops per window
        hop = slice(part * HOP, (part + 1) * HOP)
        audio[part : part + len(frames)] += frames[:, hop]
        weight[part : part + len(frames)] += SHAPE[hop] ** 2
    complete = (audio / np.maximum(weight, 1e-3)).ravel()[WINDOW // 2 :]
    return np.pad(complete, (0, samples))[:samples].astype(np.float32)


def smoothed(power: Power) -> Power:
    """Average each cell with its eight neighbours, to reduce noise. (T, F) → (T, F)"""
    wide = np.pad(power, 1, mode="edge")
    rows = wide[:-2] + wide[1:-1] + wide[2:]  # (T, F + 2)
    mean: Power = (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / np.float32(9)
    return mean


def span_of(energy: Floats, outside: float) -> tuple[float, float]:
    """Return the span, in cells, with all but a fraction `outside` of the energy, half of that fraction on either side.

    Energy is assumed to be uniform within a cell; cell n extends from n - 1/2 to n + 1/2.
    """
    cumulative = np.append(0.0, np.cumsum(energy, dtype=np.float64))
    edges = np.arange(len(energy) + 1) - 0.5
    low, high = np.interp([outside / 2, 1 - outside / 2], cumulative / cumulative[-1], edges)
    return float(low), float(high)


def filtered(wave: Wave, gains: Floats) -> Wave:
    """Multiply each frequency by a gain; gains are evenly spaced from 0 Hz to the Nyquist frequency. (N,) → (N,)"""
    size = fast_size(len(wave) + WINDOW)
    spectrum = np.fft.rfft(wave, size)
    position = np.linspace(0, len(gains) - 1, len(spectrum))
    spectrum *= np.interp(position, np.arange(len(gains)), gains)
    return np.fft.irfft(spectrum, size)[: len(wave)].astype(np.float32)


def fast_size(size: int) -> int:
    """Return a slightly larger size for a fast Fourier transform: a power of two times a number from 8 to 16."""
    step = 1 << max(0, size.bit_length() - 4)
    return -(-size // step) * step
