"""How a spectrogram is scaled before a model sees it: one named choice, which travels with the model."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mast.config import Spectrogram
from mast.errors import AudioError, ConfigError
from mast.recordings.store import AudioStore, to_float
from mast.spectrogram import LogMel

Kind = Literal["dataset", "audiomae", "band-median"]

EPSILON = 1e-6
AUDIOMAE_MEAN, AUDIOMAE_STD = -4.2677393, 4.5689974
"""AudioMAE's own statistics, of AudioSet; it divides by twice the deviation."""

OnProgress = Callable[[float, float], None]
"""`on_progress(done_s, total_s)`, in seconds of audio."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """What some statistics are of: the prepared audio's fingerprint, how many spans of it, how long in all.

    `spectrogram` has the settings it was looked at with; older files do not tell.
    """

    fingerprint: str
    spans: int
    seconds: float
    spectrogram: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Statistics:
    """Mean and standard deviation of all log-mel values, and their deviation around each chunk's band medians."""

    mean: float
    std: float
    band_deviation: float
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Normalisation:
    """A kind of scaling with all its numbers.

    - `dataset`: (S - mean) / (std + ε), with the study's own statistics (paper, Spectrogram extraction)
    - `audiomae`: (S - mean) / (2 std), with AudioSet's
    - `band-median`: each chunk minus its own median in every band, divided by the study's deviation around these; what
      hums all the time, and how loud a recorder is, drop out
    """

    kind: Kind
    mean: float
    std: float
    band_deviation: float | None = None
    provenance: Provenance | None = None

    @classmethod
    def of(cls, kind: Kind, statistics: Statistics | None = None) -> Self:
        """A kind with the numbers it needs; only `audiomae` brings its own."""
        if kind == "audiomae":
            return cls(kind, AUDIOMAE_MEAN, AUDIOMAE_STD)
        if statistics is None:
            raise ConfigError(f"normalisation {kind} needs the statistics of a study's prepared audio.")
        return cls(kind, statistics.mean, statistics.std, statistics.band_deviation, statistics.provenance)

    @property
    def hides_padding(self) -> bool:
        """Whether nothing is seen where a chunk's sound has ended, also of what was moved there."""
        return self.kind == "band-median"

    def apply(self, spec: Tensor, frames: Tensor | None = None) -> Tensor:
        """Scale log-mel chunks, of which only the first `frames` (B,) hold sound. (B, F, T) → (B, F, T)

        Padding is scaled with the rest, as AudioMAE does; in `band-median` it becomes 0, the level of the background.
        """
        if self.kind == "dataset":
            return (spec - self.mean) / (self.std + EPSILON)
        if self.kind == "audiomae":
            return (spec - self.mean) / (2 * self.std)
        if self.band_deviation is None:
            raise ConfigError("normalisation band-median needs band_deviation.")
        scaled = (spec - band_medians(spec, frames)) / (self.band_deviation + EPSILON)
        return scaled if frames is None else scaled * _is_filled(spec, frames)

    def to_json(self) -> str:
        """The choice as text, for a model's description."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The choice from text."""
        values = json.loads(text)
        if values["provenance"] is not None:
            values["provenance"] = Provenance(**values["provenance"])
        return cls(**values)


def band_medians(spec: Tensor, frames: Tensor | None = None) -> Tensor:
    """Median of every band over a chunk's first `frames` (B,), the lower one of an even number. (B, F, T) → (B, F, 1)"""
    if frames is None:
        return spec.median(dim=-1, keepdim=True).values
    ranked = spec.masked_fill(~_is_filled(spec, frames), math.inf).sort(dim=-1).values
    middle = ((frames.clamp(min=1) - 1) // 2).view(-1, 1, 1).expand(-1, spec.shape[1], 1)
    medians = ranked.gather(-1, middle)
    return medians.masked_fill(medians == math.inf, 0.0)  # a chunk without sound


def _is_filled(spec: Tensor, frames: Tensor) -> Tensor:
    """Which frames hold sound. (B, F, T), (B,) → (B, 1, T)"""
    return (torch.arange(spec.shape[-1], device=spec.device) < frames.view(-1, 1))[:, None]


def mean_centred(sound: Tensor, filled: Tensor) -> Tensor:
    """Waves with the mean of their first `filled` (B,) samples taken off; padding stays 0. (B, N) → (B, N)"""
    is_sound = torch.arange(sound.shape[-1], device=sound.device) < filled.view(-1, 1)
    mean = (sound * is_sound).sum(dim=-1) / filled.clamp(min=1)
    return (sound - mean[:, None]) * is_sound


def measure_statistics(
    store: AudioStore,
    spans: NDArray[np.int64],
    samples: int,
    settings: Spectrogram,
    batch: int = 32,
    on_progress: OnProgress = lambda done_s, total_s: None,
) -> Statistics:
    """Statistics of the spans' spectrograms in one pass, each span `samples` long or up to its recording's end.

    Spans are (row, offset in samples), as `AudioStore.chunks` gives them: those of the labelled training recordings
    and of the unlabelled ones, and never of a test recording. Frames that hold padding do not count. Sums are kept in
    double precision around each batch's own mean, so that a million chunks lose nothing.
    """
    rate_hz = store.layout.sample_rate_hz
    logmel = LogMel(settings, rate_hz)
    sums, filled_samples = _Sums(), 0
    for first in range(0, len(spans), batch):
        chosen = spans[first : first + batch]
        filled = torch.from_numpy(store.filled(chosen, samples))
        sound = torch.from_numpy(to_float(store.read(chosen, samples)))
        with torch.inference_mode():
            spec = logmel(mean_centred(sound, filled)).contiguous()
            sums.add(spec, torch.tensor([logmel.frames_in(int(count)) for count in filled]))
        filled_samples += int(filled.sum())
        on_progress(filled_samples / rate_hz, len(spans) * samples / rate_hz)
    if not sums.count:
        raise AudioError(f"{store.location}: there is no sound to measure.")
    shown = settings.model_dump(mode="json")
    provenance = Provenance(store.fingerprint, len(spans), filled_samples / rate_hz, shown)
    std, band_deviation = (math.sqrt(total / sums.count) for total in (sums.squares, sums.band_squares))
    return Statistics(sums.mean, std, band_deviation, provenance)


class _Sums:
    """What a pass over spectrograms adds up: squares around the mean so far, and around band medians."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares, self.band_squares = 0, 0.0, 0.0, 0.0

    def add(self, spec: Tensor, frames: Tensor) -> None:
        """Take in the first `frames` (B,) of spectrograms (B, F, T)."""
        if int(frames.min()) == spec.shape[-1]:
            values, deviations = spec, spec - band_medians(spec)
        else:
            is_sound = _is_filled(spec, frames).expand_as(spec)
            values, deviations = spec[is_sound], (spec - band_medians(spec, frames))[is_sound]
        if not values.numel():
            return
        count = self.count + values.numel()
        mean = float(values.mean(dtype=torch.float64))
        self.squares += float((values - mean).square_().sum(dtype=torch.float64))
        self.squares += (mean - self.mean) ** 2 * self.count * values.numel() / count
        self.mean += (mean - self.mean) * values.numel() / count
        self.band_squares += float(deviations.square_().sum(dtype=torch.float64))
        self.count = count
