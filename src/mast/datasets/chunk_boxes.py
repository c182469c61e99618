"""Where the chunks of a recording lie, and the experts' boxes in each of them (paper, Data Processing)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from mast.spectrogram import MelGrid

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MIN_CUT_S = 0.1
"""A box that a chunk's edge cuts shorter than this is dropped; a short call that is whole is kept."""

NUDGE_S = 1e-6
"""Times as far apart as this are the same: tables and products of decimals are not exact."""

NO_FREQUENCIES = "box without frequencies"
OUT_OF_BAND = "box outside the frequencies of the spectrogram"
CUT_SHORT = f"part of a box, cut to less than {MIN_CUT_S:g} s by the edge of a chunk"
IN_NO_CHUNK = "box in no chunk"


@dataclass(frozen=True, slots=True)
class ChunkBoxes:
    """Boxes in chunks, ordered by event and then by chunk: an event is in every chunk that it reaches into.

    `chunk` and `event` (N,) are rows of what was given; `boxes` (N, 4) are start_s, low_hz, end_s, high_hz from the
    chunk's start, as heard. `dropped` counts what was left out, by reason.
    """

    chunk: Integers
    event: Integers
    boxes: Floats
    dropped: Counter[str]


def boxes_in_chunks(
    events: Floats, starts_s: Floats, filled_s: Floats, grid: MelGrid, time_expansion: float = 1.0
) -> ChunkBoxes:
    """Boxes of one recording's events in some of its chunks, given in order of their starts.

    `events` (E, 4) are start_s, low_hz, end_s, high_hz in the recording's own time and pitch, NaN where a frequency is
    unknown; `starts_s` and `filled_s` (C,) are as heard.
    """
    factor = np.array([time_expansion, 1 / time_expansion] * 2)
    heard = events.reshape(-1, 4) * factor
    unknown = np.isnan(heard[:, 1::2]).any(axis=1)
    outside = ~unknown & ~_in_band(heard, grid)
    rows = np.flatnonzero(~unknown & ~outside)
    first, last = _chunks_reached(heard[rows], starts_s, filled_s)
    reached = last - first
    event = np.repeat(rows, reached)
    chunk = np.arange(len(event)) - np.repeat(np.cumsum(reached) - reached - first, reached)
    boxes, short = _cut(heard[event], starts_s[chunk], filled_s[chunk])
    dropped = Counter(
        {
            NO_FREQUENCIES: int(unknown.sum()),
            OUT_OF_BAND: int(outside.sum()),
            IN_NO_CHUNK: int((reached == 0).sum()),
            CUT_SHORT: int(short.sum()),
        }
    )
    return ChunkBoxes(chunk[~short], event[~short], boxes[~short], +dropped)


def _in_band(heard: Floats, grid: MelGrid) -> NDArray[np.bool_]:
    """Which events share any frequency with the grid, wherever they lie in time. (E, 4) → (E,)"""
    anywhere = heard.copy()
    anywhere[:, 0::2] = 0.0
    held: NDArray[np.bool_] = grid.holds(torch.from_numpy(anywhere)).numpy()
    return held


def _chunks_reached(heard: Floats, starts_s: Floats, filled_s: Floats) -> tuple[Integers, Integers]:
    """First chunk that each event reaches into, and the one after the last. (E, 4) → (E,), (E,)"""
    start_s, end_s = heard[:, 0], np.maximum(heard[:, 2], np.nextafter(heard[:, 0], np.inf))
    first = np.searchsorted(starts_s + filled_s, start_s, side="right")
    last = np.searchsorted(starts_s, end_s, side="left")
    return first, np.maximum(first, last)


def _cut(heard: Floats, start_s: Floats, filled_s: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Events from their chunk's start, clipped to its sound, and which were cut too short. (N, 4) → (N, 4), (N,)"""
    boxes = heard.copy()
    boxes[:, 0::2] -= start_s[:, None]
    cut = (boxes[:, 0] < -NUDGE_S) | (boxes[:, 2] > filled_s + NUDGE_S)
    boxes[:, 0::2] = np.clip(boxes[:, 0::2], 0.0, filled_s[:, None])
    return boxes, cut & (boxes[:, 2] - boxes[:, 0] < MIN_CUT_S - NUDGE_S)
