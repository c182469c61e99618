"""Trainable parameters in every epoch of the paper's tables, and no backward pass for frozen layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mast.config import Unfreezing
from mast.models.encoder import Encoder, EncoderShape
from mast.training.optimiser import adamw
from mast.training.unfreezing import encoder_groups, is_encoder_frozen, num_trainable_blocks, unfreeze
from tests.training.studies import QUICK

DEPTH = 12
STAGES = {
    "stage 1": (
        Unfreezing(start_epoch=20, interval_epochs=10, blocks_per_step=3, lr_scale=0.005),
        80,
        {20: 3, 30: 6, 40: 9, 50: 12},
    ),
    "stage 2": (
        Unfreezing(start_epoch=3, interval_epochs=6, blocks_per_step=6, lr_scale=0.05),
        40,
        {3: 6, 9: 12},
    ),
    "supervised": (Unfreezing(), 200, {20: 3, 30: 6, 40: 9, 50: 12}),
    "the top three": (Unfreezing(max_blocks=4), 60, {20: 3, 30: 4}),
    "frozen": (Unfreezing(blocks_per_step=0), 60, {}),
    "frozen by max_blocks": (Unfreezing(max_blocks=0), 60, {}),
    "all blocks at the start": (Unfreezing(start_epoch=0, blocks_per_step=12), 5, {0: 12}),
}


def encoder() -> Encoder:
    torch.manual_seed(0)
    return Encoder(EncoderShape(width=8, heads=2, depth=DEPTH, bins=16), frames=16)


def expected_blocks(changes: dict[int, int], epoch: int) -> int:
    return max((blocks for first, blocks in changes.items() if first <= epoch), default=0)


@pytest.mark.parametrize("stage", STAGES)
def test_blocks_are_unfrozen_at_the_epochs_of_the_tables(stage: str) -> None:
    settings, epochs, changes = STAGES[stage]
    for epoch in range(epochs):
        assert num_trainable_blocks(settings, epoch, DEPTH) == expected_blocks(changes, epoch), epoch


@pytest.mark.parametrize("stage", STAGES)
def test_exactly_the_trainable_parameters_have_gradients_in_every_epoch(stage: str) -> None:
    settings, epochs, changes = STAGES[stage]
    model, last_blocks = encoder(), -1
    spec = torch.randn(1, 16, 16, generator=torch.Generator().manual_seed(1))
    for epoch in range(epochs):
        frozen = unfreeze(
            model, num_trainable_blocks(settings, epoch, DEPTH), is_frozen=is_encoder_frozen(settings)
        )
        blocks = expected_blocks(changes, epoch)
        names = {f"blocks.{number}." for number in range(DEPTH - blocks, DEPTH)}
        if changes:
            names |= {"norm."}
        if blocks == DEPTH:
            names |= {"patch_embed.", "cls_token"}
        trainable = {name for name, item in model.named_parameters() if item.requires_grad}
        assert trainable == {
            name for name, _ in model.named_parameters() if any(name.startswith(part) for part in names)
        }
        assert not any(item.requires_grad for part in frozen for item in part.parameters())
        if blocks == last_blocks:
            continue
        last_blocks = blocks
        model.zero_grad()
        loss = model(spec).square().sum()
        assert loss.requires_grad == bool(trainable)
        if trainable:
            loss.backward()
        assert {name for name, item in model.named_parameters() if item.grad is not None} == trainable


def test_frozen_blocks_build_no_graph() -> None:
    model = encoder()
    unfreeze(model, 3)
    has_graph: list[bool] = []
    for block in model.blocks:
        block.register_forward_hook(lambda module, inputs, output: has_graph.append(output.requires_grad))
    model(torch.zeros(1, 16, 16))
    assert has_graph == [False] * 9 + [True] * 3


def test_every_parameter_has_its_rate_and_frozen_ones_do_not_change() -> None:
    model = encoder()
    settings = STAGES["stage 1"][0]
    groups = encoder_groups(model, settings, 0.1)
    assert sorted(id(item) for group in groups for item in group.parameters) == sorted(
        map(id, model.parameters())
    )
    assert [group.lr_scale for group in groups] == [0.005, 0.1]
    unfreeze(model, 6)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimiser = adamw(groups, QUICK)
    model(torch.randn(1, 16, 16)).square().sum().backward()
    optimiser.step()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed and all(
        name.startswith(("norm.", *(f"blocks.{n}." for n in range(6, 12)))) for name in changed
    )
    assert isinstance(model.blocks, nn.ModuleList)
