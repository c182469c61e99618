"""Encode spectrograms with a lean convolutional network: EfficientNet-Lite0 or YAMNet's MobileNet.

Both networks return four maps, from fine to coarse, which `mast.models.adapter.TopDownAdapter` fuses. Their strides are
twice as long in time as in frequency, since frequency separates calls better than time: the finest map has a
cell for 8 frames and 4 bins, as the adapter of the vision transformer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from mast.config import PATCH_SIZE
from mast.errors import ConfigError
from mast.models.blocks import ConvNorm


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a network: `blocks` blocks with `channels` channels, of which the first has stride `step`."""

    blocks: int
    kernel: int
    step: int
    expansion: int
    channels: int


@dataclass(frozen=True, slots=True)
class NetworkShape:
    """Shape of a convolutional network; `maps` are the indices of the stages whose outputs are the feature maps."""

    stem_channels: int
    is_residual: bool
    stages: tuple[Stage, ...]
    maps: tuple[int, ...]


NETWORKS: Mapping[str, NetworkShape] = {
    "efficientnet_lite0": NetworkShape(
        stem_channels=32,
        is_residual=True,
        stages=(
            Stage(1, 3, 1, 1, 16),
            Stage(2, 3, 2, 6, 24),
            Stage(2, 5, 2, 6, 40),
            Stage(3, 3, 2, 6, 80),
            Stage(3, 5, 1, 6, 112),
            Stage(4, 5, 2, 6, 192),
            Stage(1, 3, 1, 6, 320),
        ),
        maps=(1, 2, 4, 6),
    ),
    "yamnet": NetworkShape(
        stem_channels=32,
        is_residual=False,
        stages=(
            Stage(1, 3, 1, 1, 64),
            Stage(2, 3, 2, 1, 128),
            Stage(2, 3, 2, 1, 256),
            Stage(6, 3, 2, 1, 512),
            Stage(2, 3, 2, 1, 1024),
        ),
        maps=(1, 2, 3, 4),
    ),
}

STRIDE = (8, 4)
"""Stride (time, frequency) of the finest map; each further map halves both axes."""

STACKED_FRAMES = 2
"""Frames that the first layer reads as channels, which halves the number of frames without a loss of detail."""


@dataclass(frozen=True, slots=True)
class ConvEncoderShape:
    """Shape of a convolutional encoder: its network, and the number of mel bins that it reads."""

    network: str
    bins: int = 128

    @property
    def channels(self) -> tuple[int, ...]:
        """Channels of the feature maps, from fine to coarse."""
        network = NETWORKS[self.network]
        return tuple(network.stages[index].channels for index in network.maps)

    @property
    def width(self) -> int:
        """Channels of all feature maps together, the length of an embedding vector."""
        return sum(self.channels)


class ConvEncoder(nn.Module):
    """Convolutional network that encodes log-mel chunks of any number of frames to four feature maps."""

    def __init__(self, shape: ConvEncoderShape) -> None:
        super().__init__()
        self.shape = shape
        network = NETWORKS[shape.network]
        self.map_stages = network.maps
        stem = nn.Conv2d(STACKED_FRAMES, network.stem_channels, 3, 2, 1, bias=False)
        self.stem = ConvNorm(stem)
        channels = network.stem_channels
        stages = []
        for stage in network.stages:
            blocks = []
            for number in range(stage.blocks):
                step = stage.step if number == 0 else 1
                blocks.append(SeparableBlock(channels, stage, step, is_residual=network.is_residual))
                channels = stage.channels
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.ModuleList(stages)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, spec: Tensor, averaged_blocks: int = 1) -> Tensor:
        """Return one map of all channels at the resolution of the vision transformer. (B, F, T) → (B, C, F/16, T/16)

        `averaged_blocks` exists for the vision transformer, whose blocks have maps of one shape.
        """
        return self.merge(self.maps(spec))

    def maps(self, spec: Tensor) -> list[Tensor]:
        """Return the feature maps of chunks, fine to coarse. (B, F, T) → four times (B, C, F/4/2^level, T/8/2^level)"""
        bins, frames = spec.shape[-2:]
        if bins != self.shape.bins or frames % STACKED_FRAMES:
            raise ConfigError(
                f"This encoder reads {self.shape.bins} bins and an even number of frames, not {bins} × {frames}."
            )
        pairs = spec.reshape(*spec.shape[:2], -1, STACKED_FRAMES)  # (B, F, T/2, 2)
        stacked = pairs.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
        features = functional.relu6(self.stem(stacked))
        maps = []
        for number, stage in enumerate(self.stages):
            features = stage(features)
            if number in self.map_stages:
                maps.append(features)
        return maps

    def merge(self, maps: Sequence[Tensor]) -> Tensor:
        """Concatenate feature maps at the resolution of the vision transformer. → (B, C, F/16, T/16)"""
        bins, frames = self.shape.bins // PATCH_SIZE, maps[0].shape[-1] * STRIDE[0] // PATCH_SIZE
        return torch.cat([functional.adaptive_avg_pool2d(item, (bins, frames)) for item in maps], dim=1)


class SeparableBlock(nn.Module):
    """Depthwise convolution between pointwise ones: EfficientNet's inverted residual block, or MobileNet's block.

    With an expansion of 1 there is no first pointwise convolution. A residual network has no activation after the last
    convolution, and adds the block's input where the shapes agree.
    """

    def __init__(self, channels: int, stage: Stage, step: int, *, is_residual: bool) -> None:
        super().__init__()
        wide, kernel = channels * stage.expansion, stage.kernel
        self.is_residual = is_residual
        self.adds_input = is_residual and step == 1 and channels == stage.channels
        self.expand = ConvNorm(nn.Conv2d(channels, wide, 1, bias=False)) if stage.expansion > 1 else None
        depthwise = nn.Conv2d(wide, wide, kernel, step, kernel // 2, groups=wide, bias=False)
        self.depthwise = ConvNorm(depthwise)
        self.project = ConvNorm(nn.Conv2d(wide, stage.channels, 1, bias=False))

    def forward(self, features: Tensor) -> Tensor:
        """Apply the block. (B, C, F, T) → (B, C', F', T')"""
        wide = features if self.expand is None else functional.relu6(self.expand(features))
        projected: Tensor = self.project(functional.relu6(self.depthwise(wide)))
        if not self.is_residual:
            return functional.relu6(projected)
        return features + projected if self.adds_input else projected
