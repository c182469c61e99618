"""Detection from an audio file to events, with a small network and with an exact detector of loud tones."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch

import mast
from mast.audio import reader
from mast.audio.spectrogram import MelGrid
from mast.config import Detection
from mast.detection import chunk_detector
from mast.detection.chunk_detector import ModelChunkDetector
from mast.detection.detect import detect_recording
from mast.errors import AudioError, ConfigError, ModelError
from mast.models.frontend import FrontEnd
from mast.models.loading import load_detector
from mast.models.postprocess import ChunkDetections
from tests.runs import archives

RATE_HZ = 16_000
DESCRIPTION = replace(archives.DESCRIPTION, thresholds={})
TONES_HZ = (700.0, 2000.0, 5000.0)
LOUD = -4.0
"""Log-mel level between the level of a tone and that of its side lobes."""


class ToneDetector:
    """Detector that boxes each loud tone in the chunk; the score rises with its duration."""

    def __init__(self, description=DESCRIPTION, batch=4):
        self.description, self.settings, self.batch = description, Detection(), batch
        self.frontend = FrontEnd(description.chunking, description.spectrogram, description.normalisation)
        self.frames = self.frontend.frames
        self.chunks_processed = 0
        grid = MelGrid(description.spectrogram, self.frames)
        self.bins = [round(float(grid.hz_to_bins(torch.tensor(hz)))) for hz in TONES_HZ]

    def __call__(self, audio, valid_samples):
        self.chunks_processed += len(audio)
        levels = self.frontend.log_mel(torch.from_numpy(audio), torch.from_numpy(valid_samples))  # (B, F, T)
        padding = self.frames - self.frontend.logmel.num_frames(audio.shape[1])
        levels[..., -padding:] = levels[..., [-padding - 1]]  # repeat the last audio frame in the padding
        return [self.boxes(spec.numpy() > LOUD) for spec in levels]

    def boxes(self, loud):
        rows = []
        for middle in self.bins:
            steps = np.diff(np.concatenate([[0], loud[middle].astype(int), [0]]))
            for start, end in zip(np.flatnonzero(steps == 1), np.flatnonzero(steps == -1), strict=True):
                rows.append((start, middle - 2, end, middle + 2, min(1.0, (end - start) / 50)))
        values = torch.tensor(rows, dtype=torch.float32).reshape(-1, 5)
        return ChunkDetections(values[:, :4], values[:, 4])


def tones(duration_s, calls, rate_hz=RATE_HZ):
    """Synthesise silence with calls of (start_s, end_s, tone in TONES_HZ), soft at their ends."""
    wave = np.zeros(round(duration_s * rate_hz))
    for start_s, end_s, tone in calls:
        times = np.arange(round(start_s * rate_hz), round(end_s * rate_hz)) / rate_hz
        ramp = np.clip(np.minimum(times - start_s, end_s - times) / 0.01, 0, 1)
        wave[round(start_s * rate_hz) :][: len(times)] += (
            0.2 * ramp * np.sin(2 * np.pi * TONES_HZ[tone] * times)
        )
    return wave


CALLS = [
    (0.30, 0.55, 0), (1.10, 1.50, 1), (1.20, 1.35, 2), (2.00, 5.00, 0), (2.40, 2.70, 2), (3.30, 3.95, 1),
    (4.40, 4.46, 2), (5.30, 6.60, 1), (5.50, 5.80, 0),
]  # fmt: skip


def write_wave(folder, wave, name="a.wav", rate_hz=RATE_HZ):
    path = folder / name
    soundfile.write(path, (wave * 32767).astype(np.int16), rate_hz)
    return str(path)


def noise(seconds=6.0, seed=0):
    """Synthesise noise of varying level, in which a random network predicts boxes."""
    rng = np.random.default_rng(seed)
    swell = np.interp(np.arange(round(seconds * RATE_HZ)), np.arange(0, 96_001, 3200), rng.random(31) ** 3)
    return 0.2 * swell * rng.standard_normal(len(swell))


def rows(events):
    return np.array([(e.start_s, e.low_hz, e.end_s, e.high_hz, e.score) for e in events]).reshape(-1, 5)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return archives.save_detector(tmp_path_factory.mktemp("model"))


@pytest.fixture
def in_float32(monkeypatch):
    """Use float32, in which the batch size does not change the results."""
    monkeypatch.setattr(chunk_detector, "best_engine", lambda kind: "float32")


def make_detector(model, **settings):
    return ModelChunkDetector(load_detector(model), Detection(**settings), "cpu")


def test_a_recording_without_audio_has_no_events(tmp_path, model):
    empty, blip = write_wave(tmp_path, np.zeros(0)), write_wave(tmp_path, np.full(100, 0.1), "blip.wav")
    assert list(detect_recording(empty, make_detector(model))) == []
    assert list(detect_recording(write_wave(tmp_path, np.zeros(50_000), "b.wav"), ToneDetector())) == []
    ends_s = [
        event.end_s for event in detect_recording(blip, make_detector(model, score_threshold=0), min_score=0)
    ]
    assert ends_s and max(ends_s) <= 100 / RATE_HZ


def test_calls_of_a_recording_shorter_than_a_chunk_are_detected_at_their_position(tmp_path):
    path = write_wave(tmp_path, tones(0.9, [(0.2, 0.5, 1), (0.6, 0.8, 0)]))
    first, second = detect_recording(path, ToneDetector())
    assert (first.start_s, first.end_s) == pytest.approx((0.2, 0.5), abs=0.03)
    assert first.low_hz < TONES_HZ[1] < first.high_hz and second.low_hz < TONES_HZ[0] < second.high_hz
    assert (first.recording_id, first.origin, first.label, first.score) == (
        path,
        "model",
        None,
        pytest.approx(0.56, abs=0.1),
    )
    assert (
        next(detect_recording(path, ToneDetector(), recording_id="card/a.wav")).recording_id == "card/a.wav"
    )


@pytest.mark.parametrize("hop_fraction", [1.0, 0.9, 0.5, 0.23])
def test_every_call_is_detected_once_for_any_position_of_the_chunk_boundaries(tmp_path, hop_fraction):
    expected = sorted((start_s, end_s, TONES_HZ[tone]) for start_s, end_s, tone in CALLS)
    for shift_s in (0.0, 0.137, 0.4, 0.911, 1.23):
        calls = [(start_s + shift_s, end_s + shift_s, tone) for start_s, end_s, tone in CALLS]
        path = write_wave(tmp_path, tones(7.0 + shift_s, calls))
        events = list(detect_recording(path, ToneDetector(), min_score=0, hop_s=1.28 * hop_fraction))
        assert len(events) == len(CALLS)
        for event, (start_s, end_s, tone_hz) in zip(events, expected, strict=True):
            assert event.start_s - shift_s == pytest.approx(start_s, abs=0.03)
            assert event.end_s - shift_s == pytest.approx(end_s, abs=0.03)
            assert event.low_hz < tone_hz < event.high_hz


def test_events_with_time_expansion_are_in_the_recordings_own_time_and_frequency(tmp_path):
    wave = tones(3.0, [(1.0, 1.5, 1)])
    path = write_wave(tmp_path, wave, rate_hz=10 * RATE_HZ)
    (event,) = detect_recording(path, ToneDetector(), time_expansion=10)
    assert (event.start_s, event.end_s) == pytest.approx((0.1, 0.15), abs=0.003)
    assert event.low_hz < 20_000 < event.high_hz


def test_the_minimum_score_applies_after_faint_parts_have_been_joined(tmp_path):
    path = write_wave(tmp_path, tones(4.0, [(1.08, 1.70, 1)]))  # a third of it is in the first chunk
    (event,) = detect_recording(path, ToneDetector(), min_score=0.8, hop_s=1.28)
    assert (event.start_s, event.end_s) == pytest.approx((1.08, 1.70), abs=0.03)
    assert list(detect_recording(path, ToneDetector(), min_score=1.0, hop_s=1.28)) == []


def test_the_models_own_threshold_comes_before_that_of_the_settings(tmp_path, model):
    path = write_wave(tmp_path, tones(1.0, [(0.1, 0.2, 0), (0.4, 0.8, 1)]))
    scores = [event.score for event in detect_recording(path, ToneDetector())]
    assert len(scores) == 2 and min(scores) < 0.3
    with_threshold = ToneDetector(replace(DESCRIPTION, thresholds={"score": 0.3}))
    assert len(list(detect_recording(path, with_threshold))) == 1
    assert len(list(detect_recording(path, with_threshold, min_score=0.1))) == 2


def test_events_are_yielded_while_the_recording_is_being_read(tmp_path):
    path = write_wave(tmp_path, tones(200.0, [(1.0, 1.5, 1)]))
    detector = ToneDetector()
    next(detect_recording(path, detector))
    assert detector.chunks_processed == detector.batch
    assert len(list(detect_recording(path, detector))) == 1


@pytest.mark.usefixtures("in_float32")
def test_the_size_of_a_batch_and_the_format_of_a_file_change_no_event(tmp_path, model):
    path, copy = (write_wave(tmp_path, noise(), name) for name in ("a.wav", "a.flac"))
    detector = make_detector(model, max_detections=20)
    one, two, five = (
        rows(detect_recording(path, detector, min_score=0.1, batch=batch)) for batch in (1, 2, 5)
    )
    assert len(one) > 20 and one[:, 4].std() > 0.01
    np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(five, one, rtol=1e-4, atol=1e-3)
    again = rows(detect_recording(copy, detector, min_score=0.1, batch=5))
    np.testing.assert_array_equal(again, five)


@pytest.mark.parametrize("batch", [1, 64])
def test_events_before_a_broken_part_are_yielded_for_any_batch_size(tmp_path, monkeypatch, batch):
    path = write_wave(tmp_path, tones(20.0, [(float(second), second + 0.4, 1) for second in range(1, 19)]))
    read_native = reader.Audio._native

    def broken(self, first, stop):
        if stop > 15 * RATE_HZ:
            raise OSError("lost sync")
        return read_native(self, first, stop)

    monkeypatch.setattr(reader.Audio, "_native", broken)
    monkeypatch.setattr(reader, "BLOCK_S", 1.0)
    starts_s = []
    with pytest.raises(AudioError, match="lost sync"):
        starts_s.extend(event.start_s for event in detect_recording(path, ToneDetector(), batch=batch))
    assert starts_s == pytest.approx(np.arange(1, 14), abs=0.03)


def test_no_box_extends_above_the_nyquist_frequency_of_the_recording(tmp_path):
    path = write_wave(tmp_path, tones(1.0, [(0.2, 0.8, 1)], rate_hz=4096), rate_hz=4096)
    (event,) = detect_recording(path, ToneDetector())
    (higher,) = detect_recording(write_wave(tmp_path, tones(1.0, [(0.2, 0.8, 1)])), ToneDetector())
    assert (event.low_hz, event.high_hz) == (pytest.approx(higher.low_hz), 2048.0) and higher.high_hz > 2048


def test_boxes_end_where_the_audio_ends(model):
    audio = np.zeros((2, 20_480), np.int16)
    audio[:, :8000] = (noise() * 32767).astype(np.int16)[:8000]
    short, complete = make_detector(model, score_threshold=0)(audio, np.array([8000, 20_480]))
    assert len(short.boxes) and short.boxes[:, 2].max() <= 50 < complete.boxes[:, 2].max()
    assert (short.boxes[:, 2] > short.boxes[:, 0]).all()
    assert (short.scores[:-1] >= short.scores[1:]).all()


def test_detect_returns_the_events_above_the_models_threshold_in_order(tmp_path, model):
    path = write_wave(tmp_path, noise())
    events = mast.detect(tmp_path / "a.wav", model, device="cpu")
    assert events == list(detect_recording(path, make_detector(model, nms_iou_threshold=0.2)))
    assert events and min(event.score for event in events) >= 0.3
    assert [(e.start_s, e.low_hz) for e in events] == sorted((e.start_s, e.low_hz) for e in events)
    assert all(0 <= event.start_s < event.end_s <= 6.0 for event in events)
    fainter = mast.detect(path, model, min_score=0.01, device="cpu")
    assert len(fainter) > len(events) and min(event.score for event in fainter) < 0.05


def test_invalid_arguments_are_refused_with_the_remedy(tmp_path, model):
    path = write_wave(tmp_path, tones(1.0, []))
    for hop_s in (0.0, 1.3):
        with pytest.raises(ConfigError, match=r"hop_s is .*above 0 and at most one chunk, 1\.28 s"):
            next(detect_recording(path, ToneDetector(), hop_s=hop_s))
    with pytest.raises(ConfigError, match="min_score is 30; it must be from 0 to 1"):
        mast.detect(path, model, min_score=30, device="cpu")
    with pytest.raises(AudioError, match="there is no such file"):
        mast.detect(tmp_path / "nowhere.wav", model, device="cpu")
    with pytest.raises(ModelError, match="--device tpu"):
        mast.detect(path, model, device="tpu")


def test_importing_the_package_does_not_import_torch():
    program = (
        "import sys, mast; assert 'torch' not in sys.modules; print(mast.__version__, *dir(mast.detect)[:0])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == mast.__version__
    with pytest.raises(AttributeError, match="module 'mast' has no attribute 'detekt'"):
        mast.detekt  # noqa: B018


def test_a_chunk_detector_does_not_change_the_loaded_detector(model):
    loaded = load_detector(model)
    before = {name: value.clone() for name, value in loaded.network.state_dict().items()}
    assert ModelChunkDetector(loaded, Detection(), "cpu").frames == 128
    assert all(torch.equal(value, before[name]) for name, value in loaded.network.state_dict().items())
