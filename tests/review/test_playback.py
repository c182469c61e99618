"""Playback: a span, its band alone, and slowed-down ultrasound."""

import io

import numpy as np
import pytest
import soundfile

from mast.errors import AudioError
from mast.review.web.playback import band_pass, playback
from tests.review.runs import BAT, ONE, QUIET


def decoded(wav: bytes) -> tuple[np.ndarray, int]:
    return soundfile.read(io.BytesIO(wav))


def pitch_hz(wave: np.ndarray, rate_hz: int) -> float:
    return float(np.abs(np.fft.rfft(wave)).argmax() * rate_hz / len(wave))


def test_there_is_no_audio_beyond_the_end(review_set):
    with pytest.raises(AudioError, match="no audio at 30.0 s"):
        playback(review_set.recording(ONE).location, (30.0, 31.0))


def test_a_span_keeps_its_pitch_and_is_normalised(review_set):
    wave, rate_hz = decoded(playback(review_set.recording(ONE).location, (1.0, 1.5)))
    assert rate_hz == 16_000 and len(wave) == 8000
    assert pitch_hz(wave, rate_hz) == pytest.approx(2000, abs=5)
    assert np.abs(wave).max() == pytest.approx(0.9, abs=0.01)
    assert wave[0] == wave[-1] == 0


def test_a_bat_call_is_played_ten_times_slower_and_lower(review_set):
    wave, rate_hz = decoded(playback(review_set.recording(BAT).location, (1.0, 1.5), slow=10.0))
    assert len(wave) / rate_hz == pytest.approx(5.0, abs=0.01)
    assert pitch_hz(wave, rate_hz) == pytest.approx(4500, abs=5)


def test_the_output_rate_can_be_played_by_every_browser(review_set):
    _, rate_hz = decoded(playback(review_set.recording(BAT).location, (1.0, 1.5), slow=1.0))
    assert rate_hz == 48_000


def test_only_the_band_is_played(review_set):
    wave, rate_hz = decoded(playback(review_set.recording(ONE).location, (1.0, 1.5), (3000.0, 5000.0)))
    assert pitch_hz(wave, rate_hz) > 2800


def test_band_pass_keeps_only_frequencies_in_the_band():
    time_s = np.arange(16_000) / 16_000
    low, high = (np.sin(2 * np.pi * hz * time_s).astype(np.float32) for hz in (1000, 4000))
    np.testing.assert_allclose(band_pass(low + high, 16_000, (3000.0, 5000.0)), high, atol=1e-4)


def test_a_very_long_span_is_cut(review_set, monkeypatch):
    monkeypatch.setattr("mast.review.web.playback.LONGEST_S", 2.0)
    wave, rate_hz = decoded(playback(review_set.recording(QUIET).location, (0.0, 5.0), slow=4.0))
    assert len(wave) / rate_hz == pytest.approx(2.0, abs=0.01)
