"""Adapt the encoder's coarse token map to a feature map for detection (paper, Adapter Designs).

Each adapter takes the encoder's (B, width, F/16, T/16) and returns a map of 256 channels, or fewer for a tiny encoder.
`stride` is the number of frames and bins that a cell of the output covers, (time, frequency). An adapter with
`reads_spectrogram` also takes the spectrogram, as patches appended to the tokens (`append_patches`). The adapter of a
convolutional encoder takes the maps of several resolutions instead (`TopDownAdapter`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from mast.models.blocks import CHANNELS, POINT, SQUARE, ConvNorm, ResidualBlock, SeparableConv, convolution
from mast.models.conv_encoder import STRIDE

WIDENING = 2
"""Ratio of intermediate channels to the pyramid's channels: 512 to 256 (paper, Adapter Designs)."""

QUARTER = 4
"""Side length in frames and bins of the smallest spectrogram piece of an adapter; a token is 4 × 4 pieces."""


def append_patches(tokens: Tensor, spec: Tensor) -> Tensor:
    """Append to each token its patch, as channels. (B, C, F/16, T/16), (B, F, T) → (B, C + 256, F/16, T/16)"""
    pieces = functional.pixel_unshuffle(spec[:, None], QUARTER)  # (B, 16, F/4, T/4)
    return torch.cat([tokens, functional.pixel_unshuffle(pieces, QUARTER).to(tokens)], dim=1)


def drop_patches(adapter_input: Tensor) -> Tensor:
    """Remove the patches that `append_patches` added. (B, C + 256, F/16, T/16) → (B, C, F/16, T/16)"""
    return adapter_input[:, : -(QUARTER**4)]


class LinearAdapter(nn.Module):
    """No adapter, the ablation's first row: tokens projected to the pyramid's channels."""

    stride: ClassVar[tuple[int, int]] = (16, 16)
    reads_spectrogram: ClassVar[bool] = False

    def __init__(self, width: int, channels: int = CHANNELS) -> None:
        super().__init__()
        self.project = ConvNorm(convolution(width, channels, POINT))

    def forward(self, tokens: Tensor) -> Tensor:
        """Adapt tokens. (B, width, F/16, T/16) → (B, 256, F/16, T/16)"""
        projected: Tensor = self.project(tokens)
        return projected


class ConvAdapter(nn.Module):
    """Three 3×3 convolutions at the encoder's resolution; 5.3 M parameters for ViT-B; the paper states 2–4 M."""

    stride: ClassVar[tuple[int, int]] = (16, 16)
    reads_spectrogram: ClassVar[bool] = False

    def __init__(self, width: int, channels: int = CHANNELS) -> None:
        super().__init__()
        wide = WIDENING * channels
        pairs = ((width, wide), (wide, channels), (channels, channels))
        self.layers = nn.ModuleList(ConvNorm(convolution(*pair)) for pair in pairs)

    def forward(self, tokens: Tensor) -> Tensor:
        """Adapt tokens. (B, width, F/16, T/16) → (B, 256, F/16, T/16)"""
        features = tokens
        for layer in self.layers:
            features = layer(features).relu()
        return features


class AnisotropicAdapter(nn.Module):
    """Separable filters on wide maps, then 4× nearest-neighbour upsampling in frequency; 3.6 M parameters for ViT-B.

    The paper specifies no kernels. A 1×1 stem and a bottleneck as the wide residual block keep the size within its
    2–4 M parameters; 3×3 kernels would need 11 M.
    """

    stride: ClassVar[tuple[int, int]] = (16, 4)
    reads_spectrogram: ClassVar[bool] = False

    def __init__(self, width: int, channels: int = CHANNELS) -> None:
        super().__init__()
        wide = WIDENING * channels
        self.stem = ConvNorm(convolution(width, wide, POINT))
        self.wide = ResidualBlock(wide, inner=wide // 4)
        self.separable = SeparableConv(wide)
        self.reduce = ConvNorm(convolution(wide, channels, POINT))
        self.refine = ResidualBlock(channels)

    def forward(self, tokens: Tensor) -> Tensor:
        """Adapt tokens. (B, width, F/16, T/16) → (B, 256, F/4, T/16)"""
        wide = self.separable(self.wide(self.stem(tokens).relu()))  # (B, 512, F/16, T/16)
        refined = self.refine(self.reduce(wide).relu())  # (B, 256, F/16, T/16)
        return functional.interpolate(refined, scale_factor=(4, 1), mode="nearest")


class UpsamplingAdapter(nn.Module):
    """Learned upsampling, 2× in time and 4× in frequency, then refinement at that resolution: the default.

    3.5 M parameters for ViT-B. The transposed convolution's kernel equals its stride, so every output cell depends on
    one token, and overlaps cause no checkerboard pattern.
    """

    stride: ClassVar[tuple[int, int]] = (8, 4)
    reads_spectrogram: ClassVar[bool] = False

    def __init__(self, width: int, channels: int = CHANNELS) -> None:
        super().__init__()
        self.reduce = ConvNorm(convolution(width, channels, POINT))
        self.coarse = ResidualBlock(channels)
        self.upsample = ConvNorm(nn.ConvTranspose2d(channels, channels, (4, 2), (4, 2), bias=False))
        self.separable = SeparableConv(channels)
        self.refine = ResidualBlock(channels)

    def forward(self, tokens: Tensor) -> Tensor:
        """Adapt tokens. (B, width, F/16, T/16) → (B, 256, F/4, T/8)"""
        return self.refine_features(self.upsample_tokens(tokens))

    def upsample_tokens(self, tokens: Tensor) -> Tensor:
        """Upsample tokens. (B, width, F/16, T/16) → (B, 256, F/4, T/8)"""
        coarse = self.coarse(self.reduce(tokens).relu())  # (B, 256, F/16, T/16)
        fine: Tensor = self.upsample(coarse)
        return fine

    def refine_features(self, fine: Tensor) -> Tensor:
        """Refine the upsampled map. (B, 256, F/4, T/8) → (B, 256, F/4, T/8)"""
        refined: Tensor = self.refine(self.separable(fine.relu()))
        return refined


class HybridAdapter(UpsamplingAdapter):
    """Upsampled tokens plus convolutional features of the spectrogram (not in the paper; docs/decisions/0011).

    Tokens encode the context of the whole chunk. The exact edges of a call are local, and convolutions on the spectrogram
    learn them from far fewer labels.
    """

    reads_spectrogram: ClassVar[bool] = True

    def __init__(self, width: int, channels: int = CHANNELS) -> None:
        super().__init__(width, channels)
        narrow = channels // WIDENING
        self.stem = ConvNorm(convolution(QUARTER * QUARTER, narrow))
        self.fine = nn.Sequential(ResidualBlock(narrow), ResidualBlock(narrow))
        self.widen = ConvNorm(nn.Conv2d(narrow, channels, SQUARE, (1, 2), 1, bias=False))
        self.close = ResidualBlock(channels)

    def forward(self, tokens: Tensor) -> Tensor:
        """Adapt tokens with appended patches. (B, width + 256, F/16, T/16) → (B, 256, F/4, T/8)"""
        plain_tokens = drop_patches(tokens)
        pieces = functional.pixel_shuffle(tokens[:, plain_tokens.shape[1] :], QUARTER)  # (B, 16, F/4, T/4)
        local = self.fine(self.stem(pieces).relu())
        local = self.close(self.widen(local).relu())  # (B, 256, F/4, T/8)
        return self.refine_features(self.upsample_tokens(plain_tokens) + local)


class TopDownAdapter(nn.Module):
    """Fuse the maps of a convolutional encoder to its finest one, adding each coarser map to the next finer one."""

    stride: ClassVar[tuple[int, int]] = STRIDE
    reads_spectrogram: ClassVar[bool] = False

    def __init__(self, map_channels: Sequence[int], channels: int = CHANNELS) -> None:
        super().__init__()
        self.lateral = nn.ModuleList(ConvNorm(convolution(item, channels, POINT)) for item in map_channels)
        self.refine = ConvNorm(convolution(channels, channels))

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """Fuse maps, fine to coarse. L times (B, C, F, T) → (B, 256, F/4, T/8)"""
        fused, *finer = (lateral(item) for lateral, item in zip(self.lateral[::-1], maps[::-1], strict=True))
        for item in finer:
            fused = item + functional.interpolate(fused, size=item.shape[-2:], mode="nearest")
        refined: Tensor = self.refine(fused.relu())
        return refined.relu()


Adapter: TypeAlias = (
    LinearAdapter | ConvAdapter | AnisotropicAdapter | UpsamplingAdapter | HybridAdapter | TopDownAdapter
)

ADAPTERS: Mapping[str, Callable[[int, int], Adapter]] = {
    "none": LinearAdapter,
    "conv": ConvAdapter,
    "anisotropic": AnisotropicAdapter,
    "upsampling": UpsamplingAdapter,
    "hybrid": HybridAdapter,
}
"""Adapters of the vision transformer."""
