"""Select background chunks of a study, into which synthetic calls are mixed."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mast.audio.spectrogram import LogMel
from mast.config import Study
from mast.datasets.loader import ChunkLocations
from mast.datasets.sampler import evenly_spaced_per_group
from mast.datasets.study_datasets import UNLABELLED, background_chunks, sites_of, split_chunks
from mast.errors import TrainingError
from mast.normalisation import band_medians, remove_dc_offset
from mast.store.audio_store import AudioStore, to_float

POOL_CHUNKS = 4096
"""Maximum number of unlabelled chunks to measure: with unlimited synthetic calls, a subset is sufficient."""

MEASURED_CHUNKS = 64  # at once
ACTIVITY_THRESHOLD = 2.0
"""Level above band and time medians that counts as activity: 2 natural-log units of power, 8.7 dB."""


def select_background_chunks(study: Study, store: AudioStore) -> ChunkLocations:
    """Return the unlabelled chunks of each site with the least acoustic activity. → (n, 2)

    They contain few calls of real animals, which would have no box. If the study has no unlabelled audio, return the
    training chunks without animal annotations. Only chunks with the most audio, usually complete ones, are used.
    """
    table, locations = split_chunks(study, store, [UNLABELLED])
    if not len(locations):
        locations = _chunks_without_animals(study, store)
        return locations[_complete_chunks(store, locations)]
    complete = _complete_chunks(store, locations)
    sites = sites_of(table)
    chosen = complete[evenly_spaced_per_group(sites[complete], POOL_CHUNKS)]
    locations, sites = locations[chosen], sites[chosen]
    logmel = LogMel(study.spectrogram, store.layout.sample_rate_hz)
    parts = np.array_split(locations, max(1, len(locations) // MEASURED_CHUNKS))
    activity = np.concatenate([_acoustic_activity(store, logmel, part) for part in parts])
    kept = []
    for site in np.unique(sites.astype(str)):
        rows = np.flatnonzero(sites == site)
        count = max(1, round(study.train_synthetic.background_fraction * len(rows)))
        kept.append(rows[np.argsort(activity[rows], kind="stable")[:count]])
    quietest: ChunkLocations = locations[np.sort(np.concatenate(kept))]
    return quietest


def _chunks_without_animals(study: Study, store: AudioStore) -> ChunkLocations:
    """Return the training chunks without animal annotations, at least one. → (n, 2)"""
    empty = background_chunks(study, store)
    if not len(empty):
        raise TrainingError(
            "This study has no background chunks for synthetic calls: no audio is unlabelled, and every training chunk "
            "contains animal annotations. Add recordings without annotations to its collections, and run mast scan, "
            "mast split and mast prepare again."
        )
    return empty


def _complete_chunks(store: AudioStore, locations: ChunkLocations) -> NDArray[np.int64]:
    """Return the rows of the chunks with the most audio samples. (n, 2) → rows"""
    samples = store.valid_lengths(locations, store.layout.block_samples)
    return np.flatnonzero(samples == samples.max())


def _acoustic_activity(store: AudioStore, logmel: LogMel, locations: ChunkLocations) -> NDArray[np.float32]:
    """Return the fraction of each spectrogram above its band and time medians. → (n,)

    Calls exceed both medians; rain and hum do not.
    """
    samples = int(store.valid_lengths(locations, store.layout.block_samples).min())
    waves = torch.from_numpy(to_float(store.read(locations, samples)))
    levels: Tensor = logmel(remove_dc_offset(waves, torch.full((len(locations),), samples)))  # (n, F, T)
    above_band = levels - band_medians(levels)
    above_both = above_band - above_band.median(dim=1, keepdim=True).values.clamp(min=0)
    activity: NDArray[np.float32] = (above_both > ACTIVITY_THRESHOLD).float().mean(dim=(1, 2)).numpy()
    return activity
