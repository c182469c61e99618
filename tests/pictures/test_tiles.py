"""Tiles of single sounds: the sound and its boxes where they are, with axes that can be read."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import ImageColor

from mast.pictures.tiles import BOTTOM, COLOURS, HEIGHT, LEFT, RIGHT, TOP, WIDTH, draw_tile, place, ticks

RATE_HZ = 16_000


def whistle(hz=2000.0, from_s=0.6, length_s=1.0):
    time_s = np.arange(round(length_s * RATE_HZ)) / RATE_HZ
    noise = np.random.default_rng(0).normal(0, 0.1, len(time_s))
    return (noise + np.sin(2 * np.pi * hz * time_s) * (time_s > from_s)).astype(np.float32)


def pixels_of(picture, colour):
    """Rows and columns of all pixels of a colour."""
    return np.argwhere((np.asarray(picture) == ImageColor.getrgb(colour)).all(axis=2))


@pytest.mark.parametrize("samples", [1, 2, 700])
def test_a_tile_of_hardly_any_sound_can_be_drawn(samples):
    picture = draw_tile(np.zeros(samples, np.float32), RATE_HZ, 0.0, [("model", (0, 0, 0, 0))])
    assert picture.size == (WIDTH, HEIGHT)


def test_the_loudest_place_of_a_tile_is_where_the_sound_is():
    picture = (
        np.asarray(draw_tile(whistle(), RATE_HZ, 7.0, [])).astype(int).sum(axis=2)[TOP:BOTTOM, LEFT:RIGHT]
    )
    row, column = np.unravel_index(np.argmax(picture), picture.shape)
    assert (1 - row / picture.shape[0]) * 8000 == pytest.approx(2000, abs=80)
    assert column / picture.shape[1] > 0.55
    assert picture[:, : picture.shape[1] // 2].max() < picture.max() / 2


def test_boxes_are_drawn_where_they_are_in_the_recording_and_the_first_stands_out():
    around = ("expert", (7.1, 500, 7.3, 7500))
    meant = ("model", (7.5, 1500, 8.0, 2500))
    picture = draw_tile(whistle(), RATE_HZ, 7.0, [meant, around])
    for who, bounds in (around, meant):
        found = pixels_of(picture, COLOURS[who])
        left, top, right, bottom = place(bounds, (7.0, 8.0), 8000)
        assert found.min(axis=0) == pytest.approx([top, left], abs=2)
        assert found.max(axis=0) == pytest.approx([bottom, right], abs=2)
    other = draw_tile(whistle(), RATE_HZ, 7.0, [around, meant])
    for who in COLOURS:
        drawn = [len(pixels_of(item, COLOURS[who])) for item in (picture, other)]
        assert (drawn[0] > 1.5 * drawn[1]) == (who == "model")


def test_a_box_beyond_the_tile_stays_in_it():
    edges = place((-5, -100, 99, 1e6), (7.0, 8.0), 8000)
    assert edges == (LEFT, TOP, RIGHT, BOTTOM)


@given(start=st.floats(0, 1e5), length=st.floats(0.05, 100))
def test_ticks_are_a_few_round_numbers_that_can_be_told_apart(start, length):
    found = ticks(start, start + length)
    assert 1 <= len(found) <= 6
    assert len({text for _, text in found}) == len(found)
    assert all(start <= value <= start + length for value, _ in found)
    step = found[1][0] - found[0][0] if len(found) > 1 else length
    assert all(abs(float(text) - value) < step / 100 for value, text in found)
