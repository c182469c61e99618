"""Curves of an evaluation, and tiles of single sounds."""

import io

import numpy as np
import pytest
from matplotlib.colors import to_hex

from mast.pictures.curves import COLOURS, Line, draw_calibration, draw_precision_recall
from mast.pictures.tiles import STYLES, draw_tile

NAMES = ["test", "$\\frac{1}$ <b>new</b> $place$"]
LINES = [Line(NAMES[0], [0, 0.5], [1, 0.5], (0.5, 0.5)), Line(NAMES[1], [0, 1], [0.2, 0.1])]
DRAWN = {"precision-recall": draw_precision_recall, "calibration": draw_calibration}


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN.keys())
def test_no_curves_can_be_drawn(draw):
    figure = draw([Line("test", [], [])])
    figure.savefig(io.BytesIO())
    assert draw([]).axes[0].get_legend() is None


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN.keys())
def test_every_curve_has_its_points_its_colour_and_its_name_to_the_letter(draw):
    figure = draw(LINES)
    figure.savefig(io.BytesIO())
    axes = figure.axes[0]
    curves = {item.get_label(): item for item in axes.lines}
    for line, colour in zip(LINES, COLOURS, strict=False):
        assert curves[line.name].get_xydata().tolist() == [
            list(point) for point in zip(line.x, line.y, strict=True)
        ]
        assert curves[line.name].get_color() == colour
    assert [text.get_text() for text in axes.get_legend().get_texts()] == NAMES


def test_the_threshold_in_use_is_a_dot_on_its_curve():
    axes = draw_precision_recall(LINES).axes[0]
    dots = [item.get_xydata()[0].tolist() for item in axes.lines if item.get_marker() == "o"]
    assert dots[0] == [0.5, 0.5] and np.isnan(dots[1]).all()


def test_lines_of_equal_f1_are_where_they_should_be():
    axes = draw_precision_recall([]).axes[0]
    for line, level in zip(axes.lines, (0.2, 0.4, 0.6, 0.8), strict=True):
        recall, precision = line.get_xydata()[~np.isnan(line.get_ydata())].T
        assert 2 * precision * recall / (precision + recall) == pytest.approx(level)
        assert precision.min() >= 0 and precision.max() <= 1


def test_a_tile_of_hardly_any_sound_can_be_drawn():
    draw_tile(np.zeros(1, np.float32), 16_000, 0.0, []).savefig(io.BytesIO())


def test_a_tile_has_its_boxes_where_they_are_in_the_recording_and_the_first_stands_out():
    wave = np.sin(2 * np.pi * 2000 * np.arange(16_000) / 16_000).astype(np.float32)
    wave[: len(wave) // 2 + 1000] = 0
    figure = draw_tile(
        wave, 16_000, 7.0, [("model", (7.5, 1500, 8.0, 2500)), ("expert", (7.1, 0, 7.2, 8000))]
    )
    axes = figure.axes[0]
    other, meant = axes.collections  # the one meant lies on top
    (path,) = meant.get_paths()
    assert path.get_extents().bounds == (7.5, 1.5, 0.5, 1.0)
    assert meant.get_linewidth() > other.get_linewidth()
    assert [to_hex(*box.get_edgecolor()) for box in (meant, other)] == [
        STYLES[who][0] for who in ("model", "expert")
    ]
    assert (axes.get_xlim(), axes.get_ylim()) == ((7.0, 8.0), (0.0, 8.0))
    levels = axes.images[0].get_array()
    loudest = np.unravel_index(np.argmax(levels), levels.shape)
    assert loudest[0] * 8000 / (levels.shape[0] - 1) == pytest.approx(2000, abs=40)
    assert loudest[1] / levels.shape[1] > 0.5
