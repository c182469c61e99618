"""Box maths against hand-worked cases and naive loops."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from mast.boxes import area, clip, intersection, iomin, iou

NUMBER = st.integers(0, 12)
BOX = st.tuples(NUMBER, NUMBER, NUMBER, NUMBER).map(
    lambda n: [float(min(n[0], n[2])), float(min(n[1], n[3])), float(max(n[0], n[2])), float(max(n[1], n[3]))]
)
BOXES = st.lists(BOX, max_size=6).map(lambda rows: torch.tensor(rows).reshape(-1, 4))


def naive_shared(a, b):
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    return width * height


def naive_area(a):
    return (a[2] - a[0]) * (a[3] - a[1])


def test_no_boxes_give_empty_tables():
    none, some = torch.zeros(0, 4), torch.tensor([[0.0, 0, 1, 1]])
    assert iou(none, some).shape == (0, 1)
    assert iou(some, none).shape == (1, 0)
    assert area(none).shape == (0,)


def test_half_overlapping_squares_share_a_third():
    a, b = torch.tensor([[0.0, 0, 2, 2]]), torch.tensor([[1.0, 0, 3, 2]])
    assert intersection(a, b).item() == 2
    assert abs(iou(a, b).item() - 1 / 3) < 1e-6


def test_a_box_inside_a_loose_one_has_iomin_one():
    tight, loose = torch.tensor([[2.0, 2, 3, 3]]), torch.tensor([[0.0, 0, 10, 10]])
    assert iomin(tight, loose).item() == 1
    assert abs(iou(tight, loose).item() - 0.01) < 1e-6


def test_clipping_cuts_to_the_bounds_and_empties_what_lies_outside():
    boxes = torch.tensor([[-1.0, -1, 5, 5], [20, 20, 30, 30]])
    assert clip(boxes, (0, 0, 10, 4)).tolist() == [[0, 0, 5, 4], [10, 4, 10, 4]]


@given(BOXES, BOXES)
def test_overlaps_equal_the_naive_loop(boxes, others):
    shared, over_joint, over_smaller = intersection(boxes, others), iou(boxes, others), iomin(boxes, others)
    for i, a in enumerate(boxes.tolist()):
        for j, b in enumerate(others.tolist()):
            common, joint = naive_shared(a, b), naive_area(a) + naive_area(b) - naive_shared(a, b)
            smaller = min(naive_area(a), naive_area(b))
            assert shared[i, j].item() == common
            assert abs(over_joint[i, j].item() - (common / joint if joint else 0)) < 1e-6
            assert abs(over_smaller[i, j].item() - (common / smaller if smaller else 0)) < 1e-6
