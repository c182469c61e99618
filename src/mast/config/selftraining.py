"""Settings of self-training: its teacher, its two stages, and the criteria for rolling back a round."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mast.config.base import Settings
from mast.config.training import DetectorStage, Unfreezing


class PseudoLabelStage(DetectorStage):
    """Stage 1 of self-training: training on the teacher's pseudo-labels (paper, self-training table)."""

    epochs: int = Field(default=80, gt=0, description="Number of passes over the pseudo-labelled chunks")
    lr: float = Field(default=1e-4, gt=0, description="Learning rate after the warm-up")
    warmup_epochs: float = Field(
        default=8, ge=0, description="Epochs in which the learning rate rises from 0"
    )
    contrastive_weight: float = Field(
        default=0.3, ge=0, description="Weight of the box contrastive loss; 0 disables it"
    )
    augmentation_probability: float = Field(
        default=0.9, ge=0, le=1, description="Fraction of examples that are augmented in this stage"
    )


class SupervisedUnfreezing(Unfreezing):
    """Gradual unfreezing of the encoder in stage 2: earlier than in stage 1, and with a higher learning rate."""

    start_epoch: int = Field(default=3, ge=0, description="Epoch in which the first blocks are unfrozen")
    interval_epochs: int = Field(default=6, gt=0, description="Epochs between unfreezing steps")
    blocks_per_step: int = Field(
        default=6, ge=0, description="Blocks unfrozen per step; 0 keeps the encoder frozen"
    )
    lr_scale: float = Field(
        default=0.05, gt=0, description="Learning rate of unfrozen blocks, as a fraction of lr"
    )


class SupervisedStage(DetectorStage):
    """Stage 2 of self-training: training on the annotations (paper, self-training table)."""

    epochs: int = Field(default=40, gt=0, description="Number of passes over the training chunks")
    lr: float = Field(default=5e-5, gt=0, description="Learning rate after the warm-up")
    warmup_epochs: float = Field(
        default=4, ge=0, description="Epochs in which the learning rate rises from 0"
    )
    backbone_lr_scale: float = Field(
        default=0.02,
        gt=0,
        description="Learning rate of the parts of the encoder outside its blocks, as a fraction of lr: its norm and, "
        "once all blocks are unfrozen, its patch embedding",
    )
    unfreezing: SupervisedUnfreezing = Field(
        default=SupervisedUnfreezing(), description="Gradual unfreezing of the encoder"
    )
    contrastive_weight: float = Field(
        default=0.2, ge=0, description="Weight of the box contrastive loss; 0 disables it"
    )
    augmentation_probability: float = Field(
        default=0.8, ge=0, le=1, description="Fraction of examples that are augmented in this stage"
    )


class RollbackCriteria(Settings):
    """Criteria for rolling back a round of self-training."""

    max_f1_drop: float = Field(
        default=0.1, ge=0, description="Maximum drop of F1 on validation, relative to the first teacher"
    )
    max_detection_rate_ratio: float = Field(
        default=3.0,
        gt=1,
        description="Maximum ratio of the number of detections to the first teacher's, at each site and in total. The "
        "total may also fall at most by this ratio, and no site may fall to zero detections",
    )
    min_expected_detections: int = Field(
        default=10,
        ge=0,
        description="Lower limit of the counts in this ratio: smaller counts are replaced by it, because a difference of "
        "one detection is chance",
    )


class Selftrain(Settings):
    """Staged self-training on unlabelled audio (paper, Self-training on Unlabeled Soundscapes)."""

    teacher: str | None = Field(
        default=None,
        description="Detector that is the first teacher; by default the detector that mast train created for this study",
    )
    rounds: int = Field(
        default=2, gt=0, description="Number of rounds; after each round the student becomes the teacher"
    )
    unlabelled_hours: float | None = Field(
        default=None,
        gt=0,
        description="Hours of unlabelled audio that the teacher processes, divided evenly among sites; by default all",
    )
    pseudo_label_threshold: float = Field(
        default=0.10,
        ge=0,
        le=1,
        description="Minimum score of the teacher's detections that become pseudo-labels (the paper's q)",
    )
    min_pseudo_label_precision: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Raise pseudo_label_threshold until the teacher reaches this precision on validation; if "
        "validation has "
        "few boxes and synthetic_fraction > 0, synthetic calls are added to the measurement",
    )
    min_box_frames: float = Field(default=4, ge=0, description="Minimum length of a pseudo-label, in frames")
    min_box_bins: float = Field(default=1, ge=0, description="Minimum height of a pseudo-label, in mel bins")
    curriculum: Literal["two-stage", "pseudo-only", "supervised-only", "joint", "step-matched-control"] = (
        Field(
            default="two-stage",
            description="Stages of a round: pseudo-labels, then annotations (two-stage); one of them only; both "
            "mixed in one "
            "stage (joint); or, as a baseline, annotations only for the same number of steps (step-matched-control)",
        )
    )
    mask_uncertain_regions: bool = Field(
        default=False,
        description="Replace low-confidence detections of the teacher with background, so that they count as neither "
        "positive nor negative",
    )
    synthetic_fraction: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Fraction of examples in both stages that are background chunks with synthetic calls, as in "
        "mast train-synthetic; for a teacher that was trained on synthetic calls",
    )
    pseudo_label_stage: PseudoLabelStage = Field(
        default=PseudoLabelStage(), description="Stage 1, on the teacher's pseudo-labels"
    )
    supervised_stage: SupervisedStage = Field(
        default=SupervisedStage(), description="Stage 2, on the annotations"
    )
    rollback: RollbackCriteria = Field(
        default=RollbackCriteria(), description="Criteria for rolling back a round"
    )
