"""Scenes as sound: beds, weather and disturbances through a site's microphone, then the calls on top of them.

A call is brought to its level above what is really there: the background in its own box, as the recorder hears it.
"""

from __future__ import annotations

import numpy as np
import soxr

from experiments.soundscapes.calls import Bounds
from experiments.soundscapes.material import Material
from experiments.soundscapes.scene import LOUDEST_DB, MINUTE_S, SOFTEST_DB, Placed, Scene
from experiments.soundscapes.spectra import (
    BIN_HZ,
    HOP,
    RATE_HZ,
    WINDOW,
    Floats,
    Wave,
    fast_size,
    filtered,
    spectrum_of,
)
from experiments.soundscapes.world import (
    CLICKS,
    DRY_DB,
    ECHOES,
    EQUALISER_HZ,
    SOUNDS,
    Site,
    World,
    random_day,
)
from mast.datasets.order import randomness

SAMPLES = round(MINUTE_S * RATE_HZ)

FAR_DB_A_KHZ = 1.0
"""What the air takes from the softest calls, which come from furthest away; the loudest lose nothing."""

RAIN_HOURS, CROSSFADE_S, CLICK_S = 5.0, 1.0, 0.01
INAUDIBLE_DB = -50.0
FULL_SCALE = 0.9
"""A louder minute is turned down: clipping would put sound where no box is."""


def render(world: World, material: Material, scene: Scene) -> Wave:
    """A minute as samples from -1 to 1."""
    site, day = world.site(scene.day.site), scene.day
    rng = random_day(world.seed, SOUNDS, day.site, day.date, scene.minute)
    gains, echo = _equaliser(site), _echo(site, world.seed)
    background = filtered(_background(site, material, scene, rng), gains)
    background += 10 ** (site.floor_db / 20) * rng.standard_normal(SAMPLES, np.float32)
    sound = background.copy()
    for item in scene.placed:
        heard, before_s = _from_afar(item, gains, echo)
        heard *= _gain(heard, before_s, background, item)
        _add(sound, heard, round((item.box[0] - before_s) * RATE_HZ))
    loudest = float(np.abs(sound).max())
    return sound * np.float32(min(10 ** (site.level_dbfs / 20), FULL_SCALE / loudest))


def _background(site: Site, material: Material, scene: Scene, rng: np.random.Generator) -> Wave:
    """Beds, weather, disturbances and hum; the first bed has a level of 0 dB."""
    there = {item.name: item for item in material.backgrounds if item.name in scene.day.backgrounds}
    sound = np.zeros(SAMPLES, np.float32)
    for kind, level_db in (*site.beds, ("wind", scene.day.wind_db), ("rain", _rain_db(scene))):
        if level_db > INAUDIBLE_DB:
            own = [item.wave for item in there.values() if item.kind == kind]
            sound += 10 ** (level_db / 20) * _looped(own[rng.integers(len(own))], rng)
    for item in scene.disturbances:
        wave = _clicks(rng) if item.name == CLICKS else _swell(there[item.name].wave)
        _add(sound, 10 ** (item.level_db / 20) * wave, round(item.start_s * RATE_HZ))
    return sound + _hum(site, rng)


def _rain_db(scene: Scene) -> float:
    """How loud it rains, if it does at that hour."""
    away_hours = abs((scene.clock.hour + scene.clock.minute / 60 - scene.day.rain_hour + 12) % 24 - 12)
    return scene.day.rain_db if away_hours < RAIN_HOURS / 2 else DRY_DB


def _looped(wave: Wave, rng: np.random.Generator) -> Wave:
    """A minute of pieces of one background, each more than half of it, that fade into each other."""
    fade = round(min(CROSSFADE_S * RATE_HZ, len(wave) / 4))
    ramp = np.sin(np.linspace(0, np.pi / 2, fade)).astype(np.float32)
    sound = np.zeros(SAMPLES + fade, np.float32)
    at = 0
    while at < SAMPLES:
        size = round(rng.uniform(0.6, 1) * len(wave))
        first = int(rng.integers(len(wave) - size + 1))
        piece = _levelled(wave[first : first + size])
        piece[:fade] *= ramp
        piece[-fade:] *= ramp[::-1]
        _add(sound, piece, at)
        at += size - fade
    return _levelled(sound[fade:])


def _levelled(wave: Wave) -> Wave:
    """The sound at an effective level of 1, without its offset."""
    centred = wave - wave.mean()
    level: Wave = centred / max(float(np.sqrt(np.mean(centred**2))), 1e-9)
    return level


def _swell(wave: Wave) -> Wave:
    """A disturbance that comes and goes."""
    shape = np.sin(np.linspace(0, np.pi, len(wave))).astype(np.float32) ** np.float32(0.5)
    return _levelled(wave) * shape


def _clicks(rng: np.random.Generator) -> Wave:
    """A few clicks, as of twigs or a relay: noise that dies away within some milliseconds."""
    sound = np.zeros(3 * RATE_HZ, np.float32)
    decay = np.exp(-np.arange(round(5 * CLICK_S * RATE_HZ)) / (CLICK_S * RATE_HZ * rng.uniform(0.2, 1)))
    for _ in range(rng.integers(2, 10)):
        click = rng.standard_normal(len(decay)) * decay * rng.uniform(0.5, 2)
        _add(sound, click.astype(np.float32), int(rng.integers(len(sound))))
    return sound


def _hum(site: Site, rng: np.random.Generator) -> Wave:
    """Mains with its overtones, and a thin whine that wavers; ten seconds, after which all of it begins anew."""
    time_s = np.arange(10 * RATE_HZ) / RATE_HZ
    phase = rng.uniform(0, 2 * np.pi, 9)
    hum = sum(np.sin(2 * np.pi * site.hum_hz * n * time_s + phase[n]) / n for n in range(1, 9))
    waver = np.sin(2 * np.pi * 0.3 * time_s + phase[0])
    whine = np.sin(2 * np.pi * site.whine_hz * time_s + 3 * waver) * (1 + 0.5 * waver)
    sound = 10 ** (site.hum_db / 20) * hum + 10 ** (site.whine_db / 20) * whine
    return np.tile(sound.astype(np.float32), SAMPLES // len(sound))


def _equaliser(site: Site) -> Floats:
    """What a site's microphone does to each frequency, as factors from 0 Hz to half the rate."""
    hz = np.arange(WINDOW // 2 + 1) * BIN_HZ
    gains: Floats = 10 ** (np.interp(hz, EQUALISER_HZ, site.equaliser_db) / 20)
    return gains


def _echo(site: Site, seed: int) -> Wave:
    """Impulse response of a place: the sound itself, then noise that dies away by 60 dB in `t60_s`."""
    rng = randomness(seed, ECHOES, *site.name.encode())
    time_s = np.arange(round(site.t60_s * RATE_HZ)) / RATE_HZ
    tail = rng.standard_normal(len(time_s)) * 10 ** (-3 * time_s / site.t60_s)
    tail *= 10 ** (site.echo_db / 20) / np.sqrt(np.sum(tail**2))
    tail[0] = 1.0
    return tail.astype(np.float32)


def _from_afar(item: Placed, gains: Floats, echo: Wave) -> tuple[Wave, float]:
    """A call as the recorder hears it, still at no particular level, and how long before its box the sound begins."""
    played = soxr.resample(item.call.wave, item.pitch * RATE_HZ, RATE_HZ)
    softness = (LOUDEST_DB - item.snr_db) / (LOUDEST_DB - SOFTEST_DB)
    khz = np.linspace(0, RATE_HZ / 2000, len(gains))
    pad = WINDOW  # the equaliser reaches a little before and after
    dry = filtered(np.pad(played, pad), gains * 10 ** (-softness * FAR_DB_A_KHZ * khz / 20))
    size = fast_size(len(dry) + len(echo))
    wet = np.fft.irfft(np.fft.rfft(dry, size) * np.fft.rfft(echo, size), size)[: len(dry) + len(echo)]
    return wet.astype(np.float32), item.call.box[0] / item.pitch + pad / RATE_HZ


def _gain(heard: Wave, before_s: float, background: Wave, item: Placed) -> float:
    """What brings a call to its level above the background, both measured in its box."""
    own = mean_power(heard, before_s, item.box)
    there = mean_power(background, item.box[0], item.box)
    return float(np.sqrt(10 ** (item.snr_db / 10) * there / max(own, 1e-20)))


def mean_power(wave: Wave, start_s: float, box: Bounds) -> float:
    """Power of a sound in a box that begins there at `start_s`, over time and band."""
    first, length = round(start_s * RATE_HZ), round((box[2] - box[0]) * RATE_HZ)
    frames = spectrum_of(wave[first : first + length])[: length // HOP + 1]
    band = slice(int(box[1] / BIN_HZ), int(box[3] / BIN_HZ) + 1)
    return float(np.mean(np.abs(frames[:, band]) ** 2))


def _add(sound: Wave, wave: Wave, first: int) -> None:
    """Add a sound into another from a sample on, as far as it reaches."""
    begin, end = max(first, 0), min(first + len(wave), len(sound))
    if begin < end:
        sound[begin:end] += wave[begin - first : end - first]
