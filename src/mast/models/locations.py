"""The lattice on which the detector looks: where each cell of each level lies, and boxes as seen from there.

A box seen from a location is the distances of its edges from the location's centre: (start, low, end, high), each in
strides of the location's level, time and frequency with a stride of their own. Distances have a sign. A box thinner
than a stride may lie between two centres; seen from either, one of its edges is on the near side, at a negative
distance, and it decodes exactly all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ANCHOR_STRIDES = 4.0
"""Sides, in strides, of the box that stands for a location before anything is predicted.

With the default map the four levels then stand for 32 frames × 16 bins up to 256 × 128, the whole band. ATSS took 8
in pictures, which would leave the coarsest level with boxes of twice the band.
"""


@dataclass(frozen=True, slots=True)
class Locations:
    """N cells, level after level, each level by rows of equal frequency; all pairs are (time, frequency)."""

    centres: Tensor  # (N, 2) in frames and bins
    strides: Tensor  # (N, 2) in frames and bins
    level: Tensor  # (N,)
    level_sizes: tuple[tuple[int, int], ...]  # cells
    level_strides: tuple[tuple[int, int], ...]  # frames and bins

    @property
    def extent(self) -> tuple[int, int]:
        """Frames and bins of the whole grid, which the finest level covers."""
        (columns, rows), (frames, bins) = self.level_sizes[0], self.level_strides[0]
        return columns * frames, rows * bins

    def anchors(self) -> Tensor:
        """The box that stands for each location. → (N, 4)"""
        half = self.strides * (ANCHOR_STRIDES / 2)
        return torch.cat([self.centres - half, self.centres + half], dim=1)


def lattice(
    sizes: Sequence[tuple[int, int]], strides: Sequence[tuple[int, int]], device: torch.device | str = "cpu"
) -> Locations:
    """Locations of maps with these sizes in cells and strides in frames and bins, both (time, frequency)."""
    centres, steps, levels = [], [], []
    for number, ((columns, rows), stride) in enumerate(zip(sizes, strides, strict=True)):
        step = torch.tensor(stride, dtype=torch.float32, device=device)
        row, column = torch.meshgrid(
            torch.arange(rows, device=device), torch.arange(columns, device=device), indexing="ij"
        )
        cells = torch.stack([column, row], dim=-1).reshape(-1, 2)  # (rows · columns, 2)
        centres.append((cells + 0.5) * step)
        steps.append(step.expand(len(cells), 2))
        levels.append(torch.full((len(cells),), number, device=device))
    return Locations(torch.cat(centres), torch.cat(steps), torch.cat(levels), tuple(sizes), tuple(strides))


def encode(boxes: Tensor, centres: Tensor, strides: Tensor) -> Tensor:
    """Distances of boxes' edges from centres, in strides. (…, 4), (…, 2), (…, 2) → (…, 4)"""
    before = (centres - boxes[..., :2]) / strides
    after = (boxes[..., 2:] - centres) / strides
    return torch.cat([before, after], dim=-1)


def decode(distances: Tensor, centres: Tensor, strides: Tensor) -> Tensor:
    """Boxes whose edges are at these distances from centres, the inverse of `encode`. (…, 4) → (…, 4)"""
    start_low = centres - distances[..., :2] * strides
    end_high = centres + distances[..., 2:] * strides
    return torch.cat([start_low, end_high], dim=-1)
