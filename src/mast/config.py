"""Every setting and its default: a study is these classes, filled from defaults < YAML < `--set a.b=c`."""

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


class Study(Settings):
    """One study: where the sound is, what is known about it, and how it is read."""

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
    return _anchor(checked(Study, values, str(path or "settings")), path.parent if path else Path())


def checked(group: type[SettingsGroup], values: Mapping[str, Any], source: str) -> SettingsGroup:
    """A group of settings from plain values; every mistake is told, with its place in `source` and the remedy."""
    try:
        return group.model_validate(values)
    except ValidationError as error:
        raise ConfigError(
            "\n".join(f"{source}: {_explain(group, item)}" for item in error.errors())
        ) from None


def dump_study(study: Study) -> str:
    """Write a study as YAML, every setting spelled out."""
    return yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


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
        }
    )
