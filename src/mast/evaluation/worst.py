"""What a model got most wrong: the clearest sounds it missed, and the false alarms it was surest of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mast.evaluation.matching import Floats, Integers
from mast.evaluation.trial import Trial, match_recordings
from mast.pictures.html import image_uri, sound_uri
from mast.pictures.tiles import Bounds, draw_tile
from mast.recordings.store import AudioStore, to_float

TILES = 9
"""Mistakes of each kind to show: three rows of three."""

CONTEXT_S = 1.0
"""Sound before and after a box, as heard."""

LONGEST_S = 12.0
"""A longer sound is shown by its beginning."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A box that was missed, or was no sound, with all boxes around it; seconds and Hz of its recording.

    `label` is the expert's, `score` the model's, and `snr_db` how far a missed sound stands above its background.
    """

    kind: Literal["miss", "false alarm"]
    recording_id: str
    bounds: Bounds
    expansion: float
    label: str = ""
    score: float = np.nan
    snr_db: float = np.nan
    expert_boxes: tuple[Bounds, ...] = ()
    model_boxes: tuple[Bounds, ...] = ()


@dataclass(frozen=True, slots=True)
class Tile:
    """A mistake to look at and to listen to."""

    mistake: Mistake
    picture: str
    sound: str


def worst_mistakes(trial: Trial, threshold: float, count: int = TILES) -> tuple[list[Mistake], list[Mistake]]:
    """Misses, highest signal-to-noise first, and false alarms, highest score first, of whole recordings."""
    matched = match_recordings(trial.above(threshold))
    truths, found = trial.truths, matched.found
    score = np.zeros(0) if found.score is None else found.score
    is_missed = ~matched.matches.is_found(len(matched.truths))
    missed = _first(is_missed, np.nan_to_num(truths.event_snr_db, nan=-np.inf), count)
    alarms = _first(~matched.matches.is_hit, score, count)
    expansion = np.ones(len(truths.recordings))
    expansion[truths.chunk_recording] = truths.chunk_expansion

    def mistake(kind: Literal["miss", "false alarm"], row: int) -> Mistake:
        boxes = matched.truths if kind == "miss" else found
        recording, bounds = int(boxes.group[row]), boxes.bounds[row]
        around_s = CONTEXT_S / expansion[recording]
        return Mistake(
            kind,
            truths.recordings[recording],
            _bounds(bounds),
            float(expansion[recording]),
            label=truths.event_labels[row] if kind == "miss" else "",
            score=np.nan if kind == "miss" else float(score[row]),
            snr_db=float(truths.event_snr_db[row]) if kind == "miss" else np.nan,
            expert_boxes=_around(matched.truths.group, matched.truths.bounds, recording, bounds, around_s),
            model_boxes=_around(found.group, found.bounds, recording, bounds, around_s),
        )

    return [mistake("miss", row) for row in missed], [mistake("false alarm", row) for row in alarms]


def tile_of(mistake: Mistake, store: AudioStore) -> Tile:
    """Cut a mistake's sound out of the store, with a second around it, and draw it."""
    start_s, _, end_s, _ = mistake.bounds
    rate_hz = store.layout.sample_rate_hz
    place = store.recordings["recording_id"].index(mistake.recording_id).as_py()
    first = max(0, round((start_s * mistake.expansion - CONTEXT_S) * rate_hz))
    stop = round((end_s * mistake.expansion + CONTEXT_S) * rate_hz)
    stop = min(stop, first + round(LONGEST_S * rate_hz), store.recordings["samples"][place].as_py())
    first_row = store.recordings["first_row"][place].as_py()
    wave = to_float(store.read([[first_row, first]], max(1, stop - first))[0])
    own_rate_hz = rate_hz * mistake.expansion
    sides: list[tuple[Literal["expert", "model"], Sequence[Bounds]]] = [
        ("expert", mistake.expert_boxes),
        ("model", mistake.model_boxes),
    ]
    meant: Literal["expert", "model"] = "expert" if mistake.kind == "miss" else "model"
    others = [(side, box) for side, boxes in sides for box in boxes if (side, box) != (meant, mistake.bounds)]
    picture = draw_tile(wave, own_rate_hz, first / own_rate_hz, [(meant, mistake.bounds), *others])
    return Tile(mistake, image_uri(picture), sound_uri(wave, rate_hz))


def _first(is_wanted: np.ndarray[tuple[int], np.dtype[np.bool_]], worth: Floats, count: int) -> Integers:
    """Rows wanted, the worthiest first, equal ones in their order."""
    rows = np.flatnonzero(is_wanted)
    return rows[np.argsort(-worth[rows], kind="stable")][:count]


def _around(
    group: Integers, bounds: Floats, recording: int, box: Floats, around_s: float
) -> tuple[Bounds, ...]:
    """Boxes of a recording that share time with a box or the moments around it."""
    near = (group == recording) & (bounds[:, 2] > box[0] - around_s) & (bounds[:, 0] < box[2] + around_s)
    return tuple(_bounds(item) for item in bounds[near])


def _bounds(row: Floats) -> Bounds:
    start_s, low_hz, end_s, high_hz = row.tolist()
    return start_s, low_hz, end_s, high_hz
