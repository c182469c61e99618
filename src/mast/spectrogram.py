"""Sound to picture: Kaldi's log-mel as a torch module, and the grid that ties its frames and bins to seconds and Hz."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from mast.config import Spectrogram
from mast.errors import AudioError

PREEMPHASIS = 0.97
LOG_FLOOR = torch.finfo(torch.float32).eps
"""Kaldi's floor: an empty bin reads log(1.19e-7) = -15.94."""


class LogMel(nn.Module):
    """Kaldi-compatible log-mel filter bank (paper, Spectrogram extraction), equal to the reference within 1e-4."""

    window: Tensor
    bank: Tensor

    def __init__(self, settings: Spectrogram, sample_rate_hz: int) -> None:
        super().__init__()
        if settings.high_hz > sample_rate_hz / 2:
            raise AudioError(
                f"{sample_rate_hz} Hz cannot hold sounds up to {settings.high_hz:g} Hz. Use recordings of at least "
                f"{2 * settings.high_hz:g} Hz or set spectrogram.high_hz to at most {sample_rate_hz // 2}."
            )
        self.window_samples = round(settings.window_s * sample_rate_hz)
        self.shift_samples = round(settings.shift_s * sample_rate_hz)
        self.fft_samples = 1 << (self.window_samples - 1).bit_length()
        self.register_buffer(
            "window", torch.hann_window(self.window_samples, periodic=False), persistent=False
        )
        self.register_buffer("bank", mel_bank(settings, sample_rate_hz, self.fft_samples), persistent=False)

    def frames_in(self, samples: int) -> int:
        """Number of whole windows in so many samples."""
        return max(0, 1 + (samples - self.window_samples) // self.shift_samples)

    def forward(self, waves: Tensor) -> Tensor:
        """Log-mel of mean-centred waves in -1…1. (B, N) → (B, F, T)"""
        if waves.shape[-1] < self.window_samples:
            raise AudioError(
                f"{waves.shape[-1]} samples are too short for a spectrogram; it takes {self.window_samples} at least."
            )
        frames = waves.unfold(-1, self.window_samples, self.shift_samples)  # (B, T, window)
        frames = frames - frames.mean(dim=-1, keepdim=True)
        padded = frames.new_zeros(*frames.shape[:-1], self.fft_samples)  # (B, T, fft)
        emphasised = padded[..., : self.window_samples]
        torch.mul(frames[..., :-1], -PREEMPHASIS, out=emphasised[..., 1:])
        emphasised[..., 0] = (
            frames[..., 0] * -PREEMPHASIS
        )  # Kaldi takes the first sample as its own predecessor
        emphasised += frames
        emphasised *= self.window
        spectrum = torch.view_as_real(torch.fft.rfft(padded))[..., :-1, :]  # Kaldi leaves the Nyquist bin out
        power = spectrum[..., 0].square() + spectrum[..., 1].square()  # (B, T, fft/2)
        mel = power @ self.bank  # (B, T, F)
        return mel.clamp_(min=LOG_FLOOR).log_().transpose(1, 2)  # (B, F, T)


def pad_frames(spectrogram: Tensor, frames: int) -> Tensor:
    """Append zero frames, or drop the last ones, to reach `frames`, as AudioMAE does before normalising.

    A 10.24 s chunk holds 1022 whole windows where the paper says 1024; two zero frames make up the rest
    (docs/decisions/0004). (…, F, T) → (…, F, frames)
    """
    return functional.pad(spectrogram, (0, frames - spectrogram.shape[-1]))


def mel_bank(settings: Spectrogram, sample_rate_hz: int, fft_samples: int) -> Tensor:
    """Triangles evenly spaced in mel, each rising to one at its centre. → (fft_samples / 2, F)

    In float32 throughout, as Kaldi's: near the floor, finer arithmetic shows in the second decimal.
    """
    fft_hz = torch.arange(fft_samples // 2, dtype=torch.float32) * (sample_rate_hz / fft_samples)
    fft_mel = (1127.0 * (1.0 + fft_hz / 700.0).log())[:, None]
    low_mel, step_mel = _band_mel(settings)
    number = torch.arange(settings.bins, dtype=torch.float32)
    left, centre, right = (low_mel + (number + side) * step_mel for side in (0, 1, 2))
    return torch.minimum((fft_mel - left) / (centre - left), (right - fft_mel) / (right - centre)).clamp(
        min=0
    )


@dataclass(frozen=True, slots=True)
class MelGrid:
    """Frames and bins of a chunk, tied to seconds and Hz. Bin k is the centre of Kaldi's k-th filter.

    Continuous bin positions run from -1 (`low_hz`) over 0 … bins - 1 (the centres) to bins (`high_hz`).
    """

    settings: Spectrogram
    frames: int

    def bins_at(self, hz: Tensor) -> Tensor:
        """Continuous bin position of a frequency; exact at the Kaldi centres."""
        low_mel, step_mel = _band_mel(self.settings)
        return (1127.0 * torch.log1p(hz.double() / 700.0) - low_mel) / step_mel - 1

    def hz_at(self, bins: Tensor) -> Tensor:
        """Frequency of a continuous bin position, the inverse of `bins_at`."""
        low_mel, step_mel = _band_mel(self.settings)
        return 700.0 * torch.expm1((low_mel + (bins.double() + 1) * step_mel) / 1127.0)

    def holds(self, events: Tensor) -> Tensor:
        """Which events (start_s, low_hz, end_s, high_hz) reach into the grid at all. (N, 4) → (N,)"""
        end_s = self.frames * self.settings.shift_s
        in_time = (events[:, 2] >= 0) & (events[:, 0] < end_s)
        in_band = (events[:, 3] >= self.settings.low_hz) & (events[:, 1] < self.settings.high_hz)
        return in_time & in_band

    def to_boxes(self, events: Tensor) -> Tensor:
        """Boxes of events relative to the chunk (paper, Bounding box coordinate conversion). (N, 4) → (N, 4)

        Times fall to the frame that contains them, frequencies to the nearest centre; boxes are clipped to the grid.
        An event within one frame or one bin gets the whole of it. The nudge keeps 0.29 s in frame 29.
        """
        times = torch.floor(events[:, 0::2].double() / self.settings.shift_s + 1e-6)
        bins = self.bins_at(events[:, 1::2])
        nearest, middle = torch.round(bins), torch.floor(bins.mean(dim=1))
        low = torch.where(nearest[:, 0] < nearest[:, 1], nearest[:, 0], middle).clamp(
            0, self.settings.bins - 1
        )
        high = torch.maximum(nearest[:, 1].clamp(max=self.settings.bins), low + 1)
        start = times[:, 0].clamp(0, self.frames - 1)
        end = torch.maximum(times[:, 1].clamp(max=self.frames), start + 1)
        return torch.stack([start, low, end, high], dim=1).float()

    def to_exact_boxes(self, events: Tensor) -> Tensor:
        """Continuous boxes of events in double precision, the inverse of `to_events`; none is clipped. (N, 4) → (N, 4)"""
        boxes = events.double().clone()
        boxes[:, 0::2] /= self.settings.shift_s
        boxes[:, 1::2] = self.bins_at(events[:, 1::2])
        return boxes

    def to_events(self, boxes: Tensor) -> Tensor:
        """Seconds and Hz of continuous boxes in frames and bins, in double precision. (N, 4) → (N, 4)"""
        events = boxes.double().clone()
        events[:, 0::2] *= self.settings.shift_s
        events[:, 1::2] = self.hz_at(boxes[:, 1::2])
        return events


def _band_mel(settings: Spectrogram) -> tuple[float, float]:
    """Mel position of the band's lower edge, and the step from one bin centre to the next."""
    low_mel, high_mel = (1127.0 * math.log1p(hz / 700.0) for hz in (settings.low_hz, settings.high_hz))
    return low_mel, (high_mel - low_mel) / (settings.bins + 1)


def frames_of(duration_s: float, settings: Spectrogram) -> int:
    """Frames of a chunk as the detector sees it: one for every shift. 10.24 s → 1024"""
    return math.floor(duration_s / settings.shift_s + 1e-6)
