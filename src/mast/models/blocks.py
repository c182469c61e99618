"""Convolution blocks of adapter, pyramid and head; maps are (B, C, F, T), kernels (frequency, time).

Every convolution is followed by a BatchNorm, which `mast.models.fuse` fuses into it for inference. A normalisation with
statistics of each input, such as GroupNorm, cannot be fused.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

CHANNELS = 256
"""Channels of the feature maps of adapter, pyramid and head (paper, Adapter Designs); fewer for a tiny encoder."""

SQUARE, ALONG_TIME, ALONG_FREQUENCY, POINT = (3, 3), (1, 3), (3, 1), (1, 1)
"""Kernels (frequency, time)."""


def convolution(
    channels: int, new_channels: int, kernel: tuple[int, int] = SQUARE, step: int = 1
) -> nn.Conv2d:
    """Create a convolution that keeps the map size, or divides it by `step`; the BatchNorm after it has the bias."""
    padding = (kernel[0] // 2, kernel[1] // 2)
    return nn.Conv2d(channels, new_channels, kernel, step, padding, bias=False)


class ConvNorm(nn.Module):
    """A convolution and its BatchNorm."""

    def __init__(self, conv: nn.Conv2d | nn.ConvTranspose2d) -> None:
        super().__init__()
        self.conv = conv
        self.norm = nn.BatchNorm2d(conv.out_channels)

    def forward(self, features: Tensor) -> Tensor:
        """Apply convolution and BatchNorm. (B, C, F, T) → (B, C', F', T')"""
        normed: Tensor = self.norm(self.conv(features))
        return normed


class ResidualBlock(nn.Module):
    """Residual block of two 3×3 convolutions, or with `inner` channels a bottleneck of 1×1, 3×3 and 1×1."""

    def __init__(self, channels: int, inner: int | None = None) -> None:
        super().__init__()
        if inner is None:
            layers = [ConvNorm(convolution(channels, channels)) for _ in range(2)]
        else:
            widths, kernels = (channels, inner, inner, channels), (POINT, SQUARE, POINT)
            layers = [
                ConvNorm(convolution(*pair, kernel))
                for pair, kernel in zip(pairwise(widths), kernels, strict=True)
            ]
        self.layers = nn.ModuleList(layers)

    def forward(self, features: Tensor) -> Tensor:
        """Apply the block. (B, C, F, T) → (B, C, F, T)"""
        first, *others = self.layers
        residual: Tensor = first(features)
        for layer in others:
            residual = layer(residual.relu())
        return (features + residual).relu()


class SeparableConv(nn.Module):
    """3×1 then 1×3 convolution without activation between them, a separable filter (paper, Separability Analysis)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.along_frequency = ConvNorm(convolution(channels, channels, ALONG_FREQUENCY))
        self.along_time = ConvNorm(convolution(channels, channels, ALONG_TIME))

    def forward(self, features: Tensor) -> Tensor:
        """Apply the block. (B, C, F, T) → (B, C, F, T)"""
        filtered: Tensor = self.along_time(self.along_frequency(features))
        return filtered.relu()


class SmoothingConv(nn.Module):
    """Sum of parallel 3×3, 3×1 and 1×3 convolutions (paper, Neck and fusion); fusing merges them to one 3×3."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.square = ConvNorm(convolution(channels, channels))
        self.along_frequency = ConvNorm(convolution(channels, channels, ALONG_FREQUENCY))
        self.along_time = ConvNorm(convolution(channels, channels, ALONG_TIME))

    def forward(self, features: Tensor) -> Tensor:
        """Apply the block. (B, C, F, T) → (B, C, F, T)"""
        summed: Tensor = self.square(features) + self.along_frequency(features) + self.along_time(features)
        return summed.relu()


class LevelConvNorm(nn.Module):
    """A convolution shared by all levels, with a BatchNorm for each level.

    The statistics of levels differ. A shared BatchNorm would normalise each level by its own batch statistics in
    training, and all levels by a mixture of them in evaluation.
    """

    def __init__(self, conv: nn.Conv2d, levels: int) -> None:
        super().__init__()
        self.conv = conv
        self.norms = nn.ModuleList(nn.BatchNorm2d(conv.out_channels) for _ in range(levels))

    def forward(self, features: Tensor, level: int) -> Tensor:
        """Apply the convolution and the BatchNorm of a level. (B, C, F, T) → (B, C', F, T)"""
        normed: Tensor = self.norms[level](self.conv(features))
        return normed


class SeparableLevelConvNorm(nn.Module):
    """A 3×3 depthwise convolution, then a pointwise one with a BatchNorm for each level."""

    def __init__(self, channels: int, new_channels: int, levels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, SQUARE, padding=1, groups=channels, bias=False)
        self.pointwise = LevelConvNorm(convolution(channels, new_channels, POINT), levels)

    def forward(self, features: Tensor, level: int) -> Tensor:
        """Apply the convolutions and the BatchNorm of a level. (B, C, F, T) → (B, C', F, T)"""
        normed: Tensor = self.pointwise(self.depthwise(features), level)
        return normed
