"""All settings of a study."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, Self

from pydantic import Field, model_validator

from mast.config.base import Settings
from mast.config.data import PATCH_SIZE, AnnotationSource, Chunking, Collection, Labels, Spectrogram, Splits
from mast.config.selftraining import Selftrain
from mast.config.training import Augmentation, ModelSettings, Pretrain, SyntheticTraining, Train
from mast.errors import ConfigError


class Detection(Settings):
    """Postprocessing of a detector's predictions (paper, Evaluation Details)."""

    score_threshold: float = Field(
        default=0.05, ge=0, le=1, description="Predictions with a lower score are discarded before NMS"
    )
    nms_iou_threshold: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="IoU above which a box is a duplicate of a box with a higher score",
    )
    max_detections: int = Field(default=200, gt=0, description="Maximum number of boxes per chunk")


class Study(Settings):
    """One study: its recordings, their annotations, and all settings."""

    preset: str | None = Field(
        default=None,
        description="Preset values: starter to continue the training of the installed detector; laptop for a small "
        "vision transformer on any machine; paper; or trial to test every command in minutes. The defaults are the "
        "paper's values, which need a GPU",
    )
    work_dir: str = Field(default="work", description="Folder for all outputs of MAST, relative to this file")
    collections: dict[str, Collection] = Field(
        default={}, description="Collections of recordings, each under a name of your choice"
    )
    annotations: tuple[AnnotationSource, ...] = Field(default=(), description="Annotations")
    labels: Labels = Field(
        default=Labels(), description="Meaning of the annotation labels: animal, noise or ignore"
    )
    chunking: Chunking = Field(default=Chunking(), description="Splitting of recordings into chunks")
    spectrogram: Spectrogram = Field(default=Spectrogram(), description="Computation of spectrograms")
    normalisation: Literal["dataset", "audiomae", "band-median"] = Field(
        default="dataset",
        description="Scaling of spectrograms: by this study's mean and standard deviation (the paper), by AudioMAE's, "
        "or each chunk by its own median in every band",
    )
    splits: Splits = Field(default=Splits(), description="Training, validation and test splits")
    augmentation: Augmentation = Field(
        default=Augmentation(), description="Augmentation of training examples"
    )
    model: ModelSettings = Field(default=ModelSettings(), description="The model architecture")
    pretrain: Pretrain = Field(default=Pretrain(), description="Masked-audio pretraining")
    train_synthetic: SyntheticTraining = Field(
        default=SyntheticTraining(), description="Training on synthetic calls"
    )
    train: Train = Field(default=Train(), description="Supervised training of the detector")
    selftrain: Selftrain = Field(default=Selftrain(), description="Self-training on unlabelled audio")
    detection: Detection = Field(default=Detection(), description="Postprocessing of predictions")

    @model_validator(mode="after")
    def _check_band_below_nyquist(self) -> Self:
        nyquist_hz = self.chunking.sample_rate_hz / 2
        if self.spectrogram.high_hz > nyquist_hz:
            raise ValueError(
                f"spectrogram.high_hz ({self.spectrogram.high_hz:g}) is above {nyquist_hz:g} Hz, the maximum at "
                f"chunking.sample_rate_hz ({self.chunking.sample_rate_hz})"
            )
        return self

    @model_validator(mode="after")
    def _check_whole_patches(self) -> Self:
        chunk_s, shift_s, bins = (
            self.chunking.chunk_s,
            self.spectrogram.frame_shift_s,
            self.spectrogram.n_mels,
        )
        patches = math.floor(chunk_s / shift_s + 1e-6) / PATCH_SIZE
        if patches % 1 or not patches:
            nearest_s = [
                f"{count * PATCH_SIZE * shift_s:g}"
                for count in (math.floor(patches), math.ceil(patches))
                if count
            ]
            raise ValueError(
                f"chunking.chunk_s ({chunk_s:g}) gives {patches * PATCH_SIZE:g} frames of spectrogram.frame_shift_s; the "
                f"number must be a multiple of {PATCH_SIZE}, the encoder's patch size. Set chunking.chunk_s to "
                f"{' or '.join(nearest_s)}"
            )
        if bins % PATCH_SIZE:
            raise ValueError(
                f"spectrogram.n_mels ({bins}) must be a multiple of {PATCH_SIZE}, the encoder's patch size"
            )
        return self


def collection_of(recording_id: str, collections: Iterable[str]) -> str:
    """Return the collection that a recording belongs to: the recording's id starts with its name."""
    names = [name for name in collections if recording_id.startswith(f"{name}/")]
    if not names:
        raise ConfigError(f"{recording_id}: belongs to no collection of this study. Scan again.")
    return max(names, key=len)
