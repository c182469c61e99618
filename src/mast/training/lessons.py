"""What a detector learns from: whose boxes, over which sound, with which backgrounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mast.config import Study, Train
from mast.datasets.examples import detection_examples, noise_places
from mast.datasets.loading import Examples, FixedChunks, InTurn, Joined, Places
from mast.datasets.order import randomness
from mast.datasets.quiet import quiet_chunks
from mast.errors import TrainingError
from mast.recordings.store import AudioStore


@dataclass(frozen=True, slots=True)
class Lesson:
    """What to learn from: chunks with boxes, and places of quiet chunks to mix in; both are the experts' by default.

    Over examples from `made_up_from` on, calls that nobody made are laid, and theirs are the boxes. Sound in `unsure`
    boxes, a list for each example, gives way to the background. The model says which `verb` it comes of.
    """

    examples: Examples | None = None
    backgrounds: Places | None = None
    unsure: list[Tensor] | None = None
    made_up_from: int | None = None
    verb: str = "train"


EXPERTS = Lesson()


def whole_lesson(study: Study, store: AudioStore, lesson: Lesson) -> Lesson:
    """The lesson, its examples the experts' if it has none, as often and with as much made up as settings ask."""
    settings, share = study.train, study.train.rehearsed_share
    own = detection_examples(study, store, "train").chunks if lesson.examples is None else lesson.examples
    if not len(own):
        raise TrainingError(
            "Nothing of this study is labelled for training. mast budget proposes what to label; mast rehearse makes a "
            "detector without labels."
        )
    own = often_enough(own, settings)
    if not share:
        return replace(lesson, examples=own)
    quiet = quiet_chunks(study, store)
    mixed = quiet[randomness(settings.seed).permutation(len(quiet))]  # so that every epoch hears all sites
    made_up = InTurn(FixedChunks(mixed), with_made_up(len(own), settings) - len(own))
    unsure = None if lesson.unsure is None else [*lesson.unsure, *[torch.zeros(0, 4)] * len(made_up)]
    return replace(lesson, examples=Joined(own, made_up), unsure=unsure, made_up_from=len(own))


def often_enough(examples: Examples, settings: Train) -> Examples:
    """Examples so often in an epoch that all epochs together, with what is made up, have the least number of steps."""
    steps = math.ceil(settings.min_steps / settings.epochs)
    wanted = math.ceil(steps * settings.batch * (1 - settings.rehearsed_share))
    return InTurn(examples, wanted) if wanted > len(examples) else examples


def with_made_up(examples: int, settings: Train) -> int:
    """How many examples an epoch has, of so many with boxes of their own and the made-up ones beside them."""
    return round(examples / (1 - settings.rehearsed_share))


def background_places(study: Study, store: AudioStore, lesson: Lesson) -> Places:
    """Where the sound to mix in is: as the lesson says, or else the experts' quiet chunks."""
    return noise_places(study, store) if lesson.backgrounds is None else lesson.backgrounds
