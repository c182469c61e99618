"""Read the ground truth of a test set from a study's tables and audio."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from mast.audio.spectrogram import MelGrid, chunk_frames
from mast.config import Study, collection_of
from mast.datasets.chunk_boxes import boxes_in_chunks
from mast.datasets.loader import ChunkLocations
from mast.datasets.split_table import boxes_by_recording
from mast.datasets.study_datasets import detection_dataset
from mast.evaluation.evaluation_set import GroundTruth, rows_of_each
from mast.evaluation.matching import GroupedBoxes
from mast.evaluation.strata import signal_to_noise_db
from mast.models.frontend import FrontEnd
from mast.storage import exists, join, open_binary
from mast.store.audio_store import AudioStore
from mast.types import Floats, Integers, Mask

CHUNKS_AT_ONCE = 16
NO_SITE = "(no site)"


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Chunks of a split in the order of their table, with their metadata. (C,) each"""

    recordings: tuple[str, ...]
    sites: tuple[str, ...]
    recording: Integers
    start_s: Floats
    audio_s: Floats
    expansion: Floats
    hour: Integers


def grid_of(study: Study) -> MelGrid:
    """Return the grid of frames and bins of the study's chunks."""
    return MelGrid(study.spectrogram, chunk_frames(study.chunking.chunk_s, study.spectrogram))


def read_ground_truth(
    study: Study, store: AudioStore, split: str, frontend: FrontEnd
) -> tuple[GroundTruth, ChunkLocations]:
    """Read the chunks of a split with their animal annotations, and the chunks' locations in the store.

    `frontend` computes the signal-to-noise ratio of each box.
    """
    examples = detection_dataset(study, store, split)
    locations = examples.chunks.locations(0, np.arange(len(examples.chunks)))
    chunks = _chunks(study, examples.table)
    boxes, rows, excluded = _chunk_boxes(study, chunks)
    event, box_event = np.unique(rows, axis=0, return_inverse=True) if len(rows) else (rows, rows[:, 0])
    start_s = chunks.start_s / chunks.expansion
    parts = to_recording_coordinates(boxes, grid_of(study), start_s, chunks.expansion)
    events = GroupedBoxes(event[:, 0], _unite(parts, box_event, len(event)))
    snr_db = _signal_to_noise(boxes, store, locations, frontend)
    ground_truth = GroundTruth(
        name=split,
        recordings=chunks.recordings,
        sites=chunks.sites,
        chunk_recording=chunks.recording,
        chunk_start_s=start_s,
        chunk_expansion=chunks.expansion,
        chunk_hour=chunks.hour,
        boxes=boxes,
        box_event=box_event.astype(np.int64),
        events=events,
        event_labels=_labels(study, chunks.recordings, event),
        event_snr_db=_highest(snr_db, box_event, len(event)),
        excluded=excluded,
    )
    return ground_truth, locations


def to_recording_coordinates(
    boxes: GroupedBoxes, grid: MelGrid, start_s: Floats, expansion: Floats
) -> Floats:
    """Convert boxes of chunks to seconds and Hz of their recordings, given the chunks' starts there. → (N, 4)"""
    events: Floats = grid.boxes_to_events(torch.from_numpy(boxes.bounds)).numpy()
    factor = expansion[boxes.group, None]
    events[:, 0::2] = events[:, 0::2] / factor + start_s[boxes.group, None]
    events[:, 1::2] *= factor
    return events


def _chunks(study: Study, table: pa.Table) -> _Chunks:
    names = table["recording_id"].combine_chunks().dictionary_encode()
    recordings = tuple(names.dictionary.to_pylist())
    recording = names.indices.to_numpy().astype(np.int64)
    first = np.unique(recording, return_index=True)[1]
    expansions = [
        study.collections[collection_of(name, study.collections)].time_expansion for name in recordings
    ]
    return _Chunks(
        recordings=recordings,
        sites=tuple(site or NO_SITE for site in table["site"].take(pa.array(first)).to_pylist()),
        recording=recording,
        start_s=table["start_s"].to_numpy(),
        audio_s=table["audio_s"].to_numpy(),
        expansion=np.array(expansions, dtype=np.float64)[recording],
        hour=_hours(table),
    )


def _hours(table: pa.Table) -> Integers:
    """Return the hour of the recorder's clock at each chunk's start, -1 if it is unknown. (C,)"""
    hours: Integers = pc.hour(table["start_local"]).fill_null(-1).to_numpy().astype(np.int64)
    return hours


def _chunk_boxes(study: Study, chunks: _Chunks) -> tuple[GroupedBoxes, Integers, dict[str, int]]:
    """Return boxes in frames and bins by chunk; recording and event index of each, (M, 2); excluded boxes by reason."""
    grid, annotations = grid_of(study), boxes_by_recording(study, "animal")
    group, bounds, rows = [np.zeros(0, np.int64)], [np.zeros((0, 4))], [np.zeros((0, 2), np.int64)]
    excluded: Counter[str] = Counter()
    for recording, chunk_rows in enumerate(rows_of_each(chunks.recording)):
        starts_s, audio_s, expansion = (
            chunks.start_s[chunk_rows],
            chunks.audio_s[chunk_rows],
            chunks.expansion[chunk_rows[0]],
        )
        events = annotations.get(chunks.recordings[recording], np.zeros((0, 4)))
        processed = np.flatnonzero(_is_processed(events[:, 0::2] * expansion, starts_s, audio_s))
        chunk_boxes = boxes_in_chunks(events[processed], starts_s, audio_s, grid, expansion)
        excluded += chunk_boxes.dropped
        group.append(chunk_rows[chunk_boxes.chunk])
        bounds.append(grid.events_to_boxes(torch.from_numpy(chunk_boxes.boxes)).double().numpy())
        rows.append(
            np.stack([np.full(len(chunk_boxes.event), recording), processed[chunk_boxes.event]], axis=1)
        )
    return GroupedBoxes(np.concatenate(group), np.concatenate(bounds)), np.concatenate(rows), dict(excluded)


def _is_processed(spans_s: Floats, starts_s: Floats, audio_s: Floats) -> Mask:
    """Return the mask of spans that overlap any of the chunks, given in order. (E, 2) → (E,)"""
    ended = np.searchsorted(starts_s + audio_s, spans_s[:, 0], side="right")
    started = np.searchsorted(starts_s, np.nextafter(spans_s[:, 1], np.inf), side="left")
    is_processed: Mask = started > ended
    return is_processed


def _unite(parts: Floats, event: Integers, events: int) -> Floats:
    """Return the smallest box around all parts of each event. (M, 4), (M,) → (E, 4)"""
    bounds = np.concatenate([np.full((events, 2), np.inf), np.full((events, 2), -np.inf)], axis=1)
    np.minimum.at(bounds[:, :2], event, parts[:, :2])
    np.maximum.at(bounds[:, 2:], event, parts[:, 2:])
    return bounds


def _highest(values: Floats, event: Integers, events: int) -> Floats:
    """Return the highest value of each event's parts, NaN if all are NaN. (M,), (M,) → (E,)"""
    highest = np.full(events, np.nan)
    np.fmax.at(highest, event, values)
    return highest


def _labels(study: Study, recordings: tuple[str, ...], event: Integers) -> tuple[str, ...]:
    """Return the label of each event, given as recording and row among its animal annotations. (E, 2) → E"""
    location = join(study.work_dir, "annotations.parquet")
    if not (len(event) and exists(location)):
        return ()
    columns = ["start_s", "low_hz", "end_s", "high_hz"]
    with open_binary(location) as file:
        table = pq.read_table(
            file, columns=["recording_id", *columns, "label"], filters=pc.field("kind") == "animal"
        )
    names, bounds = (
        table["recording_id"].to_pylist(),
        zip(*(table[c].to_pylist() for c in columns), strict=True),
    )
    labels = dict(zip(zip(names, bounds, strict=True), table["label"].to_pylist(), strict=True))
    annotations = boxes_by_recording(study, "animal")
    keys = (
        (recordings[number], tuple(annotations[recordings[number]][row].tolist())) for number, row in event
    )
    return tuple(labels[key] or "" for key in keys)


def _signal_to_noise(
    boxes: GroupedBoxes, store: AudioStore, locations: ChunkLocations, frontend: FrontEnd
) -> Floats:
    """Compute how far each box is above the background of its chunk in dB, a few chunks at a time. (M,)"""
    samples, snr_db = store.layout.block_samples, np.full(len(boxes), np.nan)
    chunk_rows = rows_of_each(boxes.group)
    for first in range(0, len(chunk_rows), CHUNKS_AT_ONCE):
        batch = chunk_rows[first : first + CHUNKS_AT_ONCE]
        chunks = np.array([boxes.group[rows[0]] for rows in batch])
        valid_samples = store.valid_lengths(locations[chunks], samples)
        audio = torch.from_numpy(store.read(locations[chunks], samples))
        levels = frontend.log_mel(audio, torch.from_numpy(valid_samples)).double().numpy()  # (B, F, T)
        for rows, spec, chunk_samples in zip(batch, levels, valid_samples, strict=True):
            frames = max(1, frontend.logmel.num_frames(int(chunk_samples)))
            snr_db[rows] = signal_to_noise_db(spec[:, :frames], boxes.bounds[rows])
    return snr_db
