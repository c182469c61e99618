"""Self-contained pages: text stays text, pictures and sounds lie inside."""

import io
from base64 import b64decode

import numpy as np
import pytest
import soundfile
from jinja2 import UndefinedError
from matplotlib.figure import Figure

from mast.pictures.html import _seconds, _share, picture_uri, render_page, sound_uri


def content(uri, kind):
    start, _, data = uri.partition(",")
    assert start == f"data:{kind};base64"
    return b64decode(data)


def test_a_value_that_a_template_needs_must_be_given():
    with pytest.raises(UndefinedError, match="comparison"):
        render_page("compare.html", {})


def test_a_figure_is_a_png_inside_its_address():
    data = content(picture_uri(Figure(figsize=(1, 2)), dpi=50), "image/png")
    assert data.startswith(b"\x89PNG") and data[16:24] == (50).to_bytes(4, "big") + (100).to_bytes(4, "big")


def test_no_sound_stays_silent():
    sound, _ = soundfile.read(io.BytesIO(content(sound_uri(np.zeros(100, np.float32), 16_000), "audio/flac")))
    assert len(sound) == 100 and not sound.any()


def test_a_faint_sound_is_made_louder_and_a_loud_one_does_not_clip():
    for peak in (0.02, 1.0):
        wave = (peak * np.sin(np.arange(1600) / 5)).astype(np.float32)
        sound, rate_hz = soundfile.read(io.BytesIO(content(sound_uri(wave, 16_000), "audio/flac")))
        assert rate_hz == 16_000
        assert np.abs(sound).max() == pytest.approx(0.9, abs=0.001)
        assert np.corrcoef(sound, wave)[0, 1] > 0.9999


def test_hardly_any_sound_is_not_made_into_noise():
    sound, _ = soundfile.read(
        io.BytesIO(content(sound_uri(np.full(10, 1e-4, np.float32), 16_000), "audio/flac"))
    )
    assert np.abs(sound).max() == pytest.approx(0.01, abs=1e-4)


def test_numbers_and_times_as_a_page_writes_them():
    assert [_share(value) for value in (0.12345, 1, np.nan, np.inf)] == ["0.123", "1.000", "–", "–"]
    assert _share(0.5, 2) == "0.50"
    assert [_seconds(time_s) for time_s in (0, 7.71, 59.96, 61.5, 3661)] == [
        "0:00.0", "0:07.7", "1:00.0", "1:01.5", "1:01:01.0",
    ]  # fmt: skip
