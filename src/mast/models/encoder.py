"""Encode spectrograms with a ViT in AudioMAE's layout, which loads its checkpoints exactly (paper, Patch tokenization).

Internally, spectrograms are (B, 1, T, F) and tokens run over frequency first (token = t · F/16 + f); the encoder returns
feature maps as (B, C, F/16, T/16), like all other modules.
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

from mast.config import PATCH_SIZE
from mast.errors import ConfigError

LayerNorm: Any = partial(nn.LayerNorm, eps=1e-6)
"""Layer norm with AudioMAE's epsilon."""


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """Shape of an encoder; `raster_tokens` is the row length of the grid of its position embedding."""

    width: int
    heads: int
    depth: int = 12
    bins: int = 128
    raster_tokens: int = 64

    @property
    def band_tokens(self) -> int:
        """Number of tokens at a time step: one per 16 bins."""
        return self.bins // PATCH_SIZE


SIZES: Mapping[str, EncoderShape] = {
    "tiny": EncoderShape(width=192, heads=3),
    "small": EncoderShape(width=384, heads=6),
    "base": EncoderShape(width=768, heads=12),
}


class Encoder(nn.Module):
    """Vision transformer that encodes log-mel chunks of any number of frames to a feature map of tokens."""

    pos_embed: Tensor

    def __init__(self, shape: EncoderShape, frames: int = 1024) -> None:
        """Create an encoder for chunks of `frames`; for longer chunks the position embedding is extended."""
        super().__init__()
        self.shape = shape
        self.patch_embed = PatchEmbedding(shape.width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, shape.width))
        tokens = frames // PATCH_SIZE * shape.band_tokens
        self.register_buffer("pos_embed", sincos_position_embedding(shape.width, tokens, shape.raster_tokens))
        self.blocks = nn.ModuleList(
            Block(shape.width, shape.heads, qkv_bias=True, norm_layer=LayerNorm) for _ in range(shape.depth)
        )
        self.norm = LayerNorm(shape.width)
        initialise(self)

    def forward(self, spec: Tensor, averaged_blocks: int = 1) -> Tensor:
        """Return the feature map of normalised log-mel chunks. (B, F, T) → (B, C, F/16, T/16)

        The map is the mean output of the last `averaged_blocks` blocks.
        """
        tokens = self.all_tokens(spec, averaged_blocks)[:, 1:]  # (B, T/16 · F/16, C)
        grid = tokens.reshape(
            tokens.shape[0], -1, self.shape.band_tokens, self.shape.width
        )  # (B, T/16, F/16, C)
        return grid.permute(0, 3, 2, 1)

    def all_tokens(self, spec: Tensor, averaged_blocks: int = 1) -> Tensor:
        """Return the class token and all patch tokens, averaged over the last blocks. (B, F, T) → (B, 1 + N, C)"""
        tokens = self.with_class_token(self.embed(spec))
        outputs = []
        for number, block in enumerate(self.blocks, 1):
            tokens = block(tokens)
            if number > len(self.blocks) - averaged_blocks:
                outputs.append(self.norm(tokens))
        return outputs[0] if averaged_blocks == 1 else torch.stack(outputs).mean(dim=0)

    def visible_tokens(self, spec: Tensor, ids_keep: Tensor) -> Tensor:
        """Encode only the class token and the visible patches `ids_keep`. (B, F, T), (B, K) → (B, 1 + K, C)"""
        patches = patchify(self.check_input(spec))
        visible = patches.gather(1, ids_keep[:, :, None].expand(-1, -1, patches.shape[-1]))  # (B, K, 256)
        positions = extend_position_embedding(self.pos_embed, patches.shape[1], self.shape.raster_tokens)[
            0, 1:
        ][ids_keep]  # (B, K, C)
        tokens = self.with_class_token(self.patch_embed(visible) + positions)
        for block in self.blocks:
            tokens = block(tokens)
        normed: Tensor = self.norm(tokens)
        return normed

    def embed(self, spec: Tensor) -> Tensor:
        """Embed patches as tokens with positions. (B, F, T) → (B, T/16 · F/16, C)"""
        tokens: Tensor = self.patch_embed(patchify(self.check_input(spec)))  # (B, N, C)
        return (
            tokens
            + extend_position_embedding(self.pos_embed, tokens.shape[1], self.shape.raster_tokens)[:, 1:]
        )

    def check_input(self, spec: Tensor) -> Tensor:
        """Return the spectrogram; raise ConfigError if its shape does not fit the encoder."""
        bins, frames = spec.shape[-2:]
        if bins != self.shape.bins or frames % PATCH_SIZE:
            raise ConfigError(
                f"This encoder reads {self.shape.bins} bins and a multiple of {PATCH_SIZE} frames, not {bins} × {frames}."
            )
        return spec

    def with_class_token(self, tokens: Tensor) -> Tensor:
        """Prepend the class token. (B, K, C) → (B, 1 + K, C)"""
        class_token = self.cls_token + self.pos_embed[:, :1]
        return torch.cat([class_token.expand(tokens.shape[0], -1, -1), tokens], dim=1)


class PatchEmbedding(nn.Module):
    """Linear embedding of patches: AudioMAE's non-overlapping convolution, computed as a matrix product.

    On a CPU the product trains in a fraction of the convolution's time, and masked patches are skipped.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(1, width, PATCH_SIZE, PATCH_SIZE)

    def forward(self, patches: Tensor) -> Tensor:
        """Embed patches. (B, N, 16 · 16) → (B, N, C)"""
        return functional.linear(patches, self.proj.weight.flatten(1), self.proj.bias)


def patchify(spec: Tensor) -> Tensor:
    """Split spectrograms into patches in token order, each flattened time-major. (B, F, T) → (B, N, 256)"""
    examples, bins, frames = spec.shape
    split = spec.transpose(1, 2).reshape(
        examples, frames // PATCH_SIZE, PATCH_SIZE, bins // PATCH_SIZE, PATCH_SIZE
    )
    return split.transpose(2, 3).reshape(examples, -1, PATCH_SIZE * PATCH_SIZE)  # (B, T/16 · F/16, 16 · 16)


def sincos_position_embedding(width: int, tokens: int, raster_tokens: int) -> Tensor:
    """Return sine-cosine position embeddings, preceded by zeros for the class token. → (1, 1 + tokens, width)

    AudioMAE counts tokens along time in rows of `raster_tokens`, although tokens run along frequency. Every public
    checkpoint was trained with these positions, so they are reproduced (docs/decisions/0009).
    """
    index = torch.arange(tokens)
    halves = [_sines(width // 2, index % raster_tokens), _sines(width // 2, index // raster_tokens)]
    rows = torch.cat(halves, dim=1)  # (tokens, width)
    return torch.cat([torch.zeros(1, width), rows])[None]


def extend_position_embedding(table: Tensor, tokens: int, raster_tokens: int) -> Tensor:
    """Cut or extend a table of positions to a number of tokens. (1, 1 + N, C) → (1, 1 + tokens, C)"""
    if tokens < table.shape[1]:
        return table[:, : 1 + tokens]
    extension = sincos_position_embedding(table.shape[2], tokens, raster_tokens)[:, table.shape[1] :]
    return torch.cat([table, extension.to(table)], dim=1)


def _sines(width: int, position: Tensor) -> Tensor:
    """Return sines, then cosines, of positions at decreasing frequencies. (N,) → (N, width)"""
    frequencies = 10_000 ** (-torch.arange(width // 2, dtype=torch.float64) / (width // 2))
    angle = position.double()[:, None] * frequencies
    return torch.cat([angle.sin(), angle.cos()], dim=1).float()


def initialise(module: nn.Module) -> None:
    """Initialise as AudioMAE: Xavier for linear layers and the flattened patch filter, zero biases, tokens N(0, 0.02)."""
    for name, parameter in module.named_parameters():
        if name.endswith("_token"):
            nn.init.normal_(parameter, std=0.02)
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight.flatten(1))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
