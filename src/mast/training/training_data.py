"""Training data of a detector: chunks with boxes, synthetic calls, and backgrounds to mix in."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mast.config import Study, Train
from mast.datasets.background_selection import select_background_chunks
from mast.datasets.loader import ChunkDataset, ChunkLocations, ConcatDataset, CycledDataset, FixedChunkDataset
from mast.datasets.sampler import make_rng
from mast.datasets.study_datasets import background_chunks, detection_dataset
from mast.errors import TrainingError
from mast.store.audio_store import AudioStore


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Chunks with boxes, and locations of background chunks to mix in; by default both come from the annotations.

    Examples with index >= `synthetic_start` get synthetic calls shuffled in; those calls are their only boxes. In the
    `uncertain` boxes, a list for each example, background replaces the spectrogram. `command` is the command that
    trains the model, for the model's metadata.
    """

    examples: ChunkDataset | None = None
    backgrounds: ChunkLocations | None = None
    uncertain: list[Tensor] | None = None
    synthetic_start: int | None = None
    command: str = "train"


LABELLED_ONLY = TrainingData()


def build_training_data(study: Study, store: AudioStore, training_data: TrainingData) -> TrainingData:
    """Build the training set: labelled chunks, repeated to reach `min_steps`, plus the configured synthetic fraction.

    The labelled chunks are `training_data.examples` or, by default, the annotated chunks of the training split.
    """
    settings, fraction = study.train, study.train.synthetic_fraction
    labelled = (
        detection_dataset(study, store, "train").chunks
        if training_data.examples is None
        else training_data.examples
    )
    if not len(labelled):
        raise TrainingError(
            "This study has no annotated chunks in the training split. mast sample selects recordings to annotate; mast "
            "train-synthetic trains a detector without annotations."
        )
    labelled = repeat_to_min_steps(labelled, settings)
    if not fraction:
        return replace(training_data, examples=labelled)
    background = select_background_chunks(study, store)
    shuffled = background[
        make_rng(settings.seed).permutation(len(background))
    ]  # so that every epoch has chunks of all sites
    synthetic = CycledDataset(
        FixedChunkDataset(shuffled), epoch_size(len(labelled), settings) - len(labelled)
    )
    uncertain = (
        None
        if training_data.uncertain is None
        else [*training_data.uncertain, *[torch.zeros(0, 4)] * len(synthetic)]
    )
    return replace(
        training_data,
        examples=ConcatDataset(labelled, synthetic),
        uncertain=uncertain,
        synthetic_start=len(labelled),
    )


def repeat_to_min_steps(examples: ChunkDataset, settings: Train) -> ChunkDataset:
    """Repeat examples within an epoch so that training, with synthetic examples, has at least `min_steps` steps."""
    steps = math.ceil(settings.min_steps / settings.epochs)
    required = math.ceil(steps * settings.batch_size * (1 - settings.synthetic_fraction))
    return CycledDataset(examples, required) if required > len(examples) else examples


def epoch_size(examples: int, settings: Train) -> int:
    """Return the number of examples in an epoch with `examples` labelled ones and the configured synthetic fraction."""
    return round(examples / (1 - settings.synthetic_fraction))


def background_locations(study: Study, store: AudioStore, training_data: TrainingData) -> ChunkLocations:
    """Return the locations of the backgrounds to mix in, by default those of annotated chunks without boxes."""
    return background_chunks(study, store) if training_data.backgrounds is None else training_data.backgrounds
