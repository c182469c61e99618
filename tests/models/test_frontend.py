"""Conversion of prepared audio to the encoder's input."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mast.audio.spectrogram import LogMel
from mast.config import Chunking, Spectrogram
from mast.models.frontend import FrontEnd
from mast.normalisation import Normalisation

CHUNKING = Chunking(chunk_s=0.64, hop_s=0.32)
SAMPLES = 10_240
DATASET = Normalisation("dataset", mean=-6.0, std=3.0, band_deviation=2.0)
BAND_MEDIAN = Normalisation("band-median", mean=-6.0, std=3.0, band_deviation=2.0)


def frontend(normalisation: Normalisation = DATASET) -> FrontEnd:
    return FrontEnd(CHUNKING, Spectrogram(), normalisation)


def chunks_of(examples: int = 2) -> Tensor:
    noise = torch.randn(examples, SAMPLES, generator=torch.Generator().manual_seed(0))
    return (noise * 3000 + 500).to(torch.int16)


def lengths_of(*samples: int) -> Tensor:
    return torch.tensor(samples)


def test_no_chunks_give_no_spectrograms() -> None:
    assert frontend()(chunks_of(0), torch.zeros(0, dtype=torch.int64)).shape == (0, 128, 64)


def test_a_spectrogram_is_log_mel_of_the_centred_wave_padded_with_zero_frames_then_normalised() -> None:
    wave = chunks_of(1).float() / 32767
    by_hand = LogMel(Spectrogram(), 16_000)(wave - wave.mean())  # (1, 128, 62)
    expected = (torch.cat([by_hand, torch.zeros(1, 128, 2)], dim=-1) + 6) / (3 + 1e-6)
    spectrogram = frontend()(chunks_of(1), lengths_of(SAMPLES))
    assert spectrogram.shape == (1, 128, 64)
    torch.testing.assert_close(spectrogram, expected, atol=1e-5, rtol=0)


def test_log_mel_and_normalisation_together_equal_the_front_end() -> None:
    front, chunks, lengths = frontend(BAND_MEDIAN), chunks_of(), lengths_of(SAMPLES, 5000)
    expected = front.normalise(front.log_mel(chunks, lengths), lengths)
    assert torch.equal(front(chunks, lengths), expected)


def test_frames_of_padding_are_zero_under_band_medians() -> None:
    spectrogram = frontend(BAND_MEDIAN)(chunks_of(3), lengths_of(SAMPLES, 5000, 100))
    valid_frames = (5000 - 400) // 160 + 1
    assert (spectrogram[1, :, valid_frames:] == 0).all()
    assert (spectrogram[1, :, :valid_frames] != 0).any()
    assert (spectrogram[2] == 0).all()  # less audio than a window


@given(length=st.integers(0, SAMPLES), kind=st.sampled_from([DATASET, BAND_MEDIAN]))
def test_audio_after_the_valid_samples_has_no_effect(length: int, kind: Normalisation) -> None:
    front, chunk = frontend(kind), chunks_of(1)
    silenced = chunk.clone()
    silenced[:, length:] = 0
    assert torch.equal(front(chunk, lengths_of(length)), front(silenced, lengths_of(length)))


@pytest.mark.parametrize("offset", [-5000, 3000])
def test_a_constant_offset_has_no_effect(offset: int) -> None:
    front, chunk = frontend(), chunks_of(1)
    moved = front(chunk + offset, lengths_of(SAMPLES))
    torch.testing.assert_close(moved, front(chunk, lengths_of(SAMPLES)), atol=1e-3, rtol=0)


def test_autocast_changes_nothing_and_there_are_no_parameters() -> None:
    front, chunks = frontend(), chunks_of()
    plain = front(chunks, lengths_of(SAMPLES, SAMPLES))
    with torch.autocast("cpu", torch.bfloat16):
        mixed = front(chunks, lengths_of(SAMPLES, SAMPLES))
    assert mixed.dtype == torch.float32
    assert torch.equal(mixed, plain)
    assert not mixed.requires_grad
    assert not list(front.parameters())
