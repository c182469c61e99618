"""Boxes on a small grid, where overlaps and scores are often equal, and greedy matching as a plain loop."""

import numpy as np
from hypothesis import strategies as st

from mast.evaluation.matching import GroupedBoxes
from mast.evaluation.metrics import RankedPredictions

GROUPS = 3


@st.composite
def boxes(draw, scored, max_size=14):
    """Draw boxes in groups 0, 1 and 2, in any order; a group may be empty, a box may have no area."""
    count = draw(st.integers(0, max_size))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    corner, size = rng.integers(0, 5, (count, 2)), rng.integers(0, 5, (count, 2))
    bounds = np.hstack([corner, corner + size]).astype(float)
    score = rng.integers(0, 5, count) / 4 if scored else None
    return GroupedBoxes(rng.integers(0, GROUPS, count), bounds, score)


def in_group_order(unsorted):
    """Sort boxes by group."""
    order = np.argsort(unsorted.group, kind="stable")
    return GroupedBoxes(
        unsorted.group[order],
        unsorted.bounds[order],
        None if unsorted.score is None else unsorted.score[order],
    )


def ranking_of(predictions, ground_truth, matches):
    return RankedPredictions.of(
        predictions.score, matches.overlap, predictions.group, ground_truth.group, GROUPS
    )


def naive_overlap(kind, a, b):
    width, height = (max(0.0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (0, 1))
    (long, tall), (other_long, other_tall) = (((c[2] - c[0]), (c[3] - c[1])) for c in (a, b))
    part, total = {
        "iou": (width * height, long * tall + other_long * other_tall - width * height),
        "iomin": (width * height, min(long * tall, other_long * other_tall)),
        "time": (width, long + other_long - width),
    }[kind]
    return part / total if total else 0.0


def naive_match(predictions, ground_truth, kind, min_overlap):
    """Return the ground-truth row that each prediction matches, or -1."""
    matched = [-1] * len(predictions)
    for row in sorted(range(len(predictions)), key=lambda row: -predictions.score[row]):
        best, chosen = min_overlap, -1
        for candidate in range(len(ground_truth)):
            overlap = naive_overlap(kind, predictions.bounds[row], ground_truth.bounds[candidate])
            same_group = ground_truth.group[candidate] == predictions.group[row]
            if same_group and candidate not in matched and overlap >= best:
                best, chosen = overlap, candidate
        matched[row] = chosen
    return matched
