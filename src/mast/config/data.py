"""Settings of the data: recordings, annotations, labels, chunks, spectrograms and splits."""

from __future__ import annotations

import difflib
from datetime import date
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, Field, model_validator

from mast.config.base import Settings

AnnotationFormat = Literal[
    "raven", "audacity", "csv", "birdeep", "aoef", "audubon-core", "camtrap-dp", "batdetect2"
]

PATCH_SIZE = 16
"""Frames and mel bins per token of the encoder."""

RESERVED_SPLITS = ("train", "val", "test", "guard", "unlabelled", "in-domain")
"""Reserved names that a held-out set cannot have."""


def check_time_zone(name: str) -> str:
    """Return a valid IANA zone name; otherwise raise ValueError with the most similar one."""
    zones = available_timezones()
    if name in zones:
        ZoneInfo(name)
        return name
    near = difflib.get_close_matches(name, zones, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ValueError(f"{name!r} is not a time zone.{hint} Use a name such as Europe/Madrid, or UTC")


TimeZone = Annotated[str, AfterValidator(check_time_zone)]


class Collection(Settings):
    """Recordings below one folder or bucket, with the same naming scheme."""

    root: str = Field(description="Folder, or s3://bucket/prefix, that contains the recordings")
    site: str | None = Field(
        default=None,
        description="Position of the site in the path, such as '{site}/*' or '{site}_*.wav'; "
        "'*' matches anything within one folder or file name",
    )
    time_zone: TimeZone | None = Field(
        default=None, description="Time zone of recorder clocks that do not state one, such as Asia/Makassar"
    )
    time_expansion: float = Field(
        default=1.0,
        gt=0,
        le=100,
        description="Slow-down factor. 10 reads a 384 kHz bat file at a tenth of its speed: times x10, frequencies / 10; "
        "1 for files that a bat detector has already time-expanded",
    )


class AnnotationSource(Settings):
    """Annotations: a file, or a folder of files, in one format."""

    path: str = Field(description="Annotation file, or a folder of annotation files")
    format: AnnotationFormat = Field(description="Format of these files")


class Labels(Settings):
    """Meaning of the annotation labels. '*' matches every label that is not listed elsewhere."""

    animal: tuple[str, ...] = Field(
        default=("*",), description="Labels of animal sounds, which the detector learns to find"
    )
    noise: tuple[str, ...] = Field(default=(), description="Labels of other sounds: hard negatives")
    ignore: tuple[str, ...] = Field(
        default=(),
        description="Labels that count as neither: chunks with such a box are excluded from training and tests",
    )

    @model_validator(mode="after")
    def _check_labels_distinct(self) -> Self:
        labels = [*self.animal, *self.noise, *self.ignore]
        repeated = sorted({label for label in labels if labels.count(label) > 1})
        if repeated:
            raise ValueError(f"{', '.join(map(repr, repeated))} is listed more than once")
        return self


class Chunking(Settings):
    """Splitting of recordings into chunks (paper, Data Processing)."""

    sample_rate_hz: int = Field(
        default=16_000, gt=0, description="Sample rate to which all audio is resampled, as mono"
    )
    chunk_s: float = Field(default=10.24, gt=0, description="Length of a chunk")
    hop_s: float = Field(default=5.12, gt=0, description="Interval between the starts of consecutive chunks")
    min_audio_fraction: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Minimum fraction of audio in a chunk at the end of a recording; with less it is dropped, "
        "else zero-padded",
    )


class Spectrogram(Settings):
    """The Kaldi log-mel spectrogram (paper, Spectrogram extraction)."""

    low_hz: float = Field(default=20.0, ge=0, description="Lower edge of the mel band")
    high_hz: float = Field(default=8000.0, gt=0, description="Upper edge of the mel band")
    n_mels: int = Field(default=128, gt=0, description="Number of mel bins")
    window_s: float = Field(default=0.025, gt=0, description="Length of the Hann window")
    frame_shift_s: float = Field(
        default=0.010, gt=0, description="Interval between the starts of consecutive frames"
    )

    @model_validator(mode="after")
    def _check_band(self) -> Self:
        if self.low_hz >= self.high_hz:
            raise ValueError(f"low_hz ({self.low_hz:g}) must be below high_hz ({self.high_hz:g})")
        return self


class HeldOut(Settings):
    """Recordings held out to test under a distribution shift. All given rules must match; '*' matches anything."""

    sites: tuple[str, ...] = Field(default=(), description="Sites, such as AM4 or 'miles_*'")
    dates: tuple[date, ...] = Field(
        default=(), description="Dates in the recorder's clock, such as 2023-05-12"
    )
    from_date: date | None = Field(default=None, description="First date, in the recorder's clock")
    to_date: date | None = Field(default=None, description="Last date, in the recorder's clock")
    paths: tuple[str, ...] = Field(
        default=(), description="Paths below the collection's root, such as 'north/*'"
    )

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if not (self.sites or self.dates or self.from_date or self.to_date or self.paths):
            raise ValueError("set at least one of sites, dates, from_date, to_date and paths")
        if self.from_date and self.to_date and self.from_date > self.to_date:
            raise ValueError(f"from_date ({self.from_date}) must not be after to_date ({self.to_date})")
        return self


class Splits(Settings):
    """Splitting of the reviewed audio (paper, Dataset Statistics and OOD Construction)."""

    train: float = Field(default=0.70, ge=0, le=1, description="Fraction of the in-domain time for training")
    val: float = Field(
        default=0.15, ge=0, le=1, description="Fraction for validation: to choose settings and thresholds"
    )
    test: float = Field(default=0.15, ge=0, le=1, description="Fraction for the final test")
    block_s: float = Field(
        default=600.0,
        gt=0,
        description="Length of a block of clock time that is assigned to one split as a unit; chunks overlap and calls "
        "repeat, so single chunks must not be assigned separately",
    )
    guard_s: float = Field(
        default=10.24,
        ge=0,
        description="Clock time excluded between neighbouring blocks of different splits",
    )
    seed: int = Field(default=0, ge=0, description="Random seed of the assignment of blocks to splits")
    held_out: dict[str, HeldOut] = Field(
        default={},
        description="Test sets under distribution shift, by name; a recording belongs to the first set whose rules match",
    )

    @model_validator(mode="after")
    def _check_fractions_and_names(self) -> Self:
        if abs(self.train + self.val + self.test - 1) > 1e-6:
            raise ValueError(f"train, val and test must sum to 1, not {self.train + self.val + self.test:g}")
        reserved = [name for name in self.held_out if name in RESERVED_SPLITS]
        if reserved:
            raise ValueError(f"held_out.{reserved[0]}: this name is reserved; choose another")
        return self
