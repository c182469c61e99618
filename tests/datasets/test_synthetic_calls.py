"""Synthetic calls: each lies in its box, at its level above the background, and depends only on the seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.config import Spectrogram
from mast.datasets import synthetic_calls
from mast.datasets.loader import Batch
from mast.datasets.synthetic_calls import (
    EDGE_ENERGY,
    LEVEL_DB,
    MAX_CALL_S,
    SyntheticCallMixer,
    _CallParameters,
    generate_call,
)

RATE_HZ, SECONDS, BAND_HZ = 16_000, 5.12, (150.0, 7600.0)
SAMPLES = round(SECONDS * RATE_HZ)
CALLS = SyntheticCallMixer(Spectrogram(), RATE_HZ, frames=512)


def batch_of(audio: np.ndarray) -> Batch:
    count = len(audio)
    boxes = (torch.zeros(0, 4),) * count
    valid_samples = torch.full((count,), SAMPLES)
    return Batch(0, torch.arange(count), torch.from_numpy(audio), valid_samples, boxes, torch.ones(count))


def mix_calls(audio: np.ndarray, generators: list[np.random.Generator]) -> Batch:
    return CALLS.mix_into(batch_of(audio), generators, torch.ones(len(audio), dtype=torch.bool))


def noise(seed: int, count: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 300, (count, SAMPLES)).astype(np.int16)


def rngs(seed: int, count: int = 1) -> list[np.random.Generator]:
    return [np.random.default_rng((seed, index)) for index in range(count)]


def fraction_within(energy: np.ndarray, first: float, last: float) -> float:
    return float(energy[round(first) : round(last)].sum() / energy.sum())


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_a_box_contains_its_call_except_the_edges_and_the_echo(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic_calls, "_add_echo", lambda dry, rng, rate: dry)
        call = generate_call(np.random.default_rng(seed), RATE_HZ, BAND_HZ)
    assert 0 <= call.start_s < call.end_s <= 1.1 * MAX_CALL_S
    assert 0 < call.low_hz < call.high_hz <= RATE_HZ / 2
    in_time = fraction_within(call.wave**2, call.start_s * RATE_HZ, call.end_s * RATE_HZ)
    hz = RATE_HZ / len(call.wave)
    in_band = fraction_within(np.abs(np.fft.rfft(call.wave)) ** 2, call.low_hz / hz, call.high_hz / hz)
    assert in_time >= 1 - 2 * EDGE_ENERGY - 1e-9
    assert in_band >= 1 - 2 * EDGE_ENERGY - 1e-9


BANDS_HZ = [(3000.0, 8000.0), (1500.0, 8000.0), (20.0, 200.0), (10.0, 100.0), (0.0, 50.0), (7900.0, 8000.0)]


@pytest.mark.parametrize(("low_hz", "high_hz"), BANDS_HZ)
def test_calls_are_mixed_into_audio_of_any_band(low_hz: float, high_hz: float) -> None:
    calls = SyntheticCallMixer(Spectrogram(low_hz=low_hz, high_hz=high_hz), RATE_HZ, frames=512)
    mixed = calls.mix_into(batch_of(noise(0, 4)), rngs(0, 4), torch.ones(4, dtype=torch.bool))
    boxes = torch.cat(mixed.boxes)
    assert len(boxes) and (boxes[:, 2:] > boxes[:, :2]).all()
    assert (boxes >= 0).all() and (boxes[:, 3] <= 128).all()


@settings(max_examples=100, deadline=None)
@given(st.floats(0, 7999), st.floats(0.001, 1), st.integers(0, 10_000))
def test_every_call_lies_within_the_band_of_its_spectrogram(low_hz: float, width: float, seed: int) -> None:
    settings_ = Spectrogram(low_hz=low_hz, high_hz=low_hz + width * (8000 - low_hz))
    low_hz, high_hz = SyntheticCallMixer(settings_, RATE_HZ, frames=512).band_hz
    assert settings_.low_hz <= low_hz < high_hz < settings_.high_hz
    parameters = _CallParameters.sample(np.random.default_rng(seed), (low_hz, high_hz))
    assert low_hz < parameters.pitch_hz <= high_hz * (1 + 1e-9)


def test_call_parameters_in_the_papers_band_are_unchanged_since_other_bands_were_added() -> None:
    assert CALLS.band_hz == BAND_HZ
    pitches_hz = [_CallParameters.sample(np.random.default_rng(seed), BAND_HZ).pitch_hz for seed in range(4)]
    assert pitches_hz == pytest.approx([310.7672780238, 2270.452393911, 4169.113205394, 3998.196013606])


def test_an_echo_makes_a_call_longer_but_not_its_box() -> None:
    call = generate_call(np.random.default_rng(3), RATE_HZ, BAND_HZ)
    assert len(call.wave) / RATE_HZ > call.end_s


def test_there_are_calls_of_every_width_and_length() -> None:
    calls = [generate_call(rng, RATE_HZ, BAND_HZ) for rng in rngs(0, 200)]
    events = [(call.start_s, call.low_hz, call.end_s, call.high_hz) for call in calls]
    start, low, end, high = CALLS.grid.to_exact_boxes(torch.tensor(events, dtype=torch.float64)).T
    for sides, edges in ((high - low, (0, 3, 6, 12, 24, 128)), (end - start, (0, 16, 32, 64, 128, 512))):
        counts = np.histogram(sides.numpy(), edges)[0]
        assert counts.sum() == len(calls)
        assert counts.min() >= 0.05 * len(calls)


def test_audio_without_calls_stays_unchanged() -> None:
    audio = noise(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic_calls, "MEAN_CALLS_PER_CHUNK", 0)
        mixed = mix_calls(audio, rngs(0))
    assert np.abs(mixed.audio.numpy() - audio).max() <= 1  # rounding
    assert mixed.boxes[0].shape == (0, 4)


def test_digital_silence_gets_no_calls() -> None:
    mixed = mix_calls(np.zeros((4, SAMPLES), np.int16), rngs(0, 4))
    assert not mixed.audio.any()
    assert all(len(boxes) == 0 for boxes in mixed.boxes)


def test_the_same_seed_generates_the_same_calls_in_any_batch() -> None:
    audio = noise(1, 4)
    together = mix_calls(audio, rngs(7, 4))
    alone = [mix_calls(audio[[index]], [rngs(7, 4)[index]]) for index in range(4)]
    for index, single in enumerate(alone):
        assert torch.equal(single.audio[0], together.audio[index])
        assert torch.equal(single.boxes[0], together.boxes[index])
    assert sum(len(boxes) for boxes in together.boxes) > 0


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_the_level_of_a_call_above_the_background_lies_in_its_range(seed: int) -> None:
    background, rng = noise(seed)[0] / 32_768, np.random.default_rng(seed)
    call = generate_call(rng, RATE_HZ, BAND_HZ)
    placed = CALLS._place_call(call, background, rng)
    if placed is None:  # too little of the call lies in the chunk
        return
    wave, (start_s, low_hz, end_s, high_hz) = placed
    assert 0 <= start_s < end_s <= SECONDS
    span = slice(round(start_s * RATE_HZ), round(end_s * RATE_HZ))
    hz = RATE_HZ / len(wave[span])
    band = slice(int(low_hz / hz), int(high_hz / hz) + 1)
    powers = [(np.abs(np.fft.rfft(samples[span])) ** 2)[band].sum() for samples in (wave, background)]
    assert LEVEL_DB[0] - 0.1 <= 10 * np.log10(powers[0] / powers[1]) <= LEVEL_DB[1] + 0.1


def test_boxes_lie_in_the_chunk_and_a_loud_call_does_not_clip() -> None:
    loud = (noise(2, 8) * 60).clip(-32_768, 32_767).astype(np.int16)
    mixed = mix_calls(loud, rngs(5, 8))
    boxes = torch.cat(mixed.boxes)
    assert (boxes[:, 0] >= 0).all() and (boxes[:, 2] <= 512).all() and (boxes[:, 3] <= 128).all()
    assert (boxes[:, 2:] > boxes[:, :2]).all()
    assert mixed.audio.abs().max() < 32_767


def test_only_the_synthetic_examples_get_calls() -> None:
    batch = batch_of(noise(4, 6))
    is_synthetic = torch.tensor([False, True] * 3)
    mixed = CALLS.mix_into(batch, rngs(2, 6), is_synthetic)
    assert torch.equal(mixed.audio[~is_synthetic], batch.audio[~is_synthetic])
    assert not torch.equal(mixed.audio[is_synthetic], batch.audio[is_synthetic])
    assert all(len(boxes) == 0 for boxes, mixes in zip(mixed.boxes, is_synthetic, strict=True) if not mixes)


def test_padding_stays_silent() -> None:
    batch = batch_of(noise(6, 4))
    half = torch.full((4,), SAMPLES // 2)
    padded = replace(batch, audio=batch.audio * (torch.arange(SAMPLES) < SAMPLES // 2), valid_samples=half)
    mixed = CALLS.mix_into(padded, rngs(3, 4), torch.ones(4, dtype=torch.bool))
    assert not mixed.audio[:, SAMPLES // 2 :].any()
    assert torch.cat(mixed.boxes)[:, 2].max() <= 256
