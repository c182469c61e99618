"""Boxes and locations for tests of assignment and losses."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from mast.box_ops import box_iou
from mast.models.anchor_points import AnchorPoints, make_anchor_points

FRAMES, BINS = 256, 128

LATTICES: dict[str, AnchorPoints] = {
    "upsampling": make_anchor_points(
        [(32 >> n, 32 >> n) for n in range(4)], [(8 << n, 4 << n) for n in range(4)]
    ),
    "anisotropic": make_anchor_points(
        [(16 >> n, 32 >> n) for n in range(3)], [(16 << n, 4 << n) for n in range(3)]
    ),
    "conv": make_anchor_points([(16 >> n, 8 >> n) for n in range(4)], [(16 << n, 16 << n) for n in range(4)]),
}


@st.composite
def a_box(draw: st.DrawFn) -> list[float]:
    """Return a box of any shape inside the grid: thinner than a bin, as long as the chunk, on is_whole frames or not."""
    box = []
    for size in (FRAMES, BINS):
        is_whole = draw(st.booleans())
        side = draw(st.integers(1, size) if is_whole else st.floats(0.1, size))
        start = draw(st.integers(0, int(size - side)) if is_whole else st.floats(0, size - side))
        box.append((float(start), float(start + side)))
    (start, end), (low, high) = box
    return [start, low, end, high]


def box_lists(max_size: int) -> st.SearchStrategy[torch.Tensor]:
    """Return a strategy for the boxes of one chunk. → (n, 4) in double precision"""
    return st.lists(a_box(), max_size=max_size).map(
        lambda rows: torch.tensor(rows, dtype=torch.float64).reshape(-1, 4)
    )


def without_duplicates(boxes: torch.Tensor, max_iou: float) -> torch.Tensor:
    """Return the boxes whose IoU with every earlier one is at most `max_iou`. (n, 4) → (m, 4)"""
    kept: list[int] = []
    for number in range(len(boxes)):
        if not kept or box_iou(boxes[number : number + 1], boxes[kept]).max() <= max_iou:
            kept.append(number)
    return boxes[kept]
