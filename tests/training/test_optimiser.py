"""What moves the weights: the reference learning rates, which parameters decay, and how the running mean follows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mast.config import Pretrain
from mast.training.optimiser import Group, Schedule, adamw, running_mean

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "lr_schedule_golden.json").read_text("utf-8"))
STEPS_PER_EPOCH = 8


@pytest.mark.parametrize("row", GOLDEN["rows"], ids=lambda row: f"{row[0]:g}-at-{row[4]:g}")
def test_learning_rates_are_the_reference_ones(row: list[float]) -> None:
    named = dict(zip(GOLDEN["columns"], row, strict=True))
    settings = Pretrain(
        lr=named["lr"],
        min_lr=named["min_lr"],
        warmup_epochs=named["warmup_epochs"],
        epochs=int(named["epochs"]),
    )
    schedule = Schedule.of(settings, STEPS_PER_EPOCH)
    rate = settings.lr * schedule.factor(named["fractional_epoch"] * STEPS_PER_EPOCH)
    assert rate == pytest.approx(named["lr_at"], rel=1e-12, abs=1e-18)


def test_without_a_warm_up_the_first_step_is_the_fastest() -> None:
    schedule = Schedule(steps=4, warmup_steps=0, least=0.0)
    assert [schedule.factor(step) for step in range(5)] == pytest.approx(
        [1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0]
    )


def test_a_run_that_is_all_warm_up_only_rises() -> None:
    schedule = Schedule(steps=4, warmup_steps=4, least=0.0)
    assert [schedule.factor(step) for step in range(4)] == [0, 0.25, 0.5, 0.75]


@given(
    steps=st.integers(1, 500),
    warmup=st.floats(0, 1),
    least=st.floats(0, 1),
    at=st.floats(0, 1),
    on=st.floats(0, 1),
)
def test_the_rate_rises_then_falls_and_ends_at_the_least(
    steps: int, warmup: float, least: float, at: float, on: float
) -> None:
    schedule = Schedule(steps, warmup * steps, least)
    early, late = sorted((at * steps, on * steps))
    if late < schedule.warmup_steps:
        assert schedule.factor(early) <= schedule.factor(late)
    elif early >= schedule.warmup_steps:
        assert schedule.factor(early) >= schedule.factor(late) - 1e-12
    if warmup < 0.999:
        assert schedule.factor(steps) == pytest.approx(least)


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mask_token = nn.Parameter(torch.ones(1, 1, 3))
        self.layer = nn.Linear(3, 3)
        self.norm = nn.LayerNorm(3)
        self.scale = nn.Parameter(torch.ones(()))


def test_matrices_and_tokens_decay_and_vectors_do_not() -> None:
    part = Part()
    groups = adamw([Group(tuple(part.parameters()))], Pretrain(weight_decay=0.05)).param_groups
    decays = {id(item): group["weight_decay"] for group in groups for item in group["params"]}
    found = {name: decays[id(item)] for name, item in part.named_parameters()}
    vectors = dict.fromkeys(["layer.bias", "norm.weight", "norm.bias", "scale"], 0.0)
    assert found == {"mask_token": 0.05, "layer.weight": 0.05, **vectors}


def test_no_group_is_made_of_nothing() -> None:
    only_matrix = Group((nn.Parameter(torch.ones(2, 2)),))
    assert len(adamw([only_matrix], Pretrain()).param_groups) == 1


def test_each_group_learns_at_its_own_multiple_of_the_rate() -> None:
    slow, fast = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
    settings = Pretrain(lr=1e-2, betas=(0.8, 0.9))
    optimiser = adamw([Group((slow,), 0.1), Group((fast,))], settings)
    first = Schedule(steps=10, warmup_steps=4, least=0.0).apply(optimiser.param_groups, step=2)
    assert [group["lr"] for group in optimiser.param_groups] == pytest.approx([5e-4, 5e-3])
    assert first == pytest.approx(5e-4)
    assert optimiser.param_groups[0]["betas"] == (0.8, 0.9)


def test_the_running_mean_begins_as_a_copy_and_follows_faster_at_first() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    mean = running_mean(model, decay=0.5)
    mean.update_parameters(model)  # the first one is taken as it is
    expected = 1.0
    for seen, value in enumerate([2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0], 1):
        nn.init.constant_(model.weight, value)
        mean.update_parameters(model)
        kept = min(0.5, (1 + seen) / (10 + seen))  # 2/11, 3/12, … until 9/18 is the 0.5 that was asked for
        expected = kept * expected + (1 - kept) * value
        assert mean.module.weight.item() == pytest.approx(expected, rel=1e-6), seen
    assert kept == 0.5


def test_the_running_mean_takes_counts_as_they_are_and_averages_other_buffers() -> None:
    model = nn.BatchNorm1d(1)
    mean = running_mean(model, decay=0.9)
    mean.update_parameters(model)
    model.num_batches_tracked.fill_(7)
    model.running_mean.fill_(11.0)
    mean.update_parameters(model)
    assert int(mean.module.num_batches_tracked) == 7
    assert float(mean.module.running_mean) == pytest.approx(11 * (1 - 2 / 11))


def test_the_running_mean_is_apart_from_the_model() -> None:
    model = nn.Linear(1, 1, bias=False)
    mean = running_mean(model, decay=0.9)
    nn.init.constant_(model.weight, 5.0)
    assert mean.module.weight.item() != 5.0
