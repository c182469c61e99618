"""Build the datasets of a study from its tables and store, for pretraining and for detection."""

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

from mast.audio.spectrogram import LogMel, MelGrid, chunk_frames
from mast.config import Study, collection_of
from mast.datasets.chunk_boxes import boxes_in_chunks
from mast.datasets.loader import ChunkLocations, FixedChunkDataset, RandomOffsetDataset
from mast.datasets.sampler import make_rng
from mast.datasets.split_table import SPLITS_TABLE, boxes_by_recording, check_chunking, require_artifact
from mast.errors import ConfigError
from mast.normalisation import remove_dc_offset
from mast.storage import open_binary
from mast.store.audio_store import AudioStore, StoreLayout, to_float
from mast.types import Floats

TRAIN, UNLABELLED = "train", "unlabelled"


@dataclass(frozen=True, slots=True)
class LabelledChunks:
    """Chunks with boxes, their table rows, and the number of excluded boxes by reason."""

    chunks: FixedChunkDataset
    table: pa.Table
    dropped: Counter[str]


def detection_dataset(study: Study, store: AudioStore, split: str) -> LabelledChunks:
    """Return the chunks of a split with animal annotations, in frames and bins; chunks without a box are kept."""
    table, locations = split_chunks(study, store, [split])
    boxes, dropped = boxes_of_chunks(study, table, boxes_by_recording(study, "animal"))
    return LabelledChunks(FixedChunkDataset(locations, boxes), table, dropped)


def pretraining_dataset(study: Study, store: AudioStore, seed: int) -> RandomOffsetDataset:
    """Return training and unlabelled audio at random offsets; no sample of a validation or test chunk is included."""
    table, locations = split_chunks(study, store, [TRAIN, UNLABELLED])
    valid_samples = np.rint(table["audio_s"].to_numpy() * store.layout.sample_rate_hz).astype(np.int64)
    order = np.lexsort((locations[:, 1], locations[:, 0]))
    spans = _merge_locations(locations[order], valid_samples[order])
    hours = study.pretrain.epoch_hours
    max_chunks = None if hours is None else max(1, round(hours * 3600 / study.chunking.chunk_s))
    return RandomOffsetDataset(spans, store.layout.block_samples, seed, max_chunks)


def statistics_spans(study: Study, store: AudioStore) -> ChunkLocations:
    """Return non-overlapping chunks of training and unlabelled audio, to measure the study's statistics on."""
    table, locations = split_chunks(study, store, [TRAIN, UNLABELLED])
    hops_per_chunk = max(1, round(study.chunking.chunk_s / study.chunking.hop_s))
    chosen: ChunkLocations = locations[table["index"].to_numpy() % hops_per_chunk == 0]
    return chosen


def background_chunks(study: Study, store: AudioStore) -> ChunkLocations:
    """Return the training chunks without animal annotations, for a noise bank; they may have noise annotations."""
    table, locations = split_chunks(study, store, [TRAIN])
    chosen: ChunkLocations = locations[table["boxes"].to_numpy() == 0]
    return chosen


def background_bank(
    study: Study, store: AudioStore, locations: ChunkLocations, chunks: int, seed: int
) -> Tensor:
    """Return the log-mel of up to `chunks` background chunks, for `augmentation.augment` to mix in. → (K, F, T)"""
    samples = store.layout.block_samples
    complete = locations[store.valid_lengths(locations, samples) == samples]
    chosen = complete[np.sort(make_rng(seed).permutation(len(complete))[:chunks])]
    valid_samples = torch.from_numpy(store.valid_lengths(chosen, samples))
    waves = remove_dc_offset(torch.from_numpy(to_float(store.read(chosen, samples))), valid_samples)
    bank: Tensor = LogMel(study.spectrogram, store.layout.sample_rate_hz)(waves)
    return bank.contiguous()


def split_chunks(
    study: Study, store: AudioStore, splits: Sequence[str] | None = None
) -> tuple[pa.Table, ChunkLocations]:
    """Return the rows of the split table whose audio is prepared, for all or the given splits, and their locations.

    The table and the store must have been made with the study's chunk settings.
    """
    check_chunking(study)
    _check_layout(study, store)
    columns = [
        "recording_id",
        "index",
        "start_s",
        "audio_s",
        "split",
        "domain",
        "site",
        "start_local",
        "boxes",
    ]
    split_filter = None if splits is None else pc.field("split").isin(list(splits))
    with open_binary(require_artifact(study, SPLITS_TABLE)) as file:
        table = pq.read_table(file, columns=columns, filters=split_filter)
    recording = pc.index_in(table["recording_id"], store.recordings["recording_id"].combine_chunks())
    start = np.rint(table["start_s"].to_numpy() * store.layout.sample_rate_hz).astype(np.int64)
    index = recording.fill_null(-1).to_numpy()
    samples = np.append(
        store.recordings["samples"].to_numpy(), 0
    )  # index -1, not in the store, has no samples
    prepared = (index >= 0) & (start < samples[index])
    first_row = store.recordings["first_row"].to_numpy()[index[prepared]]
    return table.filter(pa.array(prepared)), np.stack([first_row, start[prepared]], axis=1)


def _check_layout(study: Study, store: AudioStore) -> None:
    """Raise ConfigError if the store's blocks do not match the study's chunks."""
    chunking, samples, rate_hz = study.chunking, store.layout.block_samples, store.layout.sample_rate_hz
    if store.layout != StoreLayout.of(chunking):
        raise ConfigError(
            f"{store.location} holds chunks of {samples / rate_hz:g} s at {rate_hz} Hz; this study has chunks of "
            f"{chunking.chunk_s:g} s at {chunking.sample_rate_hz} Hz. Delete the store, and run mast split and mast "
            "prepare again, or restore the previous chunking settings."
        )


def sites_of(table: pa.Table) -> NDArray[np.object_]:
    """Return the site of every row, an empty string if it has none."""
    return np.array([name or "" for name in table["site"].to_pylist()], object)


def boxes_of_chunks(
    study: Study, table: pa.Table, events: Mapping[str, Floats]
) -> tuple[list[Tensor], Counter[str]]:
    """Return the boxes of every chunk in frames and bins, and the number of excluded boxes by reason.

    `events` are (start_s, low_hz, end_s, high_hz) by recording.
    """
    grid = MelGrid(study.spectrogram, chunk_frames(study.chunking.chunk_s, study.spectrogram))
    boxes = [torch.zeros(0, 4)] * len(table)
    dropped: Counter[str] = Counter()
    names = table["recording_id"].to_numpy(zero_copy_only=False)
    for rows in _runs(names):
        name = names[rows[0]]
        if name not in events:
            continue
        expansion = study.collections[collection_of(name, study.collections)].time_expansion
        starts_s, audio_s = (table[column].to_numpy()[rows] for column in ("start_s", "audio_s"))
        clipped = boxes_in_chunks(events[name], starts_s, audio_s, grid, expansion)
        dropped += clipped.dropped
        for chunk in np.unique(clipped.chunk):
            in_chunk = clipped.chunk == chunk
            boxes[rows[chunk]] = grid.events_to_boxes(torch.from_numpy(clipped.boxes[in_chunk]))
    return boxes, dropped


def _runs(names: NDArray[np.object_]) -> list[NDArray[np.int64]]:
    """Return the rows of each recording; the rows of a recording are consecutive."""
    if not len(names):
        return []
    first = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
    return np.split(np.arange(len(names)), first[1:])


def _merge_locations(locations: ChunkLocations, valid_samples: NDArray[np.int64]) -> NDArray[np.int64]:
    """Merge overlapping or touching chunks, given in order, to spans (row, first, last + 1 sample). → (N, 3)"""
    if not len(locations):
        return np.zeros((0, 3), np.int64)
    starts, ends = locations[:, 1], locations[:, 1] + valid_samples
    is_new_span = np.append(
        True, (locations[1:, 0] != locations[:-1, 0]) | (starts[1:] > np.maximum(ends[:-1], starts[:-1]))
    )
    first = np.flatnonzero(is_new_span)
    return np.stack([locations[first, 0], starts[first], np.maximum.reduceat(ends, first)], axis=1)
