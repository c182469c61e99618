"""Adapters: from the encoder's coarse map of tokens to one that a detector can work on (paper, Adapter Designs).

Each takes the encoder's (B, width, F/16, T/16), hands out a map of 256 channels, or fewer for a tiny encoder, and says
how many frames and bins a cell of it covers: `stride` is (time, frequency). One that `reads_picture` takes the picture
itself as well, patch by patch beneath the tokens (`with_picture`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from mast.models.blocks import CHANNELS, POINT, SQUARE, ConvNorm, Residual, Separable, convolution

WIDENING = 2
"""Channels between the encoder's and the pyramid's against the latter: 512 to 256 (paper, Adapter Designs)."""

QUARTER = 4
"""Frames and bins of the smallest piece of a picture that an adapter looks at: a token is four pieces by four."""


def with_picture(tokens: Tensor, spec: Tensor) -> Tensor:
    """Tokens, and beneath each the patch it stands for. (B, C, F/16, T/16), (B, F, T) → (B, C + 256, F/16, T/16)"""
    pieces = functional.pixel_unshuffle(spec[:, None], QUARTER)  # (B, 16, F/4, T/4)
    return torch.cat([tokens, functional.pixel_unshuffle(pieces, QUARTER).to(tokens)], dim=1)


def without_picture(read: Tensor) -> Tensor:
    """The tokens of what `with_picture` gave. (B, C + 256, F/16, T/16) → (B, C, F/16, T/16)"""
    return read[:, : -(QUARTER**4)]


class PlainProjection(nn.Module):
    """No adapter, the ablation's first row: the tokens as they are, projected to the pyramid's channels."""

    stride: ClassVar[tuple[int, int]] = (16, 16)
    reads_picture: ClassVar[bool] = False

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
    reads_picture: ClassVar[bool] = False

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
    reads_picture: ClassVar[bool] = False

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
    reads_picture: ClassVar[bool] = False

    def __init__(self, width: int, channels: int = CHANNELS) -> None:
        super().__init__()
        self.reduce = ConvNorm(convolution(width, channels, POINT))
        self.coarse = Residual(channels)
        self.upsample = ConvNorm(nn.ConvTranspose2d(channels, channels, (4, 2), (4, 2), bias=False))
        self.separable = Separable(channels)
        self.refine = Residual(channels)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, width, F/16, T/16) → (B, 256, F/4, T/8)"""
        return self.refined(self.upsampled(tokens))

    def upsampled(self, tokens: Tensor) -> Tensor:
        """(B, width, F/16, T/16) → (B, 256, F/4, T/8)"""
        coarse = self.coarse(self.reduce(tokens).relu())  # (B, 256, F/16, T/16)
        fine: Tensor = self.upsample(coarse)
        return fine

    def refined(self, fine: Tensor) -> Tensor:
        """(B, 256, F/4, T/8) → (B, 256, F/4, T/8)"""
        refined: Tensor = self.refine(self.separable(fine.relu()))
        return refined


class DetailAdapter(UpsamplingAdapter):
    """Upsampled tokens, and what convolutions see in the picture itself (not the paper's; docs/decisions/0011).

    Tokens know what goes on all over a chunk; where a call begins is seen best by who looks there closely, and a
    convolution learns that from far fewer labels.
    """

    reads_picture: ClassVar[bool] = True

    def __init__(self, width: int, channels: int = CHANNELS) -> None:
        super().__init__(width, channels)
        narrow = channels // WIDENING
        self.stem = ConvNorm(convolution(QUARTER * QUARTER, narrow))
        self.fine = nn.Sequential(Residual(narrow), Residual(narrow))
        self.widen = ConvNorm(nn.Conv2d(narrow, channels, SQUARE, (1, 2), 1, bias=False))
        self.close = Residual(channels)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, width + 256, F/16, T/16) → (B, 256, F/4, T/8)"""
        own = without_picture(tokens)
        pieces = functional.pixel_shuffle(tokens[:, own.shape[1] :], QUARTER)  # (B, 16, F/4, T/4)
        seen = self.fine(self.stem(pieces).relu())
        close = self.close(self.widen(seen).relu())  # (B, 256, F/4, T/8)
        return self.refined(self.upsampled(own) + close)


Adapter: TypeAlias = PlainProjection | ConvAdapter | AnisotropicAdapter | UpsamplingAdapter | DetailAdapter

ADAPTERS: Mapping[str, type[Adapter]] = {
    "none": PlainProjection,
    "conv": ConvAdapter,
    "anisotropic": AnisotropicAdapter,
    "upsampling": UpsamplingAdapter,
    "detail": DetailAdapter,
}
