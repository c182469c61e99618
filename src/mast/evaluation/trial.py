"""One test set: what experts drew in its chunks, what a model found there, and how the two are matched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

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

    `found_events` (N, 4) are the same boxes in seconds and Hz of their recordings. `stitched` (S) are the sounds of
    whole recordings that they were put together to, in seconds and Hz of their recording, the group.
    """

    truths: Truths
    found: Boxes
    found_events: Floats
    stitched: Boxes

    def above(self, min_score: float) -> Trial:
        """The predictions of at least this score."""
        kept, kept_sounds = (_scores(boxes) >= min_score for boxes in (self.found, self.stitched))
        return replace(
            self,
            found=_chosen(self.found, kept),
            found_events=self.found_events[kept],
            stitched=_chosen(self.stitched, kept_sounds),
        )

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


def match_recordings(trial: Trial) -> Matched:
    """Match whole recordings, as `mast.detect` tells them: every sound is asked for once."""
    found, events = trial.stitched, trial.truths.events
    return Matched(
        found, events, match(found, events), found.group, events.group, len(trial.truths.recordings)
    )


WAYS: dict[str, Callable[[Trial], Matched]] = {
    "iou": lambda trial: match_chunks(trial, "iou"),
    "iomin": lambda trial: match_chunks(trial, "iomin"),
    "time": lambda trial: match_chunks(trial, "time"),
    "recordings": match_recordings,
}
"""Ways to say that a prediction found a truth; the first is the paper's."""


def _chosen(boxes: Boxes, rows: Mask) -> Boxes:
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
