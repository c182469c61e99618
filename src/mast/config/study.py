"""A study: all settings together."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, Self

from pydantic import Field, model_validator

from mast.config.learning import Augmentation, Model, Pretrain, Rehearse, Train
from mast.config.selftraining import Selftrain
from mast.config.settings import Settings
from mast.config.sound import PATCH, AnnotationSource, Chunking, Collection, Labels, Spectrogram, Splits
from mast.errors import ConfigError


class Detection(Settings):
    """How a detector's predictions become boxes (paper, Evaluation Details)."""

    min_score: float = Field(
        default=0.05, ge=0, le=1, description="Boxes of a lower score are not even looked at"
    )
    nms_iou: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="A box that overlaps a better one by more than this is a duplicate",
    )
    max_boxes: int = Field(default=200, gt=0, description="Boxes of a chunk, at most")


class Study(Settings):
    """One study: where the sound is, what is known about it, and how it is read."""

    preset: str | None = Field(
        default=None,
        description="Values to begin from: laptop for a small model on any machine, paper, or trial to see every command "
        "work in minutes; without one the paper's hold, which want a GPU",
    )
    work: str = Field(default="work", description="Folder for everything MAST makes, beside this file")
    collections: dict[str, Collection] = Field(default={}, description="Recordings, by a name of your choice")
    annotations: tuple[AnnotationSource, ...] = Field(default=(), description="Expert boxes")
    labels: Labels = Field(default=Labels(), description="Which labels are animal, noise or ignored")
    chunking: Chunking = Field(default=Chunking(), description="How recordings are cut")
    spectrogram: Spectrogram = Field(default=Spectrogram(), description="How sound becomes a picture")
    normalisation: Literal["dataset", "audiomae", "band-median"] = Field(
        default="dataset",
        description="How pictures are scaled: by this study's mean and deviation (the paper), as AudioMAE did, "
        "or each chunk by its own median in every band",
    )
    splits: Splits = Field(default=Splits(), description="What is for training, what for testing")
    augmentation: Augmentation = Field(default=Augmentation(), description="How training examples are varied")
    model: Model = Field(default=Model(), description="The network")
    pretrain: Pretrain = Field(default=Pretrain(), description="Masked-audio pretraining")
    rehearse: Rehearse = Field(default=Rehearse(), description="Rehearsal on made-up calls")
    train: Train = Field(default=Train(), description="Supervised training of the detector")
    selftrain: Selftrain = Field(default=Selftrain(), description="Self-training on unlabelled sound")
    detection: Detection = Field(default=Detection(), description="How predictions become boxes")

    @model_validator(mode="after")
    def _band_fits_the_rate(self) -> Self:
        nyquist_hz = self.chunking.sample_rate_hz / 2
        if self.spectrogram.high_hz > nyquist_hz:
            raise ValueError(
                f"spectrogram.high_hz ({self.spectrogram.high_hz:g}) is above {nyquist_hz:g} Hz, the most that "
                f"chunking.sample_rate_hz ({self.chunking.sample_rate_hz}) can hold"
            )
        return self

    @model_validator(mode="after")
    def _chunks_are_whole_patches(self) -> Self:
        chunk_s, shift_s, bins = self.chunking.chunk_s, self.spectrogram.shift_s, self.spectrogram.bins
        patches = math.floor(chunk_s / shift_s + 1e-6) / PATCH
        if patches % 1 or not patches:
            near_s = [
                f"{count * PATCH * shift_s:g}" for count in (math.floor(patches), math.ceil(patches)) if count
            ]
            raise ValueError(
                f"chunking.chunk_s ({chunk_s:g}) makes {patches * PATCH:g} frames of spectrogram.shift_s; the encoder "
                f"takes them {PATCH} at a time. Set chunking.chunk_s to {' or '.join(near_s)}"
            )
        if bins % PATCH:
            raise ValueError(
                f"spectrogram.bins ({bins}) must be a multiple of {PATCH}, which the encoder takes at a time"
            )
        return self


def collection_of(recording_id: str, collections: Iterable[str]) -> str:
    """Name of the collection that a recording belongs to: it begins the recording's id."""
    names = [name for name in collections if recording_id.startswith(f"{name}/")]
    if not names:
        raise ConfigError(f"{recording_id}: of no collection of this study. Scan it again.")
    return max(names, key=len)
