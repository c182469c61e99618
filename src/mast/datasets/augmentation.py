"""Apply a small random subset of the augmentations to each example (paper, Augmentations)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Generator, Tensor

from mast.config import Augmentation
from mast.datasets.transforms import (
    AugmentedBatch,
    cutmix,
    frequency_mask,
    frequency_shift,
    gain,
    gaussian_noise,
    mix_background,
    mixup,
    time_mask,
    time_shift,
    time_warp,
)

Examples: TypeAlias = tuple[Tensor, list[Tensor]]
"""Spectrograms (B, F, T), and the boxes (N, 4) of each."""

Transform: TypeAlias = Callable[[Examples, Examples], AugmentedBatch]
"""An augmentation `transform(examples, others)`; `others` are examples of the same batch to mix in."""


def augment(
    spec: Tensor,
    boxes: Sequence[Tensor],
    settings: Augmentation,
    rng: Generator,
    bank: Tensor | None = None,
) -> AugmentedBatch:
    """Augment a training batch: spectrograms (B, F, T) in raw log-mel, before `pad_frames`, and boxes (N, 4) of each.

    With `probability`, an example gets one to `max_augmentations` different augmentations, otherwise none. Mixup and
    CutMix take the other examples from the batch before augmentation. `bank` (K, F, T) holds background sounds.
    """
    examples = len(boxes)
    bank = spec[:0] if bank is None else bank
    steps = _steps(settings, rng, examples, bank)
    chosen = _choose(examples, len(steps), settings, rng)  # (B, steps)
    offset = int(torch.randint(1, max(2, examples), (), generator=rng, device=rng.device))
    new_spec, new_boxes, dropped = spec.clone(), list(boxes), [0] * examples
    for step, is_chosen in zip(steps, chosen.T, strict=True):
        rows = is_chosen.nonzero()[:, 0].tolist()
        if not rows:
            continue
        others = [(row + offset) % examples for row in rows]
        result = step(_select_rows(new_spec, new_boxes, rows), _select_rows(spec, boxes, others))
        new_spec[rows] = result.spec
        for row, kept_boxes, lost in zip(rows, result.boxes, result.dropped, strict=True):
            new_boxes[row] = kept_boxes
            dropped[row] += lost
    return AugmentedBatch(new_spec, new_boxes, dropped)


def _steps(settings: Augmentation, rng: Generator, examples: int, bank: Tensor) -> list[Transform]:
    """Return the augmentations with non-zero strength, in the order of application.

    Other sounds are mixed in first and masks are applied last, so that masked regions stay masked.
    """
    steps: list[tuple[float, Transform]] = [
        (settings.mixup and examples > 1, lambda batch, other: mixup(*batch, *other)),
        (settings.cutmix_frames * (examples > 1), lambda batch, other: cutmix(*batch, *other, settings, rng)),
        (len(bank), lambda batch, _: mix_background(*batch, bank, settings, rng)),
        (settings.max_time_shift_frames, lambda batch, _: time_shift(*batch, settings, rng)),
        (settings.max_freq_shift_bins, lambda batch, _: frequency_shift(*batch, settings, rng)),
        (settings.max_time_warp, lambda batch, _: time_warp(*batch, settings, rng)),
        (settings.max_gain_db, lambda batch, _: gain(*batch, settings, rng)),
        (settings.noise_std, lambda batch, _: gaussian_noise(*batch, settings, rng)),
        (settings.time_mask_frames, lambda batch, _: time_mask(*batch, settings, rng)),
        (settings.freq_mask_bins, lambda batch, _: frequency_mask(*batch, settings, rng)),
    ]
    return [step for strength, step in steps if strength]


def _choose(examples: int, steps: int, settings: Augmentation, rng: Generator) -> Tensor:
    """Sample the steps of each example: none, or one to `max_augmentations` of them. → (examples, steps)"""
    augment_draw, count_draw = torch.rand(2, examples, generator=rng, device=rng.device)
    count = 1 + (count_draw * min(settings.max_augmentations, steps)).floor()
    rank = torch.rand(examples, steps, generator=rng, device=rng.device).argsort(dim=1)
    return torch.logical_and(rank < count[:, None], augment_draw[:, None] < settings.probability)


def _select_rows(spec: Tensor, boxes: Sequence[Tensor], rows: list[int]) -> Examples:
    """Return the given rows of a batch."""
    return spec[rows], [boxes[row] for row in rows]
