"""The box contrastive loss: an event resembles itself under jitter, and not the background (paper, Tasks and Objectives).

The paper leaves jitter, negatives and pooling open. Here features are the adapter's map, averaged over a box; two
positives a box have each edge moved by up to a fifth of their side; and negatives have the shape of one of the chunk's
own boxes, so that shape gives nothing away, at a place where they share less than a tenth with any box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from mast.boxes import clip, iomin
from mast.models.blocks import CHANNELS
from mast.models.pooling import pool_boxes

PROJECTED = 128
POSITIVES = 2
MAX_JITTER = 0.2
NEGATIVES = 32
MAX_SHARED = 0.1
DRAWS_PER_NEGATIVE = 4
"""Places tried for each negative; a crowded chunk yields fewer of them."""


class Projection(nn.Module):
    """Pooled features to points on a sphere; used in training alone."""

    def __init__(self, channels: int = CHANNELS) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, PROJECTED))

    def forward(self, pooled: Tensor) -> Tensor:
        """(n, 256) → (n, 128) of length one"""
        return functional.normalize(self.layers(pooled), dim=-1)


@dataclass(frozen=True, slots=True)
class Regions:
    """Boxes to compare in each of B chunks: n events, two jittered ones of each in a row, and up to 32 of background."""

    events: list[Tensor]  # (n, 4)
    positives: list[Tensor]  # (n · POSITIVES, 4)
    negatives: list[Tensor]  # (m, 4)

    def __getitem__(self, chunks: slice) -> Regions:
        """Those of some of the chunks."""
        return Regions(self.events[chunks], self.positives[chunks], self.negatives[chunks])

    def to(self, device: torch.device) -> Regions:
        """The same on another device."""
        kinds = ([own.to(device) for own in kind] for kind in (self.events, self.positives, self.negatives))
        return Regions(*kinds)


def contrastive_loss(
    features: Tensor,
    regions: Regions,
    stride: tuple[int, int],
    projection: Projection,
    temperature: float,
    divisor: Tensor | None = None,
) -> Tensor:
    """The loss of a batch: the adapter's map (B, 256, F, T) with its stride, and what to compare in its chunks. → ()

    A mean over the batch's events, or their sum over a `divisor` where the batch is part of a larger one.
    """
    per_chunk = list(zip(regions.events, regions.positives, regions.negatives, strict=True))
    points = projection(pool_boxes(features, [torch.cat(parts) for parts in per_chunk], stride)).float()
    pieces = points.split([len(part) for parts in per_chunk for part in parts])  # by chunk, then by kind
    events, positives, negatives = (torch.cat(pieces[kind::3]) for kind in range(3))  # (n, 128), …
    with torch.autocast(
        features.device.type, enabled=False
    ):  # likeness over τ needs more digits than bf16 has
        return box_contrastive(
            events,
            positives.reshape(len(events), POSITIVES, PROJECTED),
            negatives,
            same_chunk=_chunk_of(regions.events)[:, None] == _chunk_of(regions.negatives),
            temperature=temperature,
            divisor=divisor,
        )


def box_contrastive(
    events: Tensor,
    positives: Tensor,
    negatives: Tensor,
    same_chunk: Tensor,
    temperature: float,
    divisor: Tensor | None = None,
) -> Tensor:
    """Mean over events of -log(Σ_P / (Σ_P + Σ_N)), each Σ of exp(⟨z, ·⟩ / τ); 0 without events.

    (n, D), (n, P, D), (m, D), (n, m) → (). An event's negatives N are those of its own chunk, where the background is
    hardest to tell from it; N₊ is the number of events in the batch, so that each counts the same.
    """
    to_positives = torch.einsum("nd,npd->np", events, positives) / temperature
    to_negatives = (events @ negatives.T / temperature).masked_fill(~same_chunk, -torch.inf)  # (n, m)
    numerator = to_positives.logsumexp(dim=1)
    denominator = torch.cat([to_positives, to_negatives], dim=1).logsumexp(dim=1)
    everything = (denominator - numerator).sum() + 0 * negatives.sum()  # also without events, all take part
    return everything / (max(1, len(events)) if divisor is None else divisor)


def draw_regions(boxes: Sequence[Tensor], extent: tuple[int, int], rngs: Sequence[Generator]) -> Regions:
    """Positives and negatives of each chunk's boxes, inside a grid of `extent` frames and bins.

    Each chunk has a generator of its own, so that it does not matter which chunks share a batch.
    """
    drawn = [
        (jittered(own.repeat_interleave(POSITIVES, dim=0), extent, rng), background(own, extent, rng))
        for own, rng in zip(boxes, rngs, strict=True)
    ]
    return Regions(list(boxes), [positives for positives, _ in drawn], [negatives for _, negatives in drawn])


def jittered(boxes: Tensor, extent: tuple[int, int], rng: Generator) -> Tensor:
    """Each edge moved by up to a fifth of its side, at random, inside the grid. (n, 4) → (n, 4)"""
    sides = (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)  # (n, 4)
    moved = boxes + (2 * _uniform(boxes.shape, boxes, rng) - 1) * MAX_JITTER * sides
    return clip(moved, (0, 0, *extent))


def background(boxes: Tensor, extent: tuple[int, int], rng: Generator) -> Tensor:
    """Up to 32 boxes that share less than a tenth of the smaller one's area with any event. (n, 4) → (m, 4)

    That is stricter than an IoU below a tenth, which a small box in the middle of a long event has too.
    """
    if not len(boxes):
        return boxes
    draws = NEGATIVES * DRAWS_PER_NEGATIVE
    which = (_uniform((draws,), boxes, rng) * len(boxes)).long()
    sides = (boxes[:, 2:] - boxes[:, :2])[which]  # (draws, 2)
    start_low = _uniform((draws, 2), boxes, rng) * (boxes.new_tensor(extent) - sides).clamp(min=0)
    drawn = torch.cat([start_low, start_low + sides], dim=1)
    return drawn[(iomin(drawn, boxes) < MAX_SHARED).all(dim=1)][:NEGATIVES]


def _uniform(shape: Sequence[int], like: Tensor, rng: Generator) -> Tensor:
    """Random numbers in 0…1, drawn where `rng` lives."""
    return torch.rand(*shape, generator=rng, device=rng.device).to(like)


def _chunk_of(boxes: Sequence[Tensor]) -> Tensor:
    """The chunk that each box of all chunks is in. B times (n, 4) → (boxes of all chunks,)"""
    counts = torch.tensor([len(own) for own in boxes], device=boxes[0].device)
    return torch.repeat_interleave(counts)
