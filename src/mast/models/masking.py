"""What a masked autoencoder hides: any tokens at random, or whole moments and bands (paper, pretraining table)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Mask(NamedTuple):
    """Which tokens stay visible, and how to put all of them back in their places."""

    kept: Tensor  # (B, K) tokens that stay, in the order in which the encoder sees them
    places: Tensor  # (B, N) where each token stands among the kept ones followed by the hidden ones
    hidden: Tensor  # (B, N) 1 for a hidden token, 0 for a kept one


def hide_any(noise: Tensor, share: float) -> Mask:
    """Keep the tokens of least noise, all but a share. (B, N) → mask"""
    shuffled = noise.argsort(dim=1)
    return _mask(shuffled, int(noise.shape[1] * (1 - share)))


def hide_moments_and_bands(
    noise_time: Tensor, noise_band: Tensor, time_share: float, band_share: float
) -> Mask:
    """Keep the tokens of the moments and the bands of least noise, in order. (B, T/16), (B, F/16) → mask

    Of 64 moments and 8 bands, shares of 0.6 and 0.3 leave 25 × 5 tokens: 75.6 % are hidden, the paper's 0.75.
    """
    moments = _least(noise_time, int(noise_time.shape[1] * (1 - time_share)))  # (B, T/16)
    bands = _least(noise_band, int(noise_band.shape[1] * (1 - band_share)))  # (B, F/16)
    visible = (moments[:, :, None] & bands[:, None, :]).flatten(1)  # (B, T/16 · F/16)
    kept_first = visible.int().argsort(dim=1, descending=True, stable=True)
    return _mask(kept_first, int(visible[0].sum()))


def _mask(kept_first: Tensor, count: int) -> Mask:
    places = kept_first.argsort(dim=1)
    return Mask(kept_first[:, :count], places, (places >= count).float())


def _least(noise: Tensor, count: int) -> Tensor:
    """Which are the `count` least of each row. (B, N) → (B, N)"""
    return noise.argsort(dim=1).argsort(dim=1) < count


def noise(seed: int, step: int, *shape: int) -> Tensor:
    """Uniform random numbers that follow from a seed and a step alone, whatever the device."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    return torch.rand(*shape, generator=generator)
