"""Calendars that are readable for one site and three days, and for fifteen sites and a season."""

from __future__ import annotations

import io
from datetime import date, timedelta
from itertools import pairwise

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from mast.plotting.calendar import COLOURS, MIN_FRACTION, SiteDay, colours_of, plot_calendar

FIRST = date(2024, 5, 10)
ORDER = ("train", "val", "test", "near", "far", "guard", "unlabelled")


def season(sites: int, days: int) -> list[SiteDay]:
    return [
        SiteDay(f"S{site:02d}", FIRST + timedelta(days=day), ORDER[(site + day) % len(ORDER)], 1.0)
        for site in range(sites)
        for day in range(days)
    ]


def colours_in(figure: Figure) -> set[str]:
    (patches,) = figure.axes[0].collections
    return {to_hex(colour) for colour in patches.get_facecolors()}


def labels(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_xticklabels()]


def test_a_calendar_without_days_can_be_plotted() -> None:
    plot_calendar([], ORDER).savefig(io.BytesIO())


def test_every_split_has_its_colour_and_its_legend_entry() -> None:
    figure = plot_calendar(season(3, 7), ORDER, "Days")
    colours = colours_of(ORDER)
    assert len(set(colours.values())) == len(ORDER)
    assert colours_in(figure) >= set(colours.values())
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(ORDER)
    assert figure.axes[0].get_title(loc="left") == "Days"


def test_a_split_that_does_not_occur_is_not_in_the_legend() -> None:
    figure = plot_calendar([SiteDay("A", FIRST, "train", 1.0)], ORDER)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["train"]
    assert colours_in(figure) >= {COLOURS["train"]}


def test_days_without_audio_are_in_the_legend_if_there_are_any() -> None:
    figure = plot_calendar(
        [SiteDay("A", FIRST, "train", 1.0), SiteDay("B", FIRST + timedelta(2), "train", 1.0)], ORDER
    )
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["train", "no audio"]


def test_a_few_labels_are_visible_beside_an_unlabelled_day() -> None:
    days = [
        SiteDay("A", FIRST, "test", 0.1),
        SiteDay("A", FIRST, "unlabelled", 23.9),
        SiteDay("A", FIRST, "guard", 0.0),
    ]
    (patches,) = plot_calendar(days, ORDER).axes[0].collections
    _, test, guard, unlabelled = (path.get_extents().height for path in patches.get_paths())
    assert test / (test + unlabelled) == pytest.approx(MIN_FRACTION / (1 + MIN_FRACTION), abs=0.01)
    assert guard == 0


@pytest.mark.parametrize(
    ("days", "first_labels"),
    [
        (3, ["10 May", "11 May", "12 May"]),
        (40, ["10 May", "17 May", "24 May"]),
        (200, ["1 Jun", "1 Jul", "1 Aug"]),
    ],
)
def test_days_are_labelled_as_far_as_there_is_room(days: int, first_labels: list[str]) -> None:
    figure = plot_calendar(season(15, days), ORDER)
    assert labels(figure)[:3] == first_labels
    assert figure.get_size_inches()[0] <= 13
    figure.savefig(io.BytesIO())
    boxes = [text.get_window_extent() for text in figure.axes[0].get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_both_years_are_in_the_title_if_there_are_two() -> None:
    assert plot_calendar(season(1, 300), ORDER).axes[0].get_title(loc="right") == "2024 – 2025"
    assert plot_calendar(season(1, 3), ORDER).axes[0].get_title(loc="right") == "2024"


def test_long_names_of_splits_stay_in_the_figure() -> None:
    splits = ("train", "val", "test", *(f"a-rather-long-name-of-a-site-{n}" for n in range(6)))
    figure = plot_calendar([SiteDay("A", FIRST, split, 1.0) for split in splits], splits)
    figure.savefig(io.BytesIO())
    legend = figure.legends[0].get_window_extent()
    assert legend.x1 <= figure.bbox.x1
    assert legend.y1 <= figure.axes[0].get_window_extent().y0
