"""A vector for each chunk: the mean over all tokens of the encoder's map (paper, Representation Analysis)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mast.datasets.loading import Places
from mast.models.devices import autocast
from mast.models.frontend import FrontEnd
from mast.recordings.store import AudioStore

Vectors = NDArray[np.float32]
"""(N, C): one row a chunk."""

OnProgress = Callable[[int, int], None]
"""`on_progress(done, total)`, in chunks."""


def embed_chunks(
    encoder: nn.Module,
    frontend: FrontEnd,
    store: AudioStore,
    places: Places,
    precision: torch.dtype = torch.float32,
    batch: int = 16,
    on_progress: OnProgress = lambda done, total: None,
) -> Vectors:
    """Vectors of the chunks at some places of a store, computed where the encoder is. (N, 2) → (N, C)

    The encoder, in evaluation mode, is any module that maps (B, F, T) to (B, C, F/16, T/16); in another `precision`
    than float32 it runs under autocast. The paper does not say how a map becomes a vector: we take the plain mean.
    """
    device, samples = next(encoder.parameters()).device, store.layout.step_samples
    vectors = []
    for first in range(0, len(places), batch):
        chosen = places[first : first + batch]
        sound = torch.from_numpy(store.read(chosen, samples)).to(device)  # (B, samples)
        filled = torch.from_numpy(store.filled(chosen, samples)).to(device)
        with torch.inference_mode(), autocast(device.type, precision):
            features = encoder(frontend(sound, filled))  # (B, C, F/16, T/16)
        vectors.append(features.float().mean(dim=(2, 3)).cpu().numpy())  # (B, C)
        on_progress(first + len(chosen), len(places))
    return np.concatenate(vectors) if vectors else np.zeros((0, 0), np.float32)
