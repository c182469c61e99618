"""Augment batches of spectrograms and boxes with pure functions, one for each augmentation (paper, Augmentations).

`spec` (B, F, T) is raw log-mel in natural-log units, before normalisation and before `pad_frames`: the zeros that
`pad_frames` appends are padding, and should not be shifted into the spectrogram. `boxes` holds for each example a tensor
(N, 4) of (start, low, end, high) in frames and bins. Amounts are sampled on the device of `rng`, one for each example:
a CPU generator gives the same result on every device, a GPU generator avoids the copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Generator, Tensor
from torch.nn import functional

from mast.audio.spectrogram import LOG_FLOOR
from mast.box_ops import box_area, clip_boxes, intersection
from mast.config import Augmentation

FREQUENCY, TIME = 1, 2
"""Axes of a batch of spectrograms (B, F, T)."""

LOG_PER_DB = math.log(10) / 10
"""Log-mel units per decibel: log-mel is the natural log of a power, so 10 dB are a factor of ten, log(10)."""

FLOOR = math.log(LOG_FLOOR)
SILENCE = FLOOR + 1e-3
"""Log-mel values up to this are at Kaldi's floor: digital silence."""

Region: TypeAlias = tuple[int, int, int, int]
"""Part of the grid: (start, low, end, high) in whole frames and bins."""


@dataclass(frozen=True, slots=True)
class AugmentedBatch:
    """A batch after augmentation: spectrograms (B, F, T), the boxes of each, and the number of boxes each lost."""

    spec: Tensor
    boxes: list[Tensor]
    dropped: list[int]


def time_shift(
    spec: Tensor, boxes: Sequence[Tensor], settings: Augmentation, rng: Generator
) -> AugmentedBatch:
    """Shift each example by whole frames; the example's minimum fills the empty frames (paper, Time shift)."""
    frames = _random_integer(-settings.max_time_shift_frames, settings.max_time_shift_frames, spec, rng)
    return _resize_and_shift(spec, boxes, TIME, [(spec.shape[TIME], offset) for offset in frames], settings)


def frequency_shift(
    spec: Tensor, boxes: Sequence[Tensor], settings: Augmentation, rng: Generator
) -> AugmentedBatch:
    """Shift each example by whole mel bins; the example's minimum fills the empty bins (paper, Frequency shift)."""
    bins = _random_integer(-settings.max_freq_shift_bins, settings.max_freq_shift_bins, spec, rng)
    return _resize_and_shift(
        spec, boxes, FREQUENCY, [(spec.shape[FREQUENCY], offset) for offset in bins], settings
    )


def time_warp(
    spec: Tensor, boxes: Sequence[Tensor], settings: Augmentation, rng: Generator
) -> AugmentedBatch:
    """Stretch or compress each example around its centre to another number of frames (paper, Time warp).

    Frames are interpolated linearly; the example's minimum fills the frames that a compressed example leaves empty.
    """
    frames = spec.shape[TIME]
    maximum = int(settings.max_time_warp * frames)
    lengths = _random_integer(frames - maximum, frames + maximum, spec, rng)
    return _resize_and_shift(
        spec, boxes, TIME, [(length, (frames - length) // 2) for length in lengths], settings
    )


def frequency_mask(
    spec: Tensor, boxes: Sequence[Tensor], settings: Augmentation, rng: Generator
) -> AugmentedBatch:
    """Mask a random band of each example, and drop the boxes that it largely covers (paper, Frequency masking)."""
    bands = _spans(settings.freq_mask_bins, spec, FREQUENCY, rng)
    return _mask_regions(spec, boxes, [(0, low, spec.shape[TIME], high) for low, high in bands], settings)


def time_mask(
    spec: Tensor, boxes: Sequence[Tensor], settings: Augmentation, rng: Generator
) -> AugmentedBatch:
    """Mask a random time span of each example, and drop the boxes that it largely covers (paper, Time masking)."""
    spans = _spans(settings.time_mask_frames, spec, TIME, rng)
    return _mask_regions(
        spec, boxes, [(start, 0, end, spec.shape[FREQUENCY]) for start, end in spans], settings
    )


def gaussian_noise(
    spec: Tensor, boxes: Sequence[Tensor], settings: Augmentation, rng: Generator
) -> AugmentedBatch:
    """Add independent Gaussian noise to every value (paper, Gaussian noise and volume scaling)."""
    noise = torch.randn(spec.shape, generator=rng, device=rng.device, dtype=spec.dtype).to(spec.device)
    return _unchanged(noise.mul_(settings.noise_std).add_(spec), boxes)


def gain(spec: Tensor, boxes: Sequence[Tensor], settings: Augmentation, rng: Generator) -> AugmentedBatch:
    """Make each example louder or softer (paper, Gaussian noise and volume scaling).

    A gain multiplies every power by one factor, which adds its logarithm to every log-mel value. Digital silence has no
    volume: values at Kaldi's floor stay there, and no value falls below it.
    """
    offset = LOG_PER_DB * _uniform(-settings.max_gain_db, settings.max_gain_db, spec, rng)
    louder = (spec + offset[:, None, None]).clamp_(min=FLOOR)
    return _unchanged(torch.where(spec > SILENCE, louder, spec), boxes)


def mix_background(
    spec: Tensor, boxes: Sequence[Tensor], bank: Tensor, settings: Augmentation, rng: Generator
) -> AugmentedBatch:
    """Add a random background sound of `bank` (K, F, T) to each example (paper, Background mixing).

    The level of the background sound is sampled relative to the level of the example; both levels are mean log-mel. A
    call is too short to change that mean, so background is compared with background, independent of recorder gains.
    """
    if bank.shape[1:] != spec.shape[1:]:
        raise ValueError(
            f"Background sounds of shape {tuple(bank.shape[1:])} do not fit {tuple(spec.shape[1:])}"
        )
    choice = torch.randint(len(bank), (len(spec),), generator=rng, device=rng.device)
    sound = bank[choice.to(bank.device)].to(spec)  # (B, F, T)
    level = LOG_PER_DB * _uniform(settings.background_min_db, settings.background_max_db, spec, rng)
    offset = level + spec.mean(dim=(1, 2)) - sound.mean(dim=(1, 2))
    return _unchanged(mix_log_mel(spec, sound + offset[:, None, None]), boxes)


def mixup(
    spec: Tensor, boxes: Sequence[Tensor], other_spec: Tensor, other_boxes: Sequence[Tensor]
) -> AugmentedBatch:
    """Mix two examples and keep the boxes of both (paper, Mixup and CutMix).

    Powers add as in air, at the level of each recording, so both keep their sounds and no box needs a weight.
    """
    both = [torch.cat(pair) for pair in zip(boxes, other_boxes, strict=True)]
    return _unchanged(mix_log_mel(spec, other_spec), both)


def cutmix(
    spec: Tensor,
    boxes: Sequence[Tensor],
    other_spec: Tensor,
    other_boxes: Sequence[Tensor],
    settings: Augmentation,
    rng: Generator,
) -> AugmentedBatch:
    """Replace a random time span of each example by the same span of another (paper, Mixup and CutMix).

    Boxes of the example are kept or dropped as under a time mask; boxes of the other example are clipped to the span.
    Boxes of the other example outside the span are not added, and do not count as dropped.
    """
    new, kept, dropped = spec.clone(), [], []
    spans = _spans(settings.cutmix_frames, spec, TIME, rng)
    for row, (example_boxes, incoming, (start, end)) in enumerate(
        zip(boxes, other_boxes, spans, strict=True)
    ):
        new[row, :, start:end] = other_spec[row, :, start:end]
        region = (start, 0, end, spec.shape[FREQUENCY])
        overlapping = incoming[intersection(incoming, incoming.new_tensor([region]))[:, 0] > 0]
        remaining = torch.cat(
            [_visible(example_boxes, region, settings), _clip(overlapping, region, settings)]
        )
        kept.append(remaining)
        dropped.append(len(example_boxes) + len(overlapping) - len(remaining))
    return AugmentedBatch(new, kept, dropped)


def clip_to_audio_end(
    boxes: Sequence[Tensor], end_frames: Sequence[int], bins: int, settings: Augmentation
) -> list[Tensor]:
    """Clip the boxes of each example to the end of its audio, as at the edge of the grid; later parts are padding."""
    return [
        _clip(example_boxes, (0, 0, end, bins), settings)
        for example_boxes, end in zip(boxes, end_frames, strict=True)
    ]


def mix_log_mel(spec: Tensor, other: Tensor) -> Tensor:
    """Return the log-mel of the sum of two sounds: log(exp(a) + exp(b)). (B, F, T), (B, F, T) → (B, F, T)"""
    return torch.logaddexp(spec, other)


def _resize_and_shift(
    spec: Tensor,
    boxes: Sequence[Tensor],
    axis: int,
    placements: Sequence[tuple[int, int]],
    settings: Augmentation,
) -> AugmentedBatch:
    """Resize each example along an axis and place it at an offset; transform its boxes in the same way.

    Parts outside the grid are cut off; the example's minimum fills empty parts.
    """
    size = spec.shape[axis]
    new, kept = spec.amin(dim=(1, 2), keepdim=True).expand_as(spec).clone(), []
    for row, (example_boxes, (new_size, offset)) in enumerate(zip(boxes, placements, strict=True)):
        piece = spec[row] if new_size == size else _stretch(spec[row], new_size)
        first, stop = max(offset, 0), min(offset + new_size, size)
        if first < stop:
            visible = piece.narrow(axis - 1, first - offset, stop - first)
            new[row].narrow(axis - 1, first, stop - first).copy_(visible)
        moved = example_boxes.clone()
        moved[:, TIME - axis :: 2] *= new_size / size  # start and end, or low and high
        moved[:, TIME - axis :: 2] += offset
        kept.append(_clip(moved, (0, 0, spec.shape[TIME], spec.shape[FREQUENCY]), settings))
    return AugmentedBatch(new, kept, _count_dropped(boxes, kept))


def _stretch(example: Tensor, frames: int) -> Tensor:
    """Interpolate an example linearly to `frames` frames. (F, T) → (F, frames)"""
    return functional.interpolate(example[None], size=frames, mode="linear")[0]


def _mask_regions(
    spec: Tensor, boxes: Sequence[Tensor], regions: Sequence[Region], settings: Augmentation
) -> AugmentedBatch:
    """Fill a region of each example with the example's mean, SpecAugment's zero on a normalised spectrogram."""
    new, mean = spec.clone(), spec.mean(dim=(1, 2))
    for row, (start, low, end, high) in enumerate(regions):
        new[row, low:high, start:end] = mean[row]
    kept = [
        _visible(example_boxes, region, settings)
        for example_boxes, region in zip(boxes, regions, strict=True)
    ]
    return AugmentedBatch(new, kept, _count_dropped(boxes, kept))


def _visible(boxes: Tensor, region: Region, settings: Augmentation) -> Tensor:
    """Keep the boxes of which a region covers at most the fraction `max_occlusion`. (N, 4) → (M, 4)"""
    masked = intersection(boxes, boxes.new_tensor([region]))[:, 0]
    return boxes[masked <= settings.max_occlusion * box_area(boxes)]


def _clip(boxes: Tensor, region: Region, settings: Augmentation) -> Tensor:
    """Clip boxes to a region, and drop boxes that clipping made too small for a target. (N, 4) → (M, 4)

    Boxes that were not clipped are kept at any size: a complete call of 50 ms stays a target.
    """
    clipped = clip_boxes(boxes, region)
    sides, sides_before = (edges[:, 2:] - edges[:, :2] for edges in (clipped, boxes))  # (N, 2): frames, bins
    minimum = boxes.new_tensor([settings.min_box_frames, settings.min_box_bins])
    too_small = ((sides < sides_before) & (sides < minimum)).any(dim=1)
    return clipped[~too_small & (box_area(clipped) >= settings.min_box_visibility * box_area(boxes))]


def _spans(max_width: int, spec: Tensor, axis: int, rng: Generator) -> list[tuple[int, int]]:
    """Sample a span along an axis for each example, as its first and its past-the-last position."""
    size = spec.shape[axis]
    widest = min(max_width, size)
    widths = _random_integer(min(1, widest), widest, spec, rng)
    fractions = _uniform(0, 1, spec, rng).tolist()
    starts = [int(fraction * (size - width + 1)) for fraction, width in zip(fractions, widths, strict=True)]
    return [(start, start + width) for start, width in zip(starts, widths, strict=True)]


def _random_integer(minimum: int, maximum: int, spec: Tensor, rng: Generator) -> list[int]:
    """Sample an integer from `minimum` to `maximum` for each example."""
    numbers: list[int] = torch.randint(
        minimum, maximum + 1, (len(spec),), generator=rng, device=rng.device
    ).tolist()
    return numbers


def _uniform(minimum: float, maximum: float, spec: Tensor, rng: Generator) -> Tensor:
    """Sample a number between `minimum` and `maximum` for each example. → (B,)"""
    return minimum + (maximum - minimum) * torch.rand(len(spec), generator=rng, device=rng.device).to(spec)


def _unchanged(spec: Tensor, boxes: Sequence[Tensor]) -> AugmentedBatch:
    """Return a batch with all its boxes: only levels changed."""
    return AugmentedBatch(spec, list(boxes), [0] * len(boxes))


def _count_dropped(before: Sequence[Tensor], after: Sequence[Tensor]) -> list[int]:
    """Count the boxes that each example lost."""
    return [len(old) - len(new) for old, new in zip(before, after, strict=True)]
