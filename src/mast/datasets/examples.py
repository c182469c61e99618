"""A study's tables and store as examples to load, for pretraining and for detection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from mast.config import Study, collection_of
from mast.datasets.chunk_boxes import Floats, boxes_in_chunks
from mast.datasets.loading import AnyOffset, FixedChunks, Places
from mast.datasets.order import randomness
from mast.datasets.split_table import SPLITS_TABLE, boxes_by_recording, check_cut, existing
from mast.errors import ConfigError
from mast.normalisation import mean_centred
from mast.recordings.store import AudioStore, Layout, to_float
from mast.spectrogram import LogMel, MelGrid, frames_of
from mast.storage import open_binary

TRAIN, UNLABELLED = "train", "unlabelled"


@dataclass(frozen=True, slots=True)
class Labelled:
    """Chunks with boxes, the table rows they come from, and boxes left out by reason."""

    chunks: FixedChunks
    table: pa.Table
    dropped: Counter[str]


def detection_examples(study: Study, store: AudioStore, split: str) -> Labelled:
    """Chunks of a split with the experts' animal boxes, in frames and bins; chunks without any box are kept."""
    table, places = prepared_chunks(study, store, [split])
    boxes, dropped = boxes_of_chunks(study, table, boxes_by_recording(study, "animal"))
    return Labelled(FixedChunks(places, boxes), table, dropped)


def pretraining_examples(study: Study, store: AudioStore, seed: int) -> AnyOffset:
    """Sound that is for training or unlabelled, at any offset; never a moment of a test or validation chunk."""
    table, places = prepared_chunks(study, store, [TRAIN, UNLABELLED])
    filled = np.rint(table["filled_s"].to_numpy() * store.layout.sample_rate_hz).astype(np.int64)
    order = np.lexsort((places[:, 1], places[:, 0]))
    stretches = _merged(places[order], filled[order])
    hours = study.pretrain.epoch_hours
    most = None if hours is None else max(1, round(hours * 3600 / study.chunking.chunk_s))
    return AnyOffset(stretches, store.layout.step_samples, seed, most)


def statistics_spans(study: Study, store: AudioStore) -> Places:
    """Chunks to measure the study's statistics on: training and unlabelled sound, each moment once, never test sound."""
    table, places = prepared_chunks(study, store, [TRAIN, UNLABELLED])
    every = max(1, round(study.chunking.chunk_s / study.chunking.hop_s))
    chosen: Places = places[table["index"].to_numpy() % every == 0]
    return chosen


def noise_places(study: Study, store: AudioStore) -> Places:
    """Training chunks fit for a noise bank: those in which the experts found no animal, whatever else they heard."""
    table, places = prepared_chunks(study, store, [TRAIN])
    chosen: Places = places[table["boxes"].to_numpy() == 0]
    return chosen


def noise_bank(study: Study, store: AudioStore, places: Places, chunks: int, seed: int) -> Tensor:
    """Log-mel of up to so many chunks of noise, for `augmentation.augment` to mix in. → (K, F, T)"""
    samples = store.layout.step_samples
    whole = places[store.filled(places, samples) == samples]
    chosen = whole[np.sort(randomness(seed).permutation(len(whole))[:chunks])]
    filled = torch.from_numpy(store.filled(chosen, samples))
    waves = mean_centred(torch.from_numpy(to_float(store.read(chosen, samples))), filled)
    bank: Tensor = LogMel(study.spectrogram, store.layout.sample_rate_hz)(waves)
    return bank.contiguous()


def prepared_chunks(
    study: Study, store: AudioStore, splits: Sequence[str] | None = None
) -> tuple[pa.Table, Places]:
    """Rows of the split table, of all splits or some, whose sound was prepared, and their places in the store.

    Both must have been cut as the study says.
    """
    check_cut(study)
    _check_layout(study, store)
    columns = [
        "recording_id",
        "index",
        "start_s",
        "filled_s",
        "split",
        "pool",
        "site",
        "start_local",
        "boxes",
    ]
    wanted = None if splits is None else pc.field("split").isin(list(splits))
    with open_binary(existing(study, SPLITS_TABLE)) as file:
        table = pq.read_table(file, columns=columns, filters=wanted)
    recording = pc.index_in(table["recording_id"], store.recordings["recording_id"].combine_chunks())
    start = np.rint(table["start_s"].to_numpy() * store.layout.sample_rate_hz).astype(np.int64)
    known = recording.fill_null(-1).to_numpy()
    samples = np.append(store.recordings["samples"].to_numpy(), 0)  # of an unknown recording, at -1, none
    prepared = (known >= 0) & (start < samples[known])
    first_row = store.recordings["first_row"].to_numpy()[known[prepared]]
    return table.filter(pa.array(prepared)), np.stack([first_row, start[prepared]], axis=1)


def _check_layout(study: Study, store: AudioStore) -> None:
    """Refuse prepared sound that lies in other steps than the study's chunks."""
    chunking, samples, rate_hz = study.chunking, store.layout.step_samples, store.layout.sample_rate_hz
    if store.layout != Layout.of(chunking):
        raise ConfigError(
            f"{store.location} holds chunks of {samples / rate_hz:g} s at {rate_hz} Hz; this study has chunks of "
            f"{chunking.chunk_s:g} s at {chunking.sample_rate_hz} Hz. Delete it, and run mast splits and mast prepare "
            "again, or set chunking as it was."
        )


def sites_of(table: pa.Table) -> NDArray[np.object_]:
    """The site of every row; empty where it has none."""
    return np.array([name or "" for name in table["site"].to_pylist()], object)


def boxes_of_chunks(
    study: Study, table: pa.Table, events: Mapping[str, Floats]
) -> tuple[list[Tensor], Counter[str]]:
    """Boxes of every chunk in frames and bins, and what was left out; events are (start_s, low_hz, end_s, high_hz)."""
    grid = MelGrid(study.spectrogram, frames_of(study.chunking.chunk_s, study.spectrogram))
    boxes = [torch.zeros(0, 4)] * len(table)
    dropped: Counter[str] = Counter()
    names = table["recording_id"].to_numpy(zero_copy_only=False)
    for rows in _runs(names):
        name = names[rows[0]]
        if name not in events:
            continue
        expansion = study.collections[collection_of(name, study.collections)].time_expansion
        starts_s, filled_s = (table[column].to_numpy()[rows] for column in ("start_s", "filled_s"))
        found = boxes_in_chunks(events[name], starts_s, filled_s, grid, expansion)
        dropped += found.dropped
        for chunk in np.unique(found.chunk):
            here = found.chunk == chunk
            boxes[rows[chunk]] = grid.to_boxes(torch.from_numpy(found.boxes[here]))
    return boxes, dropped


def _runs(names: NDArray[np.object_]) -> list[NDArray[np.int64]]:
    """Rows of each recording; the table names them one after the other."""
    if not len(names):
        return []
    first = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
    return np.split(np.arange(len(names)), first[1:])


def _merged(places: Places, filled: NDArray[np.int64]) -> NDArray[np.int64]:
    """Stretches (row, first, last + 1 sample) that overlapping or touching chunks cover, given in order. → (N, 3)"""
    if not len(places):
        return np.zeros((0, 3), np.int64)
    starts, ends = places[:, 1], places[:, 1] + filled
    apart = np.append(
        True, (places[1:, 0] != places[:-1, 0]) | (starts[1:] > np.maximum(ends[:-1], starts[:-1]))
    )
    first = np.flatnonzero(apart)
    return np.stack([places[first, 0], starts[first], np.maximum.reduceat(ends, first)], axis=1)
