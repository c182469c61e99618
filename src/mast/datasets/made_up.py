"""Made-up calls laid over real sound: examples without end, with exact boxes, for who has few labels or none.

A call is a syllable sung once or several times. A syllable has a pitch that glides, bends and trembles, overtones, a
rough or a clear voice, and a loudness that swells, fades and may pulse. No animal is meant; a detector that has learned
to box all of these at any level above real wind, rain and engines knows what it is to stand out of a background.
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

from mast.config import Spectrogram
from mast.datasets.loading import Batch
from mast.recordings.store import FULL_SCALE
from mast.spectrogram import MelGrid

Wave = NDArray[np.float64]

MEAN_CALLS = 1.5
"""Calls laid over a chunk, on average."""

MAX_CALL_S = 4.0
SYLLABLE_S = (0.03, 1.0)
GAP_S = (0.01, 0.2)
LEVEL_DB = (2.0, 25.0)
"""How far a call stands above the background within its box."""

MOVES = (0.05, 1.0)
"""How far a voice leaves its pitch, about, in octaves: from held notes to wide slides, as many in each doubling."""

ENERGY = 0.025
"""A box leaves out this share of a call's energy on each side."""

RUMBLE_HZ = 150.0
"""Below this most recorders hear wind and engines."""

MIN_VISIBLE_S = 0.05
"""A call of which a chunk shows less than this is not laid over it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call alone, and the box that holds it: seconds from the wave's start, and Hz."""

    wave: Wave
    start_s: float
    end_s: float
    low_hz: float
    high_hz: float


class MadeUpCalls:
    """Lays calls over batches of real sound, which should have few sounds of its own."""

    def __init__(self, spectrogram: Spectrogram, sample_rate_hz: int, frames: int) -> None:
        """`frames`: the length of a chunk's spectrogram, in which boxes are counted."""
        self.band_hz = band_of_calls(spectrogram)
        self.sample_rate_hz = sample_rate_hz
        self.grid = MelGrid(spectrogram, frames)

    def over(self, batch: Batch, rngs: Sequence[Generator], which: Tensor) -> Batch:
        """The batch with calls laid over examples `which` (B,), and their boxes instead of those examples' own."""
        sound, boxes = batch.sound.numpy().copy(), list(batch.boxes)
        for row in which.nonzero()[:, 0].tolist():
            end = int(batch.filled[row])  # no call where there is only padding
            sound[row, :end], boxes[row] = self._mixed(sound[row, :end], rngs[row])
        return replace(batch, sound=torch.from_numpy(sound), boxes=tuple(boxes))

    def _mixed(self, sound: NDArray[np.int16], rng: Generator) -> tuple[NDArray[np.int16], Tensor]:
        """One chunk with some calls. (N,) → (N,), (n, 4)"""
        background = sound / FULL_SCALE
        mixed, events = background.copy(), []
        for _ in range(rng.poisson(MEAN_CALLS)):
            call = made_up_call(rng, self.sample_rate_hz, self.band_hz)
            laid = self._laid(call, background, rng)
            if laid is None:
                continue
            wave, event = laid
            mixed += wave
            events.append(event)
        peak = np.abs(mixed).max(initial=1.0)  # a loud call makes the whole chunk softer rather than clip
        whole = np.rint(mixed / peak * (FULL_SCALE - 1)).astype(np.int16)
        return whole, self.grid.to_boxes(torch.tensor(events, dtype=torch.float64).reshape(-1, 4))

    def _laid(
        self, call: Call, background: Wave, rng: Generator
    ) -> tuple[Wave, tuple[float, float, float, float]] | None:
        """A call at some moment of a chunk, some way above its background; its box within the chunk."""
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
        powers = [_power_in(item[span], rate, call.low_hz, call.high_hz) for item in (background, placed)]
        if min(powers) <= 0:
            return None
        level = np.sqrt(powers[0] / powers[1]) * 10 ** (rng.uniform(*LEVEL_DB) / 20)
        return level * placed, (start_s, call.low_hz, end_s, call.high_hz)


def band_of_calls(spectrogram: Spectrogram) -> tuple[float, float]:
    """Where calls are sung: within the spectrogram, above what rumbles at its bottom and below its very top."""
    low_hz = max(spectrogram.low_hz, min(RUMBLE_HZ, spectrogram.high_hz / 20))  # whales sing below 150 Hz
    return low_hz, max(0.95 * spectrogram.high_hz, _midway(low_hz, spectrogram.high_hz))


def made_up_call(rng: Generator, sample_rate_hz: int, band_hz: tuple[float, float]) -> Call:
    """A call of one syllable or several within a band, and its echo, which is not in the box."""
    length_s = _between(rng, *SYLLABLE_S)
    gap_s = _between(rng, *GAP_S)
    repeats = 1 if rng.random() < 0.4 else int(rng.integers(2, 16))
    repeats = max(1, min(repeats, int(MAX_CALL_S / (length_s + gap_s))))
    voice = _Voice.drawn(rng, band_hz)
    drift = voice.moves * rng.normal(0, 0.4) / repeats  # octaves from one syllable to the next
    silence = np.zeros(round(gap_s * sample_rate_hz))
    parts: list[Wave] = []
    for number in range(repeats):
        own_s = length_s * rng.uniform(0.9, 1.1)
        parts += [voice.sung(rng, own_s, number * drift + rng.normal(0, 0.005), sample_rate_hz), silence]
    dry = np.concatenate(parts[:-1])
    start, end = _middle(dry**2)
    low, high = _middle(np.abs(np.fft.rfft(dry)) ** 2)
    hz = sample_rate_hz / len(dry)
    return Call(
        _echoing(dry, rng, sample_rate_hz), start / sample_rate_hz, end / sample_rate_hz, low * hz, high * hz
    )


@dataclass(frozen=True, slots=True)
class _Voice:
    """How a syllable sounds; pitches in octaves about `pitch_hz`, shares of 1."""

    band_hz: tuple[float, float]
    pitch_hz: float
    moves: float
    glide: float
    bend: float
    tremble: float
    tremble_hz: float
    overtones: NDArray[np.float64]
    rough: float
    swell: float
    pulse: float
    pulse_hz: float

    @classmethod
    def drawn(cls, rng: Generator, band_hz: tuple[float, float]) -> _Voice:
        """Some voice: half of them whistle, the others have overtones; some are rough, tremble or pulse."""
        whistles = rng.random() < 0.5
        highest_hz = band_hz[1] if whistles else max(band_hz[1] / 3, _midway(*band_hz))
        count = 1 if whistles else int(rng.integers(2, 12))
        moves = _between(rng, *MOVES)
        return cls(
            band_hz=band_hz,
            pitch_hz=_between(rng, min(2 * band_hz[0], _midway(band_hz[0], highest_hz)), highest_hz),
            moves=moves,
            glide=moves * rng.normal(0, 0.8),
            bend=moves * rng.normal(0, 0.8),
            tremble=moves * rng.uniform(0, 0.5) if rng.random() < 0.3 else 0.0,
            tremble_hz=_between(rng, 6.0, 60.0),
            overtones=rng.uniform(0.4, 0.95) ** np.arange(count) * rng.uniform(0.3, 1.0, count),
            rough=_between(rng, 0.01, 0.6) if rng.random() < 0.35 else 0.0,
            swell=rng.uniform(0.05, 0.95),
            pulse=rng.uniform(0.5, 1.0) if rng.random() < 0.3 else 0.0,
            pulse_hz=_between(rng, 8.0, 120.0),
        )

    def sung(self, rng: Generator, length_s: float, octaves: float, sample_rate_hz: int) -> Wave:
        """One syllable, so many octaves above the voice's pitch."""
        time_s = np.arange(max(8, round(length_s * sample_rate_hz))) / sample_rate_hz
        share = time_s / time_s[-1]
        path = octaves + self.glide * (share - 0.5) + self.bend * (0.25 - (share - 0.5) ** 2) * 4
        path += self.tremble * np.sin(2 * np.pi * self.tremble_hz * time_s)
        pitch_hz = np.clip(self.pitch_hz * 2.0**path, *self.band_hz)
        phase = 2 * np.pi * np.cumsum(pitch_hz) / sample_rate_hz
        if self.rough:
            phase += np.cumsum(rng.normal(0, self.rough, len(phase)))
        wave = np.zeros_like(phase)
        for number, strength in enumerate(self.overtones, start=1):
            heard = (number * pitch_hz < self.band_hz[1]) | (number == 1)
            wave += strength * heard * np.sin(number * phase)
        loudness = np.interp(share, [0, self.swell, 1], [0, 1, 0]) ** 0.7
        loudness *= 1 - self.pulse * (0.5 + 0.5 * np.cos(2 * np.pi * self.pulse_hz * time_s))
        sung: Wave = wave * loudness
        return sung


def _echoing(dry: Wave, rng: Generator, sample_rate_hz: int) -> Wave:
    """A call with the answer of some forest, 6 to 20 dB softer than itself."""
    length_s = _between(rng, 0.1, 0.8)
    tail = rng.normal(size=round(length_s * sample_rate_hz))
    tail *= np.exp(-6.9 * np.arange(len(tail)) / len(tail))
    size = len(dry) + len(tail) - 1
    fast = 1 << (size - 1).bit_length()
    echo = np.fft.irfft(np.fft.rfft(dry, fast) * np.fft.rfft(tail, fast), fast)[:size]
    softer = 10 ** (-rng.uniform(6, 20) / 20) * np.sqrt(np.sum(dry**2) / max(np.sum(echo**2), 1e-12))
    echo *= softer
    echo[: len(dry)] += dry
    return echo


def _middle(energy: NDArray[np.float64]) -> tuple[float, float]:
    """Where all but the first and last few percent of some energy lie. (N,) → first, last + 1"""
    share = np.cumsum(energy) / np.sum(energy)
    return float(np.searchsorted(share, ENERGY)), float(np.searchsorted(share, 1 - ENERGY) + 1)


def _power_in(wave: Wave, sample_rate_hz: int, low_hz: float, high_hz: float) -> float:
    """Energy of a wave within a band."""
    spectrum = np.abs(np.fft.rfft(wave)) ** 2
    hz = sample_rate_hz / len(wave)
    return float(spectrum[int(low_hz / hz) : int(high_hz / hz) + 1].sum())


def _between(rng: Generator, low: float, high: float) -> float:
    """A number between two others, as likely in each octave."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _midway(low_hz: float, high_hz: float) -> float:
    """The pitch that is as many octaves from one as from the other."""
    return math.sqrt(low_hz * high_hz)
