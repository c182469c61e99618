"""Adapters: from the encoder's coarse map of tokens to one that a detector can work on (paper, Adapter Designs).

Each takes the encoder's (B, width, F/16, T/16), hands out a map of 256 channels, or fewer for a tiny encoder, and says
how many frames and bins a cell of it covers: `stride` is (time, frequency).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeAlias

from torch import Tensor, nn
from torch.nn import functional

from mast.models.blocks import CHANNELS, POINT, ConvNorm, Residual, Separable, convolution

WIDENING = 2
"""Channels between the encoder's and the pyramid's against the latter: 512 to 256 (paper, Adapter Designs)."""


class PlainProjection(nn.Module):
    """No adapter, the ablation's first row: the tokens as they are, projected to the pyramid's channels."""

    stride: ClassVar[tuple[int, int]] = (16, 16)

    def __init__(self, width: int, channels: int = CHANNELS) -> None:
        super().__init__()
        self.project = ConvNorm(convolution(width, channels, POINT))

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, width, F/16, T/16) → (B, 256, F/16, T/16)"""
        projected: Tensor = self.project(tokens)
        return projected


class ConvAdapter(nn.Module):
    """Three 3×3 convolutions at the encoder's resolution; 5.3 M parameters for ViT-B, where the paper says 2–4 M."""

    stride: ClassVar[tuple[int, int]] = (16, 16)

    def __init__(self, width: int, channels: int = CHANNELS) -> None:
        super().__init__()
        wide = WIDENING * channels
        pairs = ((width, wide), (wide, channels), (channels, channels))
        self.layers = nn.ModuleList(ConvNorm(convolution(*pair)) for pair in pairs)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, width, F/16, T/16) → (B, 256, F/16, T/16)"""
        features = tokens
        for layer in self.layers:
            features = layer(features).relu()
        return features


class AnisotropicAdapter(nn.Module):
    """Separable filters on wide maps, then frequency repeated fourfold; 3.6 M parameters for ViT-B.

    The paper gives no kernels: a 1×1 stem and a bottleneck as the wide residual block keep to its 2–4 M, where 3×3
    ones would take 11 M.
    """

    stride: ClassVar[tuple[int, int]] = (16, 4)

    def __init__(self, width: int, channels: int = CHANNELS) -> None:
        super().__init__()
        wide = WIDENING * channels
        self.stem = ConvNorm(convolution(width, wide, POINT))
        self.wide = Residual(wide, inner=wide // 4)
        self.separable = Separable(wide)
        self.reduce = ConvNorm(convolution(wide, channels, POINT))
        self.refine = Residual(channels)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, width, F/16, T/16) → (B, 256, F/4, T/16)"""
        wide = self.separable(self.wide(self.stem(tokens).relu()))  # (B, 512, F/16, T/16)
        refined = self.refine(self.reduce(wide).relu())  # (B, 256, F/16, T/16)
        return functional.interpolate(refined, scale_factor=(4, 1), mode="nearest")


class UpsamplingAdapter(nn.Module):
    """Learned upsampling, twice in time and four times in frequency, and refinement there: the default.

    3.5 M parameters for ViT-B. The transposed convolution's kernel is its stride, so that every cell of the fine map
    is made from one token and no checkerboard of overlaps appears.
    """

    stride: ClassVar[tuple[int, int]] = (8, 4)

    def __init__(self, width: int, channels: int = CHANNELS) -> None:
        super().__init__()
        self.reduce = ConvNorm(convolution(width, channels, POINT))
        self.coarse = Residual(channels)
        self.upsample = ConvNorm(nn.ConvTranspose2d(channels, channels, (4, 2), (4, 2), bias=False))
        self.separable = Separable(channels)
        self.refine = Residual(channels)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, width, F/16, T/16) → (B, 256, F/4, T/8)"""
        coarse = self.coarse(self.reduce(tokens).relu())  # (B, 256, F/16, T/16)
        fine = self.upsample(coarse).relu()  # (B, 256, F/4, T/8)
        refined: Tensor = self.refine(self.separable(fine))
        return refined


Adapter: TypeAlias = PlainProjection | ConvAdapter | AnisotropicAdapter | UpsamplingAdapter

ADAPTERS: Mapping[str, type[Adapter]] = {
    "none": PlainProjection,
    "conv": ConvAdapter,
    "anisotropic": AnisotropicAdapter,
    "upsampling": UpsamplingAdapter,
}
