"""What a detector makes of sound whose boxes are known: validation, and made-up calls where that has few boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mast.config import Spectrogram, Study
from mast.datasets.loading import Examples, FixedChunks, Places, read_batch
from mast.datasets.made_up import MEAN_CALLS, MadeUpCalls
from mast.datasets.quiet import quiet_chunks
from mast.detection.chunks import ChunkFinder, predict_chunks
from mast.evaluation.matching import Boxes, match
from mast.evaluation.metrics import Ranking
from mast.models.decoding import Detections
from mast.recordings.store import AudioStore

STEADY_BOXES = 200
"""From so many boxes a score is chosen steadily; where validation has fewer, made-up calls may stand in for the rest."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Chunks as a detector hears them, and the true boxes of each."""

    found: Sequence[Detections] = ()
    truths: Sequence[Tensor] = ()

    @property
    def boxes(self) -> int:
        """How many there truly are."""
        return sum(map(len, self.truths))

    def __add__(self, other: Heard) -> Heard:
        """Chunks of both."""
        return Heard([*self.found, *other.found], [*self.truths, *other.truths])

    def ranking(self, min_iou: float = 0.5) -> Ranking:
        """What became of each box found, matched chunk by chunk; each chunk is a unit."""
        own = _boxes([item.boxes for item in self.found], [item.scores for item in self.found])
        true = _boxes(self.truths)
        matches = match(own, true, min_overlap=min_iou)
        score = own.score if own.score is not None else np.zeros(0)
        return Ranking.of(score, matches.overlap, own.group, true.group, len(self.truths))


NOTHING = Heard()


def hear(finder: ChunkFinder, store: AudioStore, examples: Examples) -> Heard:
    """What is found in all of some examples."""
    every = np.arange(len(examples))
    found = predict_chunks(finder, store, examples.places(0, every))
    return Heard(list(found), examples.boxes(every))


def hear_validation(
    finder: ChunkFinder, study: Study, store: AudioStore, held: Examples, *, knows_made_up: bool
) -> tuple[Heard, Heard]:
    """What is found on validation and, by who knows them, of as many made-up calls as it lacks boxes to be steady.

    These lie over validation chunks without a box or, where there is none, over quiet ones that nobody has labelled.
    """
    real = hear(finder, store, held)
    lacking = STEADY_BOXES - real.boxes
    if not knows_made_up or lacking <= 0:
        return real, NOTHING
    quiet = np.flatnonzero([not len(own) for own in real.truths])
    places = held.places(0, quiet) if len(quiet) else quiet_chunks(study, store)
    return real, hear_made_up(finder, study.spectrogram, store, places, lacking)


def hear_made_up(
    finder: ChunkFinder, spectrogram: Spectrogram, store: AudioStore, quiet: Places, boxes: int
) -> Heard:
    """What is found of about so many made-up calls over quiet chunks, which come in turn, as often as it takes."""
    calls = MadeUpCalls(spectrogram, store.layout.sample_rate_hz, finder.frames)
    chunks, chosen = FixedChunks(quiet), np.resize(np.arange(len(quiet)), chunks_for(boxes))
    heard = NOTHING
    for first in range(0, len(chosen), finder.batch):
        part = chosen[first : first + finder.batch]
        rngs = [np.random.default_rng(first + row) for row in range(len(part))]
        mixed = calls.over(read_batch(store, chunks, part), rngs, torch.ones(len(part), dtype=torch.bool))
        heard += Heard(finder(mixed.sound.numpy(), mixed.filled.numpy()), mixed.boxes)
    return heard


def chunks_for(boxes: int) -> int:
    """In how many chunks there are about so many made-up calls."""
    return math.ceil(max(0, boxes) / MEAN_CALLS)


def _boxes(boxes: Sequence[Tensor], scores: Sequence[Tensor] | None = None) -> Boxes:
    group = np.repeat(np.arange(len(boxes)), [len(item) for item in boxes])
    bounds = np.concatenate([np.zeros((0, 4)), *(item.double().numpy() for item in boxes)])
    score = (
        None if scores is None else np.concatenate([np.zeros(0), *(item.double().numpy() for item in scores)])
    )
    return Boxes(group, bounds, score)
