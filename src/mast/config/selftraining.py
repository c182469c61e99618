"""Settings of self-training: its teacher, its two stages, and when a round is taken back."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mast.config.learning import DetectorStage, Unfreezing
from mast.config.settings import Settings


class PseudoStage(DetectorStage):
    """Stage 1 of self-training: learning from the teacher's boxes (paper, self-training table)."""

    epochs: int = Field(default=80, gt=0, description="Passes over the pseudo-labelled chunks")
    lr: float = Field(default=1e-4, gt=0, description="Learning rate after the warm-up")
    warmup_epochs: float = Field(
        default=8, ge=0, description="Passes in which the learning rate rises from 0"
    )
    contrastive_weight: float = Field(
        default=0.3, ge=0, description="Weight of the box contrastive loss; 0 leaves it out"
    )
    augmentation_probability: float = Field(
        default=0.9, ge=0, le=1, description="Share of examples that are varied in this stage"
    )


class ExpertUnfreezing(Unfreezing):
    """How the encoder is opened in stage 2: sooner, and at a higher rate."""

    first_epoch: int = Field(default=3, ge=0, description="Epoch at which the first blocks are opened")
    every_epochs: int = Field(default=6, gt=0, description="Epochs until the next ones are")
    blocks: int = Field(default=6, ge=0, description="Blocks opened at a time; 0 keeps the encoder as it was")
    multiple: float = Field(
        default=0.05, gt=0, description="Share of the learning rate at which opened blocks learn"
    )


class ExpertStage(DetectorStage):
    """Stage 2 of self-training: back to the experts' boxes (paper, self-training table)."""

    epochs: int = Field(default=40, gt=0, description="Passes over the training chunks")
    lr: float = Field(default=5e-5, gt=0, description="Learning rate after the warm-up")
    warmup_epochs: float = Field(
        default=4, ge=0, description="Passes in which the learning rate rises from 0"
    )
    backbone_multiple: float = Field(
        default=0.02,
        gt=0,
        description="Share of the learning rate for what is no block of the encoder: its norm and, once all blocks are "
        "open, its patch embedding",
    )
    unfreezing: ExpertUnfreezing = Field(
        default=ExpertUnfreezing(), description="How the encoder is opened to learning"
    )
    contrastive_weight: float = Field(
        default=0.2, ge=0, description="Weight of the box contrastive loss; 0 leaves it out"
    )
    augmentation_probability: float = Field(
        default=0.8, ge=0, le=1, description="Share of examples that are varied in this stage"
    )


class Guard(Settings):
    """When a round of self-training is taken back."""

    max_f1_loss: float = Field(
        default=0.1, ge=0, description="Most that F1 on validation may fall below that of the first teacher"
    )
    max_rate_ratio: float = Field(
        default=3.0,
        gt=1,
        description="Most that the boxes at any site, or at all together, may rise above the first teacher's; at all "
        "together they may fall as far below, and at no site to none",
    )
    min_boxes: int = Field(
        default=10,
        ge=0,
        description="Fewer boxes than this count as if so many had been drawn: one box more or less is chance",
    )


class Selftrain(Settings):
    """Staged self-training on unlabelled sound (paper, Self-training on Unlabeled Soundscapes)."""

    start: str | None = Field(
        default=None,
        description="The first teacher, a trained detector; by default what mast train has made of this study",
    )
    rounds: int = Field(default=2, gt=0, description="How often the student becomes the next round's teacher")
    pool_hours: float | None = Field(
        default=None,
        gt=0,
        description="Hours of unlabelled sound that a teacher hears, shared evenly among sites; by default all",
    )
    min_score: float = Field(
        default=0.10,
        ge=0,
        le=1,
        description="Least score of a teacher's box that is learned from (the paper's q)",
    )
    min_precision: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Raise that score until so large a share of the teacher's boxes on validation is right; where it "
        "has few boxes and rehearsed_share is not 0, of those on made-up calls as well",
    )
    min_frames: float = Field(default=4, ge=0, description="Least length of a teacher's box, in frames")
    min_bins: float = Field(default=1, ge=0, description="Least height of a teacher's box, in mel bins")
    curriculum: Literal["two-stage", "pseudo", "expert", "union", "control"] = Field(
        default="two-stage",
        description="Teacher's boxes, then the experts'; one of these alone; both mixed in one stage; or, to compare "
        "with, the experts' boxes alone for as many steps",
    )
    silence_unsure: bool = Field(
        default=False,
        description="Where the teacher has a box but is not sure enough of it, put the background instead, so that the "
        "student learns neither that there is a sound nor that there is none",
    )
    rehearsed_share: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Share of all examples of both stages that are quiet chunks with made-up calls on them, as in mast "
        "rehearse: for a teacher that has learned from such calls",
    )
    pseudo: PseudoStage = Field(default=PseudoStage(), description="Stage 1, on the teacher's boxes")
    expert: ExpertStage = Field(default=ExpertStage(), description="Stage 2, on the experts' boxes")
    guard: Guard = Field(default=Guard(), description="When a round is taken back")
