"""Compute the anchor points of all pyramid levels, and encode boxes relative to them.

A box is encoded as the distances of its edges from the centre of a location: (start, low, end, high), in strides of the
location's level, separately for time and frequency. Distances are signed. A box thinner than a stride may lie between
two centres; relative to either, one of its edges has a negative distance, and the box still decodes exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ANCHOR_STRIDES = 4.0
"""Side lengths of a location's anchor box, in strides.

With the default feature map, the anchors of the four levels range from 32 frames × 16 bins to 256 × 128, all bins. ATSS
uses 8 for images, which would give the coarsest level boxes of twice the number of bins.
"""


@dataclass(frozen=True, slots=True)
class AnchorPoints:
    """Centres of N cells, level after level, each level by rows of equal frequency; pairs are (time, frequency)."""

    centres: Tensor  # (N, 2) in frames and bins
    strides: Tensor  # (N, 2) in frames and bins
    level: Tensor  # (N,)
    level_sizes: tuple[tuple[int, int], ...]  # cells
    level_strides: tuple[tuple[int, int], ...]  # frames and bins

    @property
    def extent(self) -> tuple[int, int]:
        """Number of frames and bins of the spectrogram, which the finest level covers."""
        (columns, rows), (frames, bins) = self.level_sizes[0], self.level_strides[0]
        return columns * frames, rows * bins

    def anchors(self) -> Tensor:
        """Return the anchor box of each location. → (N, 4)"""
        half = self.strides * (ANCHOR_STRIDES / 2)
        return torch.cat([self.centres - half, self.centres + half], dim=1)


def make_anchor_points(
    sizes: Sequence[tuple[int, int]], strides: Sequence[tuple[int, int]], device: torch.device | str = "cpu"
) -> AnchorPoints:
    """Return the locations of feature maps with `sizes` in cells and `strides` in frames and bins, (time, frequency)."""
    centres, cell_strides, levels = [], [], []
    for number, ((columns, rows), stride) in enumerate(zip(sizes, strides, strict=True)):
        stride_tensor = torch.tensor(stride, dtype=torch.float32, device=device)
        row, column = torch.meshgrid(
            torch.arange(rows, device=device), torch.arange(columns, device=device), indexing="ij"
        )
        cells = torch.stack([column, row], dim=-1).reshape(-1, 2)  # (rows · columns, 2)
        centres.append((cells + 0.5) * stride_tensor)
        cell_strides.append(stride_tensor.expand(len(cells), 2))
        levels.append(torch.full((len(cells),), number, device=device))
    return AnchorPoints(
        torch.cat(centres), torch.cat(cell_strides), torch.cat(levels), tuple(sizes), tuple(strides)
    )


def encode_boxes(boxes: Tensor, centres: Tensor, strides: Tensor) -> Tensor:
    """Return the distances of boxes' edges from centres, in strides. (…, 4), (…, 2), (…, 2) → (…, 4)"""
    before = (centres - boxes[..., :2]) / strides
    after = (boxes[..., 2:] - centres) / strides
    return torch.cat([before, after], dim=-1)


def decode_boxes(distances: Tensor, centres: Tensor, strides: Tensor) -> Tensor:
    """Return the boxes at given distances from centres, the inverse of `encode_boxes`. (…, 4) → (…, 4)"""
    start_low = centres - distances[..., :2] * strides
    end_high = centres + distances[..., 2:] * strides
    return torch.cat([start_low, end_high], dim=-1)
