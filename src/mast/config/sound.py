"""Settings of the sound: where it is, what its labels mean, how it is cut, drawn and shared out."""

from __future__ import annotations

import difflib
from datetime import date
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, Field, model_validator

from mast.config.settings import Settings

AnnotationFormat = Literal[
    "raven", "audacity", "csv", "birdeep", "aoef", "audubon-core", "camtrap-dp", "batdetect2"
]

PATCH = 16
"""Frames and bins that a token of the encoder covers."""

RESERVED_SPLITS = ("train", "val", "test", "guard", "unlabelled", "in-domain")
"""Names with a meaning of their own, not to be given to a held-out set."""


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
        description="10 reads a 384 kHz bat file at a tenth of its speed: times x10, frequencies / 10; 1 for files "
        "that a detector has slowed down already",
    )


class AnnotationSource(Settings):
    """Expert boxes: a file, or a folder of files, in one format."""

    path: str = Field(description="An annotation file, or a folder of them")
    format: AnnotationFormat = Field(description="The format these files are written in")


class Labels(Settings):
    """What the annotators' words mean. '*' stands for every label not named elsewhere."""

    animal: tuple[str, ...] = Field(default=("*",), description="Labels of animal sounds: what to find")
    noise: tuple[str, ...] = Field(default=(), description="Labels of other sounds: hard negatives")
    ignored: tuple[str, ...] = Field(
        default=(),
        description="Labels that count as neither: chunks with such a sound neither teach nor test",
    )

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
