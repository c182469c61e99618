"""The pyramid: the adapter's map at ever coarser resolutions, each told by the coarser ones (paper, Neck and fusion).

Architecture Details says P3–P5, the detector table P2–P5: we take four levels by default, the first at the adapter's
own resolution. Every level halves both axes, so that its stride is again a pair (time, frequency).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from mast.models.blocks import CHANNELS, POINT, ConvNorm, Smoothing, convolution

FUSION_EPSILON = 1e-4
"""Keeps the shares of two maps finite when training has driven both their weights to zero."""


class Pyramid(nn.Module):
    """Levels from fine to coarse, all of as many channels as the adapter's map."""

    def __init__(self, levels: int, channels: int = CHANNELS) -> None:
        super().__init__()
        self.levels, self.channels = levels, channels
        self.down = nn.ModuleList(
            ConvNorm(convolution(channels, channels, step=2)) for _ in range(levels - 1)
        )
        self.lateral = nn.ModuleList(ConvNorm(convolution(channels, channels, POINT)) for _ in range(levels))
        self.fusion = nn.Parameter(torch.ones(levels - 1, 2))  # a level's own map, the coarser one
        self.smoothing = nn.ModuleList(Smoothing(channels) for _ in range(levels))

    def forward(self, features: Tensor) -> list[Tensor]:
        """(B, 256, F, T) → levels times (B, 256, ⌈F / 2^level⌉, ⌈T / 2^level⌉)"""
        maps = [features]
        for down in self.down:
            maps.append(down(maps[-1]).relu())
        fused = [lateral(level) for lateral, level in zip(self.lateral, maps, strict=True)]
        shares = self.shares()
        for level in range(self.levels - 2, -1, -1):
            coarser = functional.interpolate(fused[level + 1], size=fused[level].shape[-2:], mode="nearest")
            fused[level] = shares[level, 0] * fused[level] + shares[level, 1] * coarser
        return [smooth(level) for smooth, level in zip(self.smoothing, fused, strict=True)]

    def shares(self) -> Tensor:
        """How much of its own map and of the coarser one a level takes: never negative, summing to one. → (L - 1, 2)"""
        weights = self.fusion.relu()
        return weights / (weights.sum(dim=1, keepdim=True) + FUSION_EPSILON)

    def strides(self, stride: tuple[int, int]) -> list[tuple[int, int]]:
        """Strides (time, frequency) of all levels, given that of the map below them."""
        return [(stride[0] << level, stride[1] << level) for level in range(self.levels)]
