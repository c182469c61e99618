"""Kaldi's log-mel spectrogram as a torch module, and the grid that maps frames and bins to seconds and Hz."""

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
"""Kaldi's floor: an empty bin has the value log(1.19e-7) = -15.94."""


class LogMel(nn.Module):
    """Kaldi-compatible log-mel spectrogram (paper, Spectrogram extraction), equal to the reference within 1e-4."""

    window: Tensor
    bank: Tensor

    def __init__(self, settings: Spectrogram, sample_rate_hz: int) -> None:
        super().__init__()
        if settings.high_hz > sample_rate_hz / 2:
            raise AudioError(
                f"{sample_rate_hz} Hz cannot represent sounds up to {settings.high_hz:g} Hz. Use recordings of at least "
                f"{2 * settings.high_hz:g} Hz or set spectrogram.high_hz to at most {sample_rate_hz // 2}."
            )
        self.window_samples = round(settings.window_s * sample_rate_hz)
        self.shift_samples = round(settings.frame_shift_s * sample_rate_hz)
        self.fft_samples = 1 << (self.window_samples - 1).bit_length()
        self.register_buffer(
            "window", torch.hann_window(self.window_samples, periodic=False), persistent=False
        )
        self.register_buffer(
            "bank", mel_filterbank(settings, sample_rate_hz, self.fft_samples), persistent=False
        )

    def num_frames(self, samples: int) -> int:
        """Return the number of complete windows in `samples`."""
        return max(0, 1 + (samples - self.window_samples) // self.shift_samples)

    def forward(self, waves: Tensor) -> Tensor:
        """Compute the log-mel spectrogram of mean-centred waveforms in -1…1. (B, N) → (B, F, T)"""
        if waves.shape[-1] < self.window_samples:
            raise AudioError(
                f"{waves.shape[-1]} samples are too short for a spectrogram; it needs at least {self.window_samples}."
            )
        frames = waves.unfold(-1, self.window_samples, self.shift_samples)  # (B, T, window)
        frames = frames - frames.mean(dim=-1, keepdim=True)
        padded = frames.new_zeros(*frames.shape[:-1], self.fft_samples)  # (B, T, fft)
        emphasised = padded[..., : self.window_samples]
        torch.mul(frames[..., :-1], -PREEMPHASIS, out=emphasised[..., 1:])
        emphasised[..., 0] = frames[..., 0] * -PREEMPHASIS  # Kaldi: the first sample is its own predecessor
        emphasised += frames
        emphasised *= self.window
        spectrum = torch.view_as_real(torch.fft.rfft(padded))[..., :-1, :]  # Kaldi leaves the Nyquist bin out
        power = spectrum[..., 0].square() + spectrum[..., 1].square()  # (B, T, fft/2)
        mel = power @ self.bank  # (B, T, F)
        return mel.clamp_(min=LOG_FLOOR).log_().transpose(1, 2)  # (B, F, T)


def pad_frames(spectrogram: Tensor, frames: int) -> Tensor:
    """Append zero frames, or drop the last frames, to reach `frames`, as AudioMAE does before normalising.

    A 10.24 s chunk has 1022 complete windows, but the paper states 1024; two zero frames fill the difference
    (docs/decisions/0004). (…, F, T) → (…, F, frames)
    """
    return functional.pad(spectrogram, (0, frames - spectrogram.shape[-1]))


def mel_filterbank(settings: Spectrogram, sample_rate_hz: int, fft_samples: int) -> Tensor:
    """Compute triangular filters evenly spaced in mel, each with a peak of 1 at its centre. → (fft_samples / 2, F)

    All arithmetic is float32, as in Kaldi: near the floor, float64 changes the second decimal.
    """
    fft_hz = torch.arange(fft_samples // 2, dtype=torch.float32) * (sample_rate_hz / fft_samples)
    fft_mel = (1127.0 * (1.0 + fft_hz / 700.0).log())[:, None]
    low_mel, step_mel = _band_mel(settings)
    number = torch.arange(settings.n_mels, dtype=torch.float32)
    left, centre, right = (low_mel + (number + side) * step_mel for side in (0, 1, 2))
    return torch.minimum((fft_mel - left) / (centre - left), (right - fft_mel) / (right - centre)).clamp(
        min=0
    )


@dataclass(frozen=True, slots=True)
class MelGrid:
    """Mapping between a chunk's frames and bins and seconds and Hz. Bin k is the centre of Kaldi's k-th filter.

    Continuous bin positions run from -1 (`low_hz`) over 0 … n_mels - 1 (the centres) to n_mels (`high_hz`).
    """

    settings: Spectrogram
    frames: int

    def hz_to_bins(self, hz: Tensor) -> Tensor:
        """Return the continuous bin position of each frequency; exact at the Kaldi centres."""
        low_mel, step_mel = _band_mel(self.settings)
        return (1127.0 * torch.log1p(hz.double() / 700.0) - low_mel) / step_mel - 1

    def bins_to_hz(self, bins: Tensor) -> Tensor:
        """Return the frequency of each continuous bin position, the inverse of `hz_to_bins`."""
        low_mel, step_mel = _band_mel(self.settings)
        return 700.0 * torch.expm1((low_mel + (bins.double() + 1) * step_mel) / 1127.0)

    def overlaps(self, events: Tensor) -> Tensor:
        """Return True for events (start_s, low_hz, end_s, high_hz) that overlap the grid. (N, 4) → (N,)"""
        end_s = self.frames * self.settings.frame_shift_s
        in_time = (events[:, 2] >= 0) & (events[:, 0] < end_s)
        in_band = (events[:, 3] >= self.settings.low_hz) & (events[:, 1] < self.settings.high_hz)
        return in_time & in_band

    def events_to_boxes(self, events: Tensor) -> Tensor:
        """Convert events, with times relative to the chunk, to boxes. (N, 4) → (N, 4)

        Paper: Bounding box coordinate conversion. Times map to the frame that contains them, frequencies to the nearest
        centre; boxes are clipped to the grid. An event within one frame or one bin covers all of it. The added 1e-6
        keeps 0.29 s in frame 29.
        """
        times = torch.floor(events[:, 0::2].double() / self.settings.frame_shift_s + 1e-6)
        bins = self.hz_to_bins(events[:, 1::2])
        nearest, middle = torch.round(bins), torch.floor(bins.mean(dim=1))
        low = torch.where(nearest[:, 0] < nearest[:, 1], nearest[:, 0], middle).clamp(
            0, self.settings.n_mels - 1
        )
        high = torch.maximum(nearest[:, 1].clamp(max=self.settings.n_mels), low + 1)
        start = times[:, 0].clamp(0, self.frames - 1)
        end = torch.maximum(times[:, 1].clamp(max=self.frames), start + 1)
        return torch.stack([start, low, end, high], dim=1).float()

    def to_exact_boxes(self, events: Tensor) -> Tensor:
        """Convert events to continuous boxes in double precision, without clipping. (N, 4) → (N, 4)

        This is the inverse of `boxes_to_events`.
        """
        boxes = events.double().clone()
        boxes[:, 0::2] /= self.settings.frame_shift_s
        boxes[:, 1::2] = self.hz_to_bins(events[:, 1::2])
        return boxes

    def boxes_to_events(self, boxes: Tensor) -> Tensor:
        """Convert continuous boxes in frames and bins to seconds and Hz, in double precision. (N, 4) → (N, 4)"""
        events = boxes.double().clone()
        events[:, 0::2] *= self.settings.frame_shift_s
        events[:, 1::2] = self.bins_to_hz(boxes[:, 1::2])
        return events


def _band_mel(settings: Spectrogram) -> tuple[float, float]:
    """Return the band's lower edge in mel, and the step in mel from one bin centre to the next."""
    low_mel, high_mel = (1127.0 * math.log1p(hz / 700.0) for hz in (settings.low_hz, settings.high_hz))
    return low_mel, (high_mel - low_mel) / (settings.n_mels + 1)


def chunk_frames(duration_s: float, settings: Spectrogram) -> int:
    """Return the number of frames of a chunk in the detector's input: one per frame shift. 10.24 s → 1024"""
    return math.floor(duration_s / settings.frame_shift_s + 1e-6)
