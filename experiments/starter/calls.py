"""Synthesise calls of many kinds: notes of one caller, in the order in which it utters them.

The kinds cover what field recordings contain and a generator of plain tones lacks: harmonic stacks, long trills, pulses
of frogs, hoots, drumming, rasps, and the sweeps of bats slowed down ten times. They imitate no species.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from mast.datasets.synthetic_calls import generate_call

Wave = NDArray[np.float64]
RATE_HZ = 16_000
BAND_HZ = (150.0, 7600.0)
MAX_CALL_S = 4.0


@dataclass(frozen=True)
class Note:
    """A note without background: its samples, and the silence before the next one."""

    wave: Wave
    gap_s: float


Kind = Callable[[Generator], list[Note]]
"""`kind(rng)` returns the notes of a caller; gaps up to `mixing.JOINED_S` join them to one call."""


def tones(rng: Generator) -> list[Note]:
    """Synthesise one call of tones or harmonics, as `mast train-synthetic` does, once or several times."""
    call = generate_call(rng, RATE_HZ, BAND_HZ)
    first, last = round(call.start_s * RATE_HZ), round(call.end_s * RATE_HZ)
    wave = np.asarray(call.wave[max(0, first - 80) : last + 80], dtype=np.float64)
    return [Note(_fade(wave), _log_uniform(rng, 0.25, 2.0)) for _ in range(int(rng.integers(1, 4)))]


def stacks(rng: Generator) -> list[Note]:
    """Synthesise harmonic stacks with formants, as of crows, gulls, foxes and deer."""
    pitch_hz, length_s = _log_uniform(rng, 120, 1500), _log_uniform(rng, 0.06, 1.2)
    glide, bend = rng.normal(0, 0.25), rng.normal(0, 0.35)
    centre_hz, width = _log_uniform(rng, 500, 5000), rng.uniform(0.5, 1.6)
    rough = _log_uniform(rng, 0.01, 0.4) if rng.random() < 0.5 else 0.0
    gap_s = _log_uniform(rng, 0.05, 1.2)
    notes = []
    for _ in range(int(rng.integers(1, 7))):
        time_s, fraction = _axis(length_s * rng.uniform(0.85, 1.15))
        path = glide * (fraction - 0.5) + bend * (0.25 - (fraction - 0.5) ** 2) * 4 + rng.normal(0, 0.02)
        phase = 2 * np.pi * np.cumsum(pitch_hz * 2**path) / RATE_HZ + np.cumsum(
            rng.normal(0, rough, len(time_s)) if rough else np.zeros(len(time_s))
        )
        wave = np.zeros(len(time_s))
        for number in range(1, int(BAND_HZ[1] / pitch_hz) + 1):
            octaves = np.log2(number * pitch_hz / centre_hz)
            strength = np.exp(-0.5 * (octaves / width) ** 2)
            if strength > 0.01 and number * pitch_hz * 2 ** path.max() < BAND_HZ[1]:
                wave += strength * np.sin(number * phase + rng.uniform(0, 6.28))
        notes.append(Note(wave * _envelope(rng, fraction), gap_s * rng.uniform(0.8, 1.25)))
    return notes


def trills(rng: Generator) -> list[Note]:
    """Synthesise a long trill: many short chirps at a constant or accelerating rate."""
    rate_hz, carrier_hz = _log_uniform(rng, 6, 60), _log_uniform(rng, 1200, 7000)
    sweep, duty = rng.normal(0, 0.25), rng.uniform(0.3, 0.8)
    count = int(np.clip(_log_uniform(rng, 0.5, MAX_CALL_S) * rate_hz, 4, 160))
    acceleration, drift = rng.uniform(-0.3, 0.3) / count, rng.normal(0, 0.2) / count
    swell = rng.uniform(0, 1)
    notes = []
    for number in range(count):
        period_s = 1 / (rate_hz * (1 + acceleration * number))
        time_s, fraction = _axis(duty * period_s)
        hz = carrier_hz * 2 ** (drift * number + sweep * (fraction - 0.5))
        wave = np.sin(2 * np.pi * np.cumsum(np.clip(hz, *BAND_HZ)) / RATE_HZ) * np.hanning(len(time_s))
        level = 1 - swell * abs(2 * number / count - 1)
        notes.append(Note(level * wave, (1 - duty) * period_s))
    return notes


def pulses(rng: Generator) -> list[Note]:
    """Synthesise the pulse trains of frogs: damped resonances in groups."""
    rate_hz, carrier_hz = _log_uniform(rng, 8, 120), _log_uniform(rng, 250, 4500)
    second = rng.uniform(1.5, 3.0) if rng.random() < 0.5 else 0.0
    count = int(np.clip(_log_uniform(rng, 0.05, 1.5) * rate_hz, 1, 120))
    groups, pause_s = int(rng.integers(1, 6)), _log_uniform(rng, 0.1, 1.2)
    decay = _log_uniform(rng, 1.5, 10)
    notes = []
    for _ in range(groups):
        for number in range(count):
            time_s, fraction = _axis(min(1 / rate_hz, 0.12))
            wave = np.sin(2 * np.pi * carrier_hz * time_s)
            if second and carrier_hz * second < BAND_HZ[1]:
                wave += 0.5 * np.sin(2 * np.pi * carrier_hz * second * time_s)
            wave *= np.exp(-decay * fraction) * np.minimum(fraction * 12, 1) * rng.uniform(0.8, 1.0)
            is_last = number == count - 1
            rest_s = max(0.0, 1 / rate_hz - len(time_s) / RATE_HZ)
            notes.append(
                Note(wave * (0.4 + 0.6 * min(1, 4 * number / count)), pause_s if is_last else rest_s)
            )
    return notes


def hoots(rng: Generator) -> list[Note]:
    """Synthesise low hoots below 700 Hz, as of owls, doves and cuckoos."""
    pitch_hz, overtone = _log_uniform(rng, 160, 700), rng.uniform(0, 0.35)
    intervals = np.cumsum(np.append(0, rng.normal(0, 0.12, 5)))
    length_s, gap_s = _log_uniform(rng, 0.1, 0.9), _log_uniform(rng, 0.04, 0.6)
    notes = []
    for number in range(int(rng.integers(1, 6))):
        time_s, fraction = _axis(length_s * rng.uniform(0.7, 1.3))
        hz = pitch_hz * 2 ** (intervals[number] + 0.06 * np.sin(np.pi * fraction) + rng.normal(0, 0.01))
        phase = 2 * np.pi * np.cumsum(hz) / RATE_HZ
        wave = np.sin(phase) + overtone * np.sin(2 * phase) + overtone**2 * np.sin(3 * phase)
        notes.append(Note(wave * np.hanning(len(time_s)) ** 0.6, gap_s * rng.uniform(0.9, 1.1)))
    return notes


def sweeps(rng: Generator) -> list[Note]:
    """Synthesise steep sweeps, as of bats slowed down ten times and of many insects and small birds."""
    high_hz = _log_uniform(rng, 2000, 7500)
    low_hz = max(BAND_HZ[0], high_hz / _log_uniform(rng, 1.1, 4))
    if rng.random() < 0.2:
        high_hz, low_hz = low_hz, high_hz  # upwards
    length_s, gap_s = _log_uniform(rng, 0.02, 0.25), _log_uniform(rng, 0.08, 1.5)
    steepness, harmonic = rng.uniform(0.5, 4), rng.uniform(0, 0.4) if rng.random() < 0.4 else 0.0
    notes = []
    for _ in range(int(rng.integers(1, 9))):
        _, fraction = _axis(length_s * rng.uniform(0.85, 1.15))
        hz = low_hz + (high_hz - low_hz) * (1 - fraction) ** steepness
        phase = 2 * np.pi * np.cumsum(hz) / RATE_HZ
        wave = np.sin(phase) + harmonic * np.sin(2 * phase) * (2 * hz < BAND_HZ[1])
        notes.append(Note(wave * _envelope(rng, fraction), gap_s * rng.uniform(0.9, 1.15)))
    return notes


def drums(rng: Generator) -> list[Note]:
    """Synthesise drumming and clicks: decaying knocks at a regular rate."""
    rate_hz, centre_hz = _log_uniform(rng, 4, 30), _log_uniform(rng, 400, 5000)
    count = int(np.clip(_log_uniform(rng, 0.3, 2.0) * rate_hz, 3, 40))
    knock = _band_noise(rng, round(0.03 * RATE_HZ), centre_hz, rng.uniform(0.3, 1.0))
    knock *= np.exp(-np.linspace(0, 7, len(knock)))
    gap_s = max(0.0, 1 / rate_hz - len(knock) / RATE_HZ)
    fading = rng.uniform(0, 0.8)
    return [
        Note(knock * (1 - fading * number / count) * rng.uniform(0.85, 1), gap_s) for number in range(count)
    ]


def rasps(rng: Generator) -> list[Note]:
    """Synthesise rasps, hisses and rattles: noise in a band, often modulated."""
    centre_hz, octaves = _log_uniform(rng, 700, 6000), rng.uniform(0.3, 1.5)
    length_s, gap_s = _log_uniform(rng, 0.08, 1.0), _log_uniform(rng, 0.08, 1.2)
    rate_hz, depth = _log_uniform(rng, 10, 90), rng.uniform(0, 1)
    notes = []
    for _ in range(int(rng.integers(1, 6))):
        time_s, fraction = _axis(length_s * rng.uniform(0.85, 1.15))
        wave = _band_noise(rng, len(time_s), centre_hz, octaves)
        wave *= 1 - depth * (0.5 + 0.5 * np.cos(2 * np.pi * rate_hz * time_s))
        notes.append(Note(wave * _envelope(rng, fraction), gap_s * rng.uniform(0.85, 1.2)))
    return notes


def whistles(rng: Generator) -> list[Note]:
    """Synthesise songs of several different whistled notes, as of thrushes and pittas."""
    notes = []
    base_hz = _log_uniform(rng, 500, 5000)
    for _ in range(int(rng.integers(1, 8))):
        time_s, fraction = _axis(_log_uniform(rng, 0.06, 0.9))
        glide, bend, shake = rng.normal(0, 0.25), rng.normal(0, 0.2), rng.uniform(0, 0.06)
        path = rng.normal(0, 0.35) + glide * (fraction - 0.5) + bend * np.sin(np.pi * fraction)
        path += shake * np.sin(2 * np.pi * rng.uniform(4, 40) * time_s)
        hz = np.clip(base_hz * 2**path, *BAND_HZ)
        wave = np.sin(2 * np.pi * np.cumsum(hz) / RATE_HZ)
        notes.append(Note(wave * _envelope(rng, fraction), _log_uniform(rng, 0.02, 0.3)))
    return notes


KINDS: Mapping[Kind, float] = {
    tones: 4, stacks: 2, trills: 1.5, pulses: 1.5, hoots: 1.5, sweeps: 1.5, drums: 0.5, rasps: 1, whistles: 2,
}  # fmt: skip
"""Kinds of callers and their relative frequency."""


def synthesise_caller(rng: Generator) -> list[Note]:
    """Synthesise the notes of a caller of a random kind."""
    weights = np.array(list(KINDS.values()))
    kind = list(KINDS)[int(rng.choice(len(KINDS), p=weights / weights.sum()))]
    return kind(rng)


def _axis(length_s: float) -> tuple[Wave, Wave]:
    """Return the times of the samples of a note in seconds, and as fractions of its duration."""
    count = max(32, round(length_s * RATE_HZ))
    return np.arange(count) / RATE_HZ, np.linspace(0, 1, count)


def _envelope(rng: Generator, fraction: Wave) -> Wave:
    """Return an amplitude that rises to a random peak and falls, with short fades at both ends."""
    peak, sharpness = rng.uniform(0.05, 0.95), rng.uniform(0.3, 1.2)
    edge = np.minimum(np.minimum(fraction, 1 - fraction) * 20, 1)
    amplitude: Wave = np.interp(fraction, [0, peak, 1], [0, 1, 0]) ** sharpness * edge
    return amplitude


def _band_noise(rng: Generator, count: int, centre_hz: float, octaves: float) -> Wave:
    """Return noise with a bell-shaped spectrum, of unit level."""
    spectrum = np.fft.rfft(rng.normal(size=count))
    hz = np.fft.rfftfreq(count, 1 / RATE_HZ)
    spectrum *= np.exp(-0.5 * (np.log2(np.maximum(hz, 1) / centre_hz) / (octaves / 2)) ** 2)
    wave: Wave = np.fft.irfft(spectrum, count)
    return wave / max(float(np.sqrt(np.mean(wave**2))), 1e-9)


def _fade(wave: Wave) -> Wave:
    """Return a wave with ends faded over 5 ms."""
    faded = wave.copy()
    size = min(80, len(wave) // 2)
    ramp = np.linspace(0, 1, size)
    faded[:size] *= ramp
    faded[len(faded) - size :] *= ramp[::-1]
    return faded


def _log_uniform(rng: Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))
