"""Plots of activity: maps of hours and frequencies, calendars and histograms."""

from datetime import date, timedelta

import numpy as np
import pytest

from mast.plotting.activity import (
    MAX_COLUMNS,
    MAX_ROWS,
    NARROW_IN,
    plot_diel,
    plot_scores,
    plot_site_days,
)

DAY = date(2024, 5, 11)


def image_values(figure):
    """Return the values of the image in a figure, NaN where undefined."""
    return np.ma.filled(figure.axes[-2].images[0].get_array(), np.nan)


def test_without_audio_the_map_is_all_grey():
    figure = plot_diel(np.full((24, 40), np.nan), np.zeros(24), 250.0)
    figure.canvas.draw()
    assert np.isnan(image_values(figure)).all()


def test_a_band_and_hour_are_at_the_right_position():
    rates = np.zeros((24, 1024))
    rates[5, 12] = 7.0
    rates[6] = np.nan
    figure = plot_diel(rates, np.ones(24), 250.0, NARROW_IN)
    values = image_values(figure)  # (bands, hours)
    assert values[12, 5] == 7.0 and np.isnan(values[:, 6]).all()
    assert figure.axes[1].images[0].get_extent() == [0, 24, 0, values.shape[0] * 0.25]
    figure.canvas.draw()


def test_many_bands_are_joined_by_their_maximum():
    rates = np.zeros((24, 1024))
    rates[0, 1000] = 3.0
    values = image_values(plot_diel(rates, np.ones(24), 250.0))
    assert values.shape[0] <= MAX_ROWS
    assert values[:, 0].max() == 3.0


def test_sites_and_days_are_at_the_right_position():
    days = {("a", DAY): 1.0, ("b", DAY + timedelta(days=2)): 3.0, ("not shown", DAY): 9.0}
    figure = plot_site_days(days, ["a", "b"], (DAY, DAY + timedelta(days=2)), "x")
    np.testing.assert_array_equal(image_values(figure), [[1.0, np.nan, np.nan], [np.nan, np.nan, 3.0]])
    figure.canvas.draw()


def test_years_of_days_are_joined_by_their_mean():
    days = {("$a$", DAY + timedelta(days=offset)): float(offset % 2) for offset in range(2 * MAX_COLUMNS)}
    figure = plot_site_days(days, ["$a$"], (DAY, DAY + timedelta(days=2 * MAX_COLUMNS - 1)), "x")
    np.testing.assert_array_equal(image_values(figure), np.full((1, MAX_COLUMNS), 0.5))
    figure.canvas.draw()


def test_a_calendar_without_sites_is_empty():
    plot_site_days({}, [], (DAY, DAY), "x").canvas.draw()


@pytest.mark.parametrize("count", [0, 12_345])
def test_scores_are_counted_from_zero_to_one(count):
    counts = np.zeros(100, np.int64)
    counts[50] = count
    figure = plot_scores(counts, 0.3)
    heights = [patch.get_height() for patch in figure.axes[0].patches]
    assert sum(heights) == heights[50] == count
    assert figure.axes[0].patches[50].get_x() == pytest.approx(0.5)
    figure.canvas.draw()
