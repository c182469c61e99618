"""The score from which boxes are reported: found on validation sound of the study's own domain, and only there."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pydantic import JsonValue

from mast.evaluation.metrics import METRICS, Ranking, steady_threshold
from mast.training.hearing import NOTHING, Heard

REPORTED = ("precision", "recall", "f1", "ap_11_points")


@dataclass(frozen=True, slots=True)
class Threshold:
    """A score, how it was found, and what was measured there."""

    score: float
    reason: str
    results: dict[str, JsonValue]


def choose_threshold(real: Heard, fallback: float, made_up: Heard = NOTHING) -> Threshold:
    """The score that is good for F1 over chunks (paper, Evaluation Details), or a fallback where nothing tells it.

    Made-up calls help to choose it, and measure nothing. Average precision needs no threshold: `ap_area` is that of all
    candidates, the others hold from the score up.
    """
    if not real.boxes + made_up.boxes:
        what = "box in the validation sound" if real.truths else "validation sound"
        return Threshold(fallback, f"least score of a candidate: there is no {what}", {})
    own = real.ranking()
    steady = steady_threshold((real + made_up).ranking() if made_up.boxes else own)
    is_told = math.isfinite(steady)
    score = steady if is_told else fallback
    where = " and ".join(
        name
        for name, heard in (("validation", real), (f"{made_up.boxes:,} made-up calls", made_up))
        if heard.boxes
    )
    reason = f"nearly the highest F1 on {where}"
    if not is_told:
        reason = f"least score of a candidate: nothing was found on {where}"
    return Threshold(score, reason, _measured(own, score) if real.boxes else {})


def _measured(ranking: Ranking, score: float) -> dict[str, JsonValue]:
    """Figures of validation from a score up, as far as they can be told."""
    figures = {name: METRICS[name](ranking.above(score), None) for name in REPORTED}
    figures["ap_area"] = METRICS["ap_area"](ranking, None)
    return {f"validation_{name}": value for name, value in figures.items() if math.isfinite(value)}
