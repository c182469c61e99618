"""Calls cut out of recordings: found above the noise, freed from it, and measured before anything is done with them.

A call's box holds 95 % of its energy, in time and in frequency, on plain hertz. What lies outside of the box is then
taken away, so that nothing of the call is heard where the box says there is none.
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
"""Share of a call's energy that its box leaves outside, half of it at either end: experts draw about so tightly."""

LOWEST_HZ = 250.0
"""Below lie wind and the handling of microphones; the lowest calls of our sources begin above."""

OVER_NOISE_DB, BELOW_LOUDEST_DB = 9.0, 25.0
"""A cell is sound if it stands so far above its band's noise; a moment, if it is not so far below the clip's loudest."""

JOINED_S = 0.2
"""Notes no further apart than this make one call: a crow's caws are several, a great tit's song is one."""

MIN_CALL_S, MAX_CALL_S = 0.05, 4.0
MIN_CLEAN_DB = 15.0
"""A call that stands out of its own recording by less would bring too much of that recording along."""

BELOW_PEAK_DB = 25.0
"""Cells fainter than this beside the call's strongest one do not count: echoes, and what is left of the noise."""

FADE_S, MARGIN_HZ = 0.016, 2 * BIN_HZ
"""Room between a box and where the sound is taken away."""


@dataclass(frozen=True, eq=False)
class Call:
    """A sound cut clean: who made it, which original recording it is of, and its box within `wave`."""

    name: str
    label: str
    source: str
    wave: Wave
    box: Bounds

    @property
    def length_s(self) -> float:
        """Length of the box."""
        return self.box[2] - self.box[0]


@dataclass(frozen=True, eq=False)
class Clip:
    """A recording as power in cells, and the noise in each band of it."""

    spectrum: Spectrum  # (T, F)
    power: Power  # (T, F), smoothed
    noise: Power  # (F,)

    @classmethod
    def of(cls, wave: Wave) -> Clip:
        """Look at a recording. The quieter fifth of its moments is noise; one that is never quiet is all noise."""
        spectrum = spectrum_of(wave)
        power = smoothed((np.abs(spectrum) ** 2).astype(np.float32))
        level = power.sum(axis=1)
        heard = power[level > 1e-7 * level.max()]  # not the digital silence that some clips have
        quiet = np.quantile(heard, 0.2, axis=0) if len(heard) else np.zeros(power.shape[1])
        noise = np.maximum(2 * quiet, 1e-5 * power.max()).astype(np.float32)
        return cls(spectrum, power, noise)

    def is_sound(self, within: Bounds | None) -> NDArray[np.bool_]:
        """Cells that stand out of the noise, if they lie within these bounds. → (T, F)"""
        start_s, low_hz, end_s, high_hz = within or (0.0, 0.0, np.inf, np.inf)
        time_s, hz = np.arange(self.power.shape[0]) * FRAME_S, np.arange(self.power.shape[1]) * BIN_HZ
        moments = (time_s >= start_s) & (time_s <= end_s)
        bands = (hz >= max(low_hz, LOWEST_HZ)) & (hz <= high_hz)
        return (self.power > self.noise * 10 ** (OVER_NOISE_DB / 10)) & np.outer(moments, bands)


def find_calls(wave: Wave, known: Sequence[Bounds] = ()) -> list[tuple[Wave, Bounds]]:
    """Calls of a recording, each cut clean, with its box in the cut. `known` says where to look, one call in each."""
    clip = Clip.of(wave)
    found: list[tuple[Wave, Bounds]] = []
    for within in known or (None,):
        sound = clip.is_sound(within)
        for first, last in _spans(clip, sound, np.inf if within else JOINED_S):
            cut = _cut(clip, sound, first, last)
            if cut is not None:
                found.append(cut)
    return found


def _spans(clip: Clip, sound: NDArray[np.bool_], joined_s: float) -> list[tuple[int, int]]:
    """First and last frame of each run of loud moments that begins and ends within the recording."""
    level = np.where(sound, clip.power - clip.noise, 0).sum(axis=1)
    loud = np.flatnonzero(level > level.max() * 10 ** (-BELOW_LOUDEST_DB / 10))
    if not len(loud):
        return []
    apart = np.flatnonzero(np.diff(loud) * FRAME_S > joined_s)
    runs = zip(loud[np.append(0, apart + 1)], loud[np.append(apart, len(loud) - 1)], strict=True)
    inside = 2, len(level) - 5  # the windows at either end reach beyond the recording
    return [(int(first), int(last)) for first, last in runs if first >= inside[0] and last <= inside[1]]


def _cut(clip: Clip, sound: NDArray[np.bool_], first: int, last: int) -> tuple[Wave, Bounds] | None:
    """A run of frames as a call of its own, or nothing if it is too short, too long or too noisy."""
    here = slice(max(0, first - 4), last + 5)
    gain = np.clip(1 - 4 * clip.noise / np.maximum(clip.power[here], 1e-20), 0, 1)
    power = np.where(sound[here], clip.power[here] * gain**2, 0)
    power[power < power.max() * 10 ** (-BELOW_PEAK_DB / 10)] = 0
    box = measured(power)
    clean_db = 10 * np.log10(power.sum() / np.where(power > 0, clip.noise, 0).sum())
    if clean_db < MIN_CLEAN_DB or not MIN_CALL_S <= box[2] - box[0] <= MAX_CALL_S:
        return None
    hz = np.arange(power.shape[1]) * BIN_HZ
    gain[:, (hz < box[1] - MARGIN_HZ) | (hz > box[3] + MARGIN_HZ)] = 0
    return _faded(wave_of(clip.spectrum[here] * gain, len(power) * HOP), box)


def measured(power: Power) -> Bounds:
    """The box of a call alone: the time and the band that hold all but `OUTSIDE` of its energy. (T, F) → box"""
    start, end = span_of(power.sum(axis=1), OUTSIDE)
    low, high = span_of(power.sum(axis=0), OUTSIDE)
    return start * FRAME_S, low * BIN_HZ, end * FRAME_S, high * BIN_HZ


def _faded(wave: Wave, box: Bounds) -> tuple[Wave, Bounds]:
    """The call from just before its box to just after, with soft ends, of full scale 1."""
    first = max(0, round((box[0] - FADE_S) * RATE_HZ))
    kept = wave[first : round((box[2] + FADE_S) * RATE_HZ)].copy()
    ramp = 0.5 - 0.5 * np.cos(np.pi * np.arange(round(FADE_S * RATE_HZ)) / round(FADE_S * RATE_HZ))
    kept[: len(ramp)] *= ramp
    kept[len(kept) - len(ramp) :] *= ramp[::-1]
    moved = (box[0] - first / RATE_HZ, box[1], box[2] - first / RATE_HZ, box[3])
    return kept / np.abs(kept).max(), moved
