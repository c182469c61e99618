"""Audio playback of a span: optionally band-pass filtered, and slowed down for ultrasound."""

from __future__ import annotations

import io

import numpy as np
import soundfile
import soxr

from mast.audio.reader import open_audio
from mast.errors import AudioError
from mast.plotting.html import MAX_GAIN, PEAK_LEVEL
from mast.types import Floats32

LONGEST_S = 120.0
"""Maximum duration of the output; longer spans are cut."""

HIGHEST_RATE_HZ = 48_000
"""Maximum output sample rate: every browser plays it."""

EDGE_FRACTION, NARROWEST_EDGE_HZ = 0.1, 50.0
"""Width of the band edges as a fraction of the bandwidth, and its minimum: hard edges would ring."""

FADE_S = 0.005


def playback(
    location: str,
    span_s: tuple[float, float],
    band_hz: tuple[float, float] | None = None,
    slow: float = 1.0,
    frames: int | None = None,
) -> bytes:
    """Return a span (seconds of the recording) as a WAV file, `slow` times slower, optionally only a band in Hz.

    The recording ends after `frames` samples, if the scan recorded them.
    """
    with open_audio(location, None, frames=frames) as audio:
        rate_hz = audio.sample_rate_hz
        wave = audio.read(span_s[0], min(span_s[1] - span_s[0], LONGEST_S / slow))
    if not len(wave):
        raise AudioError(f"{location}: no audio at {span_s[0]:.1f} s.")
    if band_hz is not None:
        wave = band_pass(wave, rate_hz, band_hz)
    output_rate_hz = rate_hz / slow
    if output_rate_hz > HIGHEST_RATE_HZ:
        wave, output_rate_hz = (
            soxr.resample(wave, output_rate_hz, HIGHEST_RATE_HZ, quality="HQ"),
            HIGHEST_RATE_HZ,
        )
    buffer = io.BytesIO()
    soundfile.write(
        buffer, _normalise_level(wave, output_rate_hz), round(output_rate_hz), format="WAV", subtype="PCM_16"
    )
    return buffer.getvalue()


def band_pass(wave: Floats32, rate_hz: float, band_hz: tuple[float, float]) -> Floats32:
    """Band-pass filter audio, (N,) → (N,)."""
    low_hz, high_hz = band_hz
    edge_hz = max((high_hz - low_hz) * EDGE_FRACTION, NARROWEST_EDGE_HZ)
    frequencies_hz = np.fft.rfftfreq(len(wave), 1 / rate_hz)
    corners_hz = (low_hz - edge_hz, low_hz, high_hz, high_hz + edge_hz)
    gain = np.interp(frequencies_hz, corners_hz, (0.0, 1.0, 1.0, 0.0))
    return np.fft.irfft(np.fft.rfft(wave) * gain, len(wave)).astype(np.float32)


def _normalise_level(wave: Floats32, rate_hz: float) -> Floats32:
    """Normalise the peak level and fade both ends, to avoid clicks."""
    peak = float(np.abs(wave).max(initial=0.0))
    gain = min(PEAK_LEVEL / peak, MAX_GAIN) if peak else 1.0
    fade = min(round(FADE_S * rate_hz), len(wave) // 2)
    shape = np.ones(len(wave), np.float32)
    if fade:
        shape[:fade] = np.linspace(0, 1, fade)
        shape[-fade:] = np.linspace(1, 0, fade)
    louder: Floats32 = wave * shape * np.float32(gain)
    return louder
