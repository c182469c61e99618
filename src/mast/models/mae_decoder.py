"""Reconstruct patches with AudioMAE's decoders: plain ViT blocks, or the shifted-window blocks of its checkpoint.

Both take visible tokens and a mask, and reconstruct all patches. They are discarded after pretraining.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from timm.layers.mlp import Mlp
from timm.models.swin_transformer_v2_cr import WindowMultiHeadAttention
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from mast.config import PATCH_SIZE
from mast.models.encoder import (
    EncoderShape,
    LayerNorm,
    extend_position_embedding,
    initialise,
    sincos_position_embedding,
)
from mast.models.masking import Mask

DecoderKind = Literal["plain", "swin"]
WINDOW = 4
"""Side length of a window of the Swin decoder, in tokens."""

META_DROPOUT = 0.1


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Shape of a decoder."""

    kind: DecoderKind
    width: int
    heads: int
    depth: int


DECODERS = {
    "tiny": {"plain": DecoderShape("plain", 128, 4, 2), "swin": DecoderShape("swin", 128, 4, 4)},
    "small": {"plain": DecoderShape("plain", 256, 8, 2), "swin": DecoderShape("swin", 256, 8, 4)},
    "base": {"plain": DecoderShape("plain", 512, 16, 8), "swin": DecoderShape("swin", 512, 16, 16)},
}
"""AudioMAE's two decoders for its base encoder; for the others, proportionally narrower and a quarter as deep."""


class Decoder(nn.Module):
    """Decoder that reconstructs every patch from the visible tokens."""

    pos_embed: Tensor

    def __init__(self, shape: DecoderShape, encoder: EncoderShape, frames: int = 1024) -> None:
        super().__init__()
        self.shape = shape
        self.band_tokens, self.raster_tokens = encoder.band_tokens, encoder.raster_tokens
        self.embed = nn.Linear(encoder.width, shape.width)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, shape.width))
        tokens = frames // PATCH_SIZE * self.band_tokens
        self.register_buffer("pos_embed", sincos_position_embedding(shape.width, tokens, self.raster_tokens))
        self.blocks = nn.ModuleList(
            Block(shape.width, shape.heads, qkv_bias=True, norm_layer=LayerNorm)
            if shape.kind == "plain"
            else WindowBlock(shape.width, shape.heads, shift_tokens=WINDOW // 2 * (number % 2))
            for number in range(shape.depth)
        )
        self.norm = LayerNorm(shape.width)
        self.pred = nn.Linear(shape.width, PATCH_SIZE * PATCH_SIZE)
        initialise(self)

    def forward(self, visible: Tensor, mask: Mask) -> Tensor:
        """Reconstruct all patches in token order. (B, 1 + K, C) → (B, N, 16 · 16)"""
        tokens = self.embed(visible)
        count = mask.ids_restore.shape[1]
        masked = self.mask_token.to(tokens.dtype).expand(len(tokens), count + 1 - tokens.shape[1], -1)
        patches = torch.cat([tokens[:, 1:], masked], dim=1)  # (B, N, C), the visible ones first
        patches = patches.gather(1, mask.ids_restore[:, :, None].expand(-1, -1, patches.shape[-1]))
        tokens = torch.cat([tokens[:, :1], patches], dim=1)
        tokens = tokens + extend_position_embedding(self.pos_embed, count, self.raster_tokens)
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
        reconstruction: Tensor = self.pred(self.norm(tokens))
        return reconstruction


class WindowBlock(nn.Module):
    """Attention within windows of 4 × 4 tokens, optionally shifted along time, with layer norms after each branch."""

    def __init__(self, width: int, heads: int, shift_tokens: int) -> None:
        super().__init__()
        self.shift_tokens = shift_tokens
        self.attn = WindowMultiHeadAttention(width, heads, (WINDOW, WINDOW))
        self.attn.meta_mlp.drop1.p = META_DROPOUT
        self.norm1 = LayerNorm(width)
        self.mlp = Mlp(width, 4 * width)
        self.norm2 = LayerNorm(width)

    def forward(self, grid: Tensor) -> Tensor:
        """Apply window attention and MLP. (B, T/16, F/16, C) → (B, T/16, F/16, C)"""
        shifted = grid.roll(-self.shift_tokens, dims=1)
        windows = _to_windows(shifted)  # (B · windows, 16, C)
        attended = self.attn(windows, self._shift_mask(grid))
        unshifted = _from_windows(attended, grid.shape).roll(self.shift_tokens, dims=1)
        grid = grid + self.norm1(unshifted)
        output: Tensor = grid + self.norm2(self.mlp(grid))
        return output

    def _shift_mask(self, grid: Tensor) -> Tensor | None:
        """Return the attention mask between tokens that are neighbours only by the cyclic shift. → (windows, 16, 16)"""
        if not self.shift_tokens:
            return None
        _, times, bands, _ = grid.shape
        wrapped = torch.arange(times, device=grid.device) >= times - self.shift_tokens
        region = _to_windows(wrapped[None, :, None, None].float().expand(1, times, bands, 1))[:, :, 0]
        return (region[:, :, None] != region[:, None, :]).float() * -100.0


def _to_windows(grid: Tensor) -> Tensor:
    """Split a grid into windows. (B, H, W, C) → (B · H/4 · W/4, 16, C)"""
    batch, height, width, channels = grid.shape
    split = grid.reshape(batch, height // WINDOW, WINDOW, width // WINDOW, WINDOW, channels)
    return split.transpose(2, 3).reshape(-1, WINDOW * WINDOW, channels)


def _from_windows(windows: Tensor, shape: torch.Size) -> Tensor:
    """Join windows to a grid. (B · H/4 · W/4, 16, C) → (B, H, W, C)"""
    batch, height, width, channels = shape
    split = windows.view(batch, height // WINDOW, width // WINDOW, WINDOW, WINDOW, channels)
    return split.transpose(2, 3).reshape(shape)
