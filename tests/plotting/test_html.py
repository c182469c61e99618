"""Self-contained pages: text is escaped, images and audio are embedded."""

import io
from base64 import b64decode

import numpy as np
import pytest
import soundfile
from jinja2 import UndefinedError
from matplotlib.figure import Figure

from mast.plotting.html import _decimal, _seconds, audio_data_uri, figure_data_uri, render_page


def content(uri, kind):
    start, _, data = uri.partition(",")
    assert start == f"data:{kind};base64"
    return b64decode(data)


def test_a_missing_template_value_is_an_error():
    with pytest.raises(UndefinedError, match="comparison"):
        render_page("compare.html", {})


def test_a_figure_is_a_png_data_uri():
    data = content(figure_data_uri(Figure(figsize=(1, 2)), dpi=50), "image/png")
    assert data.startswith(b"\x89PNG") and data[16:24] == (50).to_bytes(4, "big") + (100).to_bytes(4, "big")


def test_silence_stays_silent():
    samples, _ = soundfile.read(
        io.BytesIO(content(audio_data_uri(np.zeros(100, np.float32), 16_000), "audio/flac"))
    )
    assert len(samples) == 100 and not samples.any()


def test_quiet_audio_is_amplified_and_loud_audio_does_not_clip():
    for peak in (0.02, 1.0):
        wave = (peak * np.sin(np.arange(1600) / 5)).astype(np.float32)
        samples, rate_hz = soundfile.read(io.BytesIO(content(audio_data_uri(wave, 16_000), "audio/flac")))
        assert rate_hz == 16_000
        assert np.abs(samples).max() == pytest.approx(0.9, abs=0.001)
        assert np.corrcoef(samples, wave)[0, 1] > 0.9999


def test_near_silence_is_not_amplified_to_noise():
    samples, _ = soundfile.read(
        io.BytesIO(content(audio_data_uri(np.full(10, 1e-4, np.float32), 16_000), "audio/flac"))
    )
    assert np.abs(samples).max() == pytest.approx(0.01, abs=1e-4)


def test_numbers_and_times_are_formatted_for_a_page():
    assert [_decimal(value) for value in (0.12345, 1, np.nan, np.inf)] == ["0.123", "1.000", "–", "–"]
    assert _decimal(0.5, 2) == "0.50"
    assert [_seconds(time_s) for time_s in (0, 7.71, 59.96, 61.5, 3661)] == [
        "0:00.0", "0:07.7", "1:00.0", "1:01.5", "1:01:01.0",
    ]  # fmt: skip
