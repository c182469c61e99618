"""The convolutions that adapter, pyramid and head are made of; maps are (B, C, F, T), kernels (frequency, time).

Every convolution is followed by a BatchNorm, which `mast.models.folding` merges into it for inference. A
normalisation that has to look at each picture, such as GroupNorm, could not go away like that.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

CHANNELS = 256
"""Channels of every map from the adapter on (paper, Adapter Designs); a tiny encoder gets fewer."""

SQUARE, ALONG_TIME, ALONG_FREQUENCY, POINT = (3, 3), (1, 3), (3, 1), (1, 1)
"""Kernels (frequency, time)."""


def convolution(
    channels: int, new_channels: int, kernel: tuple[int, int] = SQUARE, step: int = 1
) -> nn.Conv2d:
    """A convolution that keeps the size of a map, or divides it by `step`; the BatchNorm behind it has the bias."""
    padding = (kernel[0] // 2, kernel[1] // 2)
    return nn.Conv2d(channels, new_channels, kernel, step, padding, bias=False)


class ConvNorm(nn.Module):
    """A convolution and its BatchNorm."""

    def __init__(self, conv: nn.Conv2d | nn.ConvTranspose2d) -> None:
        super().__init__()
        self.conv = conv
        self.norm = nn.BatchNorm2d(conv.out_channels)

    def forward(self, features: Tensor) -> Tensor:
        """(B, C, F, T) → (B, C', F', T')"""
        normed: Tensor = self.norm(self.conv(features))
        return normed


class Residual(nn.Module):
    """What two 3×3 convolutions add to a map; `inner` channels make it a bottleneck between two 1×1."""

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
        """(B, C, F, T) → (B, C, F, T)"""
        first, *others = self.layers
        added: Tensor = first(features)
        for layer in others:
            added = layer(added.relu())
        return (features + added).relu()


class Separable(nn.Module):
    """3×1, then 1×3, with nothing between to keep the two from being one filter (paper, Separability Analysis)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.along_frequency = ConvNorm(convolution(channels, channels, ALONG_FREQUENCY))
        self.along_time = ConvNorm(convolution(channels, channels, ALONG_TIME))

    def forward(self, features: Tensor) -> Tensor:
        """(B, C, F, T) → (B, C, F, T)"""
        filtered: Tensor = self.along_time(self.along_frequency(features))
        return filtered.relu()


class Smoothing(nn.Module):
    """3×3, 3×1 and 1×3 side by side, summed (paper, Neck and fusion); folded, the three are one 3×3 convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.square = ConvNorm(convolution(channels, channels))
        self.along_frequency = ConvNorm(convolution(channels, channels, ALONG_FREQUENCY))
        self.along_time = ConvNorm(convolution(channels, channels, ALONG_TIME))

    def forward(self, features: Tensor) -> Tensor:
        """(B, C, F, T) → (B, C, F, T)"""
        summed: Tensor = self.square(features) + self.along_frequency(features) + self.along_time(features)
        return summed.relu()


class LevelConvNorm(nn.Module):
    """A convolution that all levels share, with a BatchNorm for each.

    Levels differ in what they hold. One BatchNorm would normalise each by its own statistics in training, and all by
    a mixture of them afterwards.
    """

    def __init__(self, conv: nn.Conv2d, levels: int) -> None:
        super().__init__()
        self.conv = conv
        self.norms = nn.ModuleList(nn.BatchNorm2d(conv.out_channels) for _ in range(levels))

    def forward(self, features: Tensor, level: int) -> Tensor:
        """(B, C, F, T) → (B, C', F, T)"""
        normed: Tensor = self.norms[level](self.conv(features))
        return normed
