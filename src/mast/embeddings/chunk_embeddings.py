"""Embed chunks: the vector of a chunk is the mean over all encoder tokens (paper, Representation Analysis)."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from mast.datasets.loader import ChunkLocations
from mast.models.devices import autocast
from mast.models.frontend import FrontEnd
from mast.store.audio_store import AudioStore
from mast.types import Floats32, OnCount


def embed_chunks(
    encoder: nn.Module,
    frontend: FrontEnd,
    store: AudioStore,
    locations: ChunkLocations,
    precision: torch.dtype = torch.float32,
    batch: int = 16,
    on_progress: OnCount = lambda done, total: None,
) -> Floats32:
    """Return the vectors of the chunks at `locations` of a store, computed on the encoder's device. (N, 2) → (N, C)

    The encoder, in evaluation mode, is any module that maps (B, F, T) to (B, C, F/16, T/16). With a `precision` other
    than float32 it runs under autocast. The paper does not specify how a map becomes a vector: we take the plain mean.
    """
    device, samples = next(encoder.parameters()).device, store.layout.block_samples
    vectors = []
    for first in range(0, len(locations), batch):
        chosen = locations[first : first + batch]
        waves = torch.from_numpy(store.read(chosen, samples)).to(device)  # (B, samples)
        valid_samples = torch.from_numpy(store.valid_lengths(chosen, samples)).to(device)
        with torch.inference_mode(), autocast(device.type, precision):
            features = encoder(frontend(waves, valid_samples))  # (B, C, F/16, T/16)
        vectors.append(features.float().mean(dim=(2, 3)).cpu().numpy())  # (B, C)
        on_progress(first + len(chosen), len(locations))
    return np.concatenate(vectors) if vectors else np.zeros((0, 0), np.float32)
