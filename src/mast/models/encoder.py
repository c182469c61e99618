"""The encoder: a ViT in AudioMAE's own layout, so that its public checkpoints load exactly (paper, Patch tokenization).

Inside, pictures are (B, 1, T, F) and tokens run over frequency first (token = t · F/16 + f); maps are handed out as
(B, C, F/16, T/16) like everywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from timm.models.vision_transformer import Block
from torch import Tensor, nn
from torch.nn import functional

from mast.config import PATCH
from mast.errors import ConfigError

LayerNorm: Any = partial(nn.LayerNorm, eps=1e-6)
"""Layer norm with the constant that AudioMAE adds to the variance."""


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """What an encoder is built from; `raster_tokens` is the width on which its positions were laid out."""

    width: int
    heads: int
    depth: int = 12
    bins: int = 128
    raster_tokens: int = 64

    @property
    def band_tokens(self) -> int:
        """Tokens that share a moment: one a band of 16 bins."""
        return self.bins // PATCH


SIZES: Mapping[str, EncoderShape] = {
    "tiny": EncoderShape(width=192, heads=3),
    "small": EncoderShape(width=384, heads=6),
    "base": EncoderShape(width=768, heads=12),
}


class Encoder(nn.Module):
    """Log-mel chunks of any number of frames to a map of tokens."""

    pos_embed: Tensor

    def __init__(self, shape: EncoderShape, frames: int = 1024) -> None:
        """`frames` of the chunks to train on; the positions of longer ones go on in the same way."""
        super().__init__()
        self.shape = shape
        self.patch_embed = PatchEmbedding(shape.width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, shape.width))
        tokens = frames // PATCH * shape.band_tokens
        self.register_buffer("pos_embed", positions(shape.width, tokens, shape.raster_tokens))
        self.blocks = nn.ModuleList(
            Block(shape.width, shape.heads, qkv_bias=True, norm_layer=LayerNorm) for _ in range(shape.depth)
        )
        self.norm = LayerNorm(shape.width)
        initialise(self)

    def forward(self, spec: Tensor, averaged_blocks: int = 1) -> Tensor:
        """Map of normalised log-mel chunks, the mean of the last so many blocks. (B, F, T) → (B, C, F/16, T/16)"""
        tokens = self.all_tokens(spec, averaged_blocks)[:, 1:]  # (B, T/16 · F/16, C)
        grid = tokens.reshape(
            tokens.shape[0], -1, self.shape.band_tokens, self.shape.width
        )  # (B, T/16, F/16, C)
        return grid.permute(0, 3, 2, 1)

    def all_tokens(self, spec: Tensor, averaged_blocks: int = 1) -> Tensor:
        """The class token, then those of the picture, each averaged over the last blocks. (B, F, T) → (B, 1 + N, C)"""
        tokens = self.with_class_token(self.embed(spec))
        outputs = []
        for number, block in enumerate(self.blocks, 1):
            tokens = block(tokens)
            if number > len(self.blocks) - averaged_blocks:
                outputs.append(self.norm(tokens))
        return outputs[0] if averaged_blocks == 1 else torch.stack(outputs).mean(dim=0)

    def visible_tokens(self, spec: Tensor, kept: Tensor) -> Tensor:
        """The class token, then the kept ones alone, as if nothing else were there. (B, F, T), (B, K) → (B, 1 + K, C)"""
        every = patches(self.checked(spec))
        visible = every.gather(1, kept[:, :, None].expand(-1, -1, every.shape[-1]))  # (B, K, 256)
        places = extended(self.pos_embed, every.shape[1], self.shape.raster_tokens)[0, 1:][kept]  # (B, K, C)
        tokens = self.with_class_token(self.patch_embed(visible) + places)
        for block in self.blocks:
            tokens = block(tokens)
        normed: Tensor = self.norm(tokens)
        return normed

    def embed(self, spec: Tensor) -> Tensor:
        """Patches as tokens with their positions. (B, F, T) → (B, T/16 · F/16, C)"""
        tokens: Tensor = self.patch_embed(patches(self.checked(spec)))  # (B, N, C)
        return tokens + extended(self.pos_embed, tokens.shape[1], self.shape.raster_tokens)[:, 1:]

    def checked(self, spec: Tensor) -> Tensor:
        """A picture of the shape that this encoder reads."""
        bins, frames = spec.shape[-2:]
        if bins != self.shape.bins or frames % PATCH:
            raise ConfigError(
                f"This encoder reads {self.shape.bins} bins and a multiple of {PATCH} frames, not {bins} × {frames}."
            )
        return spec

    def with_class_token(self, tokens: Tensor) -> Tensor:
        """(B, K, C) → (B, 1 + K, C)"""
        first = self.cls_token + self.pos_embed[:, :1]
        return torch.cat([first.expand(tokens.shape[0], -1, -1), tokens], dim=1)


class PatchEmbedding(nn.Module):
    """Patches to tokens: AudioMAE's convolution, whose filters meet each patch once, as the product that it is.

    On a CPU the product learns in a fraction of the convolution's time, and hidden patches need none.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(1, width, PATCH, PATCH)

    def forward(self, patches: Tensor) -> Tensor:
        """(B, N, 16 · 16) → (B, N, C)"""
        return functional.linear(patches, self.proj.weight.flatten(1), self.proj.bias)


def patches(spec: Tensor) -> Tensor:
    """Patches in the order of the tokens, each flattened over frequency within time. (B, F, T) → (B, N, 256)"""
    examples, bins, frames = spec.shape
    split = spec.transpose(1, 2).reshape(examples, frames // PATCH, PATCH, bins // PATCH, PATCH)
    return split.transpose(2, 3).reshape(examples, -1, PATCH * PATCH)  # (B, T/16 · F/16, 16 · 16)


def positions(width: int, tokens: int, raster_tokens: int) -> Tensor:
    """Sine-cosine positions, a row of zeros for the class token first. → (1, 1 + tokens, width)

    AudioMAE counts tokens along time in rows of `raster_tokens`, though they run along frequency; every public
    checkpoint has learned these positions, so they are reproduced (docs/decisions/0009).
    """
    number = torch.arange(tokens)
    halves = [_sines(width // 2, number % raster_tokens), _sines(width // 2, number // raster_tokens)]
    rows = torch.cat(halves, dim=1)  # (tokens, width)
    return torch.cat([torch.zeros(1, width), rows])[None]


def extended(table: Tensor, tokens: int, raster_tokens: int) -> Tensor:
    """Positions for so many tokens: the first of a table, then those that follow. (1, 1 + N, C) → (1, 1 + tokens, C)"""
    if tokens < table.shape[1]:
        return table[:, : 1 + tokens]
    more = positions(table.shape[2], tokens, raster_tokens)[:, table.shape[1] :]
    return torch.cat([table, more.to(table)], dim=1)


def _sines(width: int, place: Tensor) -> Tensor:
    """Sine, then cosine, of places at falling frequencies. (N,) → (N, width)"""
    falling = 10_000 ** (-torch.arange(width // 2, dtype=torch.float64) / (width // 2))
    angle = place.double()[:, None] * falling
    return torch.cat([angle.sin(), angle.cos()], dim=1).float()


def initialise(module: nn.Module) -> None:
    """AudioMAE's start: Xavier for linear layers and the flattened patch filter, zero biases, tokens N(0, 0.02)."""
    for name, parameter in module.named_parameters():
        if name.endswith("_token"):
            nn.init.normal_(parameter, std=0.02)
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(part.weight.flatten(1))
            if part.bias is not None:
                nn.init.zeros_(part.bias)
