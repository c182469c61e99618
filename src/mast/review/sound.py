"""A box or a span of a recording as a sound to listen to: its band alone, slowed down where ears cannot follow."""

from __future__ import annotations

import io

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from mast.errors import AudioError
from mast.pictures.html import LOUDEST, MOST_GAIN
from mast.recordings.decode import open_audio

Wave = NDArray[np.float32]

LONGEST_S = 120.0
"""As heard; a longer span is cut."""

HIGHEST_RATE_HZ = 48_000
"""What every browser plays."""

EDGE_SHARE, NARROWEST_EDGE_HZ = 0.1, 50.0
"""The band's edges fade over this share of its width: a hard edge would ring."""

FADE_S = 0.005


def playback(
    location: str,
    span_s: tuple[float, float],
    band_hz: tuple[float, float] | None = None,
    slow: float = 1.0,
    frames: int | None = None,
) -> bytes:
    """A WAV file of a span in the recording's own seconds, `slow` times slower; only the band in Hz, if one is given.

    The recording ends after its `frames`, if a scan told them.
    """
    with open_audio(location, None, frames=frames) as audio:
        rate_hz = audio.sample_rate_hz
        wave = audio.read(span_s[0], min(span_s[1] - span_s[0], LONGEST_S / slow))
    if not len(wave):
        raise AudioError(f"{location}: there is no sound at {span_s[0]:.1f} s.")
    if band_hz is not None:
        wave = band_pass(wave, rate_hz, band_hz)
    heard_hz = rate_hz / slow
    if heard_hz > HIGHEST_RATE_HZ:
        wave, heard_hz = soxr.resample(wave, heard_hz, HIGHEST_RATE_HZ, quality="HQ"), HIGHEST_RATE_HZ
    buffer = io.BytesIO()
    soundfile.write(buffer, _audible(wave, heard_hz), round(heard_hz), format="WAV", subtype="PCM_16")
    return buffer.getvalue()


def band_pass(wave: Wave, rate_hz: float, band_hz: tuple[float, float]) -> Wave:
    """The part of a sound between two frequencies. (N,) → (N,)"""
    low_hz, high_hz = band_hz
    edge_hz = max((high_hz - low_hz) * EDGE_SHARE, NARROWEST_EDGE_HZ)
    frequencies_hz = np.fft.rfftfreq(len(wave), 1 / rate_hz)
    corners_hz = (low_hz - edge_hz, low_hz, high_hz, high_hz + edge_hz)
    share = np.interp(frequencies_hz, corners_hz, (0.0, 1.0, 1.0, 0.0))
    return np.fft.irfft(np.fft.rfft(wave) * share, len(wave)).astype(np.float32)


def _audible(wave: Wave, rate_hz: float) -> Wave:
    """Loud enough to be heard, and without a click at its ends."""
    peak = float(np.abs(wave).max(initial=0.0))
    gain = min(LOUDEST / peak, MOST_GAIN) if peak else 1.0
    fade = min(round(FADE_S * rate_hz), len(wave) // 2)
    shape = np.ones(len(wave), np.float32)
    if fade:
        shape[:fade] = np.linspace(0, 1, fade)
        shape[-fade:] = np.linspace(1, 0, fade)
    louder: Wave = wave * shape * np.float32(gain)
    return louder
