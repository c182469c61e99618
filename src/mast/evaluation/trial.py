"""One test set: what experts drew in its chunks, what a model found there, and how the two are matched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torchvision.ops import nms

from mast.evaluation.matching import Boxes, Floats, Integers, Mask, Matches, OverlapKind, match
from mast.evaluation.metrics import Ranking


@dataclass(frozen=True, slots=True)
class Truths:
    """A test set before any model heard it.

    Chunks (C,): the recording each is of, its start in seconds of that recording, how many times slower than it was
    recorded its sound is heard, the hour of the recorder's clock or -1. `sites` are those of the recordings.
    `boxes` (M) are in frames and bins of their chunk, the group; each is the part of an event that lies in it.
    `events` (E) are whole, each once, in seconds and Hz of their recording, the group.
    """

    name: str
    recordings: tuple[str, ...]
    sites: tuple[str, ...]
    chunk_recording: Integers
    chunk_start_s: Floats
    chunk_expansion: Floats
    chunk_hour: Integers
    boxes: Boxes
    box_event: Integers
    events: Boxes
    event_labels: tuple[str, ...]
    event_snr_db: Floats
    left_out: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trial:
    """A test set with what a model found: `found` (N) are in frames and bins of their chunk, the group.

    `found_events` (N, 4) are the same boxes in seconds and Hz of their recordings.
    """

    truths: Truths
    found: Boxes
    found_events: Floats

    def above(self, min_score: float) -> Trial:
        """The predictions of at least this score."""
        kept = _scores(self.found) >= min_score
        return replace(self, found=chosen(self.found, kept), found_events=self.found_events[kept])

    @property
    def found_recording(self) -> Integers:
        """Recording of each prediction. (N,)"""
        return self.truths.chunk_recording[self.found.group]


@dataclass(frozen=True)
class Matched:
    """Predictions and truths matched in one way, and the recordings, (N,) and (M,), that they belong to."""

    found: Boxes
    truths: Boxes
    matches: Matches
    found_recording: Integers
    truth_recording: Integers
    recordings: int

    @cached_property
    def ranking(self) -> Ranking:
        """The predictions by falling score; recordings are its units."""
        return Ranking.of(
            _scores(self.found),
            self.matches.overlap,
            self.found_recording,
            self.truth_recording,
            self.recordings,
        )


def match_chunks(trial: Trial, overlap: OverlapKind = "iou") -> Matched:
    """Match chunk by chunk, as the paper evaluates: a sound in two overlapping chunks is asked for in both."""
    truths = trial.truths
    return Matched(
        trial.found,
        truths.boxes,
        match(trial.found, truths.boxes, overlap),
        trial.found_recording,
        truths.chunk_recording[truths.boxes.group],
        len(truths.recordings),
    )


def match_recordings(trial: Trial, max_iou: float) -> Matched:
    """Match whole recordings: predictions of overlapping chunks are merged, and every sound is asked for once."""
    merged = chosen(in_recordings(trial), is_best(trial, max_iou))
    events = trial.truths.events
    recordings = len(trial.truths.recordings)
    return Matched(merged, events, match(merged, events), merged.group, events.group, recordings)


def in_recordings(trial: Trial) -> Boxes:
    """All predictions in seconds and Hz of their recordings."""
    return Boxes(trial.found_recording, trial.found_events, trial.found.score)


def is_best(trial: Trial, max_iou: float) -> Mask:
    """Which predictions stay when duplicates, of whatever chunks of a recording, give way to better ones. (N,)

    The paper does not say how overlapping chunks are merged: we suppress over the whole recording.
    """
    boxes = in_recordings(trial)
    kept = np.zeros(len(boxes), dtype=bool)
    for rows in rows_of_each(boxes.group):
        bounds, scores = torch.from_numpy(boxes.bounds[rows]), torch.from_numpy(_scores(boxes)[rows])
        kept[rows[nms(bounds, scores, max_iou).numpy()]] = True
    return kept


WAYS: dict[str, Callable[[Trial, float], Matched]] = {
    "iou": lambda trial, max_iou: match_chunks(trial, "iou"),
    "iomin": lambda trial, max_iou: match_chunks(trial, "iomin"),
    "time": lambda trial, max_iou: match_chunks(trial, "time"),
    "recordings": match_recordings,
}
"""Ways to say that a prediction found a truth; the first is the paper's. The number is the IoU of duplicates."""


def chosen(boxes: Boxes, rows: Mask) -> Boxes:
    """Some of the boxes."""
    return Boxes(boxes.group[rows], boxes.bounds[rows], None if boxes.score is None else boxes.score[rows])


def rows_of_each(group: Integers) -> list[Integers]:
    """Rows of each group that occurs, groups in their order. (N,) → arrays of rows"""
    order = np.argsort(group, kind="stable")
    ends = np.flatnonzero(np.diff(group[order])) + 1
    return np.split(order, ends) if len(group) else []


def _scores(boxes: Boxes) -> Floats:
    if boxes.score is None:
        raise ValueError("predictions have scores")
    return boxes.score
