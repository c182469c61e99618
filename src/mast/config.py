"""Every setting and its default: a study is these classes, filled from defaults < preset < YAML < `--set a.b=c`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args, get_origin
from zoneinfo import ZoneInfo, available_timezones

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from mast.errors import ConfigError

AnnotationFormat = Literal[
    "raven", "audacity", "csv", "birdeep", "aoef", "audubon-core", "camtrap-dp", "batdetect2"
]

RESERVED_SPLITS = ("train", "val", "test", "guard", "unlabelled", "in-domain")
"""Names with a meaning of their own, not to be given to a held-out set."""

PRESETS = Path(__file__).parent / "presets"
"""Files of values to begin from, by name."""


class Settings(BaseModel):
    """A frozen group of settings that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


SettingsGroup = TypeVar("SettingsGroup", bound=Settings)


def check_time_zone(name: str) -> str:
    """Accept an IANA zone name; otherwise name the nearest one."""
    zones = available_timezones()
    if name in zones:
        ZoneInfo(name)
        return name
    near = difflib.get_close_matches(name, zones, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ValueError(f"{name!r} is not a time zone.{hint} Use a name such as Europe/Madrid, or UTC")


TimeZone = Annotated[str, AfterValidator(check_time_zone)]


class Collection(Settings):
    """Recordings below one folder or bucket that share a naming habit."""

    root: str = Field(description="Folder, or s3://bucket/prefix, that holds the recordings")
    site: str | None = Field(
        default=None,
        description="Where a path names the site, such as '{site}/*' or '{site}_*.wav'; "
        "'*' stands for anything within one folder or file name",
    )
    time_zone: TimeZone | None = Field(
        default=None, description="Zone of recorder clocks that do not say their own, such as Asia/Makassar"
    )
    time_expansion: float = Field(
        default=1.0,
        gt=0,
        le=100,
        description="10 reads a 384 kHz bat file at a tenth of its speed: times x10, frequencies / 10",
    )


class AnnotationSource(Settings):
    """Expert boxes: a file, or a folder of files, in one format."""

    path: str = Field(description="An annotation file, or a folder of them")
    format: AnnotationFormat = Field(description="The format these files are written in")


class Labels(Settings):
    """What the annotators' words mean. '*' stands for every label not named elsewhere."""

    animal: tuple[str, ...] = Field(default=("*",), description="Labels of animal sounds: what to find")
    noise: tuple[str, ...] = Field(default=(), description="Labels of other sounds: hard negatives")
    ignored: tuple[str, ...] = Field(default=(), description="Labels that count as neither")

    @model_validator(mode="after")
    def _each_label_once(self) -> Self:
        words = [*self.animal, *self.noise, *self.ignored]
        twice = sorted({word for word in words if words.count(word) > 1})
        if twice:
            raise ValueError(f"{', '.join(map(repr, twice))} stands in more than one group of labels")
        return self


class Chunking(Settings):
    """How recordings are cut (paper, Data Processing)."""

    sample_rate_hz: int = Field(default=16_000, gt=0, description="Rate all audio is brought to, mono")
    chunk_s: float = Field(default=10.24, gt=0, description="Length of a chunk")
    hop_s: float = Field(default=5.12, gt=0, description="Step from one chunk to the next")
    min_filled: float = Field(
        default=0.5, ge=0, le=1, description="A last chunk filled less than this is dropped, else zero-padded"
    )


class Spectrogram(Settings):
    """The Kaldi log-mel (paper, Spectrogram extraction)."""

    low_hz: float = Field(default=20.0, ge=0, description="Lower edge of the mel band")
    high_hz: float = Field(default=8000.0, gt=0, description="Upper edge of the mel band")
    bins: int = Field(default=128, gt=0, description="Mel bins")
    window_s: float = Field(default=0.025, gt=0, description="Length of the Hann window")
    shift_s: float = Field(default=0.010, gt=0, description="Step from one frame to the next")

    @model_validator(mode="after")
    def _band_is_a_band(self) -> Self:
        if self.low_hz >= self.high_hz:
            raise ValueError(f"low_hz ({self.low_hz:g}) must be below high_hz ({self.high_hz:g})")
        return self


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
    max_equaliser_db: float = Field(
        default=0.0,
        ge=0,
        description="Another microphone: bands louder or softer along a smooth curve, at most",
    )
    max_echo_frames: int = Field(
        default=0,
        ge=0,
        description="Another place: an echo dies away (by 60 dB) within so many frames, at most",
    )
    min_mix_db: float = Field(
        default=-10.0, description="Softest background, against the example's mean level"
    )
    max_mix_db: float = Field(default=0.0, description="Loudest background, against the example's mean level")
    mix_probability: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of examples that get a background in any case, beside what is drawn for them",
    )
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


class HeldOut(Settings):
    """Recordings kept apart to test under a shift. All rules that are given must fit; '*' stands for anything."""

    sites: tuple[str, ...] = Field(default=(), description="Sites, such as AM4 or 'miles_*'")
    dates: tuple[date, ...] = Field(
        default=(), description="Days of the recorder's clock, such as 2023-05-12"
    )
    from_date: date | None = Field(default=None, description="First day, by the recorder's clock")
    to_date: date | None = Field(default=None, description="Last day, by the recorder's clock")
    paths: tuple[str, ...] = Field(default=(), description="Paths below the collection's root: 'north/*'")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.sites or self.dates or self.from_date or self.to_date or self.paths):
            raise ValueError("give at least one of sites, dates, from_date, to_date and paths")
        if self.from_date and self.to_date and self.from_date > self.to_date:
            raise ValueError(f"from_date ({self.from_date}) must not be after to_date ({self.to_date})")
        return self


class Splits(Settings):
    """How reviewed sound is shared out (paper, Dataset Statistics and OOD Construction)."""

    train: float = Field(default=0.70, ge=0, le=1, description="Share of the in-domain time to train on")
    val: float = Field(default=0.15, ge=0, le=1, description="Share to choose settings and thresholds on")
    test: float = Field(default=0.15, ge=0, le=1, description="Share to test on, once")
    block_s: float = Field(
        default=600.0,
        gt=0,
        description="Clock time of a stretch that goes to one split together; chunks overlap and sounds repeat, so "
        "single chunks must not be shared out",
    )
    guard_s: float = Field(
        default=10.24,
        ge=0,
        description="Clock time left out between neighbouring stretches of different splits",
    )
    seed: int = Field(default=0, ge=0, description="Another seed shares the stretches out another way")
    held_out: dict[str, HeldOut] = Field(
        default={}, description="Test sets under shift, by name; a recording goes to the first that it fits"
    )

    @model_validator(mode="after")
    def _shares_and_names(self) -> Self:
        if abs(self.train + self.val + self.test - 1) > 1e-6:
            raise ValueError(
                f"train, val and test are shares of the whole and sum to 1, not {self.train + self.val + self.test:g}"
            )
        taken = [name for name in self.held_out if name in RESERVED_SPLITS]
        if taken:
            raise ValueError(f"held_out.{taken[0]}: this name means something else; choose another")
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
        "By default as many as fit",
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

    rehearsed_share: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Share of all examples that are quiet chunks with made-up calls on them, as in mast rehearse",
    )
    quiet_backgrounds: bool = Field(
        default=False,
        description="Mix in the quiet chunks of mast rehearse, from all sites, instead of the experts' own",
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
        description="Most that the boxes at any site, or at all together, may rise above the first teacher's",
    )
    min_boxes: int = Field(
        default=10,
        ge=0,
        description="Where the first teacher drew fewer boxes than this, it counts as if it had drawn so many: one box "
        "more or less is chance",
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
        description="Raise that score until so large a share of the teacher's boxes on validation is right",
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
    redraw: bool = Field(
        default=False,
        description="Where the teacher's boxes are learned from, draw them anew at every step by the running mean of the "
        "student, which hears the chunk as it is and the student a varied one (mean teacher); not once and for all",
    )
    quiet_backgrounds: bool = Field(
        default=False,
        description="Mix in unlabelled sound in which the teacher hears nothing, instead of the experts' quiet chunks",
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
        description="Values to begin from: paper, or laptop for a small model on a machine without a GPU",
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


def collection_of(recording_id: str, collections: Iterable[str]) -> str:
    """Name of the collection that a recording belongs to: it begins the recording's id."""
    names = [name for name in collections if recording_id.startswith(f"{name}/")]
    if not names:
        raise ConfigError(f"{recording_id}: of no collection of this study. Scan it again.")
    return max(names, key=len)


def load_study(path: Path | None = None, overrides: Sequence[str] = ()) -> Study:
    """Read a study file, apply `a.b=c` overrides, and check every value; relative paths start at the file."""
    values = _read_yaml(path) if path else {}
    for override in overrides:
        _apply(values, override)
    if values.get("preset") is not None:
        values = _merged(_preset(values["preset"], str(path or "settings")), values)
    return _anchor(checked(Study, values, str(path or "settings")), path.parent if path else Path())


def checked(group: type[SettingsGroup], values: Mapping[str, Any], source: str) -> SettingsGroup:
    """A group of settings from plain values; every mistake is told, with its place in `source` and the remedy."""
    try:
        return group.model_validate(values)
    except ValidationError as error:
        raise ConfigError(
            "\n".join(f"{source}: {_explain(group, item)}" for item in error.errors())
        ) from None


def dotted(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names, as `--set` has them."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= (
            dotted(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
        )
    return flat


def dump_study(study: Study) -> str:
    """Write a study as YAML, every setting spelled out."""
    return yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _preset(name: Any, source: str) -> dict[str, Any]:
    """The values of a preset."""
    known = sorted(path.stem for path in PRESETS.glob("*.yaml"))
    if name not in known:
        raise ConfigError(f"{source}: preset: there is no {name!r}. Known: {', '.join(known)}.")
    return _read_yaml(PRESETS / f"{name}.yaml")


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values, where those of `over` win."""
    merged = {**under, **over}
    for name in under.keys() & over.keys():
        if isinstance(under[name], dict) and isinstance(over[name], dict):
            merged[name] = _merged(under[name], over[name])
    return merged


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such study file.") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; a study is a YAML file such as study.yaml.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a study file holds 'name: value' lines, not a {type(values).__name__}.")
    return values


def _apply(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {override}: write it as a.b=value, such as --set spectrogram.high_hz=4000")
    *parents, last = key.strip().split(".")
    here: Any = values
    for parent in parents:
        here = here[_index(here, parent, override)] if isinstance(here, list) else here.setdefault(parent, {})
        if not isinstance(here, dict | list):
            raise ConfigError(f"--set {override}: {parent} is a single value and has no {last}.")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {override}: {text!r} is not a YAML value: {error}") from None
    if isinstance(here, list):
        here[_index(here, last, override)] = value
    else:
        here[last] = value


def _index(items: list[Any], text: str, override: str) -> int:
    if text.isdigit() and int(text) < len(items):
        return int(text)
    raise ConfigError(f"--set {override}: {text!r} should be a number from 0 to {len(items) - 1}.")


def _explain(group: type[Settings], item: Mapping[str, Any]) -> str:
    """One pydantic error as a sentence that names the key and, for an unknown key, the nearest right one."""
    parts = [str(part) for part in item["loc"]]
    key = ".".join(parts)
    if item["type"] == "extra_forbidden":
        known = _fields_at(group, parts[:-1])
        near = difflib.get_close_matches(parts[-1], known, n=1, cutoff=0.5)
        nearest = ".".join([*parts[:-1], near[0]]) if near else ""
        hint = f"Did you mean {nearest}?" if nearest else f"Known here: {', '.join(known)}."
        return f"{key} is not a setting. {hint}"
    if item["type"] == "missing":
        return f"{key} is missing."
    message = item["msg"].removeprefix("Value error, ")
    where = f"{key}: " if key else ""
    given = "" if isinstance(item["input"], Settings | dict) else f" (given: {item['input']!r})"
    return f"{where}{message}{given}"


def _fields_at(group: type[Settings], parts: Sequence[str]) -> list[str]:
    """Names of the settings below a dotted path, walking through dicts and tuples of groups."""
    here: Any = group
    for part in parts:
        if isinstance(here, type) and issubclass(here, Settings):
            here = here.model_fields[part].annotation
        else:
            here = get_args(here)[1 if get_origin(here) is dict else 0]
    return list(here.model_fields)


def _anchor(study: Study, folder: Path) -> Study:
    """Make every path of a study independent of where the command runs."""

    def anchored(path: str) -> str:
        return path if "://" in path else str((folder / path).absolute())

    return study.model_copy(
        update={
            "work": anchored(study.work),
            "collections": {
                name: collection.model_copy(update={"root": anchored(collection.root)})
                for name, collection in study.collections.items()
            },
            "annotations": tuple(
                source.model_copy(update={"path": anchored(source.path)}) for source in study.annotations
            ),
            **{
                name: stage.model_copy(update={"start": anchored(stage.start) if stage.start else None})
                for name in ("pretrain", "train", "selftrain")
                for stage in (getattr(study, name),)
            },
        }
    )
