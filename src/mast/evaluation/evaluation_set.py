"""Represent a test set: its ground truth, the predictions of a model, and their matches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from mast.evaluation.matching import GroupedBoxes, Matches, OverlapKind, match
from mast.evaluation.metrics import RankedPredictions
from mast.types import Floats, Integers, Mask


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """Ground truth of a test set.

    Chunks (C,): index of their recording, start in seconds of that recording, time expansion (the factor by which the
    recording is slowed down), and hour of the recorder's clock or -1. `sites` are those of the recordings. `boxes` (M)
    are in frames and bins of their chunk, the group; each is the part of an event that lies in it. `events` (E) are
    complete, each once, in seconds and Hz of their recording, the group. `excluded` counts annotations that are not
    evaluated, by reason.
    """

    name: str
    recordings: tuple[str, ...]
    sites: tuple[str, ...]
    chunk_recording: Integers
    chunk_start_s: Floats
    chunk_expansion: Floats
    chunk_hour: Integers
    boxes: GroupedBoxes
    box_event: Integers
    events: GroupedBoxes
    event_labels: tuple[str, ...]
    event_snr_db: Floats
    excluded: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """Test set with predictions: `predictions` (N) are in frames and bins of their chunk, the group.

    `prediction_events` (N, 4) are the same boxes in seconds and Hz of their recordings. `stitched` (S) are the events
    of whole recordings after stitching, in seconds and Hz of their recording, the group.
    """

    ground_truth: GroundTruth
    predictions: GroupedBoxes
    prediction_events: Floats
    stitched: GroupedBoxes

    def with_min_score(self, min_score: float) -> EvaluationSet:
        """Return the set with only the predictions of at least this score."""
        is_kept, is_kept_event = (_scores(boxes) >= min_score for boxes in (self.predictions, self.stitched))
        return replace(
            self,
            predictions=_select(self.predictions, is_kept),
            prediction_events=self.prediction_events[is_kept],
            stitched=_select(self.stitched, is_kept_event),
        )

    @property
    def prediction_recording(self) -> Integers:
        """Recording index of each prediction. (N,)"""
        return self.ground_truth.chunk_recording[self.predictions.group]


@dataclass(frozen=True)
class MatchedSet:
    """Predictions and ground truth after matching, with the recording indices (N,) and (M,) of both."""

    predictions: GroupedBoxes
    ground_truth: GroupedBoxes
    matches: Matches
    prediction_recording: Integers
    ground_truth_recording: Integers
    recordings: int

    @cached_property
    def ranking(self) -> RankedPredictions:
        """Predictions ranked by falling score; the units are recordings."""
        return RankedPredictions.of(
            _scores(self.predictions),
            self.matches.overlap,
            self.prediction_recording,
            self.ground_truth_recording,
            self.recordings,
        )


def match_chunks(evaluation_set: EvaluationSet, overlap: OverlapKind = "iou") -> MatchedSet:
    """Match chunk by chunk, as the paper evaluates: an event in two overlapping chunks counts in both."""
    ground_truth = evaluation_set.ground_truth
    return MatchedSet(
        evaluation_set.predictions,
        ground_truth.boxes,
        match(evaluation_set.predictions, ground_truth.boxes, overlap),
        evaluation_set.prediction_recording,
        ground_truth.chunk_recording[ground_truth.boxes.group],
        len(ground_truth.recordings),
    )


def match_recordings(evaluation_set: EvaluationSet) -> MatchedSet:
    """Match whole recordings with the stitched output of `mast.detect`: every event counts once."""
    predictions, events = evaluation_set.stitched, evaluation_set.ground_truth.events
    return MatchedSet(
        predictions,
        events,
        match(predictions, events),
        predictions.group,
        events.group,
        len(evaluation_set.ground_truth.recordings),
    )


MATCHING_MODES: dict[str, Callable[[EvaluationSet], MatchedSet]] = {
    "iou": lambda evaluation_set: match_chunks(evaluation_set, "iou"),
    "iomin": lambda evaluation_set: match_chunks(evaluation_set, "iomin"),
    "time": lambda evaluation_set: match_chunks(evaluation_set, "time"),
    "recordings": match_recordings,
}
"""Matching modes of predictions and ground truth; the first is the paper's."""


def _select(boxes: GroupedBoxes, rows: Mask) -> GroupedBoxes:
    return GroupedBoxes(
        boxes.group[rows], boxes.bounds[rows], None if boxes.score is None else boxes.score[rows]
    )


def rows_of_each(group: Integers) -> list[Integers]:
    """Return the rows of each group that occurs, in the order of groups. (N,) → arrays of rows"""
    order = np.argsort(group, kind="stable")
    ends = np.flatnonzero(np.diff(group[order])) + 1
    return np.split(order, ends) if len(group) else []


def _scores(boxes: GroupedBoxes) -> Floats:
    if boxes.score is None:
        raise ValueError("predictions must have scores")
    return boxes.score
