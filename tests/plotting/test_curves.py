"""Plots of evaluation curves."""

import io

import numpy as np
import pytest

from mast.plotting.curves import COLOURS, Line, plot_calibration, plot_precision_recall

NAMES = ["test", "$\\frac{1}$ <b>new</b> $place$"]
LINES = [Line(NAMES[0], [0, 0.5], [1, 0.5], (0.5, 0.5)), Line(NAMES[1], [0, 1], [0.2, 0.1])]
PLOTS = {"precision-recall": plot_precision_recall, "calibration": plot_calibration}


@pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS.keys())
def test_no_curves_can_be_plotted(plot):
    figure = plot([Line("test", [], [])])
    figure.savefig(io.BytesIO())
    assert plot([]).axes[0].get_legend() is None


@pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS.keys())
def test_every_curve_has_its_points_its_colour_and_its_unchanged_name(plot):
    figure = plot(LINES)
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
    axes = plot_precision_recall(LINES).axes[0]
    dots = [item.get_xydata()[0].tolist() for item in axes.lines if item.get_marker() == "o"]
    assert dots[0] == [0.5, 0.5] and np.isnan(dots[1]).all()


def test_lines_of_equal_f1_have_the_right_coordinates():
    axes = plot_precision_recall([]).axes[0]
    for line, level in zip(axes.lines, (0.2, 0.4, 0.6, 0.8), strict=True):
        recall, precision = line.get_xydata()[~np.isnan(line.get_ydata())].T
        assert 2 * precision * recall / (precision + recall) == pytest.approx(level)
        assert precision.min() >= 0 and precision.max() <= 1
