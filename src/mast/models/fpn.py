"""Build a feature pyramid over the adapter's feature map, with top-down fusion (paper, Neck and fusion).

Architecture Details specifies P3–P5, the detector table P2–P5: we use four levels by default, the first at the adapter's
resolution. Every level halves both axes, so its stride is also a pair (time, frequency).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from mast.models.blocks import CHANNELS, POINT, ConvNorm, SmoothingConv, convolution

FUSION_EPSILON = 1e-4
"""Keeps fusion weights finite when training has reduced both weights of a level to zero."""


class Pyramid(nn.Module):
    """Feature pyramid: levels from fine to coarse, all with the channels of the adapter's feature map."""

    def __init__(self, levels: int, channels: int = CHANNELS) -> None:
        super().__init__()
        self.levels, self.channels = levels, channels
        self.down = nn.ModuleList(
            ConvNorm(convolution(channels, channels, step=2)) for _ in range(levels - 1)
        )
        self.lateral = nn.ModuleList(ConvNorm(convolution(channels, channels, POINT)) for _ in range(levels))
        self.fusion = nn.Parameter(
            torch.ones(levels - 1, 2)
        )  # weights of a level's own map and of the coarser map
        self.smoothing = nn.ModuleList(SmoothingConv(channels) for _ in range(levels))

    def forward(self, features: Tensor) -> list[Tensor]:
        """Return the feature maps of all levels. (B, 256, F, T) → levels times (B, 256, ⌈F / 2^level⌉, ⌈T / 2^level⌉)"""
        maps = [features]
        for down in self.down:
            maps.append(down(maps[-1]).relu())
        fused = [lateral(level) for lateral, level in zip(self.lateral, maps, strict=True)]
        weights = self.fusion_weights()
        for level in range(self.levels - 2, -1, -1):
            coarser = functional.interpolate(fused[level + 1], size=fused[level].shape[-2:], mode="nearest")
            fused[level] = weights[level, 0] * fused[level] + weights[level, 1] * coarser
        return [smooth(level) for smooth, level in zip(self.smoothing, fused, strict=True)]

    def fusion_weights(self) -> Tensor:
        """Return each level's weights of its own and the coarser map: non-negative, with sum 1. → (L - 1, 2)"""
        weights = self.fusion.relu()
        return weights / (weights.sum(dim=1, keepdim=True) + FUSION_EPSILON)

    def strides(self, stride: tuple[int, int]) -> list[tuple[int, int]]:
        """Return the strides (time, frequency) of all levels, given the stride of the input map."""
        return [(stride[0] << level, stride[1] << level) for level in range(self.levels)]
