"""Gradual unfreezing: unfreeze the blocks of a pretrained encoder from the top down (paper, self-training table).

The final norm is above all blocks and is trainable from the start, unless no block is ever unfrozen. Patch embedding
and class token are below all blocks and are unfrozen together with the lowest block: if they were trainable earlier,
gradients would have to pass through every frozen block.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from mast.config import Unfreezing
from mast.models.encoder import Encoder
from mast.training.optimiser import ParamGroup


def num_trainable_blocks(settings: Unfreezing, epoch: int, depth: int) -> int:
    """Return the number of trainable blocks in an epoch, counted from the top, for an encoder of `depth` blocks."""
    if epoch < settings.start_epoch:
        return 0
    unfreezing_steps = 1 + (epoch - settings.start_epoch) // settings.interval_epochs
    maximum = depth if settings.max_blocks is None else min(depth, settings.max_blocks)
    return min(maximum, unfreezing_steps * settings.blocks_per_step)


def is_encoder_frozen(settings: Unfreezing) -> bool:
    """Return whether no block is ever unfrozen."""
    return 0 in (settings.blocks_per_step, settings.max_blocks)


def unfreeze(encoder: Encoder, blocks: int, *, is_frozen: bool = False) -> list[nn.Module]:
    """Make the top `blocks` and the norm trainable, freeze the modules below them, and return the frozen modules.

    If the whole encoder `is_frozen`, the norm is frozen as well. Frozen modules have no gradients and are below all
    trainable ones, so torch stores none of their activations for the backward pass.
    """
    frozen = len(encoder.blocks) - blocks
    for number, block in enumerate(encoder.blocks):
        block.requires_grad_(number >= frozen)
    encoder.patch_embed.requires_grad_(not frozen)
    encoder.cls_token.requires_grad_(not frozen)
    encoder.norm.requires_grad_(not is_frozen)
    return [encoder.patch_embed, *encoder.blocks[:frozen]] if frozen else []


def encoder_groups(encoder: Encoder, settings: Unfreezing, backbone_lr_scale: float) -> Sequence[ParamGroup]:
    """Return parameter groups of a pretrained encoder with the rates after unfreezing; AdamW skips frozen parameters."""
    blocks = tuple(encoder.blocks.parameters())
    others = (*encoder.patch_embed.parameters(), encoder.cls_token, *encoder.norm.parameters())
    return [ParamGroup(blocks, settings.lr_scale), ParamGroup(others, backbone_lr_scale)]
