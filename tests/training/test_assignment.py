"""Assignment of boxes to locations, compared with ATSS written as loops, and decoding of targets to boxes."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.box_ops import paired_box_iou
from mast.models.anchor_points import AnchorPoints, encode_boxes
from mast.models.head import HeadOutput
from mast.models.postprocess import decode_detections
from mast.training.assignment import Targets, assign, centerness
from tests.training.builders import LATTICES, box_lists, without_duplicates

Box = list[float]
UPSAMPLING = LATTICES["upsampling"]


def naive_iou(a: Box, b: Box) -> float:
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    return width * height / union if union > 0 else 0.0


def centre_of(box: Box) -> tuple[float, float]:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def naive_candidates(box: Box, locations: AnchorPoints) -> list[int]:
    """Return the nine nearest locations of every level, by distance from the box's centre in strides."""
    candidates, first = [], 0
    for (columns, rows), stride in zip(locations.level_sizes, locations.level_strides, strict=True):
        position = [centre_of(box)[axis] / stride[axis] - 0.5 for axis in (0, 1)]
        cells = [
            ((row - position[1]) ** 2 + (column - position[0]) ** 2, first + row * columns + column)
            for row in range(rows)
            for column in range(columns)
        ]
        candidates += [number for _, number in sorted(cells)[:9]]
        first += rows * columns
    return candidates


def naive_cost(box: Box, number: int, locations: AnchorPoints) -> float:
    centre, stride = locations.centres[number].tolist(), locations.strides[number].tolist()
    distance_strides = math.hypot(*((centre[axis] - centre_of(box)[axis]) / stride[axis] for axis in (0, 1)))
    sides = [box[axis + 2] - box[axis] for axis in (0, 1)]
    anchor = [-2 * stride[0], -2 * stride[1], 2 * stride[0], 2 * stride[1]]
    return distance_strides - math.log(
        naive_iou([-sides[0] / 2, -sides[1] / 2, sides[0] / 2, sides[1] / 2], anchor)
    )


def naive_owners(boxes: list[Box], locations: AnchorPoints) -> dict[int, int]:
    """Return the box of each location that has one."""
    best: dict[int, tuple[float, int]] = {}
    for row, box in enumerate(boxes):
        numbers = naive_candidates(box, locations)
        overlaps = []
        for number in numbers:
            (x, y), (dx, dy) = locations.centres[number].tolist(), locations.strides[number].tolist()
            overlaps.append(naive_iou([x - 2 * dx, y - 2 * dy, x + 2 * dx, y + 2 * dy], box))
        min_iou = statistics.mean(overlaps) + statistics.pstdev(overlaps)
        for number, overlap in zip(numbers, overlaps, strict=True):
            inside = all(
                abs(locations.centres[number, axis].item() - centre_of(box)[axis])
                <= min(max((box[axis + 2] - box[axis]) / 2, stride / 2), 1.5 * stride)
                for axis, stride in enumerate(locations.strides[number].tolist())
            )
            if overlap >= min_iou and inside and overlap > best.get(number, (-1.0, 0))[0]:
                best[number] = (overlap, row)
    owners = {number: row for number, (_, row) in best.items()}
    for row in sorted(set(range(len(boxes))) - set(owners.values())):
        free = (number for number in range(len(locations.level)) if number not in owners)
        owners[min(free, key=lambda number: naive_cost(boxes[row], number, locations))] = row
    return owners


def owners(targets: Targets, example: int) -> dict[int, int]:
    here = targets.example == example
    return dict(zip(targets.location[here].tolist(), targets.ground_truth_row[here].tolist(), strict=True))


def test_chunks_without_boxes_have_no_targets() -> None:
    targets = assign([torch.zeros(0, 4), torch.zeros(0, 4)], UPSAMPLING)
    assert targets.boxes.shape == (0, 4)
    assert [
        len(part)
        for part in (targets.example, targets.location, targets.ground_truth_row, targets.centerness)
    ] == [0] * 4


def test_a_box_as_large_as_an_anchor_is_assigned_to_the_locations_around_its_centre() -> None:
    box = torch.tensor([[84.0, 50, 116, 66]])  # 32 × 16 around (100, 58), the centre of column 12, row 14
    targets = assign([torch.zeros(0, 4), box], UPSAMPLING)
    assert set(targets.example.tolist()) == {1}
    assert set(UPSAMPLING.level[targets.location].tolist()) == {0}
    cells = [(number % 32, number // 32) for number in targets.location.tolist()]
    assert cells == [
        (12, 13),
        (11, 14),
        (12, 14),
        (13, 14),
        (12, 15),
    ]  # a cross: IoU 1 and 4 × 0.6; diagonals 0.39
    assert torch.equal(targets.boxes, box.expand(5, 4))
    aside = math.sqrt(
        8 / 24
    )  # one stride off in time or in frequency: 8 frames to one edge and 24 to the other
    assert targets.centerness.tolist() == pytest.approx([aside, aside, 1, aside, aside])


def test_a_line_between_two_rows_of_centres_is_assigned_to_both() -> None:
    line = torch.tensor([[20.0, 59.5, 220, 60.5]])  # rows of centres are at 58 and 62
    centres = UPSAMPLING.centres[assign([line], UPSAMPLING).location]
    assert set(centres[:, 1].tolist()) == {58.0, 62.0}
    assert len(centres) >= 4


def test_stacked_harmonics_within_one_cell_each_get_a_location() -> None:
    lines = torch.tensor([[40.0, 56 + number, 48, 57 + number] for number in range(4)] * 5)
    targets = assign([lines], UPSAMPLING)
    assert set(targets.ground_truth_row.tolist()) == set(range(20))
    assert len(set(targets.location.tolist())) == len(targets.location)
    assert (targets.centerness >= 0.33).all()


@settings(max_examples=60)
@given(st.sampled_from(list(LATTICES)), st.lists(box_lists(6), min_size=1, max_size=3))
def test_a_batch_equals_loops_over_chunks_and_boxes(name: str, boxes: list[torch.Tensor]) -> None:
    locations = LATTICES[name]
    targets = assign(boxes, locations)
    for example, example_boxes in enumerate(boxes):
        assert owners(targets, example) == naive_owners(example_boxes.tolist(), locations)


@given(st.sampled_from(list(LATTICES)), box_lists(10))
def test_no_box_is_without_a_location_and_no_location_has_two(name: str, boxes: torch.Tensor) -> None:
    targets = assign([boxes], LATTICES[name])
    assert set(targets.ground_truth_row.tolist()) == set(range(len(boxes)))
    assert len(set(targets.location.tolist())) == len(targets.location)
    assert torch.equal(targets.boxes, boxes[targets.ground_truth_row])


@given(st.sampled_from(list(LATTICES)), st.lists(box_lists(8), min_size=1, max_size=3))
def test_a_head_that_outputs_its_targets_predicts_the_boxes(name: str, boxes: list[torch.Tensor]) -> None:
    locations = LATTICES[name]
    ground_truth = [without_duplicates(item, max_iou=0.45).float() for item in boxes]
    targets = assign(ground_truth, locations)
    logits = torch.full((len(ground_truth), len(locations.level)), -20.0)
    central, distances = logits.clone(), torch.ones(*logits.shape, 4)
    positive = (targets.example, targets.location)
    logits[positive], central[positive] = 20.0, targets.centerness.logit(eps=1e-6)
    distances[positive] = encode_boxes(
        targets.boxes, locations.centres[targets.location], locations.strides[targets.location]
    )
    detections = decode_detections(HeadOutput(logits, central, distances, locations), 0.3, 100, 0.5)
    for item, expected in zip(detections, ground_truth, strict=True):
        assert len(item.boxes) == len(expected)
        if len(expected):
            distance = torch.cdist(
                item.boxes, expected, p=math.inf
            )  # (detections, ground truth), the worst edge
            assert distance.amin(dim=0).max() < 1e-3 and distance.amin(dim=1).max() < 1e-3


def test_centerness_is_one_in_the_centre_and_falls_towards_the_edges() -> None:
    box, stride = torch.tensor([0.0, 0, 80, 40]), torch.tensor([8.0, 4])
    locations = torch.tensor([[40.0, 20], [20, 20], [24, 12], [79, 20], [200, 20]])
    result = centerness(box.expand(5, 4), locations, stride.expand(5, 2))
    assert result.tolist() == pytest.approx([1, math.sqrt(1 / 3), 3 / 7, 1 / 3, 1 / 3], abs=1e-6)


def test_the_nearest_location_of_a_thin_box_has_a_useful_centerness() -> None:
    line = torch.tensor([[0.0, 9.99, 80, 10.01]])  # half a stride from rows 8 and 12
    result = centerness(line, torch.tensor([[40.0, 12]]), torch.tensor([[8.0, 4]]))
    assert result.item() == pytest.approx(math.sqrt(1 / 3))


WIDE = st.tuples(st.floats(16, 200), st.floats(8, 100), st.floats(0.2, 0.8), st.floats(0.2, 0.8))


@given(WIDE)
def test_centerness_in_a_wide_box_is_that_of_fcos(numbers: tuple[float, float, float, float]) -> None:
    width, height, x, y = numbers
    start, end, low, high = x * width, (1 - x) * width, y * height, (1 - y) * height
    fcos = math.sqrt(min(start, end) / max(start, end) * min(low, high) / max(low, high))
    result = centerness(
        torch.tensor([[0.0, 0, width, height]]), torch.tensor([[start, low]]), torch.tensor([[8.0, 4]])
    )
    assert result.item() == pytest.approx(max(fcos, 1 / 3), abs=1e-4)


@given(box_lists(6), box_lists(6))
def test_paired_ious_equal_those_of_a_naive_loop(boxes: torch.Tensor, others: torch.Tensor) -> None:
    count = min(len(boxes), len(others))
    overlaps = paired_box_iou(boxes[:count], others[:count])
    assert overlaps.tolist() == [
        naive_iou(a, b) for a, b in zip(boxes[:count].tolist(), others[:count].tolist(), strict=True)
    ]


def test_two_empty_boxes_have_an_iou_of_zero() -> None:
    assert paired_box_iou(torch.zeros(1, 4), torch.zeros(1, 4)).item() == 0
