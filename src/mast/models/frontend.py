"""Convert prepared audio to the encoder's input: log-mel, padded to whole frames, normalised."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mast.audio.spectrogram import LogMel, chunk_frames, pad_frames
from mast.config import Chunking, Spectrogram
from mast.normalisation import Normalisation, remove_dc_offset
from mast.store.audio_store import FULL_SCALE


class FrontEnd(nn.Module):
    """Convert prepared int16 chunks to normalised log-mel, in float32 and on the device of the audio."""

    def __init__(self, chunking: Chunking, spectrogram: Spectrogram, normalisation: Normalisation) -> None:
        super().__init__()
        self.logmel = LogMel(spectrogram, chunking.sample_rate_hz)
        self.normalisation = normalisation
        self.frames = chunk_frames(chunking.chunk_s, spectrogram)

    @torch.no_grad()
    def forward(self, audio: Tensor, valid_samples: Tensor) -> Tensor:
        """Return the normalised log-mel of chunks with `valid_samples` (B,) samples of audio. (B, N) → (B, F, T)"""
        return self.normalise(self.log_mel(audio, valid_samples), valid_samples)

    @torch.no_grad()
    def log_mel(self, audio: Tensor, valid_samples: Tensor) -> Tensor:
        """Return the log-mel before normalisation, the input of augmentations. (B, N) → (B, F, T)"""
        with torch.autocast(audio.device.type, enabled=False):
            waves = remove_dc_offset(audio.float() / FULL_SCALE, valid_samples)
            return pad_frames(self.logmel(waves), self.frames)

    def normalise(self, levels: Tensor, valid_samples: Tensor) -> Tensor:
        """Normalise log-mel for the encoder. (B, F, T) → (B, F, T)"""
        return self.normalisation.apply(levels, self.valid_frames(valid_samples))

    def valid_frames(self, valid_samples: Tensor) -> Tensor:
        """Return the number of frames without padding, given the valid samples. (B,) → (B,)"""
        frames = (valid_samples - self.logmel.window_samples) // self.logmel.shift_samples + 1
        return frames.clamp(min=0)
