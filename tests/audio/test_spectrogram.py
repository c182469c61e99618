"""The log-mel spectrogram equals Kaldi's, and the grid converts seconds and Hz to frames and bins and back."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mast.audio.spectrogram import LogMel, MelGrid, chunk_frames, pad_frames
from mast.config import Chunking, Spectrogram
from mast.errors import AudioError

GOLDEN = Path(__file__).parents[1] / "data" / "kaldi_fbank_golden.npz"
RECORDINGS = ["noise_10s24", "chirp_3s", "silence_0s5", "short_tone_dc", "one_frame_400", "padded_2s"]


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def centred(name: torch.Tensor) -> torch.Tensor:
    wave = name.float() / 32768
    return wave - wave.mean()


def paper_logmel() -> LogMel:
    return LogMel(Spectrogram(), Chunking().sample_rate_hz)


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_log_mel_equals_kaldis_everywhere(golden, name):
    spectrogram = paper_logmel()(centred(golden[f"{name}.wav_i16"])[None])[0]
    torch.testing.assert_close(spectrogram.T, golden[f"{name}.fbank"], rtol=0, atol=1e-4)


def test_the_filters_and_their_centres_equal_kaldis(golden):
    assert torch.equal(paper_logmel().bank.T, golden["mel_banks"])
    centres_hz = MelGrid(Spectrogram(), 1024).bins_to_hz(torch.arange(128))
    torch.testing.assert_close(centres_hz, golden["mel_center_hz"].double(), rtol=0, atol=0.01)


def test_a_batch_equals_its_waveforms_one_by_one(golden):
    wave = centred(golden["noise_10s24.wav_i16"])
    batch = torch.stack([wave, wave.flip(0), wave.roll(12345)])
    logmel = paper_logmel()
    one_by_one = torch.cat([logmel(item[None]) for item in batch])
    torch.testing.assert_close(logmel(batch), one_by_one, rtol=0, atol=1e-5)


def test_a_chunk_has_1022_complete_windows_and_is_padded_with_zeros_to_1024_frames():
    logmel = paper_logmel()
    assert logmel.num_frames(163_840) == 1022
    assert chunk_frames(10.24, Spectrogram()) == 1024
    padded = pad_frames(logmel(torch.randn(1, 163_840)), 1024)
    assert padded.shape == (1, 128, 1024)
    assert padded[..., 1022:].abs().max() == 0


def test_less_than_a_window_is_refused_with_the_minimum_length():
    with pytest.raises(AudioError, match="399 samples are too short.*400"):
        paper_logmel()(torch.zeros(1, 399))
    assert paper_logmel().num_frames(399) == 0


def test_a_band_above_the_nyquist_frequency_is_refused_with_both_solutions():
    with pytest.raises(AudioError, match="8000 Hz cannot represent sounds up to 8000 Hz.*16000 Hz.*4000"):
        LogMel(Spectrogram(), 8000)


def test_a_tone_is_brightest_at_its_own_bin_for_any_rate_and_band():
    for rate_hz, band in [(16_000, (20, 8000)), (48_000, (500, 20_000)), (250_000, (10_000, 120_000))]:
        settings = Spectrogram(low_hz=band[0], high_hz=band[1], n_mels=64)
        tone_hz = torch.tensor(sum(band) / 3)
        wave = torch.sin(2 * torch.pi * tone_hz * torch.arange(rate_hz // 4) / rate_hz)
        brightest = LogMel(settings, rate_hz)(wave[None])[0].mean(dim=1).argmax()
        assert abs(brightest - MelGrid(settings, 25).hz_to_bins(tone_hz)) <= 1


def test_no_events_give_no_boxes():
    grid = MelGrid(Spectrogram(), 1024)
    assert grid.events_to_boxes(torch.zeros(0, 4)).shape == (0, 4)
    assert grid.boxes_to_events(torch.zeros(0, 4)).shape == (0, 4)


def test_times_map_to_their_frame_and_frequencies_to_the_nearest_centre():
    grid = MelGrid(Spectrogram(), 1024)
    box = grid.events_to_boxes(torch.tensor([[0.29, 34.0, 1.0, 7833.0]], dtype=torch.float64))
    assert box.tolist() == [[29, 0, 100, 127]]


def test_an_event_smaller_than_a_frame_and_a_bin_keeps_one_of_each():
    grid = MelGrid(Spectrogram(), 1024)
    events = torch.tensor([[0.291, 1000, 0.292, 1000], [10.2399, 7999, 10.24, 8000]], dtype=torch.float64)
    boxes = grid.events_to_boxes(events)
    assert ((boxes[:, 2:] - boxes[:, :2]) == 1).all()
    assert boxes.max(dim=0).values.tolist() == [1023, 127, 1024, 128]


def test_events_outside_the_chunk_or_the_band_do_not_overlap_the_grid():
    grid = MelGrid(Spectrogram(), 1024)
    events = [
        [1, 1000, 2, 2000],
        [1, 8000, 2, 9000],
        [1, 7000, 2, 9000],
        [-2, 100, -1, 200],
        [10.24, 100, 11, 200],
    ]
    assert grid.overlaps(torch.tensor(events)).tolist() == [True, False, True, False, False]


GRIDS = [
    MelGrid(Spectrogram(), 1024),
    MelGrid(Spectrogram(low_hz=500, high_hz=20_000, n_mels=64, frame_shift_s=0.005), 2048),
    MelGrid(Spectrogram(low_hz=0, high_hz=120_000, n_mels=256, frame_shift_s=0.001), 300),
    MelGrid(Spectrogram(low_hz=10, high_hz=1000, n_mels=16, frame_shift_s=0.02), 64),
]
FRACTION = st.floats(0, 1)


@given(st.sampled_from(GRIDS), FRACTION, FRACTION, FRACTION, FRACTION)
def test_event_to_box_to_event_stays_within_one_frame_and_one_bin(grid, start, end, low, high):
    end_s = grid.frames * grid.settings.frame_shift_s
    band_hz = grid.settings.high_hz - grid.settings.low_hz
    times = [fraction * end_s for fraction in sorted((start, end))]
    freqs = [grid.settings.low_hz + fraction * band_hz for fraction in sorted((low, high))]
    event = torch.tensor([[times[0], freqs[0], times[1], freqs[1]]], dtype=torch.float64)
    box = grid.events_to_boxes(event)
    back = grid.boxes_to_events(box)
    assert (box[:, 2:] > box[:, :2]).all()
    assert ((back - event)[:, 0::2].abs() <= grid.settings.frame_shift_s * (1 + 1e-4)).all()
    bins = grid.hz_to_bins(event[:, 1::2]).clamp(min=0)  # below the first centre, bins map to it
    assert ((grid.hz_to_bins(back[:, 1::2]) - bins).abs() <= 1 + 1e-6).all()


@given(st.sampled_from(GRIDS), st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_bins_to_hz_to_bins_is_the_identity(grid, fractions):
    bins = torch.tensor(fractions, dtype=torch.float64) * (grid.settings.n_mels + 1) - 1
    torch.testing.assert_close(grid.hz_to_bins(grid.bins_to_hz(bins)), bins, rtol=0, atol=1e-8)


@given(st.sampled_from(GRIDS), st.lists(st.tuples(*[st.floats(0, 1)] * 4), max_size=5))
def test_exact_boxes_invert_boxes_to_events(grid, fractions):
    size = torch.tensor([grid.frames, grid.settings.n_mels] * 2, dtype=torch.float64)
    boxes = torch.tensor(fractions, dtype=torch.float64).reshape(-1, 4) * size
    torch.testing.assert_close(grid.to_exact_boxes(grid.boxes_to_events(boxes)), boxes, rtol=0, atol=1e-6)
