"""Tiles: loud audio is bright at its time and frequency, the background is even, and tiles have no seams."""

import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mast.audio.reader import open_audio
from mast.review.web.tile_cache import TileCache
from mast.review.web.tile_renderer import TileRenderer
from mast.review.web.tiles import TileSpec, background_levels, column_levels, knot_weights, render_tile
from tests.review.runs import BAT, ONE, QUIET


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)))


@pytest.fixture
def draw(review_set, tmp_path):
    renderer = TileRenderer(TileCache(tmp_path))
    return lambda name, tile: pixels(renderer.tile(review_set.recording(name), tile))


def test_a_quiet_recording_is_dark(draw):
    image = draw(QUIET, TileSpec(0.0, 4.0, 0.0, 8000.0))
    assert image.shape == (256, 512) and image.dtype == np.uint8
    assert np.median(image) < 10 * 4  # 4 grey values per dB above the background


def test_a_tone_is_bright_at_its_time_and_frequency(draw):
    image = draw(ONE, TileSpec(0.0, 4.0, 0.0, 8000.0))
    row, column = 255 - round(2000 / 8000 * 256), round(1.25 / 4 * 512)
    assert image[row - 1 : row + 2, column].max() > 30 * 4
    bright = image[row - 2 : row + 3].max(axis=0) > 25 * 4
    assert bright.nonzero()[0].min() / 128 == pytest.approx(1.0, abs=0.05)
    assert bright.nonzero()[0].max() / 128 == pytest.approx(1.5, abs=0.05)


def test_ultrasound_is_rendered_up_to_half_the_sample_rate(draw):
    image = draw(BAT, TileSpec(0.9, 1.1, 0.0, 96_000.0))
    assert abs(int(image.max(axis=1).argmax()) - (255 - round(45 / 96 * 256))) <= 2


def test_a_tile_shows_its_band_of_the_recording(draw):
    low = draw(ONE, TileSpec(1.0, 2.0, 1900.0, 2100.0))
    assert np.flatnonzero(low[:, 128] == low.max()).mean() == pytest.approx(128, abs=4)


def test_beyond_the_end_of_a_recording_there_is_silence(draw):
    image = draw(QUIET, TileSpec(4.0, 12.0, 0.0, 8000.0))
    assert image[:, :60].max() > 0 and image[:, 80:].max() == 0


def test_tiles_of_one_recording_have_one_background(draw):
    complete = draw(QUIET, TileSpec(0.0, 4.0, 0.0, 8000.0, 512, 128)).astype(float)
    halves = [draw(QUIET, TileSpec(at, at + 2.0, 0.0, 8000.0, 256, 128)).astype(float) for at in (0.0, 2.0)]
    assert np.abs(np.concatenate(halves, axis=1) - complete).max() <= 1


def test_a_long_tile_is_read_in_parts_and_shows_the_same_band(monkeypatch, draw):
    monkeypatch.setattr("mast.review.web.tiles.FULL_READ_S", 5.0)
    image = draw(ONE, TileSpec(0.0, 20.0, 0.0, 8000.0))
    row = 255 - round(2000 / 8000 * 256)
    assert (image[row - 2 : row + 3].max(axis=0) > 25 * 4).mean() == pytest.approx(4 * 0.5 / 20, abs=0.03)


def test_old_backgrounds_are_measured_again(monkeypatch, draw):
    monkeypatch.setattr("mast.review.web.tile_renderer.MAX_BACKGROUNDS", 1)
    first = draw(QUIET, TileSpec(0.0, 4.0, 0.0, 8000.0, 64, 32))
    draw(ONE, TileSpec(0.0, 4.0, 0.0, 8000.0, 64, 32))
    again = draw(QUIET, TileSpec(0.0, 4.0, 0.0, 8000.0, 64, 64))
    assert first.shape == (32, 64) and np.median(again) == pytest.approx(np.median(first), abs=8)


def test_levels_of_columns_equal_a_plain_spectrum(review_set):
    tile = TileSpec(0.5, 1.5, 0.0, 8000.0, width=200, height=64)
    with open_audio(review_set.recording(ONE).location, None) as audio:
        levels = column_levels(audio, tile)
        window = tile.window(16_000)
        wave = audio.read_samples(0, audio.samples)
    for column in (0, 100, 199):
        first = 8000 + column * 80 - window // 2
        power = np.abs(np.fft.rfft(wave[first : first + window] * np.hanning(window))) ** 2 / window
        np.testing.assert_allclose(levels[column], 10 * np.log10(power), atol=0.1)


@given(st.floats(0.01, 1e5), st.floats(60, 200_000), st.sampled_from([8000, 48_000, 384_000]))
def test_windows_are_powers_of_two_within_bounds(span_s, band_hz, rate_hz):
    window = TileSpec(0.0, span_s, 0.0, band_hz).window(rate_hz)
    assert 128 <= window <= 4096 and math.log2(window).is_integer()


def test_between_two_knots_the_background_is_interpolated():
    before, after, weight = knot_weights(TileSpec(300.0, 600.0, 0, 1, width=3), 1000.0)
    assert (before, after) == (1, 2) and weight[:, 0].tolist() == pytest.approx([0.0, 0.5, 1.0])
    assert knot_weights(TileSpec(40.0, 60.0, 0, 1), 60.0)[:2] == (0, 0)


def test_the_background_follows_each_band(review_set):
    with open_audio(review_set.recording(ONE).location, None) as audio:
        quiet_db = background_levels(audio, 256, 0)
        assert quiet_db.shape == (129,)
        assert quiet_db[32] < -60  # the tone lasts a tenth of the time, so it is not background
        quiet_db[100:] -= 20.0
        image = pixels(render_tile(audio, TileSpec(0.0, 4.0, 0.0, 8000.0), quiet_db))
    assert np.median(image[:40]) - np.median(image[80:]) == pytest.approx(20 * 4, abs=8)
