"""Extract calls from recordings: detect them above the noise, remove the noise, and measure their boxes.

A call's box contains 95 % of its energy, in time and in frequency, on a linear frequency axis. Energy outside the box is
then removed, so that the call has none outside its box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.soundscapes.spectra import (
    BIN_HZ,
    FRAME_S,
    HOP,
    RATE_HZ,
    Power,
    Spectrum,
    Wave,
    smoothed,
    span_of,
    spectrum_of,
    wave_of,
)

Bounds = tuple[float, float, float, float]
"""start_s, low_hz, end_s, high_hz"""

OUTSIDE = 0.05
"""Fraction of a call's energy outside its box, half of it at either end; annotators draw boxes about as tight."""

LOWEST_HZ = 250.0
"""Lower frequencies contain wind and handling noise; the lowest calls of our sources are above."""

OVER_NOISE_DB, BELOW_LOUDEST_DB = 9.0, 25.0
"""A cell belongs to a call if it exceeds the noise of its band by `OVER_NOISE_DB`; a frame does if it is at most
`BELOW_LOUDEST_DB` below the loudest frame of the clip."""

JOINED_S = 0.2
"""Maximum gap between notes of one call: a crow's caws are several calls, a great tit's song is one."""

MIN_CALL_S, MAX_CALL_S = 0.05, 4.0
MIN_CLEAN_DB = 15.0
"""Minimum signal-to-noise ratio of a call; a lower one would include too much noise of its recording."""

BELOW_PEAK_DB = 25.0
"""Cells this far below the call's strongest cell are ignored: echoes and residual noise."""

FADE_S, MARGIN_HZ = 0.016, 2 * BIN_HZ
"""Margin between a box and the region where the audio is set to 0."""


@dataclass(frozen=True, eq=False)
class Call:
    """An isolated call: its label, its original recording, and its box within `wave`."""

    name: str
    label: str
    source: str
    wave: Wave
    box: Bounds

    @property
    def length_s(self) -> float:
        """Duration of the box in seconds."""
        return self.box[2] - self.box[0]


@dataclass(frozen=True, eq=False)
class Clip:
    """The spectrogram of a recording, and the noise level of each band."""

    spectrum: Spectrum  # (T, F)
    power: Power  # (T, F), smoothed
    noise: Power  # (F,)

    @classmethod
    def of(cls, wave: Wave) -> Clip:
        """Compute the spectrogram of a recording; the noise level of a band is twice its 20 % quantile over time."""
        spectrum = spectrum_of(wave)
        power = smoothed((np.abs(spectrum) ** 2).astype(np.float32))
        level = power.sum(axis=1)
        audible = power[level > 1e-7 * level.max()]  # without the digital silence of some clips
        quiet = np.quantile(audible, 0.2, axis=0) if len(audible) else np.zeros(power.shape[1])
        noise = np.maximum(2 * quiet, 1e-5 * power.max()).astype(np.float32)
        return cls(spectrum, power, noise)

    def is_call(self, within: Bounds | None) -> NDArray[np.bool_]:
        """Return a mask of the cells within the bounds that exceed the noise. → (T, F)"""
        start_s, low_hz, end_s, high_hz = within or (0.0, 0.0, np.inf, np.inf)
        time_s, hz = np.arange(self.power.shape[0]) * FRAME_S, np.arange(self.power.shape[1]) * BIN_HZ
        frames = (time_s >= start_s) & (time_s <= end_s)
        bands = (hz >= max(low_hz, LOWEST_HZ)) & (hz <= high_hz)
        return (self.power > self.noise * 10 ** (OVER_NOISE_DB / 10)) & np.outer(frames, bands)


def find_calls(wave: Wave, search_boxes: Sequence[Bounds] = ()) -> list[tuple[Wave, Bounds]]:
    """Return the isolated calls of a recording with their boxes; with `search_boxes`, at most one call in each."""
    clip = Clip.of(wave)
    calls: list[tuple[Wave, Bounds]] = []
    for within in search_boxes or (None,):
        is_call = clip.is_call(within)
        for first, last in _spans(clip, is_call, np.inf if within else JOINED_S):
            call = _isolate(clip, is_call, first, last)
            if call is not None:
                calls.append(call)
    return calls


def _spans(clip: Clip, is_call: NDArray[np.bool_], joined_s: float) -> list[tuple[int, int]]:
    """Return the first and last frame of each run of loud frames that begins and ends within the recording."""
    level = np.where(is_call, clip.power - clip.noise, 0).sum(axis=1)
    loud = np.flatnonzero(level > level.max() * 10 ** (-BELOW_LOUDEST_DB / 10))
    if not len(loud):
        return []
    gaps = np.flatnonzero(np.diff(loud) * FRAME_S > joined_s)
    runs = zip(loud[np.append(0, gaps + 1)], loud[np.append(gaps, len(loud) - 1)], strict=True)
    inside = 2, len(level) - 5  # windows at either end extend beyond the recording
    return [(int(first), int(last)) for first, last in runs if first >= inside[0] and last <= inside[1]]


def _isolate(clip: Clip, is_call: NDArray[np.bool_], first: int, last: int) -> tuple[Wave, Bounds] | None:
    """Return a run of frames as an isolated call, or None if it is too short, too long or too noisy."""
    here = slice(max(0, first - 4), last + 5)
    gain = np.clip(1 - 4 * clip.noise / np.maximum(clip.power[here], 1e-20), 0, 1)
    power = np.where(is_call[here], clip.power[here] * gain**2, 0)
    power[power < power.max() * 10 ** (-BELOW_PEAK_DB / 10)] = 0
    box = energy_box(power)
    clean_db = 10 * np.log10(power.sum() / np.where(power > 0, clip.noise, 0).sum())
    if clean_db < MIN_CLEAN_DB or not MIN_CALL_S <= box[2] - box[0] <= MAX_CALL_S:
        return None
    hz = np.arange(power.shape[1]) * BIN_HZ
    gain[:, (hz < box[1] - MARGIN_HZ) | (hz > box[3] + MARGIN_HZ)] = 0
    return _fade(wave_of(clip.spectrum[here] * gain, len(power) * HOP), box)


def energy_box(power: Power) -> Bounds:
    """Return the box of an isolated call: the time span and band with all but `OUTSIDE` of its energy. (T, F) → box"""
    start, end = span_of(power.sum(axis=1), OUTSIDE)
    low, high = span_of(power.sum(axis=0), OUTSIDE)
    return start * FRAME_S, low * BIN_HZ, end * FRAME_S, high * BIN_HZ


def _fade(wave: Wave, box: Bounds) -> tuple[Wave, Bounds]:
    """Return the call from just before its box to just after, with faded ends and a peak of 1."""
    first = max(0, round((box[0] - FADE_S) * RATE_HZ))
    faded = wave[first : round((box[2] + FADE_S) * RATE_HZ)].copy()
    ramp = 0.5 - 0.5 * np.cos(np.pi * np.arange(round(FADE_S * RATE_HZ)) / round(FADE_S * RATE_HZ))
    faded[: len(ramp)] *= ramp
    faded[len(faded) - len(ramp) :] *= ramp[::-1]
    shifted = (box[0] - first / RATE_HZ, box[1], box[2] - first / RATE_HZ, box[3])
    return faded / np.abs(faded).max(), shifted
