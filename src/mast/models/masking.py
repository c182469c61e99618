"""Sample masks for a masked autoencoder: random tokens, or whole time steps and bands (paper, pretraining table)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Mask(NamedTuple):
    """The visible tokens, and the permutation that restores the order of all tokens (names as in MAE)."""

    ids_keep: Tensor  # (B, K) visible tokens, in the order of the encoder's input
    ids_restore: Tensor  # (B, N) position of each token in the sequence of visible, then masked tokens
    mask: Tensor  # (B, N) 1 for a masked token, 0 for a visible one


def random_mask(noise: Tensor, mask_ratio: float) -> Mask:
    """Mask the fraction `mask_ratio` of the tokens, those with the highest noise. (B, N) → mask"""
    ids_shuffle = noise.argsort(dim=1)
    return _mask(ids_shuffle, int(noise.shape[1] * (1 - mask_ratio)))


def structured_mask(
    noise_time: Tensor, noise_freq: Tensor, mask_ratio_time: float, mask_ratio_freq: float
) -> Mask:
    """Mask all tokens of the time steps and bands with the highest noise. (B, T/16), (B, F/16) → mask

    Visible tokens keep their order. Of 64 time steps and 8 bands, ratios of 0.6 and 0.3 leave 25 × 5 visible tokens:
    75.6 % are masked, the paper's 0.75.
    """
    times = _smallest(noise_time, int(noise_time.shape[1] * (1 - mask_ratio_time)))  # (B, T/16)
    bands = _smallest(noise_freq, int(noise_freq.shape[1] * (1 - mask_ratio_freq)))  # (B, F/16)
    visible = (times[:, :, None] & bands[:, None, :]).flatten(1)  # (B, T/16 · F/16)
    ids_shuffle = visible.int().argsort(dim=1, descending=True, stable=True)
    return _mask(ids_shuffle, int(visible[0].sum()))


def _mask(ids_shuffle: Tensor, count: int) -> Mask:
    ids_restore = ids_shuffle.argsort(dim=1)
    return Mask(ids_shuffle[:, :count], ids_restore, (ids_restore >= count).float())


def _smallest(noise: Tensor, count: int) -> Tensor:
    """Return a mask of the `count` smallest values of each row. (B, N) → (B, N)"""
    return noise.argsort(dim=1).argsort(dim=1) < count


def noise(seed: int, step: int, *shape: int) -> Tensor:
    """Return uniform random numbers that depend only on the seed and the step, not on the device."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    return torch.rand(*shape, generator=generator)
