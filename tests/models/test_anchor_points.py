"""Anchor points, and boxes encoded relative to them."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from mast.models.anchor_points import decode_boxes, encode_boxes, make_anchor_points

ANCHOR_POINTS = make_anchor_points(
    [(128 >> n, 32 >> n) for n in range(4)], [(8 << n, 4 << n) for n in range(4)]
)
POSITION = st.floats(-50, 1100, width=32)
BOXES = st.lists(st.tuples(POSITION, POSITION, POSITION, POSITION), max_size=8).map(
    lambda rows: torch.tensor(rows, dtype=torch.float64).reshape(-1, 4)
)


def test_anchor_points_are_ordered_by_level_and_row() -> None:
    locations = make_anchor_points([(3, 2), (2, 1)], [(8, 4), (16, 8)])
    assert locations.centres.tolist() == [
        [4, 2],
        [12, 2],
        [20, 2],
        [4, 6],
        [12, 6],
        [20, 6],
        [8, 4],
        [24, 4],
    ]
    assert locations.strides.tolist() == [[8, 4]] * 6 + [[16, 8]] * 2
    assert locations.level.tolist() == [0] * 6 + [1] * 2
    assert locations.extent == (24, 8)


def test_a_chunk_has_5440_locations_and_the_coarsest_anchors_span_all_bins() -> None:
    assert len(ANCHOR_POINTS.level) == 5440
    assert ANCHOR_POINTS.extent == (1024, 128)
    sides = ANCHOR_POINTS.anchors()[:, 2:] - ANCHOR_POINTS.anchors()[:, :2]
    assert sides[[0, -1]].tolist() == [[32, 16], [256, 128]]
    torch.testing.assert_close(
        (ANCHOR_POINTS.anchors()[:, 2:] + ANCHOR_POINTS.anchors()[:, :2]) / 2, ANCHOR_POINTS.centres
    )


def test_distances_are_signed_and_in_strides_of_each_axis() -> None:
    box, centre, stride = torch.tensor([16.0, 9, 40, 10]), torch.tensor([20.0, 6]), torch.tensor([8.0, 4])
    assert encode_boxes(box, centre, stride).tolist() == [0.5, -0.75, 2.5, 1.0]


@given(BOXES, st.randoms())
def test_a_box_encoded_at_any_location_decodes_to_itself(boxes: torch.Tensor, random: object) -> None:
    chosen = torch.tensor([random.randrange(5440) for _ in boxes], dtype=torch.long)  # type: ignore[attr-defined]
    centres, strides = ANCHOR_POINTS.centres[chosen], ANCHOR_POINTS.strides[chosen]
    torch.testing.assert_close(
        decode_boxes(encode_boxes(boxes, centres, strides), centres, strides), boxes, atol=1e-9, rtol=0
    )
