"""Sample the examples of each batch: the order depends only on the seed, not on workers, ranks or interruptions.

A *step* is a number counted over all epochs. The step determines the batch, so a run that stops after step k resumes at
step k + 1 without any other state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Examples = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BatchSampler:
    """Batches of `batch_size` examples over all ranks; each epoch has every example once, in a different order.

    The last batch of an epoch may be smaller; `drop_last` skips it, and other epochs contain its examples. Each rank
    gets every `ranks`-th example of a batch, starting at example `rank`.
    """

    examples: int
    batch_size: int
    seed: int
    rank: int = 0
    ranks: int = 1
    drop_last: bool = False

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches in an epoch."""
        return self.examples // self.batch_size if self.drop_last else -(-self.examples // self.batch_size)

    def from_step(self, step: int) -> Iterator[tuple[int, Examples]]:
        """Yield (epoch, this rank's examples) for `step` and all later steps, without end."""
        epoch, batch = divmod(step, self.steps_per_epoch)
        while True:
            order = self.order(epoch)
            for index in range(batch, self.steps_per_epoch):
                yield (
                    epoch,
                    order[index * self.batch_size : (index + 1) * self.batch_size][self.rank :: self.ranks],
                )
            epoch, batch = epoch + 1, 0

    def order(self, epoch: int) -> Examples:
        """Return all examples in the order of an epoch."""
        return make_rng(self.seed, epoch).permutation(self.examples)


def make_rng(*numbers: int) -> np.random.Generator:
    """Return a random generator that depends only on the given numbers."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(numbers)))


def evenly_spaced(total: int, maximum: int) -> NDArray[np.int64]:
    """Return up to `maximum` of `total` indices, evenly spaced, including the first and the last.

    → (min(total, maximum),)
    """
    return np.linspace(0, total - 1, min(total, maximum)).astype(np.int64)


def evenly_spaced_per_group(groups: NDArray[np.object_], maximum: int) -> NDArray[np.int64]:
    """Return up to `maximum` indices in order, equally many per group where possible, evenly spaced within a group."""
    _, codes, counts = np.unique(groups.astype(str), return_inverse=True, return_counts=True)
    rows = np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1])
    chosen, remaining = [], maximum
    for rank, group in enumerate(
        sorted(rows, key=len)
    ):  # larger groups use the quota that small groups cannot fill
        chosen.append(group[evenly_spaced(len(group), remaining // (len(rows) - rank))])
        remaining -= len(chosen[-1])
    return np.sort(np.concatenate(chosen))
