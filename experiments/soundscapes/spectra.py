"""Sound as windows of frequencies and back, at one rate; boxes are measured here, on plain hertz, not on a mel scale."""

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
    """Windows centred on every hop, the first on the first sample. (N,) → (T, F)"""
    padded = np.pad(wave, (WINDOW // 2, WINDOW // 2 + HOP))
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]  # (T, window)
    return np.fft.rfft(frames * SHAPE).astype(np.complex64)


def wave_of(spectrum: Spectrum, samples: int) -> Wave:
    """The sound that such windows were taken from. (T, F) → (N,)"""
    frames = np.fft.irfft(spectrum, WINDOW) * SHAPE  # (T, window)
    sound, weight = np.zeros((2, len(frames) + WINDOW // HOP - 1, HOP))
    for part in range(WINDOW // HOP):  # a window reaches over so many hops
        own = slice(part * HOP, (part + 1) * HOP)
        sound[part : part + len(frames)] += frames[:, own]
        weight[part : part + len(frames)] += SHAPE[own] ** 2
    whole = (sound / np.maximum(weight, 1e-3)).ravel()[WINDOW // 2 :]
    return np.pad(whole, (0, samples))[:samples].astype(np.float32)


def smoothed(power: Power) -> Power:
    """Each cell averaged with its neighbours: noise flickers less. (T, F) → (T, F)"""
    wide = np.pad(power, 1, mode="edge")
    rows = wide[:-2] + wide[1:-1] + wide[2:]  # (T, F + 2)
    mean: Power = (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / np.float32(9)
    return mean


def span_of(energy: Floats, outside: float) -> tuple[float, float]:
    """Where a row of energies has all but a share `outside` of its sum, half of that on either side, in cells.

    Energy is taken to lie evenly within a cell; cell n reaches from n - 1/2 to n + 1/2.
    """
    reached = np.append(0.0, np.cumsum(energy, dtype=np.float64))
    edges = np.arange(len(energy) + 1) - 0.5
    low, high = np.interp([outside / 2, 1 - outside / 2], reached / reached[-1], edges)
    return float(low), float(high)


def filtered(wave: Wave, gains: Floats) -> Wave:
    """The sound with each frequency multiplied by a gain; gains stand evenly from 0 Hz to half the rate. (N,) → (N,)"""
    size = fast_size(len(wave) + WINDOW)
    spectrum = np.fft.rfft(wave, size)
    at = np.linspace(0, len(gains) - 1, len(spectrum))
    spectrum *= np.interp(at, np.arange(len(gains)), gains)
    return np.fft.irfft(spectrum, size)[: len(wave)].astype(np.float32)


def fast_size(size: int) -> int:
    """A size not much larger that a Fourier transform likes: a power of two, 8 to 16 times."""
    step = 1 << max(0, size.bit_length() - 4)
    return -(-size // step) * step
