"""From prepared sound to what an encoder reads: log-mel, padded to whole frames, normalised."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mast.config import Chunking, Spectrogram
from mast.normalisation import Normalisation, mean_centred
from mast.recordings.store import FULL_SCALE
from mast.spectrogram import LogMel, frames_of, pad_frames


class FrontEnd(nn.Module):
    """Prepared int16 chunks to normalised log-mel, always in float32 and where the sound is."""

    def __init__(self, chunking: Chunking, spectrogram: Spectrogram, normalisation: Normalisation) -> None:
        super().__init__()
        self.logmel = LogMel(spectrogram, chunking.sample_rate_hz)
        self.normalisation = normalisation
        self.frames = frames_of(chunking.chunk_s, spectrogram)

    @torch.no_grad()
    def forward(self, sound: Tensor, filled: Tensor) -> Tensor:
        """Normalised chunks of which the first `filled` (B,) samples are sound. (B, N) → (B, F, T)"""
        return self.normalised(self.levels(sound, filled), filled)

    @torch.no_grad()
    def levels(self, sound: Tensor, filled: Tensor) -> Tensor:
        """Log-mel before normalisation, where augmentation belongs. (B, N) → (B, F, T)"""
        with torch.autocast(sound.device.type, enabled=False):
            waves = mean_centred(sound.float() / FULL_SCALE, filled)
            return pad_frames(self.logmel(waves), self.frames)

    def normalised(self, levels: Tensor, filled: Tensor) -> Tensor:
        """Log-mel as the encoder reads it. (B, F, T) → (B, F, T)"""
        return self.normalisation.apply(levels, self.sound_frames(filled))

    def sound_frames(self, filled: Tensor) -> Tensor:
        """How many frames of a chunk hold sound and no padding, by its samples. (B,) → (B,)"""
        frames = (filled - self.logmel.window_samples) // self.logmel.shift_samples + 1
        return frames.clamp(min=0)
