"""The masked autoencoder: hide most of a chunk, guess it from the rest (paper, Self-supervised pretraining)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mast.config import PATCH
from mast.models.decoder import Decoder
from mast.models.encoder import Encoder, patches
from mast.models.masking import Mask


class MaskedAutoencoder(nn.Module):
    """An encoder that sees the visible tokens of a chunk, and a decoder that guesses every patch from them."""

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, spec: Tensor, mask: Mask) -> Tensor:
        """Guessed patches of normalised chunks. (B, F, T) → (B, N, 16 · 16)"""
        guess: Tensor = self.decoder(self.encoder.visible_tokens(spec, mask.kept), mask)
        return guess


def reconstruction_loss(guess: Tensor, spec: Tensor, mask: Mask, *, normalised_patches: bool) -> Tensor:
    """Mean squared error over the hidden patches of each chunk. (B, N, 256), (B, F, T) → (B,)

    With `normalised_patches` each patch is first brought to mean 0 and deviation 1, which the paper leaves open and
    AudioMAE does (docs/decisions/0009).
    """
    target = patches(spec)
    if normalised_patches:
        target = normalised(target)
    error = (guess.float() - target).square().mean(dim=-1)  # (B, N)
    return (error * mask.hidden).sum(dim=1) / mask.hidden.sum(dim=1)


def unpatched(tokens: Tensor, band_tokens: int) -> Tensor:
    """The inverse of `patches`. (B, N, 256) → (B, F, T)"""
    split = tokens.reshape(len(tokens), -1, band_tokens, PATCH, PATCH)  # (B, T/16, F/16, 16, 16)
    return split.transpose(2, 3).reshape(len(tokens), -1, band_tokens * PATCH).transpose(1, 2)


def normalised(target: Tensor) -> Tensor:
    """Each patch with mean 0 and deviation 1. (B, N, 256) → (B, N, 256)"""
    variance, mean = torch.var_mean(target, dim=-1, keepdim=True)
    return (target - mean) / (variance + 1e-6).sqrt()


def restored(guess: Tensor, spec: Tensor) -> Tensor:
    """A guess at normalised patches, in the levels of the true ones: for looking at only. (B, N, 256) → (B, N, 256)"""
    variance, mean = torch.var_mean(patches(spec), dim=-1, keepdim=True)
    return guess * (variance + 1e-6).sqrt() + mean
