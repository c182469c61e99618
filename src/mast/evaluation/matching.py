"""Match predictions to ground truth one to one, highest score first, by an overlap of at least `min_overlap`.

A *group* is a chunk or a recording: boxes of different groups are never matched. All groups are matched at once, in
memory that grows with the number of boxes and not with the number of possible pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mast.types import Floats, Integers, Mask

OverlapKind = Literal["iou", "iomin", "time"]

PAIRS_AT_ONCE = 2**18
"""Maximum pairs to process at once: enough to keep numpy busy, few enough to fit in the processor's cache."""


@dataclass(frozen=True, slots=True)
class GroupedBoxes:
    """Boxes of many groups: `group` (N,), `bounds` (N, 4) of (start, low, end, high), `score` (N,) of predictions only.

    Predictions and ground truth may be in any unit of time and frequency, as long as both use the same.
    """

    group: Integers
    bounds: Floats
    score: Floats | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if the arrays differ in length or a box is invalid."""
        boxes = len(self.group)
        if self.group.shape != (boxes,) or self.bounds.shape != (boxes, 4):
            raise ValueError(
                f"{self.group.shape} groups and {self.bounds.shape} bounds; the shapes must be (N,) and (N, 4)"
            )
        if not (np.isfinite(self.bounds).all() and (self.bounds[:, :2] <= self.bounds[:, 2:]).all()):
            raise ValueError("bounds must be finite, with start ≤ end and low ≤ high")
        if self.score is not None and (self.score.shape != (boxes,) or not np.isfinite(self.score).all()):
            raise ValueError(
                f"each of the {boxes} boxes needs one finite score, not scores of shape {self.score.shape}"
            )

    def __len__(self) -> int:
        """Return the number of boxes."""
        return len(self.group)


@dataclass(frozen=True, slots=True)
class Matches:
    """Row of the ground truth matched by each prediction, or -1, and their overlap, or 0. (N,), (N,)"""

    ground_truth_row: Integers
    overlap: Floats

    @property
    def is_hit(self) -> Mask:
        """Mask of the predictions that match ground truth. (N,)"""
        return self.ground_truth_row >= 0

    def is_recalled(self, count: int) -> Mask:
        """Return the mask of the matched ground truth, given the number of ground-truth boxes. (M,)"""
        recalled = np.zeros(count, dtype=bool)
        recalled[self.ground_truth_row[self.is_hit]] = True
        return recalled


def match(
    predictions: GroupedBoxes,
    ground_truth: GroupedBoxes,
    overlap: OverlapKind = "iou",
    min_overlap: float = 0.5,
) -> Matches:
    """Match each prediction, by falling score, to the unmatched ground truth of its group that it overlaps most.

    The paper (Evaluation) leaves the matching open; these are COCO's rules, ties included: among equal scores the
    earlier row comes first, among equal overlaps the later ground truth is taken. So removing all predictions below a
    score does not change the matches of the others.

    Args:
        predictions: Boxes with scores.
        ground_truth: Boxes to match, in the same units.
        overlap: "iou", "iomin" (intersection over the smaller area) or "time" (IoU in time only).
        min_overlap: Minimum overlap of a match, above 0 and at most 1.

    Returns:
        Row of the matched ground truth and overlap, for each prediction.

    Raises:
        ValueError: If predictions have no scores or `min_overlap` is out of range.
    """
    if predictions.score is None:
        raise ValueError("predictions must have scores to be matched")
    if not 0 < min_overlap <= 1:
        raise ValueError(f"min_overlap is {min_overlap}; it must be above 0 and at most 1")
    prediction, ground_truth_row, overlaps = _overlapping(predictions, ground_truth, overlap, min_overlap)
    rank = np.empty(len(predictions), dtype=np.int64)
    rank[np.argsort(-predictions.score, kind="stable")] = np.arange(len(predictions))
    order = np.lexsort((-ground_truth_row, -overlaps, rank[prediction]))
    return _greedy(
        prediction[order], ground_truth_row[order], overlaps[order], len(predictions), len(ground_truth)
    )


def _greedy(
    prediction: Integers, ground_truth_row: Integers, overlaps: Floats, predictions: int, ground_truth: int
) -> Matches:
    """Select matches from candidate pairs, sorted by rank of the prediction, its best ground truth first. (K,) each

    In each round, every prediction whose best unmatched ground truth is not the candidate of an earlier prediction
    takes it: no other match can change that. The first remaining prediction always takes one, so the rounds end; their
    number is the length of the longest chain of competing predictions, a handful in practice.
    """
    matches = Matches(np.full(predictions, -1, dtype=np.int64), np.zeros(predictions))
    first = np.empty(ground_truth, dtype=np.int64)
    is_free = np.ones(ground_truth, dtype=bool)
    while len(prediction):
        is_best = np.append(True, prediction[1:] != prediction[:-1])
        first[ground_truth_row[::-1]] = prediction[
            ::-1
        ]  # the last write wins: the prediction of the highest rank
        wins = is_best & (first[ground_truth_row] == prediction)
        matches.ground_truth_row[prediction[wins]] = ground_truth_row[wins]
        matches.overlap[prediction[wins]] = overlaps[wins]
        is_free[ground_truth_row[wins]] = False
        is_open = is_free[ground_truth_row] & ~matches.is_hit[prediction]
        prediction, ground_truth_row, overlaps = (
            prediction[is_open],
            ground_truth_row[is_open],
            overlaps[is_open],
        )
    return matches


def _overlapping(
    predictions: GroupedBoxes, ground_truth: GroupedBoxes, overlap: OverlapKind, min_overlap: float
) -> tuple[Integers, Integers, Floats]:
    """Return all pairs that overlap enough: rows of predictions, rows of ground truth, overlaps. (K,), (K,), (K,)"""
    pairs = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0))]
    for prediction, ground_truth_row in _candidate_pairs(predictions, ground_truth):
        overlaps = OVERLAPS[overlap](predictions.bounds[prediction], ground_truth.bounds[ground_truth_row])
        enough = overlaps >= min_overlap
        pairs.append((prediction[enough], ground_truth_row[enough], overlaps[enough]))
    predicted, ground_truth_rows, overlaps = (np.concatenate(column) for column in zip(*pairs, strict=True))
    return predicted, ground_truth_rows, overlaps


def _candidate_pairs(
    predictions: GroupedBoxes, ground_truth: GroupedBoxes
) -> Iterator[tuple[Integers, Integers]]:
    """Yield blocks of row pairs of one group that may overlap in time; no pair that overlaps is omitted.

    All groups are placed on one line, far apart. On it, the ground truth that starts before a prediction's end, and
    whose running maximum end is after its start, is a contiguous range.
    """
    if not (len(predictions) and len(ground_truth)):
        return
    spans = _place_on_one_line(predictions, ground_truth)
    tolerance = 4 * np.spacing(spans.max())  # bound of the rounding error on the line
    prediction_spans, ground_truth_spans = spans[: len(predictions)], spans[len(predictions) :]
    by_start = np.argsort(ground_truth_spans[:, 0], kind="stable")
    begin = np.searchsorted(
        np.maximum.accumulate(ground_truth_spans[by_start, 1]), prediction_spans[:, 0] - tolerance
    )
    end = np.searchsorted(ground_truth_spans[by_start, 0], prediction_spans[:, 1] + tolerance)
    count = np.maximum(end - begin, 0)
    total = np.cumsum(count)
    row = 0
    while row < len(predictions):
        done = total[row] - count[row]
        end_row = max(int(np.searchsorted(total, done + PAIRS_AT_ONCE, side="right")), row + 1)
        block_count = count[row:end_row]
        prediction = np.repeat(np.arange(row, end_row), block_count)
        position = np.arange(len(prediction)) + np.repeat(
            begin[row:end_row] - (total[row:end_row] - block_count - done), block_count
        )
        yield prediction, by_start[position]
        row = end_row


def _place_on_one_line(predictions: GroupedBoxes, ground_truth: GroupedBoxes) -> Floats:
    """Return the start and end of all boxes, predictions first, on a line with the groups far apart. (N + M, 2)"""
    group = np.unique(np.concatenate([predictions.group, ground_truth.group]), return_inverse=True)[1]
    spans = np.concatenate([predictions.bounds[:, ::2], ground_truth.bounds[:, ::2]])
    longest = np.ptp(spans) or 1.0
    line: Floats = (spans - spans.min()) + 2 * longest * group[:, None]
    return line


def _iou(boxes: Floats, other_boxes: Floats) -> Floats:
    """Return the intersection area over the union area."""
    overlaps = _intersection(boxes, other_boxes)
    return _ratio(overlaps, _area(boxes) + _area(other_boxes) - overlaps)


def _iomin(boxes: Floats, other_boxes: Floats) -> Floats:
    """Return the intersection area over the smaller area: 1 for a box inside the other."""
    return _ratio(_intersection(boxes, other_boxes), np.minimum(_area(boxes), _area(other_boxes)))


def _time(boxes: Floats, other_boxes: Floats) -> Floats:
    """Return the shared time over the joint time, regardless of frequency."""
    overlaps = _intersection_length(boxes, other_boxes, 0)
    return _ratio(overlaps, (boxes[:, 2] - boxes[:, 0]) + (other_boxes[:, 2] - other_boxes[:, 0]) - overlaps)


OVERLAPS = {"iou": _iou, "iomin": _iomin, "time": _time}
"""Overlap functions of two boxes, row by row. (K, 4), (K, 4) → (K,)"""


def _area(boxes: Floats) -> Floats:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def _intersection(boxes: Floats, other_boxes: Floats) -> Floats:
    return _intersection_length(boxes, other_boxes, 0) * _intersection_length(boxes, other_boxes, 1)


def _intersection_length(boxes: Floats, other_boxes: Floats, side: int) -> Floats:
    """Return the intersection of two boxes in time (side 0) or frequency (side 1)."""
    end = np.minimum(boxes[:, side + 2], other_boxes[:, side + 2])
    overlaps: Floats = np.maximum(end - np.maximum(boxes[:, side], other_boxes[:, side]), 0)
    return overlaps


def _ratio(part: Floats, total: Floats) -> Floats:
    """Divide elementwise; 0 where the denominator is 0."""
    return np.divide(part, total, out=np.zeros_like(part), where=total > 0)
