"""The experts' side of a test set, read from a study's tables and sound."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from mast.config import Study, collection_of
from mast.datasets.chunk_boxes import boxes_in_chunks
from mast.datasets.examples import detection_examples
from mast.datasets.loading import Places
from mast.datasets.split_table import boxes_by_recording
from mast.evaluation.matching import Boxes, Floats, Integers, Mask
from mast.evaluation.strata import signal_to_noise_db
from mast.evaluation.trial import Truths, rows_of_each
from mast.models.frontend import FrontEnd
from mast.recordings.store import AudioStore
from mast.spectrogram import MelGrid, frames_of
from mast.storage import exists, join, open_binary

CHUNKS_AT_ONCE = 16
NO_SITE = "(no site)"


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Chunks of a split in the order of their table, with all that is known about each. (C,) each"""

    recordings: tuple[str, ...]
    sites: tuple[str, ...]
    recording: Integers
    start_s: Floats
    filled_s: Floats
    expansion: Floats
    hour: Integers


def grid_of(study: Study) -> MelGrid:
    """Frames and bins of the study's chunks."""
    return MelGrid(study.spectrogram, frames_of(study.chunking.chunk_s, study.spectrogram))


def read_truths(study: Study, store: AudioStore, split: str, frontend: FrontEnd) -> tuple[Truths, Places]:
    """Chunks of a split with the experts' animal boxes, and where they lie in the store.

    `frontend` tells how far each sound stands above its background.
    """
    examples = detection_examples(study, store, split)
    places = examples.chunks.places(0, np.arange(len(examples.chunks)))
    chunks = _chunks(study, examples.table)
    boxes, rows, left_out = _boxes(study, chunks)
    event, box_event = np.unique(rows, axis=0, return_inverse=True) if len(rows) else (rows, rows[:, 0])
    own_start_s = chunks.start_s / chunks.expansion
    parts = in_recordings(boxes, grid_of(study), own_start_s, chunks.expansion)
    events = Boxes(event[:, 0], _united(parts, box_event, len(event)))
    snr_db = _signal_to_noise(boxes, store, places, frontend)
    truths = Truths(
        name=split,
        recordings=chunks.recordings,
        sites=chunks.sites,
        chunk_recording=chunks.recording,
        chunk_start_s=own_start_s,
        chunk_expansion=chunks.expansion,
        chunk_hour=chunks.hour,
        boxes=boxes,
        box_event=box_event.astype(np.int64),
        events=events,
        event_labels=_labels(study, chunks.recordings, event),
        event_snr_db=_highest(snr_db, box_event, len(event)),
        left_out=left_out,
    )
    return truths, places


def in_recordings(boxes: Boxes, grid: MelGrid, start_s: Floats, expansion: Floats) -> Floats:
    """Boxes of chunks in seconds and Hz of their recordings, by the chunks' starts there. → (N, 4)"""
    events: Floats = grid.to_events(torch.from_numpy(boxes.bounds)).numpy()
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
        filled_s=table["filled_s"].to_numpy(),
        expansion=np.array(expansions, dtype=np.float64)[recording],
        hour=_hours(table),
    )


def _hours(table: pa.Table) -> Integers:
    """Hour of the recorder's clock at each chunk's start, -1 where no clock can be trusted. (C,)"""
    hours: Integers = pc.hour(table["start_local"]).fill_null(-1).to_numpy().astype(np.int64)
    return hours


def _boxes(study: Study, chunks: _Chunks) -> tuple[Boxes, Integers, dict[str, int]]:
    """Boxes in frames and bins by chunk; recording and event within it of each, (M, 2); what was left out, by reason."""
    grid, experts = grid_of(study), boxes_by_recording(study, "animal")
    group, bounds, rows = [np.zeros(0, np.int64)], [np.zeros((0, 4))], [np.zeros((0, 2), np.int64)]
    left_out: Counter[str] = Counter()
    for number, here in enumerate(rows_of_each(chunks.recording)):
        starts_s, filled_s, expansion = chunks.start_s[here], chunks.filled_s[here], chunks.expansion[here[0]]
        events = experts.get(chunks.recordings[number], np.zeros((0, 4)))
        heard = np.flatnonzero(_is_heard(events[:, 0::2] * expansion, starts_s, filled_s))
        found = boxes_in_chunks(events[heard], starts_s, filled_s, grid, expansion)
        left_out += found.dropped
        group.append(here[found.chunk])
        bounds.append(grid.to_boxes(torch.from_numpy(found.boxes)).double().numpy())
        rows.append(np.stack([np.full(len(found.event), number), heard[found.event]], axis=1))
    return Boxes(np.concatenate(group), np.concatenate(bounds)), np.concatenate(rows), dict(left_out)


def _is_heard(spans_s: Floats, starts_s: Floats, filled_s: Floats) -> Mask:
    """Which spans share time with any of the chunks, given in order. (E, 2) → (E,)"""
    over = np.searchsorted(starts_s + filled_s, spans_s[:, 0], side="right")
    begun = np.searchsorted(starts_s, np.nextafter(spans_s[:, 1], np.inf), side="left")
    is_heard: Mask = begun > over
    return is_heard


def _united(parts: Floats, event: Integers, events: int) -> Floats:
    """The least box around all parts of each event. (M, 4), (M,) → (E, 4)"""
    bounds = np.concatenate([np.full((events, 2), np.inf), np.full((events, 2), -np.inf)], axis=1)
    np.minimum.at(bounds[:, :2], event, parts[:, :2])
    np.maximum.at(bounds[:, 2:], event, parts[:, 2:])
    return bounds


def _highest(values: Floats, event: Integers, events: int) -> Floats:
    """The highest value of each event's parts, NaN where none is told. (M,), (M,) → (E,)"""
    highest = np.full(events, np.nan)
    np.fmax.at(highest, event, values)
    return highest


def _labels(study: Study, recordings: tuple[str, ...], event: Integers) -> tuple[str, ...]:
    """What experts call each event, given as recording and row among its animal boxes. (E, 2) → E"""
    location = join(study.work, "annotations.parquet")
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
    experts = boxes_by_recording(study, "animal")
    named = ((recordings[number], tuple(experts[recordings[number]][row].tolist())) for number, row in event)
    return tuple(labels[key] or "" for key in named)


def _signal_to_noise(boxes: Boxes, store: AudioStore, places: Places, frontend: FrontEnd) -> Floats:
    """How far each box stands above the background of its chunk, a few chunks at a time. (M,)"""
    samples, snr_db = store.layout.step_samples, np.full(len(boxes), np.nan)
    every = rows_of_each(boxes.group)
    for first in range(0, len(every), CHUNKS_AT_ONCE):
        some = every[first : first + CHUNKS_AT_ONCE]
        chunks = np.array([boxes.group[rows[0]] for rows in some])
        filled = store.filled(places[chunks], samples)
        sound = torch.from_numpy(store.read(places[chunks], samples))
        levels = frontend.levels(sound, torch.from_numpy(filled)).double().numpy()  # (B, F, T)
        for rows, spec, sounding in zip(some, levels, filled, strict=True):
            frames = max(1, frontend.logmel.frames_in(int(sounding)))
            snr_db[rows] = signal_to_noise_db(spec[:, :frames], boxes.bounds[rows])
    return snr_db
