"""Render scenes as audio: beds, weather and disturbances filtered by a site's microphone, with calls added.

A call is scaled to its level above the rendered background within its box, after the filter of the microphone.
"""

from __future__ import annotations

import numpy as np
import soxr

from experiments.soundscapes.calls import Bounds
from experiments.soundscapes.scene import LOUDEST_DB, MINUTE_S, SOFTEST_DB, Placed, Scene
from experiments.soundscapes.sites import (
    CLICKS,
    DRY_DB,
    ECHOES,
    EQUALISER_HZ,
    SOUNDS,
    Site,
    World,
    random_day,
)
from experiments.soundscapes.sources import SourceAudio
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
from mast.datasets.sampler import make_rng

SAMPLES = round(MINUTE_S * RATE_HZ)

FAR_DB_A_KHZ = 1.0
"""Absorption of the air, in dB per kHz, of the softest and so most distant calls; the loudest lose nothing."""

RAIN_HOURS, CROSSFADE_S, CLICK_S = 5.0, 1.0, 0.01
INAUDIBLE_DB = -50.0
FULL_SCALE = 0.9
"""Maximum amplitude: louder minutes are attenuated, because clipping would add energy outside the boxes."""


def render(world: World, source_audio: SourceAudio, scene: Scene) -> Wave:
    """Render a minute as samples from -1 to 1. → (N,)"""
    site, day = world.site(scene.day.site), scene.day
    rng = random_day(world.seed, SOUNDS, day.site, day.date, scene.minute)
    gains, echo = _equaliser(site), _echo(site, world.seed)
    background = filtered(_background(site, source_audio, scene, rng), gains)
    background += 10 ** (site.floor_db / 20) * rng.standard_normal(SAMPLES, np.float32)
    audio = background.copy()
    for placed in scene.placed:
        call, before_s = _propagate(placed, gains, echo)
        call *= _gain(call, before_s, background, placed)
        _add(audio, call, round((placed.box[0] - before_s) * RATE_HZ))
    loudest = float(np.abs(audio).max())
    return audio * np.float32(min(10 ** (site.level_dbfs / 20), FULL_SCALE / loudest))


def _background(site: Site, source_audio: SourceAudio, scene: Scene, rng: np.random.Generator) -> Wave:
    """Render beds, weather, disturbances and hum; the first bed has a level of 0 dB."""
    names = scene.day.backgrounds
    available = {
        background.name: background for background in source_audio.backgrounds if background.name in names
    }
    audio = np.zeros(SAMPLES, np.float32)
    for kind, level_db in (*site.beds, ("wind", scene.day.wind_db), ("rain", _rain_db(scene))):
        if level_db > INAUDIBLE_DB:
            waves = [background.wave for background in available.values() if background.kind == kind]
            audio += 10 ** (level_db / 20) * _loop(waves[rng.integers(len(waves))], rng)
    for disturbance in scene.disturbances:
        is_clicks = disturbance.name == CLICKS
        wave = _clicks(rng) if is_clicks else _swell(available[disturbance.name].wave)
        _add(audio, 10 ** (disturbance.level_db / 20) * wave, round(disturbance.start_s * RATE_HZ))
    return audio + _hum(site, rng)


def _rain_db(scene: Scene) -> float:
    """Return the level of the rain at the scene's hour."""
    away_hours = abs((scene.clock.hour + scene.clock.minute / 60 - scene.day.rain_hour + 12) % 24 - 12)
    return scene.day.rain_db if away_hours < RAIN_HOURS / 2 else DRY_DB


def _loop(wave: Wave, rng: np.random.Generator) -> Wave:
    """Build a minute from random pieces of one background, each longer than half of it, with crossfades."""
    fade = round(min(CROSSFADE_S * RATE_HZ, len(wave) / 4))
    ramp = np.sin(np.linspace(0, np.pi / 2, fade)).astype(np.float32)
    audio = np.zeros(SAMPLES + fade, np.float32)
    position = 0
    while position < SAMPLES:
        size = round(rng.uniform(0.6, 1) * len(wave))
        first = int(rng.integers(len(wave) - size + 1))
        piece = _normalise_level(wave[first : first + size])
        piece[:fade] *= ramp
        piece[-fade:] *= ramp[::-1]
        _add(audio, piece, position)
        position += size - fade
    return _normalise_level(audio[fade:])


def _normalise_level(wave: Wave) -> Wave:
    """Return the audio without its DC offset, at an RMS level of 1."""
    centred = wave - wave.mean()
    level: Wave = centred / max(float(np.sqrt(np.mean(centred**2))), 1e-9)
    return level


def _swell(wave: Wave) -> Wave:
    """Fade a disturbance in and out."""
    shape = np.sin(np.linspace(0, np.pi, len(wave))).astype(np.float32) ** np.float32(0.5)
    return _normalise_level(wave) * shape


def _clicks(rng: np.random.Generator) -> Wave:
    """Synthesise a few clicks, as of twigs or a relay: noise that decays within milliseconds."""
    audio = np.zeros(3 * RATE_HZ, np.float32)
    decay = np.exp(-np.arange(round(5 * CLICK_S * RATE_HZ)) / (CLICK_S * RATE_HZ * rng.uniform(0.2, 1)))
    for _ in range(rng.integers(2, 10)):
        click = rng.standard_normal(len(decay)) * decay * rng.uniform(0.5, 2)
        _add(audio, click.astype(np.float32), int(rng.integers(len(audio))))
    return audio


def _hum(site: Site, rng: np.random.Generator) -> Wave:
    """Synthesise mains hum with overtones, and a wavering whine: ten seconds, repeated."""
    time_s = np.arange(10 * RATE_HZ) / RATE_HZ
    phase = rng.uniform(0, 2 * np.pi, 9)
    hum = sum(np.sin(2 * np.pi * site.hum_hz * n * time_s + phase[n]) / n for n in range(1, 9))
    waver = np.sin(2 * np.pi * 0.3 * time_s + phase[0])
    whine = np.sin(2 * np.pi * site.whine_hz * time_s + 3 * waver) * (1 + 0.5 * waver)
    audio = 10 ** (site.hum_db / 20) * hum + 10 ** (site.whine_db / 20) * whine
    return np.tile(audio.astype(np.float32), SAMPLES // len(audio))


def _equaliser(site: Site) -> Floats:
    """Return the frequency response of a site's microphone, as factors from 0 Hz to the Nyquist frequency."""
    hz = np.arange(WINDOW // 2 + 1) * BIN_HZ
    gains: Floats = 10 ** (np.interp(hz, EQUALISER_HZ, site.equaliser_db) / 20)
    return gains


def _echo(site: Site, seed: int) -> Wave:
    """Return the impulse response of a site: the direct sound, then noise that decays by 60 dB in `t60_s`."""
    rng = make_rng(seed, ECHOES, *site.name.encode())
    time_s = np.arange(round(site.t60_s * RATE_HZ)) / RATE_HZ
    tail = rng.standard_normal(len(time_s)) * 10 ** (-3 * time_s / site.t60_s)
    tail *= 10 ** (site.echo_db / 20) / np.sqrt(np.sum(tail**2))
    tail[0] = 1.0
    return tail.astype(np.float32)


def _propagate(placed: Placed, gains: Floats, echo: Wave) -> tuple[Wave, float]:
    """Return a call at the recorder, before scaling, and the time between its first sample and its box in seconds."""
    played = soxr.resample(placed.call.wave, placed.pitch * RATE_HZ, RATE_HZ)
    softness = (LOUDEST_DB - placed.snr_db) / (LOUDEST_DB - SOFTEST_DB)
    khz = np.linspace(0, RATE_HZ / 2000, len(gains))
    pad = WINDOW  # the filter of the microphone extends the call at both ends
    dry = filtered(np.pad(played, pad), gains * 10 ** (-softness * FAR_DB_A_KHZ * khz / 20))
    size = fast_size(len(dry) + len(echo))
    wet = np.fft.irfft(np.fft.rfft(dry, size) * np.fft.rfft(echo, size), size)[: len(dry) + len(echo)]
    return wet.astype(np.float32), placed.call.box[0] / placed.pitch + pad / RATE_HZ


def _gain(call: Wave, before_s: float, background: Wave, placed: Placed) -> float:
    """Return the factor that scales a call to its level above the background, both measured in its box."""
    call_power = mean_power(call, before_s, placed.box)
    background_power = mean_power(background, placed.box[0], placed.box)
    return float(np.sqrt(10 ** (placed.snr_db / 10) * background_power / max(call_power, 1e-20)))


def mean_power(wave: Wave, start_s: float, box: Bounds) -> float:
    """Return the mean power of `wave` in a box that starts at `start_s` there."""
    first, length = round(start_s * RATE_HZ), round((box[2] - box[0]) * RATE_HZ)
    frames = spectrum_of(wave[first : first + length])[: length // HOP + 1]
    band = slice(int(box[1] / BIN_HZ), int(box[3] / BIN_HZ) + 1)
    return float(np.mean(np.abs(frames[:, band]) ** 2))


def _add(target: Wave, wave: Wave, first: int) -> None:
    """Add `wave` to `target`, starting at the sample `first`; parts outside `target` are dropped."""
    begin, end = max(first, 0), min(first + len(wave), len(target))
    if begin < end:
        target[begin:end] += wave[begin - first : end - first]
