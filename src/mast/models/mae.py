"""Train an encoder to reconstruct masked patches of a chunk from the rest (paper, Self-supervised pretraining)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mast.config import PATCH_SIZE
from mast.models.encoder import Encoder, patchify
from mast.models.mae_decoder import Decoder
from mast.models.masking import Mask


class MaskedAutoencoder(nn.Module):
    """An encoder of the visible tokens of a chunk, and a decoder that reconstructs every patch from them."""

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, spec: Tensor, mask: Mask) -> Tensor:
        """Reconstruct the patches of normalised chunks. (B, F, T) → (B, N, 16 · 16)"""
        reconstruction: Tensor = self.decoder(self.encoder.visible_tokens(spec, mask.ids_keep), mask)
        return reconstruction


def reconstruction_loss(reconstruction: Tensor, spec: Tensor, mask: Mask, *, norm_pix_loss: bool) -> Tensor:
    """Return the mean squared error over the masked patches of each chunk. (B, N, 256), (B, F, T) → (B,)

    With `norm_pix_loss` each target patch is first normalised to mean 0 and standard deviation 1. The paper does not
    specify this; AudioMAE does it (docs/decisions/0009).
    """
    target = patchify(spec)
    if norm_pix_loss:
        target = normalise_patches(target)
    error = (reconstruction.float() - target).square().mean(dim=-1)  # (B, N)
    return (error * mask.mask).sum(dim=1) / mask.mask.sum(dim=1)


def unpatchify(tokens: Tensor, band_tokens: int) -> Tensor:
    """Invert `patchify`. (B, N, 256) → (B, F, T)"""
    split = tokens.reshape(len(tokens), -1, band_tokens, PATCH_SIZE, PATCH_SIZE)  # (B, T/16, F/16, 16, 16)
    return split.transpose(2, 3).reshape(len(tokens), -1, band_tokens * PATCH_SIZE).transpose(1, 2)


def normalise_patches(target: Tensor) -> Tensor:
    """Normalise each patch to mean 0 and standard deviation 1. (B, N, 256) → (B, N, 256)"""
    variance, mean = torch.var_mean(target, dim=-1, keepdim=True)
    return (target - mean) / (variance + 1e-6).sqrt()


def denormalise_patches(reconstruction: Tensor, spec: Tensor) -> Tensor:
    """Scale reconstructed normalised patches to the levels of the input, for plots only. (B, N, 256) → (B, N, 256)"""
    variance, mean = torch.var_mean(patchify(spec), dim=-1, keepdim=True)
    return reconstruction * (variance + 1e-6).sqrt() + mean
