"""Scale spectrograms for a model; the normalisation is saved with the model."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mast.audio.spectrogram import LogMel
from mast.config import Spectrogram
from mast.errors import AudioError, ConfigError
from mast.store.audio_store import AudioStore, to_float
from mast.types import OnSeconds

Kind = Literal["dataset", "audiomae", "band-median"]

EPSILON = 1e-6
AUDIOMAE_MEAN, AUDIOMAE_STD = -4.2677393, 4.5689974
"""AudioMAE's statistics, computed on AudioSet; it divides by twice the standard deviation."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Source of the statistics: the prepared audio's fingerprint, the number of spans, and their total duration.

    `spectrogram` has the spectrogram settings; it is None in older files.
    """

    fingerprint: str
    spans: int
    seconds: float
    spectrogram: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Statistics:
    """Mean and standard deviation of all log-mel values, and their RMS deviation from each chunk's band medians."""

    mean: float
    std: float
    band_deviation: float
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Normalisation:
    """A kind of normalisation with its parameters.

    - `dataset`: (S - mean) / (std + ε), with the study's own statistics (paper, Spectrogram extraction)
    - `audiomae`: (S - mean) / (2 std), with the statistics of AudioSet
    - `band-median`: each chunk minus its own median in every band, divided by the study's deviation from these medians;
      this removes constant hum and the level of the recorder
    """

    kind: Kind
    mean: float
    std: float
    band_deviation: float | None = None
    provenance: Provenance | None = None

    @classmethod
    def from_statistics(cls, kind: Kind, statistics: Statistics | None = None) -> Self:
        """Create a normalisation from statistics; only `audiomae` needs none."""
        if kind == "audiomae":
            return cls(kind, AUDIOMAE_MEAN, AUDIOMAE_STD)
        if statistics is None:
            raise ConfigError(f"normalisation {kind} needs the statistics of a study's prepared audio.")
        return cls(kind, statistics.mean, statistics.std, statistics.band_deviation, statistics.provenance)

    @property
    def masks_padding(self) -> bool:
        """True if frames past the end of a chunk's audio are set to 0, even if augmentation moved audio there."""
        return self.kind == "band-median"

    def apply(self, spec: Tensor, frames: Tensor | None = None) -> Tensor:
        """Scale log-mel chunks, of which only the first `frames` (B,) are valid. (B, F, T) → (B, F, T)

        Padding is scaled like valid frames, as in AudioMAE; with `band-median` it becomes 0, the level of the background.
        """
        if self.kind == "dataset":
            return (spec - self.mean) / (self.std + EPSILON)
        if self.kind == "audiomae":
            return (spec - self.mean) / (2 * self.std)
        if self.band_deviation is None:
            raise ConfigError("normalisation band-median needs band_deviation.")
        scaled = (spec - band_medians(spec, frames)) / (self.band_deviation + EPSILON)
        return scaled if frames is None else scaled * _is_valid(spec, frames)

    def to_json(self) -> str:
        """Return the normalisation as JSON, for a model's metadata."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Create a normalisation from JSON."""
        values = json.loads(text)
        if values["provenance"] is not None:
            values["provenance"] = Provenance(**values["provenance"])
        return cls(**values)


def band_medians(spec: Tensor, frames: Tensor | None = None) -> Tensor:
    """Compute the median of every band over a chunk's first `frames` (B,). (B, F, T) → (B, F, 1)

    For an even number of frames this is the lower median, as in `Tensor.median`.
    """
    if frames is None:
        return spec.median(dim=-1, keepdim=True).values
    ranked = spec.masked_fill(~_is_valid(spec, frames), math.inf).sort(dim=-1).values
    middle = ((frames.clamp(min=1) - 1) // 2).view(-1, 1, 1).expand(-1, spec.shape[1], 1)
    medians = ranked.gather(-1, middle)
    return medians.masked_fill(medians == math.inf, 0.0)  # a chunk without valid frames


def _is_valid(spec: Tensor, frames: Tensor) -> Tensor:
    """Return True for valid frames, False for padding. (B, F, T), (B,) → (B, 1, T)"""
    return (torch.arange(spec.shape[-1], device=spec.device) < frames.view(-1, 1))[:, None]


def remove_dc_offset(audio: Tensor, valid_samples: Tensor) -> Tensor:
    """Subtract the mean of the first `valid_samples` (B,) samples; padding stays 0. (B, N) → (B, N)"""
    is_valid = torch.arange(audio.shape[-1], device=audio.device) < valid_samples.view(-1, 1)
    mean = (audio * is_valid).sum(dim=-1) / valid_samples.clamp(min=1)
    return (audio - mean[:, None]) * is_valid


def measure_statistics(
    store: AudioStore,
    spans: NDArray[np.int64],
    samples: int,
    settings: Spectrogram,
    batch: int = 32,
    on_progress: OnSeconds = lambda done_s, total_s: None,
) -> Statistics:
    """Compute statistics of the spans' spectrograms in one pass; a span has `samples` samples or ends with its recording.

    Spans are (row, offset in samples), as `AudioStore.chunks` returns them: those of the annotated training recordings
    and of the unlabelled ones, never of a test recording. Padding frames do not count. Sums use double precision and are
    taken around each batch's own mean, so that a million chunks lose no precision.
    """
    rate_hz = store.layout.sample_rate_hz
    logmel = LogMel(settings, rate_hz)
    sums, valid_total = _Sums(), 0
    for first in range(0, len(spans), batch):
        batch_spans = spans[first : first + batch]
        valid_samples = torch.from_numpy(store.valid_lengths(batch_spans, samples))
        audio = torch.from_numpy(to_float(store.read(batch_spans, samples)))
        with torch.inference_mode():
            spec = logmel(remove_dc_offset(audio, valid_samples)).contiguous()
            sums.add(spec, torch.tensor([logmel.num_frames(int(count)) for count in valid_samples]))
        valid_total += int(valid_samples.sum())
        on_progress(valid_total / rate_hz, len(spans) * samples / rate_hz)
    if not sums.count:
        raise AudioError(f"{store.location}: it contains no audio to compute statistics from.")
    spectrogram = settings.model_dump(mode="json")
    provenance = Provenance(store.fingerprint, len(spans), valid_total / rate_hz, spectrogram)
    std, band_deviation = (math.sqrt(total / sums.count) for total in (sums.squares, sums.band_squares))
    return Statistics(sums.mean, std, band_deviation, provenance)


class _Sums:
    """Running sums over spectrograms: squared deviations from the current mean, and from band medians."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares, self.band_squares = 0, 0.0, 0.0, 0.0

    def add(self, spec: Tensor, frames: Tensor) -> None:
        """Add the first `frames` (B,) of spectrograms (B, F, T)."""
        if int(frames.min()) == spec.shape[-1]:
            values, deviations = spec, spec - band_medians(spec)
        else:
            is_valid = _is_valid(spec, frames).expand_as(spec)
            values, deviations = spec[is_valid], (spec - band_medians(spec, frames))[is_valid]
        if not values.numel():
            return
        count = self.count + values.numel()
        mean = float(values.mean(dtype=torch.float64))
        self.squares += float((values - mean).square_().sum(dtype=torch.float64))
        self.squares += (mean - self.mean) ** 2 * self.count * values.numel() / count
        self.mean += (mean - self.mean) * values.numel() / count
        self.band_squares += float(deviations.square_().sum(dtype=torch.float64))
        self.count = count
