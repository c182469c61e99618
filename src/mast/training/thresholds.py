"""The score from which boxes are reported: found on validation sound of the study's own domain, and only there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import JsonValue
from torch import Tensor

from mast.evaluation.matching import Boxes, match
from mast.evaluation.metrics import METRICS, Ranking, steady_threshold
from mast.models.decoding import Detections

REPORTED = ("precision", "recall", "f1", "ap_11_points")


@dataclass(frozen=True, slots=True)
class Threshold:
    """A score, how it was found, and what was measured there."""

    score: float
    reason: str
    results: dict[str, JsonValue]


def choose_threshold(
    found: Sequence[Detections], truths: Sequence[Tensor], fallback: float, min_iou: float = 0.5
) -> Threshold:
    """The score that is good for F1 over chunks (paper, Evaluation Details), or a fallback where nothing tells it.

    Average precision needs no threshold: `ap_area` is that of all candidates, the others hold from the score up.
    """
    if not truths:
        return Threshold(fallback, "least score of a candidate: there is no validation sound", {})
    if not any(map(len, truths)):
        return Threshold(fallback, "least score of a candidate: there is no box in the validation sound", {})
    ranking = ranked(found, truths, min_iou)
    steady = steady_threshold(ranking)
    is_told = math.isfinite(steady)
    score = steady if is_told else fallback
    measured = {name: METRICS[name](ranking.above(score), None) for name in REPORTED}
    measured["ap_area"] = METRICS["ap_area"](ranking, None)
    results: dict[str, JsonValue] = {
        f"validation_{name}": value for name, value in measured.items() if math.isfinite(value)
    }
    reason = (
        "nearly the highest F1 on validation"
        if is_told
        else "least score of a candidate: nothing was found on validation"
    )
    return Threshold(score, reason, results)


def ranked(found: Sequence[Detections], truths: Sequence[Tensor], min_iou: float) -> Ranking:
    """What became of each box found, matched chunk by chunk; each chunk is a unit."""
    own = _boxes([item.boxes for item in found], [item.scores for item in found])
    true = _boxes(truths)
    matches = match(own, true, min_overlap=min_iou)
    score = own.score if own.score is not None else np.zeros(0)
    return Ranking.of(score, matches.overlap, own.group, true.group, len(truths))


def _boxes(boxes: Sequence[Tensor], scores: Sequence[Tensor] | None = None) -> Boxes:
    group = np.repeat(np.arange(len(boxes)), [len(item) for item in boxes])
    bounds = np.concatenate([np.zeros((0, 4)), *(item.double().numpy() for item in boxes)])
    score = (
        None if scores is None else np.concatenate([np.zeros(0), *(item.double().numpy() for item in scores)])
    )
    return Boxes(group, bounds, score)
