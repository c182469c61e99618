"""Exactly the intended parameters learn in every epoch of the paper's tables, and what rests costs no backward pass."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mast.config import Unfreezing
from mast.models.encoder import Encoder, EncoderShape
from mast.training.optimiser import adamw
from mast.training.unfreezing import encoder_groups, keeps_encoder, open_blocks, thaw
from tests.training.studies import QUICK

DEPTH = 12
STAGES = {
    "stage 1": (
        Unfreezing(first_epoch=20, every_epochs=10, blocks=3, multiple=0.005),
        80,
        {20: 3, 30: 6, 40: 9, 50: 12},
    ),
    "stage 2": (Unfreezing(first_epoch=3, every_epochs=6, blocks=6, multiple=0.05), 40, {3: 6, 9: 12}),
    "supervised": (Unfreezing(), 200, {20: 3, 30: 6, 40: 9, 50: 12}),
    "the top three": (Unfreezing(max_blocks=4), 60, {20: 3, 30: 4}),
    "frozen": (Unfreezing(blocks=0), 60, {}),
    "frozen by the most": (Unfreezing(max_blocks=0), 60, {}),
    "at once": (Unfreezing(first_epoch=0, blocks=12), 5, {0: 12}),
}


def encoder() -> Encoder:
    torch.manual_seed(0)
    return Encoder(EncoderShape(width=8, heads=2, depth=DEPTH, bins=16), frames=16)


def expected_open(changes: dict[int, int], epoch: int) -> int:
    return max((blocks for first, blocks in changes.items() if first <= epoch), default=0)


@pytest.mark.parametrize("stage", STAGES)
def test_blocks_open_at_the_epochs_of_the_tables(stage: str) -> None:
    settings, epochs, changes = STAGES[stage]
    for epoch in range(epochs):
        assert open_blocks(settings, epoch, DEPTH) == expected_open(changes, epoch), epoch


@pytest.mark.parametrize("stage", STAGES)
def test_exactly_the_open_parameters_have_gradients_in_every_epoch(stage: str) -> None:
    settings, epochs, changes = STAGES[stage]
    model, seen = encoder(), -1
    spec = torch.randn(1, 16, 16, generator=torch.Generator().manual_seed(1))
    for epoch in range(epochs):
        frozen = thaw(model, open_blocks(settings, epoch, DEPTH), is_kept=keeps_encoder(settings))
        blocks = expected_open(changes, epoch)
        names = {f"blocks.{number}." for number in range(DEPTH - blocks, DEPTH)}
        if changes:
            names |= {"norm."}
        if blocks == DEPTH:
            names |= {"patch_embed.", "cls_token"}
        learns = {name for name, item in model.named_parameters() if item.requires_grad}
        assert learns == {
            name for name, _ in model.named_parameters() if any(name.startswith(part) for part in names)
        }
        assert not any(item.requires_grad for part in frozen for item in part.parameters())
        if blocks == seen:
            continue
        seen = blocks
        model.zero_grad()
        loss = model(spec).square().sum()
        assert loss.requires_grad == bool(learns)
        if learns:
            loss.backward()
        assert {name for name, item in model.named_parameters() if item.grad is not None} == learns


def test_what_rests_builds_no_graph() -> None:
    model = encoder()
    thaw(model, 3)
    grew: list[bool] = []
    for block in model.blocks:
        block.register_forward_hook(lambda module, inputs, output: grew.append(output.requires_grad))
    model(torch.zeros(1, 16, 16))
    assert grew == [False] * 9 + [True] * 3


def test_every_parameter_has_its_rate_and_those_at_rest_do_not_move() -> None:
    model = encoder()
    settings = STAGES["stage 1"][0]
    groups = encoder_groups(model, settings, 0.1)
    assert sorted(id(item) for group in groups for item in group.parameters) == sorted(
        map(id, model.parameters())
    )
    assert [group.multiple for group in groups] == [0.005, 0.1]
    thaw(model, 6)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimiser = adamw(groups, QUICK)
    model(torch.randn(1, 16, 16)).square().sum().backward()
    optimiser.step()
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved and all(
        name.startswith(("norm.", *(f"blocks.{n}." for n in range(6, 12)))) for name in moved
    )
    assert isinstance(model.blocks, nn.ModuleList)
