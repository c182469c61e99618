"""Quiet parts of a study's sound: what made-up calls are laid over."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mast.config import Study
from mast.datasets.examples import UNLABELLED, noise_places, prepared_chunks, sites_of
from mast.datasets.loading import Places
from mast.datasets.order import spread_among
from mast.errors import TrainingError
from mast.normalisation import band_medians, mean_centred
from mast.recordings.store import AudioStore, to_float
from mast.spectrogram import LogMel

POOL_CHUNKS = 4096
"""Unlabelled chunks that are looked at: some of them, and calls without end, are enough."""

LISTENED_CHUNKS = 64
STANDS_OUT = 2.0
"""Nepers, 8.7 dB."""


def quiet_chunks(study: Study, store: AudioStore) -> Places:
    """The quietest unlabelled chunks of each site, so that few calls of real animals go without a box. → (n, 2)

    Where nothing is unlabelled they are those in which the experts found no animal. Only chunks that are full are looked
    at, or as full as any.
    """
    table, places = prepared_chunks(study, store, [UNLABELLED])
    if not len(places):
        places = _without_animals(study, store)
        return places[_full(store, places)]
    full = _full(store, places)
    sites = sites_of(table)
    chosen = full[spread_among(sites[full], POOL_CHUNKS)]
    places, sites = places[chosen], sites[chosen]
    logmel = LogMel(study.spectrogram, store.layout.sample_rate_hz)
    parts = np.array_split(places, max(1, len(places) // LISTENED_CHUNKS))
    liveliness = np.concatenate([_liveliness(store, logmel, part) for part in parts])
    kept = []
    for site in np.unique(sites.astype(str)):
        here = np.flatnonzero(sites == site)
        count = max(1, round(study.rehearse.quiet_share * len(here)))
        kept.append(here[np.argsort(liveliness[here], kind="stable")[:count]])
    quietest: Places = places[np.sort(np.concatenate(kept))]
    return quietest


def _without_animals(study: Study, store: AudioStore) -> Places:
    """Chunks for training in which the experts found no animal. → (n, 2), at least one"""
    empty = noise_places(study, store)
    if not len(empty):
        raise TrainingError(
            "There is no sound in this study to lay made-up calls over: none is unlabelled, and animals call in all that "
            "is for training. Add recordings without annotations to its collections, and run mast scan, mast splits and "
            "mast prepare again."
        )
    return empty


def _full(store: AudioStore, places: Places) -> NDArray[np.int64]:
    """Which of the places have the most sound. (n, 2) → rows"""
    filled = store.filled(places, store.layout.step_samples)
    return np.flatnonzero(filled == filled.max())


def _liveliness(store: AudioStore, logmel: LogMel, places: Places) -> NDArray[np.float32]:
    """How much of each chunk stands out of its band and of its moment, as a call does; rain and hums do not. → (n,)"""
    samples = int(store.filled(places, store.layout.step_samples).min())
    sound = torch.from_numpy(to_float(store.read(places, samples)))
    levels: Tensor = logmel(mean_centred(sound, torch.full((len(places),), samples)))  # (n, F, T)
    above_band = levels - band_medians(levels)
    above_both = above_band - above_band.median(dim=1, keepdim=True).values.clamp(min=0)
    share: NDArray[np.float32] = (above_both > STANDS_OUT).float().mean(dim=(1, 2)).numpy()
    return share
