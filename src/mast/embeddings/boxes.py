"""A vector for each box: the mean of the encoder's map under it (paper, Box-Level Embeddings).

The paper does not say how a region becomes a vector, nor how vectors are compared: we take the plain mean, as RoIAlign
does it, whitened, scaled to unit length, so that a product of two is their cosine (docs/decisions/0015, 0016).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mast.boxes import area, clip
from mast.detection.chunks import BATCH
from mast.embeddings.whitening import Whitening
from mast.errors import ConfigError
from mast.models.devices import accelerator, autocast
from mast.models.encoder import Encoder
from mast.models.loading import Loaded
from mast.models.pooling import unit_vectors
from mast.recordings.decode import Audio, chunk_and_hop
from mast.recordings.store import to_int16
from mast.spectrogram import MelGrid

Pool = Literal["last", "blocks"]

POOLS: dict[Pool, int] = {"last": 1, "blocks": 3}
"""Blocks whose maps are averaged: the last alone, or as many as AudioMAE averages when it reads whole sounds."""

CONTEXT = 0.1
"""Share of a chunk that boxes which share it leave free before and after them: about a second to be heard with."""

Vectors = NDArray[np.float16]
"""(N, C): one row a box, of unit length."""


def pool_named(name: str) -> Pool:
    """A way to read the map, by its name."""
    pools = {str(pool): pool for pool in POOLS}
    if name not in pools:
        raise ConfigError(f"--pool {name}: use {' or '.join(pools)}.")
    return pools[name]


class Cut(NamedTuple):
    """A chunk of sound and the boxes that are pooled from it, by their `rows` among all; the first `filled` are sound."""

    sound: NDArray[np.int16]
    filled: int
    boxes: Tensor  # (n, 4) in frames and bins
    rows: list[int]


class BoxEncoder:
    """An encoder on its device, under autocast in the fastest arithmetic there, that gives boxes their vectors."""

    def __init__(
        self,
        loaded: Loaded[Encoder],
        pool: Pool = "last",
        device: str = "auto",
        whitening: Whitening | None = None,
    ) -> None:
        self.description = loaded.description
        self.kind = accelerator(device)
        self.batch = BATCH[self.kind]
        self.width = loaded.network.shape.width
        self.grid = MelGrid(loaded.description.spectrogram, loaded.frontend.frames)
        self.pool = pool
        self._whitening = whitening if whitening and whitening.is_measured else None
        self._network = loaded.network.to(self.kind)
        self._frontend = loaded.frontend.to(self.kind)

    @property
    def rate_hz(self) -> int:
        """Rate at which it hears."""
        return self.description.chunking.sample_rate_hz

    def __call__(self, cuts: Sequence[Cut]) -> Vectors:
        """Vectors of all boxes of some chunks, in their order. B → (N, C)"""
        sound = torch.from_numpy(np.stack([cut.sound for cut in cuts])).to(self.kind)  # (B, samples)
        filled = torch.tensor([cut.filled for cut in cuts]).to(self.kind)
        with torch.inference_mode(), autocast(self.kind):
            features = self._network(self._frontend(sound, filled), POOLS[self.pool])  # (B, C, F/16, T/16)
            vectors = unit_vectors(features, [cut.boxes.to(self.kind) for cut in cuts])  # (N, C)
        return self.whitened(vectors.half().cpu().numpy())

    def whitened(self, vectors: Vectors) -> Vectors:
        """Vectors in the terms of the table that they are for. (N, C) → (N, C)"""
        return self._whitening(vectors) if self._whitening else vectors


def embed_boxes(
    audio: Audio, bounds: NDArray[np.float64], encoder: BoxEncoder, time_expansion: float = 1.0
) -> tuple[Vectors, NDArray[np.int64]]:
    """Vectors of (start_s, low_hz, end_s, high_hz) of a recording, and which these are. (N, 4) → (n, C), (n,)

    A box without sound, or outside the band that the encoder hears, has none.
    """
    found = list(vectors_of(cut_chunks(audio, bounds, encoder, time_expansion), encoder))
    vectors = [np.zeros((0, encoder.width), np.float16), *(item for item, _ in found)]
    return np.concatenate(vectors), np.array([row for _, rows in found for row in rows], np.int64)


def vectors_of(cuts: Iterable[Cut], encoder: BoxEncoder) -> Iterator[tuple[Vectors, list[int]]]:
    """Vectors and rows of the boxes of chunks, some chunks at a time."""
    left = iter(cuts)
    while some := list(islice(left, encoder.batch)):
        yield encoder(some), [row for cut in some for row in cut.rows]


def cut_chunks(
    audio: Audio, bounds: NDArray[np.float64], encoder: BoxEncoder, time_expansion: float = 1.0
) -> Iterator[Cut]:
    """Chunks around boxes in a recording's own seconds and Hz, as few as give each box its surroundings. (N, 4)"""
    grid, (chunk, _) = encoder.grid, chunk_and_hop(encoder.description.chunking)
    heard = bounds * np.array([time_expansion, 1 / time_expansion] * 2)
    for first, rows in share_chunks(heard[:, 0::2] * audio.sample_rate_hz, chunk, audio.samples):
        wave = audio.read_samples(first, first + chunk)
        sound = np.zeros(chunk, np.int16)
        to_int16(wave, sound[: len(wave)])
        since = heard[rows] - np.array([first / audio.sample_rate_hz, 0.0] * 2)
        end_frames = len(wave) / audio.sample_rate_hz / grid.settings.shift_s
        boxes = clip(grid.to_exact_boxes(torch.from_numpy(since)), (0, 0, end_frames, grid.settings.bins))
        is_box = area(boxes) > 0
        if is_box.any():
            chosen = [row for row, inside in zip(rows, is_box.tolist(), strict=True) if inside]
            yield Cut(sound, len(wave), boxes[is_box].float(), chosen)


def share_chunks(spans: NDArray[np.float64], chunk: int, samples: int) -> Iterator[tuple[int, list[int]]]:
    """First sample of each chunk and the spans it is for, all in samples of a recording of so many. (N, 2)

    Neighbours share a chunk while `CONTEXT` is left on both sides of them; their middle is its middle, as far as the
    recording reaches. A span that is too long for that has a chunk of its own; of one longer than a chunk, the middle.
    """
    most = (1 - 2 * CONTEXT) * chunk

    def placed(start: float, end: float) -> int:
        return max(0, min(round((start + end - chunk) / 2), samples - chunk))

    rows: list[int] = []
    start = end = 0.0
    for row in np.lexsort((spans[:, 1], spans[:, 0])).tolist():
        own_start, own_end = spans[row].tolist()
        if own_end - own_start > most:
            yield placed(own_start, own_end), [row]
            continue
        if rows and max(end, own_end) - start > most:
            yield placed(start, end), rows
            rows = []
        if not rows:
            start = end = own_start
        rows, end = [*rows, row], max(end, own_end)
    if rows:
        yield placed(start, end), rows
