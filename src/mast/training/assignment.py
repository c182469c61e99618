"""Which location learns which box: ATSS on a lattice whose strides differ in time and frequency (paper, Detector heads).

For each box, the nine locations of every level that are nearest to its middle, in strides, are candidates. A candidate
is taken if

- its anchor overlaps the box at least as well as the mean plus one standard deviation of all the box's candidates,
- it lies inside the box, which counts as a stride wide where it is narrower, and
- it lies within 1.5 strides of the box's middle (FCOS's centre sampling).

A location that two boxes claim goes to the one its anchor overlaps better. A box left without any, as by a neighbour
that took them all, gets the free location that suits it best: no box is ever dropped, however thin or crowded.

Only candidates are looked at, at most 36 a box, so that the work does not grow with the number of locations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mast.boxes import paired_iou
from mast.models.locations import ANCHOR_STRIDES, Locations

CANDIDATES_PER_LEVEL = 9
RADIUS_STRIDES = 1.5

MIN_CENTERNESS = 1 / 3
"""What the nearest place of a tiny box has by bad luck alone; no other is worth less, not even one outside its box that
was all a crowd had left to it."""


@dataclass(frozen=True, slots=True)
class Targets:
    """P locations that have to find a box, by example and location; all others are background."""

    example: Tensor  # (P,)
    location: Tensor  # (P,)
    truth: Tensor  # (P,) which of the example's boxes
    boxes: Tensor  # (P, 4) in frames and bins
    centerness: Tensor  # (P,)

    def __getitem__(self, examples: slice) -> Targets:
        """Those of some examples in a row, counted from the first of them."""
        first = examples.start or 0
        here = (self.example >= first) & (self.example < examples.stop)
        return Targets(
            self.example[here] - first,
            self.location[here],
            self.truth[here],
            self.boxes[here],
            self.centerness[here],
        )


def assign(boxes: Sequence[Tensor], locations: Locations) -> Targets:
    """Targets of a batch with these boxes, B times (n, 4) in frames and bins, on the locations' device."""
    truths = pad_sequence(list(boxes), batch_first=True)  # (B, M, 4)
    counts = torch.tensor([len(own) for own in boxes], device=truths.device)
    is_box = torch.arange(truths.shape[1], device=truths.device) < counts[:, None]  # (B, M)
    candidates = nearest_locations(truths, locations)  # (B, M, K)
    overlap = paired_iou(locations.anchors()[candidates], truths[:, :, None])  # (B, M, K)
    mean = overlap.mean(dim=2, keepdim=True)
    deviation = (overlap - mean).square().mean(dim=2, keepdim=True).sqrt()  # torch.std warns without boxes
    taken = (overlap >= mean + deviation) & _is_inside(candidates, truths, locations) & is_box[:, :, None]
    owner = _settle(candidates, overlap, taken, len(locations.level))  # (B, N)
    owner = _give_one_to_each(owner, is_box, truths, locations)
    example, location = (owner >= 0).nonzero(as_tuple=True)
    truth = owner[example, location]
    own = truths[example, truth]
    central = centerness(own, locations.centres[location], locations.strides[location])
    return Targets(example, location, truth, own, central)


def nearest_locations(truths: Tensor, locations: Locations) -> Tensor:
    """Candidates of every level, nearest first; ties go to the first location. (B, M, 4) → (B, M, K)

    The nine nearest cells lie in the nine nearest columns and the nine nearest rows, so only those are compared.
    """
    found, first = [], 0
    for size, stride in zip(locations.level_sizes, locations.level_strides, strict=True):
        axes = []
        for axis in (0, 1):  # time, frequency
            middle = (truths[..., axis] + truths[..., axis + 2]) / 2 / stride[axis] - 0.5  # (B, M), in cells
            window = min(CANDIDATES_PER_LEVEL, size[axis])
            start = (middle - 0.5).ceil() - CANDIDATES_PER_LEVEL // 2
            cells = start.clamp(0, size[axis] - window)[..., None] + torch.arange(
                window, device=truths.device
            )
            axes.append((cells.long(), (cells - middle[..., None]).square()))  # (B, M, window)
        (columns, time), (rows, frequency) = axes
        distance = (frequency[..., :, None] + time[..., None, :]).flatten(2)  # (B, M, rows · columns)
        order = distance.sort(dim=2, stable=True).indices[..., :CANDIDATES_PER_LEVEL]
        numbers = (rows[..., :, None] * size[0] + columns[..., None, :]).flatten(2)
        found.append(first + numbers.gather(2, order))
        first += size[0] * size[1]
    return torch.cat(found, dim=2)


def centerness(boxes: Tensor, centres: Tensor, strides: Tensor) -> Tensor:
    """How central each place is in its box, ⅓…1. (P, 4), (P, 2), (P, 2) → (P,)

    FCOS's √(min/max in time × min/max in frequency) of the distances to the edges, in a box that is taken to be at
    least two strides wide. The lattice has no place nearer to a narrow call's middle than half a stride; without this,
    such a call would weigh next to nothing and score as little.
    """
    middle, half = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]) / 2
    half, offset = torch.maximum(half, strides), (centres - middle).abs()
    nearer, farther = (half - offset).clamp(min=0), half + offset
    return (nearer / farther).prod(dim=1).sqrt().clamp(min=MIN_CENTERNESS)


def _is_inside(candidates: Tensor, truths: Tensor, locations: Locations) -> Tensor:
    """Which candidates lie in their box and near its middle. (B, M, K), (B, M, 4) → (B, M, K)"""
    middle, half = (truths[..., :2] + truths[..., 2:]) / 2, (truths[..., 2:] - truths[..., :2]) / 2
    strides = locations.strides[candidates]  # (B, M, K, 2)
    offset = (locations.centres[candidates] - middle[:, :, None]).abs()
    reach = torch.minimum(torch.maximum(half[:, :, None], strides / 2), RADIUS_STRIDES * strides)
    return (offset <= reach).all(dim=3)


def _settle(candidates: Tensor, overlap: Tensor, taken: Tensor, count: int) -> Tensor:
    """The box of each location, -1 for none: the best overlap wins, and the first box among equals. → (B, N)"""
    flat, claims = candidates.flatten(1), torch.where(taken, overlap, -1).flatten(1)  # (B, M · K)
    best = claims.new_full((len(flat), count), -1).scatter_reduce(1, flat, claims, "amax")
    wins = taken.flatten(1) & (claims == best.gather(1, flat))
    truth = torch.arange(candidates.shape[1], device=flat.device)[:, None].expand(candidates.shape[1:])
    nobody = candidates.shape[1]
    bids = torch.where(wins, truth.flatten(), nobody)
    owner = torch.full_like(best, nobody, dtype=torch.long).scatter_reduce(1, flat, bids, "amin")
    return owner.masked_fill(owner == nobody, -1)


def _give_one_to_each(owner: Tensor, is_box: Tensor, truths: Tensor, locations: Locations) -> Tensor:
    """Owners (B, N) after each box without a location has taken a free one, in the order of the boxes."""
    has_one = torch.zeros(len(owner), is_box.shape[1] + 1, dtype=torch.bool, device=owner.device)
    has_one.scatter_(1, owner + 1, value=True)  # column 0 is for what nobody owns
    waiting, owner = is_box & ~has_one[:, 1:], owner.clone()
    while waiting.any():  # one box of every example at a time; few are left, and rarely two in one example
        example = waiting.any(dim=1).nonzero()[:, 0]  # (E,)
        truth = waiting[example].int().argmax(dim=1)
        misfit = _misfit(truths[example, truth], locations).masked_fill(owner[example] >= 0, torch.inf)
        owner[example, misfit.argmin(dim=1)] = truth
        waiting[example, truth] = False
    return owner


def _misfit(boxes: Tensor, locations: Locations) -> Tensor:
    """How badly each location suits each box. (E, 4) → (E, N)

    Strides from the box's middle, plus -log of the IoU that the anchor would have if it were moved there: the nearest
    location of the level that fits in size, and others in turn as these run out.
    """
    middle, sides = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    steps = (locations.centres - middle[:, None]) / locations.strides  # (E, N, 2)
    anchor = boxes.new_tensor(locations.level_strides) * ANCHOR_STRIDES  # (L, 2)
    shared = torch.minimum(sides[:, None], anchor).prod(dim=2)  # (E, L)
    joint = sides.prod(dim=1, keepdim=True) + anchor.prod(dim=1) - shared
    return steps.square().sum(dim=2).sqrt() - (shared / joint).log()[:, locations.level]
