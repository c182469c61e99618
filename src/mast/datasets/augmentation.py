"""A small random subset of the augmentations for each example (paper, Augmentations)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Generator, Tensor

from mast.config import Augmentation
from mast.datasets.transforms import (
    Augmented,
    background,
    cutmix,
    frequency_mask,
    frequency_shift,
    gain,
    gaussian_noise,
    mixup,
    time_mask,
    time_shift,
    time_warp,
)

Examples: TypeAlias = tuple[Tensor, list[Tensor]]
"""Spectrograms (B, F, T), and for each its boxes (N, 4)."""

Step: TypeAlias = Callable[[Examples, Examples], Augmented]
"""An augmentation of examples, each beside another one of the batch."""


def augment(
    spec: Tensor,
    boxes: Sequence[Tensor],
    settings: Augmentation,
    rng: Generator,
    bank: Tensor | None = None,
) -> Augmented:
    """Vary a batch for training: spectrograms (B, F, T) in raw log-mel, before `pad_frames`, and boxes (N, 4) for each.

    With `probability`, an example gets one to `max_augmentations` different augmentations, otherwise none. Mixup and
    CutMix take their other examples from the batch as it came in. `bank` (K, F, T) holds background sounds.
    """
    examples = len(boxes)
    bank = spec[:0] if bank is None else bank
    steps = _steps(settings, rng, examples, bank)
    chosen = _choose(examples, len(steps), settings, rng)  # (B, steps)
    turn = int(torch.randint(1, max(2, examples), (), generator=rng, device=rng.device))
    new_spec, new_boxes, dropped = spec.clone(), list(boxes), [0] * examples
    for step, marks in zip(steps, chosen.T, strict=True):
        rows = marks.nonzero()[:, 0].tolist()
        if not rows:
            continue
        others = [(row + turn) % examples for row in rows]
        result = step(_taken(new_spec, new_boxes, rows), _taken(spec, boxes, others))
        new_spec[rows] = result.spec
        for row, left, lost in zip(rows, result.boxes, result.dropped, strict=True):
            new_boxes[row] = left
            dropped[row] += lost
    return Augmented(new_spec, new_boxes, dropped)


def _steps(settings: Augmentation, rng: Generator, examples: int, bank: Tensor) -> list[Step]:
    """The augmentations with any strength, in the order they are applied.

    Other sounds come in first and masks come last, so that nothing shines through a mask.
    """
    steps: list[tuple[float, Step]] = [
        (settings.mixup and examples > 1, lambda own, other: mixup(*own, *other)),
        (settings.max_cut_frames * (examples > 1), lambda own, other: cutmix(*own, *other, settings, rng)),
        (len(bank), lambda own, _: background(*own, bank, settings, rng)),
        (settings.max_shift_frames, lambda own, _: time_shift(*own, settings, rng)),
        (settings.max_shift_bins, lambda own, _: frequency_shift(*own, settings, rng)),
        (settings.max_warp, lambda own, _: time_warp(*own, settings, rng)),
        (settings.max_gain_db, lambda own, _: gain(*own, settings, rng)),
        (settings.noise_std, lambda own, _: gaussian_noise(*own, settings, rng)),
        (settings.max_mask_frames, lambda own, _: time_mask(*own, settings, rng)),
        (settings.max_mask_bins, lambda own, _: frequency_mask(*own, settings, rng)),
    ]
    return [step for strength, step in steps if strength]


def _choose(examples: int, steps: int, settings: Augmentation, rng: Generator) -> Tensor:
    """Which steps each example gets: none, or one to `max_augmentations` of them. → (examples, steps)"""
    varied, share = torch.rand(2, examples, generator=rng, device=rng.device)
    count = 1 + (share * min(settings.max_augmentations, steps)).floor()
    rank = torch.rand(examples, steps, generator=rng, device=rng.device).argsort(dim=1)
    return torch.logical_and(rank < count[:, None], varied[:, None] < settings.probability)


def _taken(spec: Tensor, boxes: Sequence[Tensor], rows: list[int]) -> Examples:
    """Some examples of a batch."""
    return spec[rows], [boxes[row] for row in rows]
