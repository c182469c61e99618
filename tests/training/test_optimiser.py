"""The reference learning rates, weight decay by parameter, and the moving average of the weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mast.config import Pretrain
from mast.training.optimiser import ParamGroup, Schedule, adamw, make_ema

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "lr_schedule_golden.json").read_text("utf-8"))
STEPS_PER_EPOCH = 8


@pytest.mark.parametrize("row", GOLDEN["rows"], ids=lambda row: f"{row[0]:g}-at-{row[4]:g}")
def test_learning_rates_are_the_reference_ones(row: list[float]) -> None:
    values = dict(zip(GOLDEN["columns"], row, strict=True))
    settings = Pretrain(
        lr=values["lr"],
        min_lr=values["min_lr"],
        warmup_epochs=values["warmup_epochs"],
        epochs=int(values["epochs"]),
    )
    schedule = Schedule.of(settings, STEPS_PER_EPOCH)
    rate = settings.lr * schedule.factor(values["fractional_epoch"] * STEPS_PER_EPOCH)
    assert rate == pytest.approx(values["lr_at"], rel=1e-12, abs=1e-18)


def test_without_a_warm_up_the_first_step_is_the_fastest() -> None:
    schedule = Schedule(steps=4, warmup_steps=0, min_factor=0.0)
    assert [schedule.factor(step) for step in range(5)] == pytest.approx(
        [1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0]
    )


def test_in_a_run_with_only_warm_up_the_rate_only_rises() -> None:
    schedule = Schedule(steps=4, warmup_steps=4, min_factor=0.0)
    assert [schedule.factor(step) for step in range(4)] == [0, 0.25, 0.5, 0.75]


@given(
    steps=st.integers(1, 500),
    warmup=st.floats(0, 1),
    minimum=st.floats(0, 1),
    first=st.floats(0, 1),
    second=st.floats(0, 1),
)
def test_the_rate_rises_then_falls_and_ends_at_the_minimum(
    steps: int, warmup: float, minimum: float, first: float, second: float
) -> None:
    schedule = Schedule(steps, warmup * steps, minimum)
    early, late = sorted((first * steps, second * steps))
    if late < schedule.warmup_steps:
        assert schedule.factor(early) <= schedule.factor(late)
    elif early >= schedule.warmup_steps:
        assert schedule.factor(early) >= schedule.factor(late) - 1e-12
    if warmup < 0.999:
        assert schedule.factor(steps) == pytest.approx(minimum)


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mask_token = nn.Parameter(torch.ones(1, 1, 3))
        self.layer = nn.Linear(3, 3)
        self.norm = nn.LayerNorm(3)
        self.scale = nn.Parameter(torch.ones(()))


def test_matrices_and_tokens_decay_and_vectors_do_not() -> None:
    part = Part()
    groups = adamw([ParamGroup(tuple(part.parameters()))], Pretrain(weight_decay=0.05)).param_groups
    decays = {id(item): group["weight_decay"] for group in groups for item in group["params"]}
    decay_by_name = {name: decays[id(item)] for name, item in part.named_parameters()}
    vectors = dict.fromkeys(["layer.bias", "norm.weight", "norm.bias", "scale"], 0.0)
    assert decay_by_name == {"mask_token": 0.05, "layer.weight": 0.05, **vectors}


def test_there_are_no_empty_groups() -> None:
    only_matrix = ParamGroup((nn.Parameter(torch.ones(2, 2)),))
    assert len(adamw([only_matrix], Pretrain()).param_groups) == 1


def test_each_group_has_its_own_multiple_of_the_rate() -> None:
    slow, fast = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
    settings = Pretrain(lr=1e-2, betas=(0.8, 0.9))
    optimiser = adamw([ParamGroup((slow,), 0.1), ParamGroup((fast,))], settings)
    rate = Schedule(steps=10, warmup_steps=4, min_factor=0.0).apply(optimiser.param_groups, step=2)
    assert [group["lr"] for group in optimiser.param_groups] == pytest.approx([5e-4, 5e-3])
    assert rate == pytest.approx(5e-4)
    assert optimiser.param_groups[0]["betas"] == (0.8, 0.9)


def test_the_moving_average_starts_as_a_copy_and_follows_faster_at_first() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    ema = make_ema(model, decay=0.5)
    ema.update_parameters(model)  # the first update copies the weights
    expected = 1.0
    for updates, value in enumerate([2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0], 1):
        nn.init.constant_(model.weight, value)
        ema.update_parameters(model)
        decay = min(0.5, (1 + updates) / (10 + updates))  # 2/11, 3/12, … until 9/18 is the configured 0.5
        expected = decay * expected + (1 - decay) * value
        assert ema.module.weight.item() == pytest.approx(expected, rel=1e-6), updates
    assert decay == 0.5


def test_the_moving_average_copies_counters_and_averages_other_buffers() -> None:
    model = nn.BatchNorm1d(1)
    ema = make_ema(model, decay=0.9)
    ema.update_parameters(model)
    model.num_batches_tracked.fill_(7)
    model.running_mean.fill_(11.0)
    ema.update_parameters(model)
    assert int(ema.module.num_batches_tracked) == 7
    assert float(ema.module.running_mean) == pytest.approx(11 * (1 - 2 / 11))


def test_the_moving_average_does_not_share_weights_with_the_model() -> None:
    model = nn.Linear(1, 1, bias=False)
    ema = make_ema(model, decay=0.9)
    nn.init.constant_(model.weight, 5.0)
    assert ema.module.weight.item() != 5.0
