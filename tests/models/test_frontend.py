"""From prepared sound to what an encoder reads."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mast.config import Chunking, Spectrogram
from mast.models.frontend import FrontEnd
from mast.normalisation import Normalisation
from mast.spectrogram import LogMel

CHUNKING = Chunking(chunk_s=0.64, hop_s=0.32)
SAMPLES = 10_240
DATASET = Normalisation("dataset", mean=-6.0, std=3.0, band_deviation=2.0)
BAND_MEDIAN = Normalisation("band-median", mean=-6.0, std=3.0, band_deviation=2.0)


def frontend(normalisation: Normalisation = DATASET) -> FrontEnd:
    return FrontEnd(CHUNKING, Spectrogram(), normalisation)


def sound(examples: int = 2) -> Tensor:
    noise = torch.randn(examples, SAMPLES, generator=torch.Generator().manual_seed(0))
    return (noise * 3000 + 500).to(torch.int16)


def filled(*samples: int) -> Tensor:
    return torch.tensor(samples)


def test_no_chunks_give_no_pictures() -> None:
    assert frontend()(sound(0), torch.zeros(0, dtype=torch.int64)).shape == (0, 128, 64)


def test_a_picture_is_log_mel_of_the_centred_wave_with_zero_frames_to_fill_up_then_scaled() -> None:
    wave = sound(1).float() / 32767
    by_hand = LogMel(Spectrogram(), 16_000)(wave - wave.mean())  # (1, 128, 62)
    expected = (torch.cat([by_hand, torch.zeros(1, 128, 2)], dim=-1) + 6) / (3 + 1e-6)
    picture = frontend()(sound(1), filled(SAMPLES))
    assert picture.shape == (1, 128, 64)
    torch.testing.assert_close(picture, expected, atol=1e-5, rtol=0)


def test_levels_and_their_scaling_are_the_two_halves_of_the_picture() -> None:
    front, chunks, lengths = frontend(BAND_MEDIAN), sound(), filled(SAMPLES, 5000)
    halves = front.normalised(front.levels(chunks, lengths), lengths)
    assert torch.equal(front(chunks, lengths), halves)


def test_frames_of_padding_are_zero_under_band_medians() -> None:
    picture = frontend(BAND_MEDIAN)(sound(3), filled(SAMPLES, 5000, 100))
    whole_frames = (5000 - 400) // 160 + 1
    assert (picture[1, :, whole_frames:] == 0).all()
    assert (picture[1, :, :whole_frames] != 0).any()
    assert (picture[2] == 0).all()  # less than a window of sound


@given(length=st.integers(0, SAMPLES), kind=st.sampled_from([DATASET, BAND_MEDIAN]))
def test_what_lies_behind_the_filled_samples_is_not_heard(length: int, kind: Normalisation) -> None:
    front, chunk = frontend(kind), sound(1)
    silenced = chunk.clone()
    silenced[:, length:] = 0
    assert torch.equal(front(chunk, filled(length)), front(silenced, filled(length)))


@pytest.mark.parametrize("offset", [-5000, 3000])
def test_a_constant_offset_is_not_heard(offset: int) -> None:
    front, chunk = frontend(), sound(1)
    moved = front(chunk + offset, filled(SAMPLES))
    torch.testing.assert_close(moved, front(chunk, filled(SAMPLES)), atol=1e-3, rtol=0)


def test_autocast_changes_nothing_and_nothing_is_learned() -> None:
    front, chunks = frontend(), sound()
    plain = front(chunks, filled(SAMPLES, SAMPLES))
    with torch.autocast("cpu", torch.bfloat16):
        mixed = front(chunks, filled(SAMPLES, SAMPLES))
    assert mixed.dtype == torch.float32
    assert torch.equal(mixed, plain)
    assert not mixed.requires_grad
    assert not list(front.parameters())
