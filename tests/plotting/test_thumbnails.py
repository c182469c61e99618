"""Thumbnails: audio and boxes at the right position, with readable axes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import ImageColor

from mast.plotting.thumbnails import (
    BOTTOM,
    COLOURS,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    render_thumbnail,
    ticks,
    to_pixels,
)

RATE_HZ = 16_000


def whistle(hz=2000.0, from_s=0.6, length_s=1.0):
    time_s = np.arange(round(length_s * RATE_HZ)) / RATE_HZ
    noise = np.random.default_rng(0).normal(0, 0.1, len(time_s))
    return (noise + np.sin(2 * np.pi * hz * time_s) * (time_s > from_s)).astype(np.float32)


def pixels_of(image, colour):
    """Return rows and columns of all pixels of a colour."""
    return np.argwhere((np.asarray(image) == ImageColor.getrgb(colour)).all(axis=2))


@pytest.mark.parametrize("samples", [1, 2, 700])
def test_a_thumbnail_of_a_few_samples_can_be_rendered(samples):
    image = render_thumbnail(np.zeros(samples, np.float32), RATE_HZ, 0.0, [("model", (0, 0, 0, 0))])
    assert image.size == (WIDTH, HEIGHT)


def test_the_brightest_pixel_is_at_the_tone():
    image = (
        np.asarray(render_thumbnail(whistle(), RATE_HZ, 7.0, []))
        .astype(int)
        .sum(axis=2)[TOP:BOTTOM, LEFT:RIGHT]
    )
    row, column = np.unravel_index(np.argmax(image), image.shape)
    assert (1 - row / image.shape[0]) * 8000 == pytest.approx(2000, abs=80)
    assert column / image.shape[1] > 0.55
    assert image[:, : image.shape[1] // 2].max() < image.max() / 2


def test_boxes_are_at_their_position_and_the_first_is_thicker():
    context = ("expert", (7.1, 500, 7.3, 7500))
    main = ("model", (7.5, 1500, 8.0, 2500))
    image = render_thumbnail(whistle(), RATE_HZ, 7.0, [main, context])
    for origin, bounds in (context, main):
        pixels = pixels_of(image, COLOURS[origin])
        left, top, right, bottom = to_pixels(bounds, (7.0, 8.0), 8000)
        assert pixels.min(axis=0) == pytest.approx([top, left], abs=2)
        assert pixels.max(axis=0) == pytest.approx([bottom, right], abs=2)
    swapped = render_thumbnail(whistle(), RATE_HZ, 7.0, [context, main])
    for origin in COLOURS:
        pixel_counts = [len(pixels_of(item, COLOURS[origin])) for item in (image, swapped)]
        assert (pixel_counts[0] > 1.5 * pixel_counts[1]) == (origin == "model")


def test_a_box_beyond_the_thumbnail_is_clipped():
    edges = to_pixels((-5, -100, 99, 1e6), (7.0, 8.0), 8000)
    assert edges == (LEFT, TOP, RIGHT, BOTTOM)


@given(start=st.floats(0, 1e5), length=st.floats(0.05, 100))
def test_ticks_are_a_few_distinct_round_numbers(start, length):
    labelled = ticks(start, start + length)
    assert 1 <= len(labelled) <= 6
    assert len({text for _, text in labelled}) == len(labelled)
    assert all(start <= value <= start + length for value, _ in labelled)
    step = labelled[1][0] - labelled[0][0] if len(labelled) > 1 else length
    assert all(abs(float(text) - value) < step / 100 for value, text in labelled)
