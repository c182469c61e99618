"""Every example once per epoch, for any number of ranks, starting at any step."""

from itertools import islice

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mast.datasets.sampler import BatchSampler, evenly_spaced, evenly_spaced_per_group, make_rng

SAMPLERS = st.builds(
    BatchSampler,
    examples=st.integers(1, 40),
    batch_size=st.integers(1, 12),
    seed=st.integers(0, 2**40),
)


def steps_of(sampler: BatchSampler, step: int, count: int) -> list[tuple[int, list[int]]]:
    return [(epoch, examples.tolist()) for epoch, examples in islice(sampler.from_step(step), count)]


def for_rank(sampler: BatchSampler, rank: int, ranks: int) -> BatchSampler:
    return BatchSampler(sampler.examples, sampler.batch_size, sampler.seed, rank, ranks)


@given(SAMPLERS)
def test_an_epoch_shows_every_example_once(sampler):
    steps = steps_of(sampler, 0, 2 * sampler.steps_per_epoch)
    for epoch in (0, 1):
        shown = [example for number, examples in steps if number == epoch for example in examples]
        assert sorted(shown) == list(range(sampler.examples))


@given(SAMPLERS, st.integers(0, 50))
def test_a_run_resumed_at_any_step_gets_the_same_examples(sampler, step):
    assert steps_of(sampler, 0, step + 5)[step:] == steps_of(sampler, step, 5)
    assert steps_of(sampler, step, 1)[0][0] == step // sampler.steps_per_epoch


@given(SAMPLERS, st.integers(1, 5))
def test_ranks_split_each_batch_without_loss_or_repetition(sampler, ranks):
    all_steps = steps_of(sampler, 0, sampler.steps_per_epoch)
    per_rank = [steps_of(for_rank(sampler, rank, ranks), 0, sampler.steps_per_epoch) for rank in range(ranks)]
    for step, (_, examples) in enumerate(all_steps):
        portions = [steps[step][1] for steps in per_rank]
        assert sorted(example for portion in portions for example in portion) == sorted(examples)
        assert max(map(len, portions)) - min(map(len, portions)) <= 1


def test_every_epoch_and_every_seed_has_a_different_order():
    sampler = BatchSampler(examples=1000, batch_size=10, seed=0)
    other = BatchSampler(examples=1000, batch_size=10, seed=1)
    assert not np.array_equal(sampler.order(0), sampler.order(1))
    assert not np.array_equal(sampler.order(0), other.order(0))
    assert np.array_equal(sampler.order(3), BatchSampler(examples=1000, batch_size=7, seed=0).order(3))


def test_a_generator_depends_only_on_its_numbers():
    assert make_rng(1, 2).random() == make_rng(1, 2).random() != make_rng(2, 1).random()


@given(st.integers(0, 500), st.integers(1, 50))
def test_indices_are_evenly_spaced_without_repetition(total, maximum):
    chosen = evenly_spaced(total, maximum)
    assert len(chosen) == min(total, maximum) == len(set(chosen.tolist()))
    if total:
        assert chosen[0] == 0 and (maximum == 1 or chosen[-1] == total - 1)


@given(st.lists(st.sampled_from(["", "marsh", "ridge", "wood"]), max_size=80), st.integers(1, 50))
def test_indices_are_split_among_groups_as_evenly_as_possible(groups, maximum):
    names = np.array(groups, object)
    chosen = evenly_spaced_per_group(names, maximum)
    assert len(chosen) == min(len(groups), maximum)
    assert np.all(np.diff(chosen) > 0)
    counts = {name: int(np.sum(names[chosen] == name)) for name in set(groups)}
    largest = max(counts.values(), default=0)
    assert all(count >= min(largest - 1, groups.count(name)) for name, count in counts.items())
