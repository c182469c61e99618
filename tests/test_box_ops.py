"""Box operations equal examples calculated by hand and naive loops."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from mast.box_ops import box_area, box_iomin, box_iou, clip_boxes, intersection

NUMBER = st.integers(0, 12)
BOX = st.tuples(NUMBER, NUMBER, NUMBER, NUMBER).map(
    lambda n: [float(min(n[0], n[2])), float(min(n[1], n[3])), float(max(n[0], n[2])), float(max(n[1], n[3]))]
)
BOXES = st.lists(BOX, max_size=6).map(lambda rows: torch.tensor(rows).reshape(-1, 4))


def naive_intersection(a, b):
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    return width * height


def naive_area(a):
    return (a[2] - a[0]) * (a[3] - a[1])


def test_no_boxes_give_empty_tables():
    empty, one = torch.zeros(0, 4), torch.tensor([[0.0, 0, 1, 1]])
    assert box_iou(empty, one).shape == (0, 1)
    assert box_iou(one, empty).shape == (1, 0)
    assert box_area(empty).shape == (0,)


def test_half_overlapping_squares_have_an_iou_of_one_third():
    a, b = torch.tensor([[0.0, 0, 2, 2]]), torch.tensor([[1.0, 0, 3, 2]])
    assert intersection(a, b).item() == 2
    assert abs(box_iou(a, b).item() - 1 / 3) < 1e-6


def test_a_box_inside_another_has_iomin_one():
    tight, loose = torch.tensor([[2.0, 2, 3, 3]]), torch.tensor([[0.0, 0, 10, 10]])
    assert box_iomin(tight, loose).item() == 1
    assert abs(box_iou(tight, loose).item() - 0.01) < 1e-6


def test_boxes_are_clipped_to_the_bounds_and_boxes_outside_become_empty():
    boxes = torch.tensor([[-1.0, -1, 5, 5], [20, 20, 30, 30]])
    assert clip_boxes(boxes, (0, 0, 10, 4)).tolist() == [[0, 0, 5, 4], [10, 4, 10, 4]]


@given(BOXES, BOXES)
def test_overlaps_equal_the_naive_loop(boxes, others):
    intersections, ious, iomins = (
        intersection(boxes, others),
        box_iou(boxes, others),
        box_iomin(boxes, others),
    )
    for i, a in enumerate(boxes.tolist()):
        for j, b in enumerate(others.tolist()):
            overlap, union = (
                naive_intersection(a, b),
                naive_area(a) + naive_area(b) - naive_intersection(a, b),
            )
            smaller = min(naive_area(a), naive_area(b))
            assert intersections[i, j].item() == overlap
            assert abs(ious[i, j].item() - (overlap / union if union else 0)) < 1e-6
            assert abs(iomins[i, j].item() - (overlap / smaller if smaller else 0)) < 1e-6
