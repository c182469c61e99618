"""Assign ground-truth boxes to locations: ATSS with strides that differ in time and frequency (paper, Detector heads).

The candidates of a box are the nine locations of each level that are nearest to its centre, with distances in strides.
A candidate is positive if

- the IoU of its anchor with the box is at least the mean plus one standard deviation over the box's candidates,
- it lies inside the box (a box narrower than a stride counts as one stride wide), and
- it lies within 1.5 strides of the box's centre (FCOS's centre sampling).

If two boxes claim a location, the box with the higher IoU gets it. A box without any location, for example because a
neighbour claimed all of its candidates, gets the free location with the lowest assignment cost. So every box has at
least one location, however thin or crowded it is.

The code computes overlaps for candidates only, at most 36 per box, so the cost does not grow with the number of
locations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mast.box_ops import paired_box_iou
from mast.models.anchor_points import ANCHOR_STRIDES, AnchorPoints

CANDIDATES_PER_LEVEL = 9
RADIUS_STRIDES = 1.5

MIN_CENTERNESS = 1 / 3
"""Lower bound of the centerness target.

The nearest location of a tiny box can have a centerness as low as this by its position alone. No positive location gets
less, not even a location outside its box that was the only free one.
"""


@dataclass(frozen=True, slots=True)
class Targets:
    """The P positive locations of a batch, by example and location; all other locations are background."""

    example: Tensor  # (P,)
    location: Tensor  # (P,)
    ground_truth_row: Tensor  # (P,) row of the ground-truth box in its example
    boxes: Tensor  # (P, 4) in frames and bins
    centerness: Tensor  # (P,)

    def __getitem__(self, examples: slice) -> Targets:
        """Return the targets of a contiguous slice of examples, renumbered from 0."""
        first = examples.start or 0
        here = (self.example >= first) & (self.example < examples.stop)
        return Targets(
            self.example[here] - first,
            self.location[here],
            self.ground_truth_row[here],
            self.boxes[here],
            self.centerness[here],
        )


def assign(boxes: Sequence[Tensor], locations: AnchorPoints) -> Targets:
    """Assign the boxes of a batch, B times (n, 4) in frames and bins, to locations; both are on the same device."""
    ground_truth = pad_sequence(list(boxes), batch_first=True)  # (B, M, 4)
    counts = torch.tensor([len(example_boxes) for example_boxes in boxes], device=ground_truth.device)
    is_box = torch.arange(ground_truth.shape[1], device=ground_truth.device) < counts[:, None]  # (B, M)
    candidates = nearest_locations(ground_truth, locations)  # (B, M, K)
    overlap = paired_box_iou(locations.anchors()[candidates], ground_truth[:, :, None])  # (B, M, K)
    mean = overlap.mean(dim=2, keepdim=True)
    deviation = (
        (overlap - mean).square().mean(dim=2, keepdim=True).sqrt()
    )  # torch.std warns if there are no boxes
    assigned = (
        (overlap >= mean + deviation) & _is_inside(candidates, ground_truth, locations) & is_box[:, :, None]
    )
    owner = _resolve_conflicts(candidates, overlap, assigned, len(locations.level))  # (B, N)
    owner = _ensure_one_positive(owner, is_box, ground_truth, locations)
    example, location = (owner >= 0).nonzero(as_tuple=True)
    ground_truth_row = owner[example, location]
    assigned_boxes = ground_truth[example, ground_truth_row]
    central = centerness(assigned_boxes, locations.centres[location], locations.strides[location])
    return Targets(example, location, ground_truth_row, assigned_boxes, central)


def nearest_locations(ground_truth: Tensor, locations: AnchorPoints) -> Tensor:
    """Return each box's candidates of every level, nearest first; ties go to the first location. (B, M, 4) → (B, M, K)

    The nine nearest cells lie in the nine nearest columns and the nine nearest rows, so only these are compared.
    """
    candidates, first = [], 0
    for size, stride in zip(locations.level_sizes, locations.level_strides, strict=True):
        axes = []
        for axis in (0, 1):  # time, frequency
            centre = (ground_truth[..., axis] + ground_truth[..., axis + 2]) / 2 / stride[
                axis
            ] - 0.5  # (B, M), in cells
            window = min(CANDIDATES_PER_LEVEL, size[axis])
            start = (centre - 0.5).ceil() - CANDIDATES_PER_LEVEL // 2
            cells = start.clamp(0, size[axis] - window)[..., None] + torch.arange(
                window, device=ground_truth.device
            )
            axes.append((cells.long(), (cells - centre[..., None]).square()))  # (B, M, window)
        (columns, time), (rows, frequency) = axes
        distance = (frequency[..., :, None] + time[..., None, :]).flatten(2)  # (B, M, rows · columns)
        order = distance.sort(dim=2, stable=True).indices[..., :CANDIDATES_PER_LEVEL]
        locations_in_level = (rows[..., :, None] * size[0] + columns[..., None, :]).flatten(2)
        candidates.append(first + locations_in_level.gather(2, order))
        first += size[0] * size[1]
    return torch.cat(candidates, dim=2)


def centerness(boxes: Tensor, centres: Tensor, strides: Tensor) -> Tensor:
    """Return the centerness of each location in its box, ⅓…1. (P, 4), (P, 2), (P, 2) → (P,)

    This is FCOS's √(min/max in time × min/max in frequency) of the distances to the edges, in a box that is widened to
    at least two strides. The nearest location can be half a stride away from the centre of a narrow call; without the
    widening, such a call would have almost no weight in the loss, and a low score.
    """
    centre, half = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]) / 2
    half, offset = torch.maximum(half, strides), (centres - centre).abs()
    nearer, farther = (half - offset).clamp(min=0), half + offset
    return (nearer / farther).prod(dim=1).sqrt().clamp(min=MIN_CENTERNESS)


def _is_inside(candidates: Tensor, ground_truth: Tensor, locations: AnchorPoints) -> Tensor:
    """Return a mask of the candidates inside their box and near its centre. (B, M, K), (B, M, 4) → (B, M, K)"""
    centre, half = (
        (ground_truth[..., :2] + ground_truth[..., 2:]) / 2,
        (ground_truth[..., 2:] - ground_truth[..., :2]) / 2,
    )
    strides = locations.strides[candidates]  # (B, M, K, 2)
    offset = (locations.centres[candidates] - centre[:, :, None]).abs()
    reach = torch.minimum(torch.maximum(half[:, :, None], strides / 2), RADIUS_STRIDES * strides)
    return (offset <= reach).all(dim=3)


def _resolve_conflicts(candidates: Tensor, overlap: Tensor, assigned: Tensor, count: int) -> Tensor:
    """Return the row of the box that owns each location, -1 for none. → (B, N)

    The box with the highest IoU gets the location; ties go to the first box.
    """
    flat, claims = candidates.flatten(1), torch.where(assigned, overlap, -1).flatten(1)  # (B, M · K)
    best = claims.new_full((len(flat), count), -1).scatter_reduce(1, flat, claims, "amax")
    wins = assigned.flatten(1) & (claims == best.gather(1, flat))
    ground_truth_row = torch.arange(candidates.shape[1], device=flat.device)[:, None].expand(
        candidates.shape[1:]
    )
    unassigned = candidates.shape[1]
    bids = torch.where(wins, ground_truth_row.flatten(), unassigned)
    owner = torch.full_like(best, unassigned, dtype=torch.long).scatter_reduce(1, flat, bids, "amin")
    return owner.masked_fill(owner == unassigned, -1)


def _ensure_one_positive(
    owner: Tensor, is_box: Tensor, ground_truth: Tensor, locations: AnchorPoints
) -> Tensor:
    """Give one free location to each box that has none, in the order of the boxes. Return the owners (B, N)."""
    has_one = torch.zeros(len(owner), is_box.shape[1] + 1, dtype=torch.bool, device=owner.device)
    has_one.scatter_(1, owner + 1, value=True)  # column 0 is for locations without an owner
    waiting, owner = is_box & ~has_one[:, 1:], owner.clone()
    while waiting.any():  # one box per example at a time; few boxes wait, and rarely two in one example
        example = waiting.any(dim=1).nonzero()[:, 0]  # (E,)
        ground_truth_row = waiting[example].int().argmax(dim=1)
        cost = _assignment_cost(ground_truth[example, ground_truth_row], locations).masked_fill(
            owner[example] >= 0, torch.inf
        )
        owner[example, cost.argmin(dim=1)] = ground_truth_row
        waiting[example, ground_truth_row] = False
    return owner


def _assignment_cost(boxes: Tensor, locations: AnchorPoints) -> Tensor:
    """Return the cost of assigning each location to each box. (E, 4) → (E, N)

    The cost is the distance to the box's centre in strides, plus -log of the IoU of the box with the location's anchor
    if that were moved to the centre of the box. So the nearest location of the level with the best size comes first.
    """
    centre, sides = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    steps = (locations.centres - centre[:, None]) / locations.strides  # (E, N, 2)
    anchor = boxes.new_tensor(locations.level_strides) * ANCHOR_STRIDES  # (L, 2)
    intersection = torch.minimum(sides[:, None], anchor).prod(dim=2)  # (E, L)
    union = sides.prod(dim=1, keepdim=True) + anchor.prod(dim=1) - intersection
    return steps.square().sum(dim=2).sqrt() - (intersection / union).log()[:, locations.level]
