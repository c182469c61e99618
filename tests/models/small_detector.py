"""A detector that is small enough for tests, and random spectrograms."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mast.models.adapter import ADAPTERS
from mast.models.detector import Detector
from mast.models.fpn import Pyramid
from mast.models.head import Head


class Patches(nn.Module):
    """A minimal encoder: one token for every 16 × 16 patch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Conv2d(1, width, 16, 16)

    def forward(self, spec: Tensor) -> Tensor:
        """Embed patches. (B, F, T) → (B, C, F/16, T/16)"""
        tokens: Tensor = self.embed(spec[:, None])
        return tokens


def detector(adapter: str = "upsampling", levels: int = 4) -> Detector:
    torch.manual_seed(0)
    return Detector(Patches(64), ADAPTERS[adapter](64), Pyramid(levels), Head(levels, width=128))


def spectrograms(frames: int = 128) -> Tensor:
    return torch.randn(2, 128, frames, generator=torch.Generator().manual_seed(1))
