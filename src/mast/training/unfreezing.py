"""Gradual unfreezing: a pretrained encoder opens to learning from its top block down (paper, self-training table).

The final norm stands above all blocks and learns from the start, unless no block ever opens. Patch embedding and class
token stand below all blocks and open with the lowest one: were they to learn earlier, gradients would have to pass
through every frozen block.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from mast.config import Unfreezing
from mast.models.encoder import Encoder
from mast.training.optimiser import Group


def open_blocks(settings: Unfreezing, epoch: int, depth: int) -> int:
    """How many blocks, from the top, learn in an epoch, of `depth`."""
    if epoch < settings.first_epoch:
        return 0
    turns = 1 + (epoch - settings.first_epoch) // settings.every_epochs
    most = depth if settings.max_blocks is None else min(depth, settings.max_blocks)
    return min(most, turns * settings.blocks)


def keeps_encoder(settings: Unfreezing) -> bool:
    """Whether no block ever opens."""
    return 0 in (settings.blocks, settings.max_blocks)


def thaw(encoder: Encoder, blocks: int, *, is_kept: bool = False) -> list[nn.Module]:
    """Let the top `blocks` and the norm learn and what is below them rest; returns what rests.

    Of an encoder that `is_kept` as it was, the norm does not learn either. What rests takes no gradient and lies below
    all that does, so that torch keeps nothing of it for a backward pass.
    """
    frozen = len(encoder.blocks) - blocks
    for number, block in enumerate(encoder.blocks):
        block.requires_grad_(number >= frozen)
    encoder.patch_embed.requires_grad_(not frozen)
    encoder.cls_token.requires_grad_(not frozen)
    encoder.norm.requires_grad_(not is_kept)
    return [encoder.patch_embed, *encoder.blocks[:frozen]] if frozen else []


def encoder_groups(encoder: Encoder, settings: Unfreezing, backbone_multiple: float) -> Sequence[Group]:
    """All parameters of a pretrained encoder at the rates they have once open; AdamW passes over those at rest."""
    blocks = tuple(encoder.blocks.parameters())
    others = (*encoder.patch_embed.parameters(), encoder.cls_token, *encoder.norm.parameters())
    return [Group(blocks, settings.multiple), Group(others, backbone_multiple)]
