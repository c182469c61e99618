"""Settings of training: augmentation, the model, pretraining, and supervised training of the detector."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from mast.config.base import Settings


class Augmentation(Settings):
    """Augmentation of training examples (paper, Augmentations). A strength of 0 disables an augmentation."""

    probability: float = Field(default=0.9, ge=0, le=1, description="Fraction of examples that are augmented")
    max_augmentations: int = Field(
        default=3,
        ge=1,
        description="Maximum number of augmentations per example; the number is sampled from 1 to this",
    )
    max_time_shift_frames: int = Field(
        default=100, ge=0, description="Maximum time shift, in both directions"
    )
    max_freq_shift_bins: int = Field(
        default=4, ge=0, description="Maximum frequency shift, in both directions"
    )
    max_time_warp: float = Field(
        default=0.1, ge=0, le=0.5, description="Maximum time warp, slower or faster; 0.1 is 10 %"
    )
    time_mask_frames: int = Field(default=64, ge=0, description="Maximum length of a time mask")
    freq_mask_bins: int = Field(default=12, ge=0, description="Maximum width of a frequency mask")
    noise_std: float = Field(
        default=0.3,
        ge=0,
        description="Standard deviation of Gaussian noise on each value, in natural-log units; 0.3 is 1.3 dB",
    )
    max_gain_db: float = Field(default=6.0, ge=0, description="Maximum change of level, louder or softer")
    background_min_db: float = Field(
        default=-10.0,
        description="Minimum level of the mixed background, relative to the example's mean level",
    )
    background_max_db: float = Field(
        default=0.0, description="Maximum level of the mixed background, relative to the example's mean level"
    )
    mixup: bool = Field(default=False, description="Add another example of the batch and its boxes (mixup)")
    cutmix_frames: int = Field(
        default=0, ge=0, description="Maximum time span that CutMix copies from another example of the batch"
    )
    max_occlusion: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Boxes of which masks cover more than this fraction of the area are dropped",
    )
    min_box_frames: int = Field(
        default=10, ge=1, description="Boxes that are cut shorter than this are dropped; the paper's 100 ms"
    )
    min_box_bins: int = Field(
        default=2, ge=1, description="Boxes that are cut narrower than this are dropped"
    )
    min_box_visibility: float = Field(
        default=0.25,
        ge=0,
        le=1,
        description="Boxes that are cut to less than this fraction of their area are dropped",
    )

    @model_validator(mode="after")
    def _check_background_range(self) -> Self:
        if self.background_min_db > self.background_max_db:
            raise ValueError(
                f"background_min_db ({self.background_min_db:g}) must not be above background_max_db "
                f"({self.background_max_db:g})"
            )
        return self


class ModelSettings(Settings):
    """The model architecture."""

    encoder: Literal["vit", "efficientnet_lite0", "yamnet"] = Field(
        default="vit",
        description="Encoder: vit is the paper's vision transformer; the lean convolutional networks efficientnet_lite0 "
        "and yamnet (not in the paper) are several times faster without a GPU",
    )
    size: Literal["tiny", "small", "base"] = Field(
        default="base",
        description="Size of the vision transformer: width 192, 384 or 768 (the paper); tiny and small train on a laptop",
    )
    adapter: Literal["none", "conv", "anisotropic", "upsampling", "hybrid"] = Field(
        default="upsampling",
        description="Adapter between the vision transformer and the feature pyramid; hybrid adds convolutional features "
        "of the spectrogram (not in the paper)",
    )
    pyramid_levels: int = Field(
        default=4,
        ge=1,
        le=5,
        description="Number of pyramid levels; the paper states both three (P3–P5) and four (P2–P5)",
    )


class OptimisationSettings(Settings):
    """Optimisation settings of every training stage. Durations in epochs are converted to steps."""

    epochs: int = Field(gt=0, description="Number of passes over the training audio")
    batch_size: int = Field(default=64, gt=0, description="Examples per optimiser step, over all devices")
    micro_batch_size: int | None = Field(
        default=None,
        gt=0,
        description="Examples per forward pass on a device; gradients of a larger batch are accumulated. By default the "
        "largest number that fits the GPU's memory; without a GPU the complete batch",
    )
    lr: float = Field(gt=0, description="Learning rate after the warm-up")
    min_lr: float = Field(default=0.0, ge=0, description="Learning rate at the end of the schedule")
    warmup_epochs: float = Field(ge=0, description="Epochs in which the learning rate rises from 0")
    weight_decay: float = Field(ge=0, description="Weight decay of AdamW; not applied to biases and norms")
    betas: tuple[float, float] = Field(default=(0.9, 0.999), description="Betas of AdamW")
    grad_clip_norm: float = Field(
        default=1.0, ge=0, description="Maximum norm of the gradient; 0 disables clipping"
    )
    ema_decay: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Decay of the exponential moving average (EMA) of the weights, which becomes the model; 0 "
        "disables it",
    )
    early_stopping_patience: int = Field(
        default=0,
        ge=0,
        description="Number of epochs without a better validation loss after which training stops; 0 disables it",
    )
    precision: Literal["auto", "bf16", "fp16", "fp32"] = Field(
        default="auto",
        description="Arithmetic precision; auto selects the fastest precision of the device without loss of accuracy",
    )
    seed: int = Field(default=0, ge=0, description="Random seed of initial weights and shuffling")
    checkpoint_minutes: float = Field(
        default=10.0,
        ge=0,
        description="Minutes between checkpoints: the maximum work that is lost if the machine fails",
    )


class Pretrain(OptimisationSettings):
    """Masked-audio pretraining (paper, pretraining table)."""

    init_from: str | None = Field(
        default=None,
        description="Model that initialises the weights: a folder, s3://… or hf://owner/name; without one, "
        "random weights",
    )
    epochs: int = Field(
        default=400, gt=0, description="Number of passes over the training and unlabelled audio"
    )
    epoch_hours: float | None = Field(
        default=None,
        gt=0,
        description="Hours of audio per epoch, sampled evenly from all audio, from other positions in each "
        "epoch; by default all audio",
    )
    lr: float = Field(default=5e-5, gt=0, description="Learning rate after the warm-up")
    min_lr: float = Field(default=5e-7, ge=0, description="Learning rate at the end of the schedule")
    warmup_epochs: float = Field(
        default=20, ge=0, description="Epochs in which the learning rate rises from 0"
    )
    weight_decay: float = Field(
        default=0.05, ge=0, description="Weight decay of AdamW; not applied to biases and norms"
    )
    betas: tuple[float, float] = Field(default=(0.9, 0.95), description="Betas of AdamW")
    masking: Literal["structured", "random"] = Field(
        default="structured",
        description="Mask complete time steps and bands of patches (structured), or random patches",
    )
    mask_ratio_time: float = Field(
        default=0.6, ge=0, lt=1, description="Fraction of time steps that structured masking hides"
    )
    mask_ratio_freq: float = Field(
        default=0.3,
        ge=0,
        lt=1,
        description="Fraction of frequency bands that structured masking hides; with mask_ratio_time 0.6, about "
        "3/4 of all "
        "patches are masked",
    )
    mask_ratio: float = Field(
        default=0.75, gt=0, lt=1, description="Fraction of patches that random masking hides"
    )
    decoder: Literal["swin", "plain"] = Field(
        default="swin",
        description="Decoder of the masked autoencoder: swin, as released with AudioMAE, or plain transformer blocks",
    )
    norm_pix_loss: bool = Field(
        default=True,
        description="Reconstruct patches normalised to mean 0 and standard deviation 1, as in AudioMAE; "
        "otherwise raw patches",
    )
    plot_every_epochs: int = Field(
        default=10,
        gt=0,
        description="Number of epochs between plots of original, masked and reconstructed spectrograms",
    )


class Unfreezing(Settings):
    """Gradual unfreezing of a pretrained encoder, from its top block down (paper, self-training table)."""

    start_epoch: int = Field(default=20, ge=0, description="Epoch in which the first blocks are unfrozen")
    interval_epochs: int = Field(default=10, gt=0, description="Epochs between unfreezing steps")
    blocks_per_step: int = Field(
        default=3, ge=0, description="Blocks unfrozen per step; 0 keeps the encoder frozen"
    )
    max_blocks: int | None = Field(
        default=None, ge=0, description="Maximum number of unfrozen blocks; by default all"
    )
    lr_scale: float = Field(
        default=0.005, gt=0, description="Learning rate of unfrozen blocks, as a fraction of lr"
    )


class DetectorStage(OptimisationSettings):
    """Training of a detector on boxes; the defaults are those of supervised training (paper, detector table)."""

    epochs: int = Field(default=200, gt=0, description="Number of passes over the training chunks")
    lr: float = Field(default=3e-4, gt=0, description="Learning rate after the warm-up")
    warmup_epochs: float = Field(
        default=10, ge=0, description="Epochs in which the learning rate rises from 0"
    )
    weight_decay: float = Field(
        default=1e-3, ge=0, description="Weight decay of AdamW; not applied to biases and norms"
    )
    ema_decay: float = Field(
        default=0.9995,
        ge=0,
        lt=1,
        description="Decay of the exponential moving average (EMA) of the weights, which becomes the model; 0 "
        "disables it",
    )
    backbone_lr_scale: float = Field(
        default=0.1,
        gt=0,
        description="Learning rate of the parts of a pretrained encoder outside its blocks, as a fraction of lr: "
        "its norm "
        "and, once all blocks are unfrozen, its patch embedding",
    )
    adapter_lr_scale: float = Field(
        default=1.0, gt=0, description="Learning rate of the adapter, as a fraction of lr"
    )
    head_lr_scale: float = Field(
        default=1.0,
        gt=0,
        description="Learning rate of the pyramid, the head and the projection, as a fraction of lr",
    )
    unfreezing: Unfreezing = Field(
        default=Unfreezing(), description="Gradual unfreezing of a pretrained encoder"
    )
    classification_loss: Literal["quality", "focal"] = Field(
        default="quality",
        description="Classification loss: quality focal loss (the paper's appendix) or focal loss (its text)",
    )
    classification_weight: float = Field(default=1.0, ge=0, description="Weight of the classification loss")
    giou_weight: float = Field(default=1.0, ge=0, description="Weight of the GIoU loss of the boxes")
    l1_weight: float = Field(default=0.0, ge=0, description="Weight of the ℓ1 loss of the box edges")
    centerness_weight: float = Field(default=1.0, ge=0, description="Weight of the centerness loss")
    contrastive_weight: float = Field(
        default=0.5, ge=0, description="Weight of the box contrastive loss; 0 disables it"
    )
    contrastive_temperature: float = Field(
        default=0.1, gt=0, description="Temperature of the box contrastive loss"
    )
    plot_every_epochs: int = Field(
        default=10,
        gt=0,
        description="Number of epochs between plots of validation chunks with annotated and predicted boxes",
    )


class Train(DetectorStage):
    """Supervised training of the detector (paper, detector table)."""

    min_steps: int = Field(
        default=0,
        ge=0,
        description="Minimum number of optimiser steps; small annotation sets are repeated within an epoch to reach it",
    )
    synthetic_fraction: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Fraction of examples that are background chunks with synthetic calls, as in mast train-synthetic",
    )
    init_from: str | None = Field(
        default=None,
        description="Pretrained model that initialises the weights: a folder, s3://… or hf://owner/name; without "
        "one, the "
        "complete detector is trained from random weights",
    )


class SyntheticTraining(DetectorStage):
    """Training of a detector on synthetic calls in unlabelled audio, without annotations (not in the paper)."""

    init_from: str | None = Field(
        default=None,
        description="Pretrained model that initialises the weights: a folder, s3://… or hf://owner/name; without "
        "one, random "
        "weights",
    )
    epochs: int = Field(default=100, gt=0, description="Number of passes over the background chunks")
    contrastive_weight: float = Field(
        default=0.0, ge=0, description="Weight of the box contrastive loss; 0 disables it"
    )
    background_fraction: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Fraction of each site's chunks, the quietest ones, into which synthetic calls are mixed",
    )
