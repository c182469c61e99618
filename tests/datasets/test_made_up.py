"""Made-up calls: each is where its box says, as loud above the background as it should be, the same for the same seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.config import Spectrogram
from mast.datasets import made_up
from mast.datasets.loading import Batch
from mast.datasets.made_up import ENERGY, LEVEL_DB, MAX_CALL_S, MadeUpCalls, _Voice, made_up_call

RATE_HZ, SECONDS, BAND_HZ = 16_000, 5.12, (150.0, 7600.0)
SAMPLES = round(SECONDS * RATE_HZ)
CALLS = MadeUpCalls(Spectrogram(), RATE_HZ, frames=512)


def batch_of(sound: np.ndarray) -> Batch:
    count = len(sound)
    boxes = (torch.zeros(0, 4),) * count
    whole = torch.full((count,), SAMPLES)
    return Batch(0, torch.arange(count), torch.from_numpy(sound), whole, boxes, torch.ones(count))


def mixed_with(sound: np.ndarray, random: list[np.random.Generator]) -> Batch:
    return CALLS.over(batch_of(sound), random, torch.ones(len(sound), dtype=torch.bool))


def noise(seed: int, count: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 300, (count, SAMPLES)).astype(np.int16)


def rngs(seed: int, count: int = 1) -> list[np.random.Generator]:
    return [np.random.default_rng((seed, item)) for item in range(count)]


def share_within(energy: np.ndarray, first: float, last: float) -> float:
    return float(energy[round(first) : round(last)].sum() / energy.sum())


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_a_call_has_all_but_its_edges_and_its_echo_in_its_box(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made_up, "_echoing", lambda dry, rng, rate: dry)
        call = made_up_call(np.random.default_rng(seed), RATE_HZ, BAND_HZ)
    assert 0 <= call.start_s < call.end_s <= 1.1 * MAX_CALL_S
    assert 0 < call.low_hz < call.high_hz <= RATE_HZ / 2
    in_time = share_within(call.wave**2, call.start_s * RATE_HZ, call.end_s * RATE_HZ)
    hz = RATE_HZ / len(call.wave)
    in_band = share_within(np.abs(np.fft.rfft(call.wave)) ** 2, call.low_hz / hz, call.high_hz / hz)
    assert in_time >= 1 - 2 * ENERGY - 1e-9
    assert in_band >= 1 - 2 * ENERGY - 1e-9


BANDS_HZ = [(3000.0, 8000.0), (1500.0, 8000.0), (20.0, 200.0), (10.0, 100.0), (0.0, 50.0), (7900.0, 8000.0)]


@pytest.mark.parametrize(("low_hz", "high_hz"), BANDS_HZ)
def test_calls_are_laid_over_sound_of_any_band(low_hz: float, high_hz: float) -> None:
    calls = MadeUpCalls(Spectrogram(low_hz=low_hz, high_hz=high_hz), RATE_HZ, frames=512)
    mixed = calls.over(batch_of(noise(0, 4)), rngs(0, 4), torch.ones(4, dtype=torch.bool))
    boxes = torch.cat(mixed.boxes)
    assert len(boxes) and (boxes[:, 2:] > boxes[:, :2]).all()
    assert (boxes >= 0).all() and (boxes[:, 3] <= 128).all()


@settings(max_examples=100, deadline=None)
@given(st.floats(0, 7999), st.floats(0.001, 1), st.integers(0, 10_000))
def test_every_voice_sings_within_the_band_of_its_spectrogram(low_hz: float, width: float, seed: int) -> None:
    shown = Spectrogram(low_hz=low_hz, high_hz=low_hz + width * (8000 - low_hz))
    low_hz, high_hz = MadeUpCalls(shown, RATE_HZ, frames=512).band_hz
    assert shown.low_hz <= low_hz < high_hz < shown.high_hz
    voice = _Voice.drawn(np.random.default_rng(seed), (low_hz, high_hz))
    assert low_hz < voice.pitch_hz <= high_hz * (1 + 1e-9)


def test_in_the_papers_band_voices_are_what_they_were_before_there_were_others() -> None:
    assert CALLS.band_hz == BAND_HZ
    pitches_hz = [_Voice.drawn(np.random.default_rng(seed), BAND_HZ).pitch_hz for seed in range(4)]
    assert pitches_hz == pytest.approx([310.7672780238, 2270.452393911, 4169.113205394, 3998.196013606])


def test_an_echo_makes_a_call_longer_but_not_its_box() -> None:
    call = made_up_call(np.random.default_rng(3), RATE_HZ, BAND_HZ)
    assert len(call.wave) / RATE_HZ > call.end_s


def test_there_are_calls_of_every_width_and_length() -> None:
    calls = [made_up_call(rng, RATE_HZ, BAND_HZ) for rng in rngs(0, 200)]
    events = [(call.start_s, call.low_hz, call.end_s, call.high_hz) for call in calls]
    start, low, end, high = CALLS.grid.to_exact_boxes(torch.tensor(events, dtype=torch.float64)).T
    for sides, edges in ((high - low, (0, 3, 6, 12, 24, 128)), (end - start, (0, 16, 32, 64, 128, 512))):
        counts = np.histogram(sides.numpy(), edges)[0]
        assert counts.sum() == len(calls)
        assert counts.min() >= 0.05 * len(calls)


def test_where_nothing_is_laid_over_it_sound_stays_as_it_was() -> None:
    sound = noise(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made_up, "MEAN_CALLS", 0)
        mixed = mixed_with(sound, rngs(0))
    assert np.abs(mixed.sound.numpy() - sound).max() <= 1  # rounding
    assert mixed.boxes[0].shape == (0, 4)


def test_digital_silence_has_no_level_to_stand_above_and_stays_silent() -> None:
    mixed = mixed_with(np.zeros((4, SAMPLES), np.int16), rngs(0, 4))
    assert not mixed.sound.any()
    assert all(len(own) == 0 for own in mixed.boxes)


def test_the_same_randomness_makes_the_same_calls_in_any_company() -> None:
    sound = noise(1, 4)
    together = mixed_with(sound, rngs(7, 4))
    alone = [mixed_with(sound[[item]], [rngs(7, 4)[item]]) for item in range(4)]
    for item, own in enumerate(alone):
        assert torch.equal(own.sound[0], together.sound[item])
        assert torch.equal(own.boxes[0], together.boxes[item])
    assert sum(len(own) for own in together.boxes) > 0


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_a_call_stands_as_far_above_its_background_as_it_should(seed: int) -> None:
    background, rng = noise(seed)[0] / 32_768, np.random.default_rng(seed)
    call = made_up_call(rng, RATE_HZ, BAND_HZ)
    laid = CALLS._laid(call, background, rng)
    if laid is None:  # it began too late to be seen
        return
    wave, (start_s, low_hz, end_s, high_hz) = laid
    assert 0 <= start_s < end_s <= SECONDS
    span = slice(round(start_s * RATE_HZ), round(end_s * RATE_HZ))
    hz = RATE_HZ / len(wave[span])
    band = slice(int(low_hz / hz), int(high_hz / hz) + 1)
    powers = [(np.abs(np.fft.rfft(item[span])) ** 2)[band].sum() for item in (wave, background)]
    assert LEVEL_DB[0] - 0.1 <= 10 * np.log10(powers[0] / powers[1]) <= LEVEL_DB[1] + 0.1


def test_boxes_lie_in_the_chunk_and_a_loud_call_does_not_clip() -> None:
    loud = (noise(2, 8) * 60).clip(-32_768, 32_767).astype(np.int16)
    mixed = mixed_with(loud, rngs(5, 8))
    boxes = torch.cat(mixed.boxes)
    assert (boxes[:, 0] >= 0).all() and (boxes[:, 2] <= 512).all() and (boxes[:, 3] <= 128).all()
    assert (boxes[:, 2:] > boxes[:, :2]).all()
    assert mixed.sound.abs().max() < 32_767


def test_only_the_examples_that_are_meant_get_calls() -> None:
    sound = noise(4, 6)
    given = batch_of(sound)
    which = torch.tensor([False, True] * 3)
    mixed = CALLS.over(given, rngs(2, 6), which)
    assert torch.equal(mixed.sound[~which], given.sound[~which])
    assert not torch.equal(mixed.sound[which], given.sound[which])
    assert all(len(own) == 0 for own, is_meant in zip(mixed.boxes, which, strict=True) if not is_meant)


def test_padding_stays_silent() -> None:
    given = batch_of(noise(6, 4))
    half = torch.full((4,), SAMPLES // 2)
    cut = replace(given, sound=given.sound * (torch.arange(SAMPLES) < SAMPLES // 2), filled=half)
    mixed = CALLS.over(cut, rngs(3, 4), torch.ones(4, dtype=torch.bool))
    assert not mixed.sound[:, SAMPLES // 2 :].any()
    assert torch.cat(mixed.boxes)[:, 2].max() <= 256
