"""Mix synthetic calls into real recordings: unlimited training examples with exact boxes, for studies with few labels.

A call is a syllable, repeated once or several times. A syllable has a pitch that may glide, bend and vibrate, harmonics,
optional phase noise, and an amplitude that rises, falls and may be modulated. The calls imitate no species: a detector
trained to find all of them, at any level above real wind, rain and engines, learns to separate calls from background.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from mast.audio.spectrogram import MelGrid
from mast.config import Spectrogram
from mast.datasets.loader import Batch
from mast.store.audio_store import FULL_SCALE
from mast.types import Floats

MEAN_CALLS_PER_CHUNK = 1.5
"""Mean number of calls mixed into a chunk."""

MAX_CALL_S = 4.0
SYLLABLE_S = (0.03, 1.0)
GAP_S = (0.01, 0.2)
LEVEL_DB = (2.0, 25.0)
"""Range of a call's level above the background, within its box."""

PITCH_RANGE = (0.05, 1.0)
"""Range of the pitch variation within a call, in octaves: from constant pitch to wide glides, log-uniform."""

EDGE_ENERGY = 0.025
"""Fraction of a call's energy that lies outside its box on each side."""

RUMBLE_HZ = 150.0
"""Below this frequency most recordings contain wind and engines."""

MIN_VISIBLE_S = 0.05
"""A call is not mixed into a chunk if less than this much of it lies in the chunk."""


@dataclass(frozen=True, slots=True)
class SyntheticCall:
    """A call without background, and its box: seconds from the wave's start, and Hz."""

    wave: Floats
    start_s: float
    end_s: float
    low_hz: float
    high_hz: float


class SyntheticCallMixer:
    """Mix synthetic calls into batches of real audio, which should contain few animal sounds."""

    def __init__(self, spectrogram: Spectrogram, sample_rate_hz: int, frames: int) -> None:
        """Create a mixer for chunks with `frames` spectrogram frames; boxes are in these frames and in mel bins."""
        self.band_hz = call_band(spectrogram)
        self.sample_rate_hz = sample_rate_hz
        self.grid = MelGrid(spectrogram, frames)

    def mix_into(self, batch: Batch, rngs: Sequence[Generator], is_synthetic: Tensor) -> Batch:
        """Return the batch with calls mixed into the examples of `is_synthetic` (B,); the calls are their only boxes."""
        audio, boxes = batch.audio.numpy().copy(), list(batch.boxes)
        for row in is_synthetic.nonzero()[:, 0].tolist():
            end = int(batch.valid_samples[row])  # no calls in padding
            audio[row, :end], boxes[row] = self._mix_chunk(audio[row, :end], rngs[row])
        return replace(batch, audio=torch.from_numpy(audio), boxes=tuple(boxes))

    def _mix_chunk(self, audio: NDArray[np.int16], rng: Generator) -> tuple[NDArray[np.int16], Tensor]:
        """Mix calls into a chunk; return its audio and boxes. (N,) → (N,), (n, 4)"""
        background = audio / FULL_SCALE
        mixed, events = background.copy(), []
        for _ in range(rng.poisson(MEAN_CALLS_PER_CHUNK)):
            call = generate_call(rng, self.sample_rate_hz, self.band_hz)
            placed = self._place_call(call, background, rng)
            if placed is None:
                continue
            wave, event = placed
            mixed += wave
            events.append(event)
        peak = np.abs(mixed).max(initial=1.0)  # a loud call reduces the gain of the chunk instead of clipping
        samples = np.rint(mixed / peak * (FULL_SCALE - 1)).astype(np.int16)
        return samples, self.grid.events_to_boxes(torch.tensor(events, dtype=torch.float64).reshape(-1, 4))

    def _place_call(
        self, call: SyntheticCall, background: Floats, rng: Generator
    ) -> tuple[Floats, tuple[float, float, float, float]] | None:
        """Place a call at a random time and level above the background; return its wave and its box in the chunk.

        Return None if too little of the call lies in the chunk, or the background has no power in its band.
        """
        rate, total_s = self.sample_rate_hz, len(background) / self.sample_rate_hz
        at_s = rng.uniform(-0.5 * call.end_s, total_s - 0.5 * call.end_s)
        start_s, end_s = max(0.0, at_s + call.start_s), min(total_s, at_s + call.end_s)
        if end_s - start_s < MIN_VISIBLE_S:
            return None
        placed = np.zeros_like(background)
        first = round(at_s * rate)
        inside = slice(max(first, 0), min(first + len(call.wave), len(background)))
        placed[inside] = call.wave[inside.start - first : inside.stop - first]
        span = slice(round(start_s * rate), round(end_s * rate))
        powers = [_power_in(wave[span], rate, call.low_hz, call.high_hz) for wave in (background, placed)]
        if min(powers) <= 0:
            return None
        level = np.sqrt(powers[0] / powers[1]) * 10 ** (rng.uniform(*LEVEL_DB) / 20)
        return level * placed, (start_s, call.low_hz, end_s, call.high_hz)


def call_band(spectrogram: Spectrogram) -> tuple[float, float]:
    """Return the band of calls in Hz: within the spectrogram, above low-frequency noise and below the upper edge."""
    low_hz = max(spectrogram.low_hz, min(RUMBLE_HZ, spectrogram.high_hz / 20))  # whales call below 150 Hz
    return low_hz, max(0.95 * spectrogram.high_hz, _midway(low_hz, spectrogram.high_hz))


def generate_call(rng: Generator, sample_rate_hz: int, band_hz: tuple[float, float]) -> SyntheticCall:
    """Generate a call of one or more syllables within a band, with an echo that lies outside the box."""
    length_s = _between(rng, *SYLLABLE_S)
    gap_s = _between(rng, *GAP_S)
    repeats = 1 if rng.random() < 0.4 else int(rng.integers(2, 16))
    repeats = max(1, min(repeats, int(MAX_CALL_S / (length_s + gap_s))))
    parameters = _CallParameters.sample(rng, band_hz)
    drift = parameters.pitch_range * rng.normal(0, 0.4) / repeats  # octaves from one syllable to the next
    silence = np.zeros(round(gap_s * sample_rate_hz))
    parts: list[Floats] = []
    for number in range(repeats):
        syllable_s = length_s * rng.uniform(0.9, 1.1)
        parts += [
            parameters.synthesize(rng, syllable_s, number * drift + rng.normal(0, 0.005), sample_rate_hz),
            silence,
        ]
    dry = np.concatenate(parts[:-1])
    start, end = _central_span(dry**2)
    low, high = _central_span(np.abs(np.fft.rfft(dry)) ** 2)
    hz = sample_rate_hz / len(dry)
    return SyntheticCall(
        _add_echo(dry, rng, sample_rate_hz), start / sample_rate_hz, end / sample_rate_hz, low * hz, high * hz
    )


@dataclass(frozen=True, slots=True)
class _CallParameters:
    """Parameters of a syllable; pitch deviations in octaves relative to `pitch_hz`, depths as fractions."""

    band_hz: tuple[float, float]
    pitch_hz: float
    pitch_range: float
    glide: float
    bend: float
    vibrato: float
    vibrato_hz: float
    harmonics: NDArray[np.float64]
    phase_noise: float
    peak: float
    modulation: float
    modulation_hz: float

    @classmethod
    def sample(cls, rng: Generator, band_hz: tuple[float, float]) -> _CallParameters:
        """Sample parameters: half of the calls are pure tones, the others harmonic.

        Some have phase noise, vibrato or amplitude modulation.
        """
        is_tone = rng.random() < 0.5
        highest_hz = band_hz[1] if is_tone else max(band_hz[1] / 3, _midway(*band_hz))
        count = 1 if is_tone else int(rng.integers(2, 12))
        pitch_range = _between(rng, *PITCH_RANGE)
        return cls(
            band_hz=band_hz,
            pitch_hz=_between(rng, min(2 * band_hz[0], _midway(band_hz[0], highest_hz)), highest_hz),
            pitch_range=pitch_range,
            glide=pitch_range * rng.normal(0, 0.8),
            bend=pitch_range * rng.normal(0, 0.8),
            vibrato=pitch_range * rng.uniform(0, 0.5) if rng.random() < 0.3 else 0.0,
            vibrato_hz=_between(rng, 6.0, 60.0),
            harmonics=rng.uniform(0.4, 0.95) ** np.arange(count) * rng.uniform(0.3, 1.0, count),
            phase_noise=_between(rng, 0.01, 0.6) if rng.random() < 0.35 else 0.0,
            peak=rng.uniform(0.05, 0.95),
            modulation=rng.uniform(0.5, 1.0) if rng.random() < 0.3 else 0.0,
            modulation_hz=_between(rng, 8.0, 120.0),
        )

    def synthesize(self, rng: Generator, length_s: float, octaves: float, sample_rate_hz: int) -> Floats:
        """Synthesise a syllable `octaves` above `pitch_hz`."""
        time_s = np.arange(max(8, round(length_s * sample_rate_hz))) / sample_rate_hz
        fraction = time_s / time_s[-1]
        path = octaves + self.glide * (fraction - 0.5) + self.bend * (0.25 - (fraction - 0.5) ** 2) * 4
        path += self.vibrato * np.sin(2 * np.pi * self.vibrato_hz * time_s)
        pitch_hz = np.clip(self.pitch_hz * 2.0**path, *self.band_hz)
        phase = 2 * np.pi * np.cumsum(pitch_hz) / sample_rate_hz
        if self.phase_noise:
            phase += np.cumsum(rng.normal(0, self.phase_noise, len(phase)))
        wave = np.zeros_like(phase)
        for number, strength in enumerate(self.harmonics, start=1):
            in_band = (number * pitch_hz < self.band_hz[1]) | (number == 1)
            wave += strength * in_band * np.sin(number * phase)
        amplitude = np.interp(fraction, [0, self.peak, 1], [0, 1, 0]) ** 0.7
        amplitude *= 1 - self.modulation * (0.5 + 0.5 * np.cos(2 * np.pi * self.modulation_hz * time_s))
        syllable: Floats = wave * amplitude
        return syllable


def _add_echo(dry: Floats, rng: Generator, sample_rate_hz: int) -> Floats:
    """Return a call with a random exponential reverberation tail, 6 to 20 dB below the call."""
    length_s = _between(rng, 0.1, 0.8)
    tail = rng.normal(size=round(length_s * sample_rate_hz))
    tail *= np.exp(-6.9 * np.arange(len(tail)) / len(tail))
    size = len(dry) + len(tail) - 1
    fft_size = 1 << (size - 1).bit_length()
    echo = np.fft.irfft(np.fft.rfft(dry, fft_size) * np.fft.rfft(tail, fft_size), fft_size)[:size]
    scale = 10 ** (-rng.uniform(6, 20) / 20) * np.sqrt(np.sum(dry**2) / max(np.sum(echo**2), 1e-12))
    echo *= scale
    echo[: len(dry)] += dry
    return echo


def _central_span(energy: NDArray[np.float64]) -> tuple[float, float]:
    """Return the span that excludes the fraction `EDGE_ENERGY` of the energy on each side. (N,) → first, last + 1"""
    fraction = np.cumsum(energy) / np.sum(energy)
    return float(np.searchsorted(fraction, EDGE_ENERGY)), float(
        np.searchsorted(fraction, 1 - EDGE_ENERGY) + 1
    )


def _power_in(wave: Floats, sample_rate_hz: int, low_hz: float, high_hz: float) -> float:
    """Return the energy of a wave within a band."""
    spectrum = np.abs(np.fft.rfft(wave)) ** 2
    hz = sample_rate_hz / len(wave)
    return float(spectrum[int(low_hz / hz) : int(high_hz / hz) + 1].sum())


def _between(rng: Generator, low: float, high: float) -> float:
    """Sample a number between two others, log-uniformly."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _midway(low_hz: float, high_hz: float) -> float:
    """Return the geometric mean of two frequencies in Hz."""
    return math.sqrt(low_hz * high_hz)
