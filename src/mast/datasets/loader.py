"""Load batches from the prepared store: fixed chunks with boxes and weights, or random offsets for pretraining.

Audio stays int16, half the size of a float wave in float32; `FrontEnd` converts it on the device of the model.
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

from mast.datasets.sampler import BatchSampler, make_rng
from mast.errors import ConfigError
from mast.store.audio_store import AudioStore

ChunkLocations = NDArray[np.int64]
"""(N, 2): any row of a recording in the store, and the first sample counted from that row's start."""

PREFETCH = 2
"""Batches that each thread loads ahead."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Audio of B examples, with their boxes in frames and bins, and their weights."""

    epoch: int
    examples: Tensor  # (B,)
    audio: Tensor  # (B, N) int16
    valid_samples: Tensor  # (B,) number of audio samples; the rest is padding
    boxes: tuple[Tensor, ...]  # B times (n, 4)
    weights: Tensor  # (B,)


class ChunkDataset(Protocol):
    """Interface of datasets: the number of examples, and the locations, boxes and weights of each in an epoch."""

    def __len__(self) -> int:
        """Return the number of examples in an epoch."""
        ...

    def locations(self, epoch: int, examples: NDArray[np.int64]) -> ChunkLocations:
        """Return the locations of examples in the store, for an epoch."""
        ...

    def boxes(self, examples: NDArray[np.int64], epoch: int = 0) -> tuple[Tensor, ...]:
        """Return the boxes of examples in an epoch, in frames and bins."""
        ...

    def weights(self, examples: NDArray[np.int64], epoch: int = 0) -> Tensor:
        """Return the weights of examples in an epoch. → (B,)"""
        ...


class FixedChunkDataset:
    """Chunks of the split table, with annotations or pseudo-labels; pseudo-labelled chunks have weights (paper, ḡ)."""

    def __init__(
        self,
        locations: ChunkLocations,
        boxes: Sequence[Tensor] | None = None,
        weights: Tensor | None = None,
    ) -> None:
        self._locations = locations
        self._ends = np.zeros(len(locations) + 1, np.int64)
        if boxes is not None:
            np.cumsum([len(chunk_boxes) for chunk_boxes in boxes], out=self._ends[1:])
        self._boxes = torch.cat([torch.zeros(0, 4), *(boxes or ())])
        self._weights = torch.ones(len(locations)) if weights is None else weights

    def __len__(self) -> int:
        """Return the number of chunks."""
        return len(self._locations)

    def locations(self, epoch: int, examples: NDArray[np.int64]) -> ChunkLocations:
        """Return the locations of the chunks, the same in every epoch."""
        return self._locations[examples]

    def boxes(self, examples: NDArray[np.int64], epoch: int = 0) -> tuple[Tensor, ...]:
        """Return the boxes of the chunks."""
        return tuple(self._boxes[self._ends[index] : self._ends[index + 1]] for index in examples)

    def weights(self, examples: NDArray[np.int64], epoch: int = 0) -> Tensor:
        """Return the weights of the chunks."""
        return self._weights[torch.from_numpy(examples)]


class CycledDataset:
    """Epochs of `count` examples of a dataset of any size; each epoch continues after the last example of the previous.

    Examples repeat in order, so two examples never differ by more than one in the number of times they occur.
    """

    def __init__(self, examples: ChunkDataset, count: int) -> None:
        self._examples, self._count = examples, count

    def __len__(self) -> int:
        """Return the number of examples in an epoch, including repetitions."""
        return self._count

    def locations(self, epoch: int, examples: NDArray[np.int64]) -> ChunkLocations:
        """Return the locations of examples in an epoch; after the last example, the first one follows."""
        return self._examples.locations(epoch, self._source_examples(examples, epoch))

    def boxes(self, examples: NDArray[np.int64], epoch: int = 0) -> tuple[Tensor, ...]:
        """Return the boxes of examples in an epoch."""
        return self._examples.boxes(self._source_examples(examples, epoch), epoch)

    def weights(self, examples: NDArray[np.int64], epoch: int = 0) -> Tensor:
        """Return the weights of examples in an epoch."""
        return self._examples.weights(self._source_examples(examples, epoch), epoch)

    def _source_examples(self, examples: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        return (epoch * self._count + examples) % len(self._examples)


class ConcatDataset:
    """The examples of one dataset followed by the examples of another."""

    def __init__(self, first: ChunkDataset, second: ChunkDataset) -> None:
        self._datasets = (first, second)

    def __len__(self) -> int:
        """Return the number of examples of both datasets."""
        return sum(len(dataset) for dataset in self._datasets)

    def locations(self, epoch: int, examples: NDArray[np.int64]) -> ChunkLocations:
        """Return the locations of examples in an epoch, each given by its own dataset."""
        locations = np.zeros((len(examples), 2), np.int64)
        for dataset, rows, indices in self._split_by_source(examples):
            locations[rows] = dataset.locations(epoch, indices)
        return locations

    def boxes(self, examples: NDArray[np.int64], epoch: int = 0) -> tuple[Tensor, ...]:
        """Return the boxes of examples in an epoch, each given by its own dataset."""
        boxes = [torch.zeros(0, 4)] * len(examples)
        for dataset, rows, indices in self._split_by_source(examples):
            for row, example_boxes in zip(rows, dataset.boxes(indices, epoch), strict=True):
                boxes[row] = example_boxes
        return tuple(boxes)

    def weights(self, examples: NDArray[np.int64], epoch: int = 0) -> Tensor:
        """Return the weights of examples in an epoch, each given by its own dataset."""
        weights = torch.ones(len(examples))
        for dataset, rows, indices in self._split_by_source(examples):
            weights[torch.from_numpy(rows)] = dataset.weights(indices, epoch)
        return weights

    def _split_by_source(
        self, examples: NDArray[np.int64]
    ) -> Iterator[tuple[ChunkDataset, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield both datasets, each with the rows of its examples in the batch and their indices in the dataset."""
        first, second = self._datasets
        is_first = examples < len(first)
        yield first, np.flatnonzero(is_first), examples[is_first]
        yield second, np.flatnonzero(~is_first), examples[~is_first] - len(first)


class RandomOffsetDataset:
    """Chunks at random offsets within allowed spans of audio, for pretraining.

    An epoch divides the audio into equal pieces, one for each chunk that fits. Each example starts at a random offset in
    its own piece, so that every epoch covers the audio about once, and no chunk extends beyond its span. With
    `max_chunks`, an epoch has fewer and longer pieces: it still samples all audio, at other offsets in each epoch.
    """

    def __init__(
        self, spans: NDArray[np.int64], samples: int, seed: int, max_chunks: int | None = None
    ) -> None:
        """Create a dataset over `spans` (N, 3): a recording's first row, first sample and last + 1 sample of the span."""
        lengths = spans[:, 2] - spans[:, 1]
        self._spans = spans[lengths > 0]
        self._ends = np.cumsum(lengths[lengths > 0])
        self._samples, self._seed = samples, seed
        total = int(self._ends[-1]) if len(self._ends) else 0
        fitting = max(total // samples, min(1, total))
        self._count = fitting if max_chunks is None else min(max_chunks, fitting)

    def __len__(self) -> int:
        """Return the number of chunks in an epoch."""
        return self._count

    def locations(self, epoch: int, examples: NDArray[np.int64]) -> ChunkLocations:
        """Return locations that depend only on the seed, the epoch and the example."""
        total = int(self._ends[-1])
        fractions = np.array([make_rng(self._seed, epoch, int(example)).random() for example in examples])
        at = np.minimum(((examples + fractions) * (total / self._count)).astype(np.int64), total - 1)
        span = np.searchsorted(self._ends, at, side="right")
        row, first, stop = self._spans[span].T
        inside = at - (self._ends[span] - (stop - first))
        start = np.maximum(np.minimum(first + inside, stop - self._samples), first)
        return np.stack([row, start], axis=1)

    def boxes(self, examples: NDArray[np.int64], epoch: int = 0) -> tuple[Tensor, ...]:
        """Return no boxes: pretraining uses none."""
        return (torch.zeros(0, 4),) * len(examples)

    def weights(self, examples: NDArray[np.int64], epoch: int = 0) -> Tensor:
        """Return a weight of 1 for every example."""
        return torch.ones(len(examples))


def iter_batches(
    store: AudioStore, examples: ChunkDataset, order: BatchSampler, *, from_step: int = 0, workers: int = 0
) -> Iterator[Batch]:
    """Yield batches without end, starting at `from_step`; `workers` threads read ahead and change only the speed.

    Threads are sufficient: Lance reads without Python's global interpreter lock, and the audio needs no further work
    here. Unlike processes, threads start immediately and transfer no data (docs/decisions/0008).
    """
    if len(examples) == 0:
        raise ConfigError("There is nothing to load: these splits have no chunks. See mast split.")
    steps = order.from_step(from_step)
    if not workers:
        return (read_batch(store, examples, chosen, epoch) for epoch, chosen in steps)
    len(store.recordings)  # open the table here, once, before the threads use it
    return _read_ahead(lambda step: read_batch(store, examples, step[1], step[0]), steps, workers)


def read_batch(store: AudioStore, examples: ChunkDataset, chosen: NDArray[np.int64], epoch: int = 0) -> Batch:
    """Read the chosen examples of an epoch."""
    locations, samples = examples.locations(epoch, chosen), store.layout.block_samples
    return Batch(
        epoch,
        torch.from_numpy(chosen),
        torch.from_numpy(store.read(locations, samples)),
        torch.from_numpy(store.valid_lengths(locations, samples)),
        examples.boxes(chosen, epoch),
        examples.weights(chosen, epoch),
    )


def _read_ahead(
    read: Callable[[tuple[int, NDArray[np.int64]]], Batch],
    steps: Iterator[tuple[int, NDArray[np.int64]]],
    workers: int,
) -> Iterator[Batch]:
    """Yield batches in the order of their steps; later batches are read while an earlier one is in use."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="mast-loader")
    try:
        pending = deque(pool.submit(read, step) for step in islice(steps, workers * PREFETCH))
        while True:
            pending.append(pool.submit(read, next(steps)))
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
