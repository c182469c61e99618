"""Small test batches: random spectrograms with random boxes, and one bright rectangle on a dark background."""

import torch
from hypothesis import settings
from torch import Tensor

from mast.config import Augmentation

NO_DEADLINE = settings(deadline=None)
"""Disable the time limit of a case, because a busy machine may pause at any time."""

BINS, FRAMES = 32, 96
DARK, BRIGHT = -12.0, -2.0

OFF = Augmentation(
    max_time_shift_frames=0,
    max_freq_shift_bins=0,
    max_time_warp=0,
    time_mask_frames=0,
    freq_mask_bins=0,
    noise_std=0,
    max_gain_db=0,
)
STRONG = Augmentation(
    probability=1,
    max_augmentations=10,
    max_time_shift_frames=40,
    max_freq_shift_bins=10,
    max_time_warp=0.3,
    time_mask_frames=30,
    freq_mask_bins=10,
    mixup=True,
    cutmix_frames=40,
)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_spec(examples: int, seed: int = 0) -> Tensor:
    return torch.randn(examples, BINS, FRAMES, generator=seeded(seed)) * 2 - 6


def random_boxes(examples: int, each: int = 6, seed: int = 0) -> list[Tensor]:
    """Return boxes with edges on whole frames and bins."""
    rng = seeded(seed)

    def edges(size: int) -> Tensor:
        first = torch.randint(0, size - 1, (examples, each), generator=rng)
        fraction = torch.rand(examples, each, generator=rng)
        return torch.stack([first, first + 1 + (fraction * (size - 1 - first)).long()], dim=2)

    times, bins = edges(FRAMES), edges(BINS)
    return list(torch.stack([times, bins], dim=3).flatten(2).float())  # (start, low, end, high)


def rectangle(start: int, low: int, end: int, high: int) -> tuple[Tensor, list[Tensor]]:
    """Return an example with one bright rectangle, and its box."""
    spec = torch.full((1, BINS, FRAMES), DARK)
    spec[0, low:high, start:end] = BRIGHT
    return spec, [torch.tensor([[start, low, end, high]], dtype=torch.float32)]


def bright_extent(example: Tensor) -> list[int] | None:
    """Return (start, low, end, high) of the bright region, or None."""
    bins, frames = (example > (DARK + BRIGHT) / 2).nonzero(as_tuple=True)
    if not len(bins):
        return None
    return [int(frames.min()), int(bins.min()), int(frames.max()) + 1, int(bins.max()) + 1]
