"""Every example once an epoch, over any ranks, from any step on."""

from itertools import islice

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mast.datasets.order import Order, randomness, spread, spread_among

ORDERS = st.builds(
    Order,
    examples=st.integers(1, 40),
    batch=st.integers(1, 12),
    seed=st.integers(0, 2**40),
)


def taken(order: Order, step: int, count: int) -> list[tuple[int, list[int]]]:
    return [(epoch, items.tolist()) for epoch, items in islice(order.from_step(step), count)]


def of_rank(order: Order, rank: int, ranks: int) -> Order:
    return Order(order.examples, order.batch, order.seed, rank, ranks)


@given(ORDERS)
def test_an_epoch_shows_every_example_once(order):
    steps = taken(order, 0, 2 * order.steps_per_epoch)
    for epoch in (0, 1):
        shown = [item for number, items in steps if number == epoch for item in items]
        assert sorted(shown) == list(range(order.examples))


@given(ORDERS, st.integers(0, 50))
def test_a_run_that_goes_on_at_any_step_sees_what_the_plain_one_sees(order, step):
    assert taken(order, 0, step + 5)[step:] == taken(order, step, 5)
    assert taken(order, step, 1)[0][0] == step // order.steps_per_epoch


@given(ORDERS, st.integers(1, 5))
def test_ranks_share_each_batch_without_loss_or_repetition(order, ranks):
    whole = taken(order, 0, order.steps_per_epoch)
    parts = [taken(of_rank(order, rank, ranks), 0, order.steps_per_epoch) for rank in range(ranks)]
    for step, (_, items) in enumerate(whole):
        shared = [part[step][1] for part in parts]
        assert sorted(item for part in shared for item in part) == sorted(items)
        assert max(map(len, shared)) - min(map(len, shared)) <= 1


def test_every_epoch_and_every_seed_has_an_order_of_its_own():
    order = Order(examples=1000, batch=10, seed=0)
    other = Order(examples=1000, batch=10, seed=1)
    assert not np.array_equal(order.order(0), order.order(1))
    assert not np.array_equal(order.order(0), other.order(0))
    assert np.array_equal(order.order(3), Order(examples=1000, batch=7, seed=0).order(3))


def test_randomness_follows_from_its_numbers_alone():
    assert randomness(1, 2).random() == randomness(1, 2).random() != randomness(2, 1).random()


@given(st.integers(0, 500), st.integers(1, 50))
def test_places_are_spread_over_all_without_one_twice(total, most):
    chosen = spread(total, most)
    assert len(chosen) == min(total, most) == len(set(chosen.tolist()))
    if total:
        assert chosen[0] == 0 and (most == 1 or chosen[-1] == total - 1)


@given(st.lists(st.sampled_from(["", "marsh", "ridge", "wood"]), max_size=80), st.integers(1, 50))
def test_places_are_shared_among_groups_as_evenly_as_these_allow(groups, most):
    every = np.array(groups, object)
    chosen = spread_among(every, most)
    assert len(chosen) == min(len(groups), most)
    assert np.all(np.diff(chosen) > 0)
    taken = {name: int(np.sum(every[chosen] == name)) for name in set(groups)}
    full = max(taken.values(), default=0)
    assert all(count >= min(full - 1, groups.count(name)) for name, count in taken.items())
