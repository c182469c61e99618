"""Embed boxes: the vector of a box is the mean of the encoder's feature map under it (paper, Box-Level Embeddings).

The paper does not specify how a region becomes a vector, nor how vectors are compared. We take the plain mean, as
RoIAlign computes it, whiten it and scale it to unit length, so that the dot product of two vectors is their cosine
(docs/decisions/0015, 0016).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mast.audio.reader import Audio, chunk_and_hop
from mast.audio.spectrogram import MelGrid
from mast.box_ops import box_area, clip_boxes
from mast.detection.chunk_detector import BATCH
from mast.embeddings.whitening import Whitening
from mast.errors import ConfigError
from mast.models.devices import autocast, resolve_device
from mast.models.loading import AnyEncoder, LoadedModel
from mast.models.pooling import unit_vectors
from mast.store.audio_store import to_int16
from mast.types import Floats16

Layers = Literal["last", "blocks"]

POOLED_BLOCKS: dict[Layers, int] = {"last": 1, "blocks": 3}
"""Number of encoder blocks whose feature maps are averaged: the last one, or three as in AudioMAE's clip embeddings."""

MIN_CONTEXT_FRACTION = 0.1
"""Fraction of a chunk kept free before and after the boxes that share it: about one second of context."""


def parse_layers(name: str) -> Layers:
    """Return the `--layers` value with this name; raise `ConfigError` for any other name."""
    layers_by_name = {str(layers): layers for layers in POOLED_BLOCKS}
    if name not in layers_by_name:
        raise ConfigError(f"--layers {name}: use {' or '.join(layers_by_name)}.")
    return layers_by_name[name]


class EncodedChunk(NamedTuple):
    """A chunk of samples and the boxes pooled from it; `rows` are the indices of these boxes among all boxes.

    The first `valid_samples` samples are audio, the others padding.
    """

    samples: NDArray[np.int16]
    valid_samples: int
    boxes: Tensor  # (n, 4) in frames and bins
    rows: list[int]


class BoxEncoder:
    """An encoder that computes vectors of boxes, under autocast in the fastest precision of its device."""

    def __init__(
        self,
        loaded: LoadedModel[AnyEncoder],
        layers: Layers = "last",
        device: str = "auto",
        whitening: Whitening | None = None,
    ) -> None:
        self.description = loaded.description
        self.device = resolve_device(device)
        self.batch_size = BATCH[self.device]
        self.width = loaded.network.shape.width
        self.grid = MelGrid(loaded.description.spectrogram, loaded.frontend.frames)
        self.layers = layers
        self._whitening = whitening if whitening and whitening.is_measured else None
        self._network = loaded.network.to(self.device)
        self._frontend = loaded.frontend.to(self.device)

    @property
    def rate_hz(self) -> int:
        """Sample rate of the model's input."""
        return self.description.chunking.sample_rate_hz

    def __call__(self, chunks: Sequence[EncodedChunk]) -> Floats16:
        """Return the vectors of all boxes of B chunks, in order. → (N, C)"""
        samples = torch.from_numpy(np.stack([chunk.samples for chunk in chunks])).to(
            self.device
        )  # (B, samples)
        valid_samples = torch.tensor([chunk.valid_samples for chunk in chunks]).to(self.device)
        with torch.inference_mode(), autocast(self.device):
            features = self._network(
                self._frontend(samples, valid_samples), POOLED_BLOCKS[self.layers]
            )  # (B, C, F/16, T/16)
            vectors = unit_vectors(features, [chunk.boxes.to(self.device) for chunk in chunks])  # (N, C)
        return self.whiten(vectors.half().cpu().numpy())

    def whiten(self, vectors: Floats16) -> Floats16:
        """Apply the whitening of the table, if the encoder was given one. (N, C) → (N, C)"""
        return self._whitening(vectors) if self._whitening else vectors


def embed_boxes(
    audio: Audio, bounds: NDArray[np.float64], encoder: BoxEncoder, time_expansion: float = 1.0
) -> tuple[Floats16, NDArray[np.int64]]:
    """Embed boxes (start_s, low_hz, end_s, high_hz) of a recording; return vectors and row indices into `bounds`.

    (N, 4) → (n, C), (n,). A box outside the audio or outside the model's frequency band has no vector.
    """
    batches = list(pool_boxes(encode_chunks(audio, bounds, encoder, time_expansion), encoder))
    vectors = [np.zeros((0, encoder.width), np.float16), *(batch for batch, _ in batches)]
    return np.concatenate(vectors), np.array([row for _, rows in batches for row in rows], np.int64)


def pool_boxes(chunks: Iterable[EncodedChunk], encoder: BoxEncoder) -> Iterator[tuple[Floats16, list[int]]]:
    """Yield the vectors and row indices of the boxes of each batch of chunks."""
    remaining = iter(chunks)
    while batch := list(islice(remaining, encoder.batch_size)):
        yield encoder(batch), [row for chunk in batch for row in chunk.rows]


def encode_chunks(
    audio: Audio, bounds: NDArray[np.float64], encoder: BoxEncoder, time_expansion: float = 1.0
) -> Iterator[EncodedChunk]:
    """Yield the chunks that hold the boxes `bounds` (N, 4), given in the recording's own seconds and Hz.

    Boxes share a chunk where each still has its context. Boxes without audio in the model's band are skipped.
    """
    grid, (chunk_samples, _) = encoder.grid, chunk_and_hop(encoder.description.chunking)
    expanded = bounds * np.array([time_expansion, 1 / time_expansion] * 2)
    for first, rows in group_boxes_into_chunks(
        expanded[:, 0::2] * audio.sample_rate_hz, chunk_samples, audio.samples
    ):
        wave = audio.read_samples(first, first + chunk_samples)
        samples = np.zeros(chunk_samples, np.int16)
        to_int16(wave, samples[: len(wave)])
        relative = expanded[rows] - np.array([first / audio.sample_rate_hz, 0.0] * 2)
        end_frames = len(wave) / audio.sample_rate_hz / grid.settings.frame_shift_s
        boxes = clip_boxes(
            grid.to_exact_boxes(torch.from_numpy(relative)), (0, 0, end_frames, grid.settings.n_mels)
        )
        is_box = box_area(boxes) > 0
        if is_box.any():
            chosen = [row for row, inside in zip(rows, is_box.tolist(), strict=True) if inside]
            yield EncodedChunk(samples, len(wave), boxes[is_box].float(), chosen)


def group_boxes_into_chunks(
    spans: NDArray[np.float64], chunk: int, samples: int
) -> Iterator[tuple[int, list[int]]]:
    """Yield the first sample of each chunk and the rows of its spans; `spans` (N, 2), `chunk` and `samples` in samples.

    `samples` is the length of the recording. Neighbouring spans share a chunk while `MIN_CONTEXT_FRACTION` is left on
    both sides; the chunk is centred on them, as far as the recording reaches. A span too long for that gets a chunk of
    its own; a span longer than a chunk is represented by its middle.
    """
    max_length = (1 - 2 * MIN_CONTEXT_FRACTION) * chunk

    def first_sample(start: float, end: float) -> int:
        return max(0, min(round((start + end - chunk) / 2), samples - chunk))

    rows: list[int] = []
    start = end = 0.0
    for row in np.lexsort((spans[:, 1], spans[:, 0])).tolist():
        box_start, box_end = spans[row].tolist()
        if box_end - box_start > max_length:
            yield first_sample(box_start, box_end), [row]
            continue
        if rows and max(end, box_end) - start > max_length:
            yield first_sample(start, end), rows
            rows = []
        if not rows:
            start = end = box_start
        rows, end = [*rows, row], max(end, box_end)
    if rows:
        yield first_sample(start, end), rows
