"""Which examples make which batch: the same for a seed, whatever the workers, ranks and interruptions.

A *step* is a number counted over all epochs. Everything follows from it, so a run that stops after step k goes on with
step k + 1 and no other state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Examples = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Order:
    """Batches of `batch` examples over all ranks; each epoch shows every example once, in an order of its own.

    The last batch of an epoch may be smaller, or with `whole_batches` is left out: another epoch shows what it held.
    Each rank gets every `ranks`-th example of a batch, from `rank` on.
    """

    examples: int
    batch: int
    seed: int
    rank: int = 0
    ranks: int = 1
    whole_batches: bool = False

    @property
    def steps_per_epoch(self) -> int:
        """Batches of an epoch."""
        return self.examples // self.batch if self.whole_batches else -(-self.examples // self.batch)

    def from_step(self, step: int) -> Iterator[tuple[int, Examples]]:
        """(epoch, this rank's examples) of a step and all that follow, without end."""
        epoch, number = divmod(step, self.steps_per_epoch)
        while True:
            order = self.order(epoch)
            for at in range(number, self.steps_per_epoch):
                yield epoch, order[at * self.batch : (at + 1) * self.batch][self.rank :: self.ranks]
            epoch, number = epoch + 1, 0

    def order(self, epoch: int) -> Examples:
        """All examples in the order of an epoch."""
        return randomness(self.seed, epoch).permutation(self.examples)


def randomness(*numbers: int) -> np.random.Generator:
    """Random numbers that follow from these alone."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(numbers)))


def spread(total: int, most: int) -> NDArray[np.int64]:
    """At most so many of `total` places, evenly spread, the first and the last among them. → (min(total, most),)"""
    return np.linspace(0, total - 1, min(total, most)).astype(np.int64)


def spread_among(groups: NDArray[np.object_], most: int) -> NDArray[np.int64]:
    """At most so many places, as many of each group as of any other that has enough, spread within it; in their order."""
    _, codes, counts = np.unique(groups.astype(str), return_inverse=True, return_counts=True)
    rows = np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1])
    chosen, left = [], most
    for rank, here in enumerate(sorted(rows, key=len)):  # what small groups lack, larger ones fill up
        chosen.append(here[spread(len(here), left // (len(rows) - rank))])
        left -= len(chosen[-1])
    return np.sort(np.concatenate(chosen))
