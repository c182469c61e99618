"""Clip the annotations of a recording to its chunks (paper, Data Processing)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from mast.audio.spectrogram import MelGrid
from mast.types import Floats, Integers

MIN_CUT_S = 0.1
"""A box that the edge of a chunk clips to less than this is dropped; a complete short call is kept."""

NUDGE_S = 1e-6
"""Tolerance for equal times: tables and products of decimals are not exact."""

NO_FREQUENCIES = "box without frequencies"
OUT_OF_BAND = "box outside the frequencies of the spectrogram"
CLIPPED = f"part of a box, clipped to less than {MIN_CUT_S:g} s by the edge of a chunk"
IN_NO_CHUNK = "box in no chunk"


@dataclass(frozen=True, slots=True)
class ChunkBoxes:
    """Boxes in chunks, ordered by event and then by chunk; an event has a box in every chunk that it overlaps.

    `chunk` and `event` (N,) are rows of the inputs; `boxes` (N, 4) are start_s, low_hz, end_s, high_hz from the chunk's
    start, after time expansion. `dropped` counts the dropped boxes by reason.
    """

    chunk: Integers
    event: Integers
    boxes: Floats
    dropped: Counter[str]


def boxes_in_chunks(
    events: Floats, starts_s: Floats, audio_s: Floats, grid: MelGrid, time_expansion: float = 1.0
) -> ChunkBoxes:
    """Clip the events of a recording to chunks of it, given in order of their starts.

    `events` (E, 4) are start_s, low_hz, end_s, high_hz in the recording's real time and frequency, NaN for unknown
    frequencies; `starts_s` and `audio_s` (C,) are after time expansion.
    """
    factor = np.array([time_expansion, 1 / time_expansion] * 2)
    processed = events.reshape(-1, 4) * factor
    unknown = np.isnan(processed[:, 1::2]).any(axis=1)
    outside = ~unknown & ~_in_band(processed, grid)
    rows = np.flatnonzero(~unknown & ~outside)
    first, last = _overlapping_chunks(processed[rows], starts_s, audio_s)
    overlapped = last - first
    event = np.repeat(rows, overlapped)
    chunk = np.arange(len(event)) - np.repeat(np.cumsum(overlapped) - overlapped - first, overlapped)
    boxes, short = _clip_to_chunk(processed[event], starts_s[chunk], audio_s[chunk])
    dropped = Counter(
        {
            NO_FREQUENCIES: int(unknown.sum()),
            OUT_OF_BAND: int(outside.sum()),
            IN_NO_CHUNK: int((overlapped == 0).sum()),
            CLIPPED: int(short.sum()),
        }
    )
    return ChunkBoxes(chunk[~short], event[~short], boxes[~short], +dropped)


def _in_band(processed: Floats, grid: MelGrid) -> NDArray[np.bool_]:
    """Return a mask of the events that overlap the grid's frequency range, at any time. (E, 4) → (E,)"""
    at_start = processed.copy()
    at_start[:, 0::2] = 0.0
    in_band: NDArray[np.bool_] = grid.overlaps(torch.from_numpy(at_start)).numpy()
    return in_band


def _overlapping_chunks(processed: Floats, starts_s: Floats, audio_s: Floats) -> tuple[Integers, Integers]:
    """Return the first chunk that each event overlaps, and the last + 1. (E, 4) → (E,), (E,)"""
    start_s, end_s = processed[:, 0], np.maximum(processed[:, 2], np.nextafter(processed[:, 0], np.inf))
    first = np.searchsorted(starts_s + audio_s, start_s, side="right")
    last = np.searchsorted(starts_s, end_s, side="left")
    return first, np.maximum(first, last)


def _clip_to_chunk(processed: Floats, start_s: Floats, audio_s: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Clip events to the audio of their chunks, relative to the chunk's start; mark those clipped too short.

    (N, 4) → (N, 4), (N,)
    """
    boxes = processed.copy()
    boxes[:, 0::2] -= start_s[:, None]
    is_clipped = (boxes[:, 0] < -NUDGE_S) | (boxes[:, 2] > audio_s + NUDGE_S)
    boxes[:, 0::2] = np.clip(boxes[:, 0::2], 0.0, audio_s[:, None])
    return boxes, is_clipped & (boxes[:, 2] - boxes[:, 0] < MIN_CUT_S - NUDGE_S)
