"""The box contrastive loss: pull an event towards its jittered boxes, away from background (paper, Tasks and Objectives).

The paper does not specify jitter, negatives and pooling. Here,

- features are the adapter's map, averaged over a box,
- each box has two positives, whose edges are moved by up to a fifth of the side, and
- each negative has the shape of one of the boxes in the chunk, so that the shape does not give the class away, and lies
  where less than a tenth of the smaller box's area overlaps with any box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from mast.box_ops import box_iomin, clip_boxes
from mast.models.blocks import CHANNELS
from mast.models.pooling import pool_boxes

PROJECTED = 128
POSITIVES = 2
MAX_JITTER = 0.2
NEGATIVES = 32
MAX_OVERLAP = 0.1
SAMPLES_PER_NEGATIVE = 4
"""Random positions tried for each negative; a crowded chunk can have fewer than `NEGATIVES`."""


class ProjectionHead(nn.Module):
    """Project pooled features to points on the unit sphere; used in training only."""

    def __init__(self, channels: int = CHANNELS) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, PROJECTED))

    def forward(self, pooled: Tensor) -> Tensor:
        """Project features to vectors of length one. (n, 256) → (n, 128)"""
        return functional.normalize(self.layers(pooled), dim=-1)


@dataclass(frozen=True, slots=True)
class Regions:
    """Boxes to compare in each of B chunks: n events, two jittered boxes of each in sequence, and ≤ 32 of background."""

    events: list[Tensor]  # (n, 4)
    positives: list[Tensor]  # (n · POSITIVES, 4)
    negatives: list[Tensor]  # (m, 4)

    def __getitem__(self, chunks: slice) -> Regions:
        """Return the regions of a slice of the chunks."""
        return Regions(self.events[chunks], self.positives[chunks], self.negatives[chunks])

    def to(self, device: torch.device) -> Regions:
        """Return the regions on another device."""
        kinds = (
            [boxes.to(device) for boxes in kind] for kind in (self.events, self.positives, self.negatives)
        )
        return Regions(*kinds)


def contrastive_loss(
    features: Tensor,
    regions: Regions,
    stride: tuple[int, int],
    projection: ProjectionHead,
    temperature: float,
    divisor: Tensor | None = None,
) -> Tensor:
    """Return the loss of a batch from the adapter's map (B, 256, F, T), its stride, and the regions to compare. → ()

    The loss is a mean over the batch's events, or their sum over `divisor` if the batch is part of a larger one.
    """
    per_chunk = list(zip(regions.events, regions.positives, regions.negatives, strict=True))
    points = projection(pool_boxes(features, [torch.cat(parts) for parts in per_chunk], stride)).float()
    pieces = points.split([len(part) for parts in per_chunk for part in parts])  # by chunk, then by kind
    events, positives, negatives = (torch.cat(pieces[kind::3]) for kind in range(3))  # (n, 128), …
    with torch.autocast(
        features.device.type, enabled=False
    ):  # similarity over τ needs more digits than bf16 has
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
    """Return the mean over events of -log(Σ_P / (Σ_P + Σ_N)), each Σ of exp(⟨z, ·⟩ / τ); 0 without events.

    (n, D), (n, P, D), (m, D), (n, m) → (). The negatives N of an event are those of its own chunk, because that
    background is the hardest to distinguish from it. N₊ is the number of events in the batch, so that all events have
    the same weight.
    """
    to_positives = torch.einsum("nd,npd->np", events, positives) / temperature
    to_negatives = (events @ negatives.T / temperature).masked_fill(~same_chunk, -torch.inf)  # (n, m)
    numerator = to_positives.logsumexp(dim=1)
    denominator = torch.cat([to_positives, to_negatives], dim=1).logsumexp(dim=1)
    total = (
        denominator - numerator
    ).sum() + 0 * negatives.sum()  # without events, all weights still get gradients
    return total / (max(1, len(events)) if divisor is None else divisor)


def sample_regions(boxes: Sequence[Tensor], extent: tuple[int, int], rngs: Sequence[Generator]) -> Regions:
    """Sample positives and negatives for the boxes of each chunk, inside a grid of `extent` frames and bins.

    Each chunk has its own generator, so the result does not depend on the other chunks in the batch.
    """
    sampled = [
        (
            jitter_boxes(events.repeat_interleave(POSITIVES, dim=0), extent, rng),
            sample_background_boxes(events, extent, rng),
        )
        for events, rng in zip(boxes, rngs, strict=True)
    ]
    return Regions(
        list(boxes), [positives for positives, _ in sampled], [negatives for _, negatives in sampled]
    )


def jitter_boxes(boxes: Tensor, extent: tuple[int, int], rng: Generator) -> Tensor:
    """Move each edge by a random fraction of the side, at most a fifth, and clip to the grid. (n, 4) → (n, 4)"""
    sides = (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)  # (n, 4)
    moved = boxes + (2 * _uniform(boxes.shape, boxes, rng) - 1) * MAX_JITTER * sides
    return clip_boxes(moved, (0, 0, *extent))


def sample_background_boxes(boxes: Tensor, extent: tuple[int, int], rng: Generator) -> Tensor:
    """Sample up to 32 boxes whose overlap with any event is less than a tenth of the smaller area. (n, 4) → (m, 4)

    This is stricter than an IoU below a tenth: a small box in the middle of a long event also has a low IoU.
    """
    if not len(boxes):
        return boxes
    samples = NEGATIVES * SAMPLES_PER_NEGATIVE
    row = (_uniform((samples,), boxes, rng) * len(boxes)).long()
    sides = (boxes[:, 2:] - boxes[:, :2])[row]  # (samples, 2)
    start_low = _uniform((samples, 2), boxes, rng) * (boxes.new_tensor(extent) - sides).clamp(min=0)
    sampled = torch.cat([start_low, start_low + sides], dim=1)
    return sampled[(box_iomin(sampled, boxes) < MAX_OVERLAP).all(dim=1)][:NEGATIVES]


def _uniform(shape: Sequence[int], like: Tensor, rng: Generator) -> Tensor:
    """Sample uniform numbers in 0…1 on the device of `rng`, and move them to the device of `like`."""
    return torch.rand(*shape, generator=rng, device=rng.device).to(like)


def _chunk_of(boxes: Sequence[Tensor]) -> Tensor:
    """Return the chunk index of each box. B times (n, 4) → (boxes of all chunks,)"""
    counts = torch.tensor([len(chunk_boxes) for chunk_boxes in boxes], device=boxes[0].device)
    return torch.repeat_interleave(counts)
