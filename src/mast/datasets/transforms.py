"""Each augmentation of the paper as a pure function on a batch (paper, Augmentations).

`spec` (B, F, T) is raw log-mel in natural-log units, before normalisation and before `pad_frames`: the zeros that
`pad_frames` appends are no sound, and should not be shifted into the picture. `boxes` holds for each example a tensor
(N, 4) of (start, low, end, high) in frames and bins. Amounts are drawn on the device of `rng`, one for each example:
a CPU generator gives the same result on every device, a GPU generator spares the copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Generator, Tensor
from torch.nn import functional

from mast.boxes import area, clip, intersection
from mast.config import Augmentation
from mast.spectrogram import LOG_FLOOR

FREQUENCY, TIME = 1, 2
"""Axes of a batch of spectrograms (B, F, T)."""

LOG_PER_DB = math.log(10) / 10
"""A log-mel is the natural log of a power, so that 10 dB are a factor of ten: log(10)."""

FLOOR = math.log(LOG_FLOOR)
SILENCE = FLOOR + 1e-3
"""What reads no more than this lies at Kaldi's floor: nothing was heard there."""

Region: TypeAlias = tuple[int, int, int, int]
"""Part of the grid: (start, low, end, high) in whole frames and bins."""


@dataclass(frozen=True, slots=True)
class Augmented:
    """A batch after augmentation: spectrograms (B, F, T), and for each its boxes and how many boxes it lost."""

    spec: Tensor
    boxes: list[Tensor]
    dropped: list[int]


def time_shift(spec: Tensor, boxes: Sequence[Tensor], settings: Augmentation, rng: Generator) -> Augmented:
    """Move each example by whole frames; its own minimum fills what comes in (paper, Time shift)."""
    frames = _whole(-settings.max_shift_frames, settings.max_shift_frames, spec, rng)
    return _moved(spec, boxes, TIME, [(spec.shape[TIME], offset) for offset in frames], settings)


def frequency_shift(
    spec: Tensor, boxes: Sequence[Tensor], settings: Augmentation, rng: Generator
) -> Augmented:
    """Move each example by whole mel bins; its own minimum fills what comes in (paper, Frequency shift)."""
    bins = _whole(-settings.max_shift_bins, settings.max_shift_bins, spec, rng)
    return _moved(spec, boxes, FREQUENCY, [(spec.shape[FREQUENCY], offset) for offset in bins], settings)


def time_warp(spec: Tensor, boxes: Sequence[Tensor], settings: Augmentation, rng: Generator) -> Augmented:
    """Stretch or squeeze each example to another number of frames, around its middle (paper, Time warp).

    Frames in between are interpolated linearly; its own minimum fills the room that a squeezed example leaves.
    """
    frames = spec.shape[TIME]
    most = int(settings.max_warp * frames)
    lengths = _whole(frames - most, frames + most, spec, rng)
    return _moved(spec, boxes, TIME, [(length, (frames - length) // 2) for length in lengths], settings)


def frequency_mask(
    spec: Tensor, boxes: Sequence[Tensor], settings: Augmentation, rng: Generator
) -> Augmented:
    """Hide a random band of each example, and drop the boxes it largely covers (paper, Frequency masking)."""
    bands = _spans(settings.max_mask_bins, spec, FREQUENCY, rng)
    return _masked(spec, boxes, [(0, low, spec.shape[TIME], high) for low, high in bands], settings)


def time_mask(spec: Tensor, boxes: Sequence[Tensor], settings: Augmentation, rng: Generator) -> Augmented:
    """Hide a random time span of each example, and drop the boxes it largely covers (paper, Time masking)."""
    spans = _spans(settings.max_mask_frames, spec, TIME, rng)
    return _masked(spec, boxes, [(start, 0, end, spec.shape[FREQUENCY]) for start, end in spans], settings)


def gaussian_noise(
    spec: Tensor, boxes: Sequence[Tensor], settings: Augmentation, rng: Generator
) -> Augmented:
    """Add independent Gaussian noise to every value (paper, Gaussian noise and volume scaling)."""
    noise = torch.randn(spec.shape, generator=rng, device=rng.device, dtype=spec.dtype).to(spec.device)
    return _untouched(noise.mul_(settings.noise_std).add_(spec), boxes)


def gain(spec: Tensor, boxes: Sequence[Tensor], settings: Augmentation, rng: Generator) -> Augmented:
    """Make each example louder or softer (paper, Gaussian noise and volume scaling).

    A volume multiplies every power by one factor, which adds its logarithm to every log-mel value. Silence has no
    volume: what lies at Kaldi's floor stays there, and nothing sinks below it.
    """
    offset = LOG_PER_DB * _uniform(-settings.max_gain_db, settings.max_gain_db, spec, rng)
    louder = (spec + offset[:, None, None]).clamp_(min=FLOOR)
    return _untouched(torch.where(spec > SILENCE, louder, spec), boxes)


def background(
    spec: Tensor, boxes: Sequence[Tensor], bank: Tensor, settings: Augmentation, rng: Generator
) -> Augmented:
    """Add to each example a random one of the background sounds (K, F, T) (paper, Background mixing).

    Its level is drawn against the example's own, mean log-mel to mean log-mel. A call is too short to move that mean,
    so this compares background with background, whatever the gains of the two recorders were.
    """
    if bank.shape[1:] != spec.shape[1:]:
        raise ValueError(f"background sounds {tuple(bank.shape[1:])} do not fit {tuple(spec.shape[1:])}")
    number = torch.randint(len(bank), (len(spec),), generator=rng, device=rng.device)
    sound = bank[number.to(bank.device)].to(spec)  # (B, F, T)
    level = LOG_PER_DB * _uniform(settings.min_mix_db, settings.max_mix_db, spec, rng)
    offset = level + spec.mean(dim=(1, 2)) - sound.mean(dim=(1, 2))
    return _untouched(add_powers(spec, sound + offset[:, None, None]), boxes)


def mixup(
    spec: Tensor, boxes: Sequence[Tensor], other_spec: Tensor, other_boxes: Sequence[Tensor]
) -> Augmented:
    """Hear two examples at once, with the boxes of both (paper, Mixup and CutMix).

    Powers add as in the air, at the level each was recorded, so that both keep their sounds and no box needs a weight.
    """
    both = [torch.cat(pair) for pair in zip(boxes, other_boxes, strict=True)]
    return _untouched(add_powers(spec, other_spec), both)


def cutmix(
    spec: Tensor,
    boxes: Sequence[Tensor],
    other_spec: Tensor,
    other_boxes: Sequence[Tensor],
    settings: Augmentation,
    rng: Generator,
) -> Augmented:
    """Replace a random time span of each example by the same span of another (paper, Mixup and CutMix).

    Its own boxes are kept or dropped as under a time mask; the other's are cut to the span. Boxes of the other that do
    not reach into the span never enter, and do not count as dropped.
    """
    new, kept, dropped = spec.clone(), [], []
    spans = _spans(settings.max_cut_frames, spec, TIME, rng)
    for row, (mine, others, (start, end)) in enumerate(zip(boxes, other_boxes, spans, strict=True)):
        new[row, :, start:end] = other_spec[row, :, start:end]
        region = (start, 0, end, spec.shape[FREQUENCY])
        entering = others[intersection(others, others.new_tensor([region]))[:, 0] > 0]
        left = torch.cat([_visible(mine, region, settings), _cut(entering, region, settings)])
        kept.append(left)
        dropped.append(len(mine) + len(entering) - len(left))
    return Augmented(new, kept, dropped)


def up_to_the_sound(
    boxes: Sequence[Tensor], end_frames: Sequence[int], bins: int, settings: Augmentation
) -> list[Tensor]:
    """Boxes of examples whose sound ends there, cut to it as to the edge of the grid: what moved on is not seen."""
    return [_cut(own, (0, 0, end, bins), settings) for own, end in zip(boxes, end_frames, strict=True)]


def add_powers(spec: Tensor, other: Tensor) -> Tensor:
    """Log-mel of two sounds heard at once: log(exp(a) + exp(b)). (B, F, T), (B, F, T) → (B, F, T)"""
    return torch.logaddexp(spec, other)


def _moved(
    spec: Tensor,
    boxes: Sequence[Tensor],
    axis: int,
    placements: Sequence[tuple[int, int]],
    settings: Augmentation,
) -> Augmented:
    """Bring each example to a size along an axis and lay it at an offset, in spectrograms and boxes alike.

    What lies outside the grid is cut off; the example's minimum fills what is left empty.
    """
    size = spec.shape[axis]
    new, kept = spec.amin(dim=(1, 2), keepdim=True).expand_as(spec).clone(), []
    for row, (own, (new_size, offset)) in enumerate(zip(boxes, placements, strict=True)):
        piece = spec[row] if new_size == size else _stretched(spec[row], new_size)
        first, stop = max(offset, 0), min(offset + new_size, size)
        if first < stop:
            seen = piece.narrow(axis - 1, first - offset, stop - first)
            new[row].narrow(axis - 1, first, stop - first).copy_(seen)
        moved = own.clone()
        moved[:, TIME - axis :: 2] *= new_size / size  # start and end, or low and high
        moved[:, TIME - axis :: 2] += offset
        kept.append(_cut(moved, (0, 0, spec.shape[TIME], spec.shape[FREQUENCY]), settings))
    return Augmented(new, kept, _fewer(boxes, kept))


def _stretched(example: Tensor, frames: int) -> Tensor:
    """An example brought to so many frames, linearly interpolated. (F, T) → (F, frames)"""
    return functional.interpolate(example[None], size=frames, mode="linear")[0]


def _masked(
    spec: Tensor, boxes: Sequence[Tensor], regions: Sequence[Region], settings: Augmentation
) -> Augmented:
    """Fill a region of each example with its mean, which is SpecAugment's zero on a normalised spectrogram."""
    new, mean = spec.clone(), spec.mean(dim=(1, 2))
    for row, (start, low, end, high) in enumerate(regions):
        new[row, low:high, start:end] = mean[row]
    kept = [_visible(own, region, settings) for own, region in zip(boxes, regions, strict=True)]
    return Augmented(new, kept, _fewer(boxes, kept))


def _visible(boxes: Tensor, region: Region, settings: Augmentation) -> Tensor:
    """Boxes of which a region hides no more than `max_occluded` of their area. (N, 4) → (M, 4)"""
    hidden = intersection(boxes, boxes.new_tensor([region]))[:, 0]
    return boxes[hidden <= settings.max_occluded * area(boxes)]


def _cut(boxes: Tensor, region: Region, settings: Augmentation) -> Tensor:
    """Boxes cut to a region, without those that became too small to be a target. (N, 4) → (M, 4)

    Only what the cut took counts: a call of 50 ms stays a target as long as it is whole.
    """
    cut = clip(boxes, region)
    sides, sides_before = (item[:, 2:] - item[:, :2] for item in (cut, boxes))  # (N, 2): frames, bins
    least = boxes.new_tensor([settings.min_left_frames, settings.min_left_bins])
    too_small = ((sides < sides_before) & (sides < least)).any(dim=1)
    return cut[~too_small & (area(cut) >= settings.min_left * area(boxes))]


def _spans(max_width: int, spec: Tensor, axis: int, rng: Generator) -> list[tuple[int, int]]:
    """A random span along an axis for each example, as its first and its past-the-last position."""
    size = spec.shape[axis]
    widest = min(max_width, size)
    widths = _whole(min(1, widest), widest, spec, rng)
    places = _uniform(0, 1, spec, rng).tolist()
    starts = [int(place * (size - width + 1)) for place, width in zip(places, widths, strict=True)]
    return [(start, start + width) for start, width in zip(starts, widths, strict=True)]


def _whole(least: int, most: int, spec: Tensor, rng: Generator) -> list[int]:
    """A random whole number for each example."""
    numbers: list[int] = torch.randint(
        least, most + 1, (len(spec),), generator=rng, device=rng.device
    ).tolist()
    return numbers


def _uniform(least: float, most: float, spec: Tensor, rng: Generator) -> Tensor:
    """A random number for each example. → (B,)"""
    return least + (most - least) * torch.rand(len(spec), generator=rng, device=rng.device).to(spec)


def _untouched(spec: Tensor, boxes: Sequence[Tensor]) -> Augmented:
    """A change of levels only: every box stays."""
    return Augmented(spec, list(boxes), [0] * len(boxes))


def _fewer(before: Sequence[Tensor], after: Sequence[Tensor]) -> list[int]:
    """How many boxes each example lost."""
    return [len(old) - len(new) for old, new in zip(before, after, strict=True)]
