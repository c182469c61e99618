"""Which prediction found which truth: one to one, the highest score first, by an overlap that is at least so large.

A *group* is a chunk or a recording: boxes of different groups never meet. All groups are matched at once, in memory
that grows with the boxes and not with the pairs that could be made of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
OverlapKind = Literal["iou", "iomin", "time"]

PAIRS_AT_ONCE = 2**18
"""Pairs looked at in one go: enough to keep numpy busy, few enough to stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """Boxes of many groups: `group` (N,), `bounds` (N, 4) of (start, low, end, high), `score` (N,) of predictions only.

    Any unit of time and frequency will do, if predictions and truths share it.
    """

    group: Integers
    bounds: Floats
    score: Floats | None = None

    def __post_init__(self) -> None:
        """Refuse arrays that do not belong together and boxes that are none."""
        boxes = len(self.group)
        if self.group.shape != (boxes,) or self.bounds.shape != (boxes, 4):
            raise ValueError(
                f"{self.group.shape} groups and {self.bounds.shape} bounds: need (N,) and (N, 4)"
            )
        if not (np.isfinite(self.bounds).all() and (self.bounds[:, :2] <= self.bounds[:, 2:]).all()):
            raise ValueError("bounds must be finite, with start ≤ end and low ≤ high")
        if self.score is not None and (self.score.shape != (boxes,) or not np.isfinite(self.score).all()):
            raise ValueError(f"need one finite score for each of {boxes} boxes, not {self.score.shape}")

    def __len__(self) -> int:
        """How many boxes."""
        return len(self.group)


@dataclass(frozen=True, slots=True)
class Matches:
    """For each prediction the row of the truth it found, or -1, and their overlap, or 0. (N,), (N,)"""

    truth: Integers
    overlap: Floats

    @property
    def is_hit(self) -> Mask:
        """Which predictions found a truth. (N,)"""
        return self.truth >= 0

    def is_found(self, truths: int) -> Mask:
        """Which of so many truths were found. (M,)"""
        found = np.zeros(truths, dtype=bool)
        found[self.truth[self.is_hit]] = True
        return found


def match(
    predictions: Boxes, truths: Boxes, overlap: OverlapKind = "iou", min_overlap: float = 0.5
) -> Matches:
    """Let each prediction, by falling score, take the free truth of its group that it overlaps most (paper, Evaluation).

    The paper leaves the matching open; these are COCO's rules, ties included: of equal scores the earlier row comes
    first, of equal overlaps the later truth is taken. So leaving out all predictions below a score changes nothing for
    the others.
    """
    if predictions.score is None:
        raise ValueError("predictions need scores to be matched")
    if not 0 < min_overlap <= 1:
        raise ValueError(f"a least overlap of {min_overlap} is not above 0 and at most 1")
    prediction, truth, shared = _overlapping(predictions, truths, overlap, min_overlap)
    rank = np.empty(len(predictions), dtype=np.int64)
    rank[np.argsort(-predictions.score, kind="stable")] = np.arange(len(predictions))
    order = np.lexsort((-truth, -shared, rank[prediction]))
    return _greedy(prediction[order], truth[order], shared[order], len(predictions), len(truths))


def _greedy(prediction: Integers, truth: Integers, shared: Floats, predictions: int, truths: int) -> Matches:
    """Choose among pairs that stand by rank of the prediction, its best truth first. (K,) each

    In each round every prediction whose best free truth no prediction before it could still take, takes it: what
    happens to the others cannot change that. The first prediction left always can, so the rounds end; there are as
    many as the longest chain of rivals has members, a handful in practice.
    """
    matches = Matches(np.full(predictions, -1, dtype=np.int64), np.zeros(predictions))
    first = np.empty(truths, dtype=np.int64)
    is_free = np.ones(truths, dtype=bool)
    while len(prediction):
        is_best = np.append(True, prediction[1:] != prediction[:-1])
        first[truth[::-1]] = prediction[::-1]  # the last written stays: the prediction of the highest rank
        wins = is_best & (first[truth] == prediction)
        matches.truth[prediction[wins]] = truth[wins]
        matches.overlap[prediction[wins]] = shared[wins]
        is_free[truth[wins]] = False
        is_open = is_free[truth] & ~matches.is_hit[prediction]
        prediction, truth, shared = prediction[is_open], truth[is_open], shared[is_open]
    return matches


def _overlapping(
    predictions: Boxes, truths: Boxes, overlap: OverlapKind, min_overlap: float
) -> tuple[Integers, Integers, Floats]:
    """All pairs that overlap enough: rows of predictions, rows of truths, overlaps. (K,), (K,), (K,)"""
    found = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0))]
    for prediction, truth in _meeting_in_time(predictions, truths):
        shared = OVERLAPS[overlap](predictions.bounds[prediction], truths.bounds[truth])
        enough = shared >= min_overlap
        found.append((prediction[enough], truth[enough], shared[enough]))
    predicted, true, overlaps = (np.concatenate(column) for column in zip(*found, strict=True))
    return predicted, true, overlaps


def _meeting_in_time(predictions: Boxes, truths: Boxes) -> Iterator[tuple[Integers, Integers]]:
    """Pairs of rows that share a group and may share time, a block after the other: no pair that does is left out.

    All groups are laid on one line, each with room to spare. There the truths that start before a prediction's end,
    and whose furthest end so far lies beyond its start, stand side by side.
    """
    if not (len(predictions) and len(truths)):
        return
    spans = _on_one_line(predictions, truths)
    room = 4 * np.spacing(spans.max())  # what rounding can do to a place on the line
    predicted, true = spans[: len(predictions)], spans[len(predictions) :]
    by_start = np.argsort(true[:, 0], kind="stable")
    begin = np.searchsorted(np.maximum.accumulate(true[by_start, 1]), predicted[:, 0] - room)
    end = np.searchsorted(true[by_start, 0], predicted[:, 1] + room)
    count = np.maximum(end - begin, 0)
    total = np.cumsum(count)
    row = 0
    while row < len(predictions):
        done = total[row] - count[row]
        until = max(int(np.searchsorted(total, done + PAIRS_AT_ONCE, side="right")), row + 1)
        here = count[row:until]
        prediction = np.repeat(np.arange(row, until), here)
        place = np.arange(len(prediction)) + np.repeat(
            begin[row:until] - (total[row:until] - here - done), here
        )
        yield prediction, by_start[place]
        row = until


def _on_one_line(predictions: Boxes, truths: Boxes) -> Floats:
    """Start and end of all boxes, predictions first, on a line where groups follow each other far apart. (N + M, 2)"""
    group = np.unique(np.concatenate([predictions.group, truths.group]), return_inverse=True)[1]
    spans = np.concatenate([predictions.bounds[:, ::2], truths.bounds[:, ::2]])
    longest = np.ptp(spans) or 1.0
    line: Floats = (spans - spans.min()) + 2 * longest * group[:, None]
    return line


def _iou(boxes: Floats, others: Floats) -> Floats:
    """Shared area over joint area."""
    shared = _shared(boxes, others)
    return _share(shared, _area(boxes) + _area(others) - shared)


def _iomin(boxes: Floats, others: Floats) -> Floats:
    """Shared area over the smaller area: 1 for a box inside the other, however loose."""
    return _share(_shared(boxes, others), np.minimum(_area(boxes), _area(others)))


def _time(boxes: Floats, others: Floats) -> Floats:
    """Shared time over joint time, whatever the frequencies."""
    shared = _shared_side(boxes, others, 0)
    return _share(shared, (boxes[:, 2] - boxes[:, 0]) + (others[:, 2] - others[:, 0]) - shared)


OVERLAPS = {"iou": _iou, "iomin": _iomin, "time": _time}
"""Ways to measure how well two boxes agree, row by row. (K, 4), (K, 4) → (K,)"""


def _area(boxes: Floats) -> Floats:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def _shared(boxes: Floats, others: Floats) -> Floats:
    return _shared_side(boxes, others, 0) * _shared_side(boxes, others, 1)


def _shared_side(boxes: Floats, others: Floats, side: int) -> Floats:
    """How much two boxes share of time (0) or frequency (1)."""
    end = np.minimum(boxes[:, side + 2], others[:, side + 2])
    shared: Floats = np.maximum(end - np.maximum(boxes[:, side], others[:, side]), 0)
    return shared


def _share(part: Floats, whole: Floats) -> Floats:
    """Part of a whole, 0 of nothing."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
