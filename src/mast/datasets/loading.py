"""From the prepared store to batches: chunks at fixed places with boxes and weights, or at any offset for pretraining.

What is read stays int16, half the size of a wave; `FrontEnd` makes it one where the model is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mast.datasets.order import Order, randomness
from mast.errors import ConfigError
from mast.recordings.store import AudioStore

Places = NDArray[np.int64]
"""(N, 2): any row of a recording in the store, and a first sample counted from that row's start."""

WAIT_AHEAD = 2
"""Batches each thread keeps ready."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Sound of some examples, with their boxes in frames and bins, and how much each counts."""

    epoch: int
    examples: Tensor  # (B,)
    sound: Tensor  # (B, N) int16
    filled: Tensor  # (B,) samples that are sound; the rest is padding
    boxes: tuple[Tensor, ...]  # B times (n, 4)
    weights: Tensor  # (B,)


class Examples(Protocol):
    """What can be loaded: a number of examples, where each lies in an epoch, and what is known about it."""

    def __len__(self) -> int:
        """Number of examples in an epoch."""
        ...

    def places(self, epoch: int, examples: NDArray[np.int64]) -> Places:
        """Where to read the examples of an epoch."""
        ...

    def boxes(self, examples: NDArray[np.int64], epoch: int = 0) -> tuple[Tensor, ...]:
        """Boxes of the examples of an epoch, in frames and bins."""
        ...

    def weights(self, examples: NDArray[np.int64], epoch: int = 0) -> Tensor:
        """How much each example counts."""
        ...


class FixedChunks:
    """Chunks where the splits put them, with expert or pseudo boxes; pseudo-labelled ones have weights (paper, ḡ)."""

    def __init__(
        self,
        places: Places,
        boxes: Sequence[Tensor] | None = None,
        weights: Tensor | None = None,
    ) -> None:
        self._places = places
        self._ends = np.zeros(len(places) + 1, np.int64)
        if boxes is not None:
            np.cumsum([len(item) for item in boxes], out=self._ends[1:])
        self._boxes = torch.cat([torch.zeros(0, 4), *(boxes or ())])
        self._weights = torch.ones(len(places)) if weights is None else weights

    def __len__(self) -> int:
        """Number of chunks."""
        return len(self._places)

    def places(self, epoch: int, examples: NDArray[np.int64]) -> Places:
        """Where the chunks lie, in every epoch."""
        return self._places[examples]

    def boxes(self, examples: NDArray[np.int64], epoch: int = 0) -> tuple[Tensor, ...]:
        """Boxes of the chunks."""
        return tuple(self._boxes[self._ends[item] : self._ends[item + 1]] for item in examples)

    def weights(self, examples: NDArray[np.int64], epoch: int = 0) -> Tensor:
        """Weights of the chunks."""
        return self._weights[torch.from_numpy(examples)]


class InTurn:
    """So many examples in an epoch, of more or of fewer: each epoch goes on where the last one stopped.

    So every example comes as often as any other, or once more.
    """

    def __init__(self, examples: Examples, count: int) -> None:
        self._examples, self._count = examples, count

    def __len__(self) -> int:
        """Number of examples in an epoch, each counted whenever it comes."""
        return self._count

    def places(self, epoch: int, examples: NDArray[np.int64]) -> Places:
        """Where the examples lie whose turn it is; after the last, it is the first one's again."""
        return self._examples.places(epoch, self._own(examples, epoch))

    def boxes(self, examples: NDArray[np.int64], epoch: int = 0) -> tuple[Tensor, ...]:
        """Their boxes."""
        return self._examples.boxes(self._own(examples, epoch), epoch)

    def weights(self, examples: NDArray[np.int64], epoch: int = 0) -> Tensor:
        """How much each of them counts."""
        return self._examples.weights(self._own(examples, epoch), epoch)

    def _own(self, examples: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        return (epoch * self._count + examples) % len(self._examples)


class Joined:
    """The examples of one, and after them those of another."""

    def __init__(self, first: Examples, second: Examples) -> None:
        self._parts = (first, second)

    def __len__(self) -> int:
        """Number of examples of both."""
        return sum(len(part) for part in self._parts)

    def places(self, epoch: int, examples: NDArray[np.int64]) -> Places:
        """Where the examples of each lie in an epoch."""
        places = np.zeros((len(examples), 2), np.int64)
        for part, rows, own in self._shared(examples):
            places[rows] = part.places(epoch, own)
        return places

    def boxes(self, examples: NDArray[np.int64], epoch: int = 0) -> tuple[Tensor, ...]:
        """Boxes of each example, as its own has them."""
        boxes = [torch.zeros(0, 4)] * len(examples)
        for part, rows, own in self._shared(examples):
            for row, found in zip(rows, part.boxes(own, epoch), strict=True):
                boxes[row] = found
        return tuple(boxes)

    def weights(self, examples: NDArray[np.int64], epoch: int = 0) -> Tensor:
        """How much each example counts, as its own has it."""
        weights = torch.ones(len(examples))
        for part, rows, own in self._shared(examples):
            weights[torch.from_numpy(rows)] = part.weights(own, epoch)
        return weights

    def _shared(
        self, examples: NDArray[np.int64]
    ) -> Iterator[tuple[Examples, NDArray[np.int64], NDArray[np.int64]]]:
        """Both parts, each with the rows of the examples that are its own, and their numbers there."""
        first, second = self._parts
        is_first = examples < len(first)
        yield first, np.flatnonzero(is_first), examples[is_first]
        yield second, np.flatnonzero(~is_first), examples[~is_first] - len(first)


class AnyOffset:
    """Chunks at random places of allowed stretches of sound, for pretraining.

    An epoch is cut into as many equal pieces as chunks fit into the sound; each example starts at random in its own
    piece, so that every epoch hears everything about once and no chunk reaches out of its stretch. An epoch of `most`
    chunks has fewer and longer pieces: it still hears of everything, and other moments each time.
    """

    def __init__(
        self, stretches: NDArray[np.int64], samples: int, seed: int, most: int | None = None
    ) -> None:
        """`stretches` (N, 3): a recording's first row, and first and last + 1 sample of the stretch within it."""
        lengths = stretches[:, 2] - stretches[:, 1]
        self._stretches = stretches[lengths > 0]
        self._ends = np.cumsum(lengths[lengths > 0])
        self._samples, self._seed = samples, seed
        total = int(self._ends[-1]) if len(self._ends) else 0
        fitting = max(total // samples, min(1, total))
        self._count = fitting if most is None else min(most, fitting)

    def __len__(self) -> int:
        """Number of chunks in an epoch."""
        return self._count

    def places(self, epoch: int, examples: NDArray[np.int64]) -> Places:
        """Starts that follow from the seed, the epoch and the example alone."""
        total = int(self._ends[-1])
        shares = np.array([randomness(self._seed, epoch, int(item)).random() for item in examples])
        at = np.minimum(((examples + shares) * (total / self._count)).astype(np.int64), total - 1)
        stretch = np.searchsorted(self._ends, at, side="right")
        row, first, stop = self._stretches[stretch].T
        inside = at - (self._ends[stretch] - (stop - first))
        start = np.maximum(np.minimum(first + inside, stop - self._samples), first)
        return np.stack([row, start], axis=1)

    def boxes(self, examples: NDArray[np.int64], epoch: int = 0) -> tuple[Tensor, ...]:
        """None is known."""
        return (torch.zeros(0, 4),) * len(examples)

    def weights(self, examples: NDArray[np.int64], epoch: int = 0) -> Tensor:
        """All count the same."""
        return torch.ones(len(examples))


def batches(
    store: AudioStore, examples: Examples, order: Order, *, from_step: int = 0, workers: int = 0
) -> Iterator[Batch]:
    """Batches from a step on, without end; `workers` threads read ahead and change nothing but the speed.

    Threads are enough: Lance reads outside Python's lock, and sound needs no further work here. Unlike processes they
    start at once and send nothing to and fro (docs/decisions/0008).
    """
    if len(examples) == 0:
        raise ConfigError("There is nothing to load: no chunk of these splits. See mast splits.")
    steps = order.from_step(from_step)
    if not workers:
        return (read_batch(store, examples, chosen, epoch) for epoch, chosen in steps)
    len(store.recordings)  # opened here, once, before threads ask for it
    return _read_ahead(lambda step: read_batch(store, examples, step[1], step[0]), steps, workers)


def read_batch(store: AudioStore, examples: Examples, chosen: NDArray[np.int64], epoch: int = 0) -> Batch:
    """The chosen examples, as they lie in an epoch."""
    places, samples = examples.places(epoch, chosen), store.layout.step_samples
    return Batch(
        epoch,
        torch.from_numpy(chosen),
        torch.from_numpy(store.read(places, samples)),
        torch.from_numpy(store.filled(places, samples)),
        examples.boxes(chosen, epoch),
        examples.weights(chosen, epoch),
    )


def _read_ahead(
    read: Callable[[tuple[int, NDArray[np.int64]]], Batch],
    steps: Iterator[tuple[int, NDArray[np.int64]]],
    workers: int,
) -> Iterator[Batch]:
    """Batches in the order of their steps, some of them read while an earlier one is used."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="mast-loader")
    try:
        waiting = deque(pool.submit(read, step) for step in islice(steps, workers * WAIT_AHEAD))
        while True:
            waiting.append(pool.submit(read, next(steps)))
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
