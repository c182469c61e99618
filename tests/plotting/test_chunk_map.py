"""One map, three times: every point has the colour of its site, its hour and its number of boxes."""

from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from mast.plotting.chunk_map import (
    HOURS,
    LARGEST_PT2,
    LONGEST_NAME,
    OTHER,
    SEQUENTIAL_COLOURS,
    SITE_COLOURS,
    SMALLEST_PT2,
    TITLES,
    UNKNOWN,
    ChunkPoint,
    plot_chunk_map,
    site_colours,
)


def point(number: int, site: str | None = "A", hour: float | None = 6.0, boxes: int | None = 0) -> ChunkPoint:
    return ChunkPoint(f"card/{number}.wav", 0.0, site, hour, boxes, float(number), -float(number))


def colours(figure: Figure, panel: int) -> dict[tuple[float, float], str]:
    """Return the colour of every position in one of the three panels."""
    result = {}
    for dots in figure.axes[panel].collections:
        positions = np.asarray(dots.get_offsets()).tolist()
        assert len(dots.get_facecolors()) >= len(
            positions
        )  # where there is no point, matplotlib keeps a default
        for position, colour in zip(positions, dots.get_facecolors(), strict=False):
            result[tuple(position)] = to_hex(colour)
    return result


def legend(figure: Figure, panel: int) -> list[str]:
    key = figure.axes[len(TITLES) + panel].get_legend()
    return [text.get_text() for text in key.get_texts()] if key else []


def test_a_map_without_points_can_be_plotted() -> None:
    figure = plot_chunk_map([])
    figure.savefig(io.BytesIO())
    assert [axes.get_title(loc="left") for axes in figure.axes[:3]] == list(TITLES)


def test_every_point_is_in_every_panel_at_its_position_in_its_colour() -> None:
    points = [point(0, "A", 0.0, 0), point(1, "A", 12.0, 4), point(2, "B", 23.99, None), point(3, None, None)]
    figure = plot_chunk_map(points, "Map")
    sites, hours, boxes = (colours(figure, panel) for panel in range(3))
    positions = [(item.x, item.y) for item in points]
    assert set(positions) == set(sites) == set(hours) == set(boxes)
    assert [sites[position] for position in positions] == [
        SITE_COLOURS[0],
        SITE_COLOURS[0],
        SITE_COLOURS[1],
        UNKNOWN,
    ]
    assert [hours[position] for position in positions[:2]] == [to_hex(HOURS(0.0)), to_hex(HOURS(0.5))]
    assert hours[positions[3]] == UNKNOWN
    assert [boxes[position] for position in positions] == [
        to_hex(SEQUENTIAL_COLOURS(0.0)),
        to_hex(SEQUENTIAL_COLOURS(1.0)),
        UNKNOWN,
        to_hex(SEQUENTIAL_COLOURS(0.0)),
    ]
    assert [legend(figure, panel) for panel in range(3)] == [
        ["A", "B", "no site"],
        ["no clock"],
        ["not reviewed"],
    ]
    assert figure.get_suptitle() == "Map"


def test_without_missing_values_grey_is_not_in_the_legend() -> None:
    figure = plot_chunk_map([point(0), point(1)])
    assert [legend(figure, panel) for panel in range(3)] == [["A"], [], []]
    assert UNKNOWN not in {colour for panel in range(3) for colour in colours(figure, panel).values()}


def test_hour_colours_are_cyclic_and_morning_differs_from_evening() -> None:
    assert HOURS(0.0) == HOURS(1.0)
    assert np.abs(np.subtract(HOURS(0.25), HOURS(0.75))).max() > 0.3


def test_colours_go_to_the_most_frequent_sites_and_ties_by_name() -> None:
    assert site_colours([]) == {}
    assert list(site_colours(["b", "c", None, "a", "c"])) == ["c", "a", "b"]


def test_among_many_sites_the_most_frequent_are_named_and_the_others_counted() -> None:
    names = [
        f"{'a very long name of a ' if n % 2 else ''}site {n:02d}" for n in range(12) for _ in range(20 - n)
    ]
    figure = plot_chunk_map([point(number, name) for number, name in enumerate([*names, None])])
    labels = legend(figure, 0)
    assert labels[0] == "site 00"
    assert labels[1] == "a very … site 01"
    assert labels[-2:] == ["3 more", "no site"]
    assert len(labels) == len(SITE_COLOURS) + 2
    assert max(map(len, labels)) <= LONGEST_NAME
    assert OTHER in colours(figure, 0).values()
    figure.savefig(io.BytesIO())
    box = figure.axes[len(TITLES)].get_legend().get_window_extent()
    assert box.x1 <= figure.axes[1].get_window_extent().x0
    assert box.y0 >= 0


def test_sites_whose_short_names_are_the_same_are_both_named() -> None:
    sites = ["north of the river, plot 1", "north of the lake's, plot 1"]
    figure = plot_chunk_map([point(number, site) for number, site in enumerate(sites)])
    assert legend(figure, 0) == ["north o…, plot 1"] * 2


@pytest.mark.parametrize(("count", "size_pt2"), [(1, LARGEST_PT2), (1500, 10.0), (10_000, SMALLEST_PT2)])
def test_the_more_points_the_smaller_they_are_within_bounds(count: int, size_pt2: float) -> None:
    (dots, *_) = plot_chunk_map([point(number) for number in range(count)]).axes[0].collections
    assert dots.get_sizes() == pytest.approx([size_pt2])
