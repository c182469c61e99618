"""What people hear: the span they asked for, its band alone, and ultrasound slowed down until they can."""

import io

import numpy as np
import pytest
import soundfile

from mast.errors import AudioError
from mast.review.sound import band_pass, playback
from tests.review.runs import BAT, ONE, QUIET


def heard(wav: bytes) -> tuple[np.ndarray, int]:
    return soundfile.read(io.BytesIO(wav))


def pitch_hz(wave: np.ndarray, rate_hz: int) -> float:
    return float(np.abs(np.fft.rfft(wave)).argmax() * rate_hz / len(wave))


def test_there_is_nothing_to_hear_beyond_the_end(material):
    with pytest.raises(AudioError, match="there is no sound at 30.0 s"):
        playback(material.recording(ONE).location, (30.0, 31.0))


def test_a_span_is_heard_at_its_pitch_and_loud_enough(material):
    wave, rate_hz = heard(playback(material.recording(ONE).location, (1.0, 1.5)))
    assert rate_hz == 16_000 and len(wave) == 8000
    assert pitch_hz(wave, rate_hz) == pytest.approx(2000, abs=5)
    assert np.abs(wave).max() == pytest.approx(0.9, abs=0.01)
    assert wave[0] == wave[-1] == 0


def test_a_bat_is_heard_ten_times_slower_and_lower(material):
    wave, rate_hz = heard(playback(material.recording(BAT).location, (1.0, 1.5), slow=10.0))
    assert len(wave) / rate_hz == pytest.approx(5.0, abs=0.01)
    assert pitch_hz(wave, rate_hz) == pytest.approx(4500, abs=5)


def test_no_browser_gets_a_rate_it_cannot_play(material):
    _, rate_hz = heard(playback(material.recording(BAT).location, (1.0, 1.5), slow=1.0))
    assert rate_hz == 48_000


def test_only_the_band_is_heard(material):
    wave, rate_hz = heard(playback(material.recording(ONE).location, (1.0, 1.5), (3000.0, 5000.0)))
    assert pitch_hz(wave, rate_hz) > 2800


def test_a_band_keeps_what_is_in_it_and_nothing_else():
    time_s = np.arange(16_000) / 16_000
    low, high = (np.sin(2 * np.pi * hz * time_s).astype(np.float32) for hz in (1000, 4000))
    np.testing.assert_allclose(band_pass(low + high, 16_000, (3000.0, 5000.0)), high, atol=1e-4)


def test_a_very_long_span_is_cut(material, monkeypatch):
    monkeypatch.setattr("mast.review.sound.LONGEST_S", 2.0)
    wave, rate_hz = heard(playback(material.recording(QUIET).location, (0.0, 5.0), slow=4.0))
    assert len(wave) / rate_hz == pytest.approx(2.0, abs=0.01)
