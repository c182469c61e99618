"""The two decoders of AudioMAE: plain ViT blocks, and the shifted-window blocks of the public checkpoint.

Both take visible tokens and a mask, and guess all patches. They are thrown away after pretraining.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from timm.layers.mlp import Mlp
from timm.models.swin_transformer_v2_cr import WindowMultiHeadAttention
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from mast.config import PATCH
from mast.models.encoder import EncoderShape, LayerNorm, extended, initialise, positions
from mast.models.masking import Mask

DecoderKind = Literal["plain", "swin"]
WINDOW = 4
"""Tokens along each side of a window of the Swin decoder."""

META_DROPOUT = 0.1


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """What a decoder is built from."""

    kind: DecoderKind
    width: int
    heads: int
    depth: int


DECODERS = {
    "tiny": {"plain": DecoderShape("plain", 128, 4, 2), "swin": DecoderShape("swin", 128, 4, 4)},
    "small": {"plain": DecoderShape("plain", 256, 8, 2), "swin": DecoderShape("swin", 256, 8, 4)},
    "base": {"plain": DecoderShape("plain", 512, 16, 8), "swin": DecoderShape("swin", 512, 16, 16)},
}
"""AudioMAE's two decoders for its base encoder, and as much narrower and a quarter as deep for the others."""


class Decoder(nn.Module):
    """Visible tokens to a guess at every patch."""

    pos_embed: Tensor

    def __init__(self, shape: DecoderShape, encoder: EncoderShape, frames: int = 1024) -> None:
        super().__init__()
        self.shape = shape
        self.band_tokens, self.raster_tokens = encoder.band_tokens, encoder.raster_tokens
        self.embed = nn.Linear(encoder.width, shape.width)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, shape.width))
        tokens = frames // PATCH * self.band_tokens
        self.register_buffer("pos_embed", positions(shape.width, tokens, self.raster_tokens))
        self.blocks = nn.ModuleList(
            Block(shape.width, shape.heads, qkv_bias=True, norm_layer=LayerNorm)
            if shape.kind == "plain"
            else WindowBlock(shape.width, shape.heads, shift_tokens=WINDOW // 2 * (number % 2))
            for number in range(shape.depth)
        )
        self.norm = LayerNorm(shape.width)
        self.pred = nn.Linear(shape.width, PATCH * PATCH)
        initialise(self)

    def forward(self, visible: Tensor, mask: Mask) -> Tensor:
        """Guessed patches, in the order of the tokens. (B, 1 + K, C) → (B, N, 16 · 16)"""
        tokens = self.embed(visible)
        count = mask.places.shape[1]
        hidden = self.mask_token.to(tokens.dtype).expand(len(tokens), count + 1 - tokens.shape[1], -1)
        every = torch.cat([tokens[:, 1:], hidden], dim=1)  # (B, N, C), the kept ones first
        every = every.gather(1, mask.places[:, :, None].expand(-1, -1, every.shape[-1]))
        tokens = torch.cat([tokens[:, :1], every], dim=1)
        tokens = tokens + extended(self.pos_embed, count, self.raster_tokens)
        if self.shape.kind == "plain":
            for block in self.blocks:
                tokens = block(tokens)
            tokens = tokens[:, 1:]
        else:
            grid = tokens[:, 1:].reshape(
                len(tokens), -1, self.band_tokens, self.shape.width
            )  # (B, T/16, F/16, C)
            for block in self.blocks:
                grid = block(grid)
            tokens = grid.flatten(1, 2)
        guess: Tensor = self.pred(self.norm(tokens))
        return guess


class WindowBlock(nn.Module):
    """Attention within windows of 4 × 4 tokens, every other block shifted along time; norms follow their branches."""

    def __init__(self, width: int, heads: int, shift_tokens: int) -> None:
        super().__init__()
        self.shift_tokens = shift_tokens
        self.attn = WindowMultiHeadAttention(width, heads, (WINDOW, WINDOW))
        self.attn.meta_mlp.drop1.p = META_DROPOUT
        self.norm1 = LayerNorm(width)
        self.mlp = Mlp(width, 4 * width)
        self.norm2 = LayerNorm(width)

    def forward(self, grid: Tensor) -> Tensor:
        """(B, T/16, F/16, C) → the same"""
        shifted = grid.roll(-self.shift_tokens, dims=1)
        windows = _to_windows(shifted)  # (B · windows, 16, C)
        attended = self.attn(windows, self._seam(grid))
        back = _from_windows(attended, grid.shape).roll(self.shift_tokens, dims=1)
        grid = grid + self.norm1(back)
        changed: Tensor = grid + self.norm2(self.mlp(grid))
        return changed

    def _seam(self, grid: Tensor) -> Tensor | None:
        """Penalty between tokens that only the shift has made neighbours. → (windows, 16, 16)"""
        if not self.shift_tokens:
            return None
        _, moments, bands, _ = grid.shape
        wrapped = torch.arange(moments, device=grid.device) >= moments - self.shift_tokens
        region = _to_windows(wrapped[None, :, None, None].float().expand(1, moments, bands, 1))[:, :, 0]
        return (region[:, :, None] != region[:, None, :]).float() * -100.0


def _to_windows(grid: Tensor) -> Tensor:
    """(B, H, W, C) → (B · H/4 · W/4, 16, C)"""
    batch, height, width, channels = grid.shape
    split = grid.reshape(batch, height // WINDOW, WINDOW, width // WINDOW, WINDOW, channels)
    return split.transpose(2, 3).reshape(-1, WINDOW * WINDOW, channels)


def _from_windows(windows: Tensor, shape: torch.Size) -> Tensor:
    """(B · H/4 · W/4, 16, C) → (B, H, W, C)"""
    batch, height, width, channels = shape
    split = windows.view(batch, height // WINDOW, width // WINDOW, WINDOW, WINDOW, channels)
    return split.transpose(2, 3).reshape(shape)
