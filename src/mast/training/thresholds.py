"""The score from which boxes are reported: found on validation sound of the study's own domain, and only there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import JsonValue
from torch import Tensor

from mast.datasets.loading import Examples, read_batch
from mast.datasets.made_up import MEAN_CALLS, MadeUpCalls
from mast.detection.chunks import ChunkFinder
from mast.evaluation.matching import Boxes, match
from mast.evaluation.metrics import METRICS, Ranking, steady_threshold
from mast.models.decoding import Detections
from mast.recordings.store import AudioStore

STEADY_BOXES = 200
"""From so many boxes a threshold is steady; where validation has fewer, made-up calls may stand in for the rest."""

REPORTED = ("precision", "recall", "f1", "ap_11_points")


@dataclass(frozen=True, slots=True)
class Threshold:
    """A score, how it was found, and what was measured there."""

    score: float
    reason: str
    results: dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Heard:
    """Chunks as a detector hears them, and the true boxes of each."""

    found: Sequence[Detections] = ()
    truths: Sequence[Tensor] = ()

    @property
    def boxes(self) -> int:
        """How many there truly are."""
        return sum(map(len, self.truths))


NOTHING = Heard()


def chunks_for(boxes: int) -> int:
    """In how many chunks there are about so many made-up calls."""
    return math.ceil(max(0, boxes) / MEAN_CALLS)


def hear_made_up(
    finder: ChunkFinder,
    calls: MadeUpCalls,
    store: AudioStore,
    examples: Examples,
    quiet: NDArray[np.int64],
    boxes: int,
) -> Heard:
    """What is found of about so many made-up calls over quiet examples, which come in turn, as often as it takes."""
    chosen = np.resize(quiet, chunks_for(boxes))
    found: list[Detections] = []
    truths: list[Tensor] = []
    for first in range(0, len(chosen), finder.batch):
        part = chosen[first : first + finder.batch]
        rngs = [np.random.default_rng(first + row) for row in range(len(part))]
        mixed = calls.over(read_batch(store, examples, part), rngs, torch.ones(len(part), dtype=torch.bool))
        found += finder(mixed.sound.numpy(), mixed.filled.numpy())
        truths += mixed.boxes
    return Heard(found, truths)


def choose_threshold(
    real: Heard, fallback: float, made_up: Heard = NOTHING, min_iou: float = 0.5
) -> Threshold:
    """The score that is good for F1 over chunks (paper, Evaluation Details), or a fallback where nothing tells it.

    Made-up calls help to choose it, and measure nothing. Average precision needs no threshold: `ap_area` is that of all
    candidates, the others hold from the score up.
    """
    if not real.boxes + made_up.boxes:
        what = "box in the validation sound" if real.truths else "validation sound"
        return Threshold(fallback, f"least score of a candidate: there is no {what}", {})
    own = ranking = ranked(real.found, real.truths, min_iou)
    if made_up.boxes:
        ranking = ranked([*real.found, *made_up.found], [*real.truths, *made_up.truths], min_iou)
    steady = steady_threshold(ranking)
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
