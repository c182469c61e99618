"""Effects of distance on a call, and of weather, handling and the recorder on a recording, at 16 kHz."""

from __future__ import annotations

import io

import numpy as np
import soundfile
from numpy.random import Generator

from experiments.soundscapes.spectra import fast_size
from experiments.starter.calls import RATE_HZ, Wave

EQUALISER_HZ = (0, 150, 400, 1000, 2000, 3500, 5500, 8000)
_RESPONSE_HZ = np.linspace(0, RATE_HZ / 2, 257)


def filter_wave(wave: Wave, hz: tuple[float, ...], gains_db: tuple[float, ...]) -> Wave:
    """Apply a frequency response, given in dB at some frequencies."""
    size = fast_size(len(wave))
    spectrum = np.fft.rfft(wave, size)
    response = 10 ** (np.interp(_RESPONSE_HZ, hz, gains_db) / 20)
    axis = np.linspace(0, len(_RESPONSE_HZ) - 1, len(spectrum))
    spectrum *= np.interp(axis, np.arange(len(_RESPONSE_HZ)), response)
    filtered: Wave = np.fft.irfft(spectrum, size)[: len(wave)]
    return filtered


def absorption_db(distance: float) -> Wave:
    """Return how much air and leaves attenuate each frequency of `EQUALISER_HZ`; a distance of 1 costs 3 dB per kHz."""
    return -3 * distance * np.array(EQUALISER_HZ) / 1000


def reverberate(wave: Wave, rng: Generator, distance: float) -> Wave:
    """Append and add a decaying tail, louder with distance: -22 to -4 dB."""
    tail = rng.normal(size=round(rng.uniform(0.1, 0.9) * RATE_HZ))
    tail *= np.exp(-6.9 * np.linspace(0, 1, len(tail)))
    size = len(wave) + len(tail) - 1
    fast = fast_size(size)
    echo = np.fft.irfft(np.fft.rfft(wave, fast) * np.fft.rfft(tail, fast), fast)[:size]
    level_db = -22 + 18 * distance * rng.uniform(0.5, 1)
    echo *= 10 ** (level_db / 20) * np.sqrt(np.sum(wave**2) / max(np.sum(echo**2), 1e-12))
    echo[: len(wave)] += wave
    reverberated: Wave = echo
    return reverberated


def coloured_noise(rng: Generator, count: int, slope_db: float) -> Wave:
    """Return noise of unit level whose power changes by `slope_db` per octave above 100 Hz."""
    hz = np.maximum(_RESPONSE_HZ, 100)
    return _unit(filter_wave(rng.standard_normal(count), tuple(hz), tuple(slope_db * np.log2(hz / 100))))


def wind(rng: Generator, count: int) -> Wave:
    """Return gusts on the microphone: low noise whose level changes within seconds, of unit level."""
    noise = coloured_noise(rng, count, rng.uniform(-14, -7))
    points = rng.normal(0, 1, max(3, round(count / RATE_HZ * rng.uniform(0.5, 3))))
    gusts = np.interp(np.linspace(0, len(points) - 1, count), np.arange(len(points)), points)
    return _unit(noise * 10 ** (gusts * 9 / 20))


def handling(rng: Generator, count: int) -> Wave:
    """Return thumps and rustling of a recorder that is touched, of unit level."""
    wave = np.zeros(count)
    for _ in range(int(rng.integers(1, 8))):
        size = round(rng.uniform(0.02, 0.5) * RATE_HZ)
        burst = coloured_noise(rng, size, rng.uniform(-9, 0)) * np.exp(
            -np.linspace(0, rng.uniform(2, 7), size)
        )
        _add(wave, burst * rng.uniform(0.3, 1), int(rng.integers(count)))
    return _unit(wave)


def drops(rng: Generator, count: int) -> Wave:
    """Return drops of rain on a housing: short decaying resonances at random times, of unit level."""
    wave = np.zeros(count)
    for _ in range(int(rng.integers(3, 10 + round(40 * count / RATE_HZ)))):
        size = round(rng.uniform(0.003, 0.04) * RATE_HZ)
        time_s = np.arange(size) / RATE_HZ
        drop = np.sin(2 * np.pi * np.exp(rng.uniform(5, 8.8)) * time_s) + rng.normal(0, 0.7, size)
        _add(wave, drop * np.exp(-np.linspace(0, 7, size)) * rng.exponential(1), int(rng.integers(count)))
    return _unit(wave)


def interference(rng: Generator, count: int) -> Wave:
    """Return the buzz of a telephone, or a steady whine, of unit level."""
    time_s = np.arange(count) / RATE_HZ
    if rng.random() < 0.5:
        buzz = (np.sin(2 * np.pi * 217 * time_s) > 0.97).astype(float) - 0.05
        is_on = np.interp(time_s, *_switches(rng, count)) > 0.5
        return _unit(buzz * is_on + 1e-6 * rng.standard_normal(count))
    whine = sum(np.sin(2 * np.pi * rng.uniform(1000, 7800) * time_s) for _ in range(int(rng.integers(1, 4))))
    return _unit(np.asarray(whine))


def hum(rng: Generator, count: int) -> Wave:
    """Return mains hum with overtones, of unit level."""
    time_s, base_hz = np.arange(count) / RATE_HZ, rng.choice([50, 60, 87, 120])
    waves = (np.sin(2 * np.pi * base_hz * n * time_s + rng.uniform(0, 6.28)) / n for n in range(1, 12))
    return _unit(np.asarray(sum(waves)))


def clip(wave: Wave, rng: Generator) -> Wave:
    """Clip the loudest parts, as a recorder with too much gain."""
    peak = np.abs(wave).max() * 10 ** (-rng.uniform(1, 14) / 20)
    return np.clip(wave, -peak, peak)


def compress(wave: Wave, rng: Generator) -> Wave:
    """Even out the level over time, as automatic gain control."""
    size = round(rng.uniform(0.05, 0.5) * RATE_HZ)
    total = np.cumsum(np.pad(wave**2, (size, 0)))
    power = (total[size:] - total[:-size]) / size
    gain: Wave = (power + np.mean(power) * 0.05) ** (-0.5 * rng.uniform(0.3, 0.8))
    return wave * gain


def encode_mp3(wave: Wave, rng: Generator) -> Wave:
    """Encode and decode a recording as MP3."""
    file = io.BytesIO()
    peak = float(np.abs(wave).max()) or 1.0
    level = float(rng.uniform(0.1, 0.9))
    soundfile.write(file, wave / peak * 0.9, RATE_HZ, format="MP3", compression_level=level)
    file.seek(0)
    decoded, _ = soundfile.read(file, dtype="float64")
    return np.pad(decoded, (0, max(0, len(wave) - len(decoded))))[: len(wave)] * peak / 0.9


def _switches(rng: Generator, count: int) -> tuple[Wave, Wave]:
    """Return times and values of a random on-off pattern."""
    times = np.sort(rng.uniform(0, count / RATE_HZ, int(rng.integers(2, 12))))
    return times, (np.arange(len(times)) % 2).astype(float)


def _unit(wave: Wave) -> Wave:
    level: Wave = wave / max(float(np.sqrt(np.mean(wave**2))), 1e-9)
    return level


def _add(target: Wave, wave: Wave, first: int) -> None:
    """Add `wave` to `target`, starting at the sample `first`; what extends beyond the end is dropped."""
    end = min(first + len(wave), len(target))
    target[first:end] += wave[: end - first]
