"""Settings of learning: how examples are varied, the network, pretraining, and how a detector learns from boxes."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from mast.config.settings import Settings


class Augmentation(Settings):
    """How training examples are varied (paper, Augmentations). A strength of 0 takes its augmentation out."""

    probability: float = Field(default=0.9, ge=0, le=1, description="Share of examples that are varied")
    max_augmentations: int = Field(default=3, ge=1, description="One to this many are drawn for an example")
    max_shift_frames: int = Field(default=100, ge=0, description="Time shift, forth or back, at most")
    max_shift_bins: int = Field(default=4, ge=0, description="Frequency shift, up or down, at most")
    max_warp: float = Field(
        default=0.1, ge=0, le=0.5, description="Time warp, slower or faster, at most; 0.1 is a tenth"
    )
    max_mask_frames: int = Field(default=64, ge=0, description="Longest time span that a mask hides")
    max_mask_bins: int = Field(default=12, ge=0, description="Widest band that a mask hides")
    noise_std: float = Field(
        default=0.3, ge=0, description="Gaussian noise on each value, in natural-log units; 0.3 is 1.3 dB"
    )
    max_gain_db: float = Field(default=6.0, ge=0, description="Volume, louder or softer, at most")
    min_mix_db: float = Field(
        default=-10.0, description="Softest background, against the example's mean level"
    )
    max_mix_db: float = Field(default=0.0, description="Loudest background, against the example's mean level")
    mixup: bool = Field(default=False, description="Add another example of the batch, with its boxes")
    max_cut_frames: int = Field(
        default=0, ge=0, description="CutMix: longest time span taken from another example of the batch"
    )
    max_occluded: float = Field(
        default=0.5, ge=0, le=1, description="A box hidden by more than this share of its area is dropped"
    )
    min_left_frames: int = Field(
        default=10, ge=1, description="A box cut shorter than this is dropped; the paper's 100 ms"
    )
    min_left_bins: int = Field(default=2, ge=1, description="A box cut narrower than this is dropped")
    min_left: float = Field(
        default=0.25, ge=0, le=1, description="A box cut to less than this share of its area is dropped"
    )

    @model_validator(mode="after")
    def _softest_before_loudest(self) -> Self:
        if self.min_mix_db > self.max_mix_db:
            raise ValueError(
                f"min_mix_db ({self.min_mix_db:g}) must not be above max_mix_db ({self.max_mix_db:g})"
            )
        return self


class Model(Settings):
    """The network."""

    size: Literal["tiny", "small", "base"] = Field(
        default="base",
        description="Width of the encoder: 192, 384 or 768 (the paper); tiny and small learn on a laptop",
    )
    adapter: Literal["none", "conv", "anisotropic", "upsampling", "detail"] = Field(
        default="upsampling",
        description="What stands between the encoder and the pyramid of a detector; detail also looks at the picture "
        "by convolutions (not in the paper)",
    )
    levels: int = Field(
        default=4,
        ge=1,
        le=5,
        description="Levels of the pyramid; the paper says both three (P3–P5) and four (P2–P5)",
    )


class Optimisation(Settings):
    """How a network learns: what every stage shares. Lengths in epochs are turned into steps."""

    epochs: int = Field(gt=0, description="Passes over the training sound")
    batch: int = Field(default=64, gt=0, description="Examples that a step learns from, over all devices")
    device_batch: int | None = Field(
        default=None,
        gt=0,
        description="Examples that a device holds at once; a larger batch is gathered over several such portions. "
        "By default as many as fit a GPU's memory; without a GPU the whole batch",
    )
    lr: float = Field(gt=0, description="Learning rate after the warm-up")
    min_lr: float = Field(default=0.0, ge=0, description="Learning rate at the end")
    warmup_epochs: float = Field(ge=0, description="Passes in which the learning rate rises from 0")
    weight_decay: float = Field(ge=0, description="Weight decay of AdamW; biases and norms have none")
    betas: tuple[float, float] = Field(default=(0.9, 0.999), description="Momenta of AdamW")
    clip: float = Field(default=1.0, ge=0, description="Largest norm of a gradient; 0 sets no limit")
    ema_decay: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Keep a running mean of the weights, and take it as the model; 0 does not",
    )
    patience_epochs: int = Field(
        default=0,
        ge=0,
        description="Stop after so many epochs without a better validation loss; 0 goes on to the end",
    )
    precision: Literal["auto", "bf16", "fp16", "fp32"] = Field(
        default="auto", description="Arithmetic; auto takes what this device does fastest without loss"
    )
    seed: int = Field(default=0, ge=0, description="Another seed starts from and shuffles to something else")
    checkpoint_minutes: float = Field(
        default=10.0, ge=0, description="How much work may be lost if the machine goes down"
    )


class Pretrain(Optimisation):
    """Masked-audio pretraining (paper, pretraining table)."""

    start: str | None = Field(
        default=None,
        description="Model to start from: a folder, s3://… or hf://owner/name; without one, from random weights",
    )
    epochs: int = Field(default=400, gt=0, description="Passes over the training and unlabelled sound")
    epoch_hours: float | None = Field(
        default=None,
        gt=0,
        description="Hours of sound in a pass, spread over all of it, other places each time; by default all of it",
    )
    lr: float = Field(default=5e-5, gt=0, description="Learning rate after the warm-up")
    min_lr: float = Field(default=5e-7, ge=0, description="Learning rate at the end")
    warmup_epochs: float = Field(
        default=20, ge=0, description="Passes in which the learning rate rises from 0"
    )
    weight_decay: float = Field(
        default=0.05, ge=0, description="Weight decay of AdamW; biases and norms have none"
    )
    betas: tuple[float, float] = Field(default=(0.9, 0.95), description="Momenta of AdamW")
    masking: Literal["structured", "random"] = Field(
        default="structured", description="Hide whole moments and bands, or any patches"
    )
    hidden_moments: float = Field(
        default=0.6, ge=0, lt=1, description="Share of moments hidden by structured masking"
    )
    hidden_bands: float = Field(
        default=0.3,
        ge=0,
        lt=1,
        description="Share of bands hidden by structured masking; with 0.6, 3/4 of all is hidden",
    )
    hidden: float = Field(default=0.75, gt=0, lt=1, description="Share of patches hidden by random masking")
    decoder: Literal["swin", "plain"] = Field(
        default="swin",
        description="Decoder to learn with: AudioMAE's released one, or plain transformer blocks",
    )
    normalised_patches: bool = Field(
        default=True,
        description="Guess patches brought to mean 0 and deviation 1, as AudioMAE does, or raw ones",
    )
    picture_epochs: int = Field(
        default=10, gt=0, description="Draw original, masked and guessed sound every so many epochs"
    )


class Unfreezing(Settings):
    """How a pretrained encoder is opened to learning, from its top block down (paper, self-training table)."""

    first_epoch: int = Field(default=20, ge=0, description="Epoch at which the first blocks are opened")
    every_epochs: int = Field(default=10, gt=0, description="Epochs until the next ones are")
    blocks: int = Field(default=3, ge=0, description="Blocks opened at a time; 0 keeps the encoder as it was")
    max_blocks: int | None = Field(
        default=None, ge=0, description="Blocks opened in all; by default all of them, in turn"
    )
    multiple: float = Field(
        default=0.005, gt=0, description="Share of the learning rate at which opened blocks learn"
    )


class DetectorStage(Optimisation):
    """How a detector learns from boxes; the defaults are those of supervised training (paper, detector table)."""

    epochs: int = Field(default=200, gt=0, description="Passes over the training chunks")
    lr: float = Field(default=3e-4, gt=0, description="Learning rate after the warm-up")
    warmup_epochs: float = Field(
        default=10, ge=0, description="Passes in which the learning rate rises from 0"
    )
    weight_decay: float = Field(
        default=1e-3, ge=0, description="Weight decay of AdamW; biases and norms have none"
    )
    ema_decay: float = Field(
        default=0.9995,
        ge=0,
        lt=1,
        description="Keep a running mean of the weights, and take it as the model; 0 does not",
    )
    backbone_multiple: float = Field(
        default=0.1,
        gt=0,
        description="Share of the learning rate for what is no block of a pretrained encoder: its norm and, once all "
        "blocks are open, its patch embedding",
    )
    adapter_multiple: float = Field(
        default=1.0, gt=0, description="Share of the learning rate for the adapter"
    )
    head_multiple: float = Field(
        default=1.0,
        gt=0,
        description="Share of the learning rate for the pyramid, the head and the projection",
    )
    unfreezing: Unfreezing = Field(
        default=Unfreezing(), description="How a pretrained encoder is opened to learning"
    )
    classification: Literal["quality", "focal"] = Field(
        default="quality",
        description="Loss that tells sound from background: quality focal (the paper's appendix) or focal (its text)",
    )
    classification_weight: float = Field(default=1.0, ge=0, description="Weight of the classification loss")
    giou_weight: float = Field(default=1.0, ge=0, description="Weight of the GIoU loss of the boxes")
    l1_weight: float = Field(default=0.0, ge=0, description="Weight of the ℓ1 loss of the boxes' edges")
    centerness_weight: float = Field(default=1.0, ge=0, description="Weight of the centerness loss")
    contrastive_weight: float = Field(
        default=0.5, ge=0, description="Weight of the box contrastive loss; 0 leaves it out"
    )
    temperature: float = Field(default=0.1, gt=0, description="Temperature of the box contrastive loss")
    picture_epochs: int = Field(
        default=10, gt=0, description="Draw validation chunks with true and found boxes every so many epochs"
    )


class Train(DetectorStage):
    """Supervised training of the detector (paper, detector table)."""

    min_steps: int = Field(
        default=0,
        ge=0,
        description="Least steps in all: where labels are too few for that, they come several times in an epoch",
    )
    rehearsed_share: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Share of all examples that are quiet chunks with made-up calls on them, as in mast rehearse",
    )
    start: str | None = Field(
        default=None,
        description="Pretrained model to start from: a folder, s3://… or hf://owner/name; without one, all of the "
        "detector learns from random weights",
    )


class Rehearse(DetectorStage):
    """Rehearsal: a detector learns to box made-up calls over unlabelled sound, before any label (not in the paper)."""

    start: str | None = Field(
        default=None,
        description="Pretrained model to start from: a folder, s3://… or hf://owner/name; without one, random weights",
    )
    epochs: int = Field(default=100, gt=0, description="Passes over the quiet chunks")
    contrastive_weight: float = Field(
        default=0.0, ge=0, description="Weight of the box contrastive loss; 0 leaves it out"
    )
    quiet_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Share of each site's chunks, the quietest, that calls are laid over",
    )
