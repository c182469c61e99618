"""Choose the score threshold of a detector on the in-domain validation split, never on test data."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pydantic import JsonValue

from mast.evaluation.metrics import METRICS, RankedPredictions, robust_f1_threshold
from mast.training.validation import NO_PREDICTIONS, ValidationPredictions

REPORTED = ("precision", "recall", "f1", "average_precision_voc")


@dataclass(frozen=True, slots=True)
class Threshold:
    """Score threshold, the reason for its choice, and the validation metrics at it."""

    score: float
    reason: str
    results: dict[str, JsonValue]


def choose_threshold(
    real: ValidationPredictions, fallback: float, synthetic: ValidationPredictions = NO_PREDICTIONS
) -> Threshold:
    """Choose a threshold that is robust for the F1 over chunks (paper, Evaluation Details), or return the fallback.

    The fallback is used if there are no ground-truth boxes or no correct detections. Predictions on synthetic calls
    contribute to the choice, but not to the metrics. `average_precision` is computed from all candidates, the other
    metrics from those with at least the chosen score.
    """
    if not real.boxes + synthetic.boxes:
        problem = "has no boxes" if real.ground_truth else "is empty"
        return Threshold(fallback, f"detection.score_threshold, because the validation split {problem}", {})
    ranking = real.ranking()
    threshold = robust_f1_threshold((real + synthetic).ranking() if synthetic.boxes else ranking)
    is_defined = math.isfinite(threshold)
    score = threshold if is_defined else fallback
    data = " and ".join(
        name
        for name, predictions in (
            ("validation", real),
            (f"{synthetic.boxes:,} synthetic {'call' if synthetic.boxes == 1 else 'calls'}", synthetic),
        )
        if predictions.boxes
    )
    reason = f"nearly the highest F1 on {data}"
    if not is_defined:
        reason = f"detection.score_threshold, because there are no correct detections on {data}"
    return Threshold(score, reason, _measure(ranking, score) if real.boxes else {})


def _measure(ranking: RankedPredictions, score: float) -> dict[str, JsonValue]:
    """Return the validation metrics at a score threshold, without those that are undefined."""
    metrics = {name: METRICS[name](ranking.with_min_score(score), None) for name in REPORTED}
    metrics["average_precision"] = METRICS["average_precision"](ranking, None)
    return {f"validation_{name}": value for name, value in metrics.items() if math.isfinite(value)}
