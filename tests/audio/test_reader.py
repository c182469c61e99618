"""Reading any span of any file equals the same span of the complete recording, in bounded memory."""

import struct
import tracemalloc

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mast.audio import reader
from mast.audio.reader import chunk_offsets, open_audio, read_chunks
from mast.config import Chunking
from mast.errors import AudioError
from mast.recordings.metadata import NamingScheme
from mast.recordings.probe import probe

RATE_HZ = 16_000


def noise(seconds: float, rate_hz: int, channels: int = 1, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((round(seconds * rate_hz), channels)) * 0.1).astype(np.float32)


def read_all(path) -> np.ndarray:
    with open_audio(str(path), RATE_HZ) as audio:
        return audio.read_samples(0, audio.samples)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write three seconds of noise at many rates; return (path, rate) pairs."""
    folder = tmp_path_factory.mktemp("rates")
    paths = []
    for rate_hz in (8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000, 250_000):
        path = folder / f"{rate_hz}.wav"
        soundfile.write(path, noise(3, rate_hz), rate_hz)
        paths.append((path, rate_hz))
    return paths


def test_an_empty_span_and_one_beyond_the_end_are_empty(files):
    with open_audio(str(files[0][0]), RATE_HZ) as audio:
        assert len(audio.read(1.0, 0.0)) == 0
        assert len(audio.read(99.0, 1.0)) == 0
        assert len(audio.read(2.5, 1.0)) == RATE_HZ // 2


def test_at_its_own_rate_a_file_is_read_sample_for_sample(tmp_path):
    samples = noise(1, RATE_HZ)
    soundfile.write(tmp_path / "a.wav", samples, RATE_HZ, subtype="FLOAT")
    np.testing.assert_array_equal(read_all(tmp_path / "a.wav"), samples[:, 0])


@pytest.mark.parametrize("rate_hz", [32_000, 44_100, 250_000])
def test_a_tone_keeps_its_frequency_and_amplitude(tmp_path, rate_hz):
    tone = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(rate_hz) / rate_hz)
    soundfile.write(tmp_path / "tone.wav", tone, rate_hz, subtype="FLOAT")
    read = read_all(tmp_path / "tone.wav")
    expected = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(RATE_HZ) / RATE_HZ)
    np.testing.assert_allclose(read[500:-500], expected[500:-500], atol=2e-4)


def test_channels_are_averaged(tmp_path):
    samples = noise(0.5, RATE_HZ, channels=4)
    soundfile.write(tmp_path / "four.wav", samples, RATE_HZ, subtype="FLOAT")
    np.testing.assert_allclose(read_all(tmp_path / "four.wav"), samples.mean(axis=1), atol=1e-7)


def test_time_expansion_slows_a_bat_down_tenfold(tmp_path):
    rate_hz = 250_000
    tone = np.sin(2 * np.pi * 40_000 * np.arange(rate_hz // 2) / rate_hz)
    soundfile.write(tmp_path / "bat.wav", tone, rate_hz)
    with open_audio(str(tmp_path / "bat.wav"), RATE_HZ, time_expansion=10) as audio:
        assert audio.duration_s == pytest.approx(5.0)
        spectrum = np.abs(np.fft.rfft(audio.read(1.0, 1.0)))
    assert spectrum.argmax() == 4000


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_span_equals_the_same_span_of_the_complete_recording(files, data):
    path, _ = data.draw(st.sampled_from(files))
    complete = read_all(path)
    first = data.draw(st.integers(0, len(complete)))
    stop = data.draw(st.integers(first, len(complete) + 100))
    with open_audio(str(path), RATE_HZ) as audio:
        span = audio.read_samples(first, stop)
    np.testing.assert_allclose(span, complete[first:stop], atol=2e-6)


def test_streamed_blocks_join_to_the_complete_recording(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "BLOCK_S", 0.7)
    soundfile.write(tmp_path / "a.flac", noise(3, 44_100), 44_100)
    with open_audio(str(tmp_path / "a.flac"), RATE_HZ) as audio:
        np.testing.assert_allclose(
            np.concatenate(list(audio.stream())), read_all(tmp_path / "a.flac"), atol=2e-6
        )


@pytest.mark.parametrize("suffix", ["flac", "ogg", "mp3", "aiff", "w64", "caf", "au"])
def test_any_span_of_every_container_that_libsndfile_reads_can_be_read(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    soundfile.write(path, noise(2, 32_000), 32_000)
    complete = read_all(path)
    with open_audio(str(path), RATE_HZ) as audio:
        np.testing.assert_allclose(audio.read(0.7, 0.5), complete[11_200:19_200], atol=1e-5)


def test_samples_that_are_not_finite_are_read_as_zero(tmp_path):
    samples = noise(0.1, RATE_HZ)[:, 0]
    samples[[3, 5]] = np.nan, np.inf
    soundfile.write(tmp_path / "nan.wav", samples, RATE_HZ, subtype="FLOAT")
    read = read_all(tmp_path / "nan.wav")
    assert read[3] == read[5] == 0
    assert np.isfinite(read).all()


@pytest.mark.parametrize("stated_bytes", [0, 100, 1 << 30], ids=["nothing", "too short", "too long"])
def test_a_wrong_length_in_the_header_hides_no_audio(tmp_path, stated_bytes):
    path = tmp_path / "wrong-length.wav"
    samples = noise(1, RATE_HZ)
    soundfile.write(path, samples, RATE_HZ, subtype="PCM_16")
    raw = bytearray(path.read_bytes())
    at = raw.index(b"data") + 4
    raw[at : at + 4] = struct.pack("<I", stated_bytes)
    path.write_bytes(raw)
    np.testing.assert_allclose(read_all(path), samples[:, 0], atol=1e-4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no such file"),
        (b"", "not a readable audio file"),
        (b"Dear diary, today the owls were silent.", "not a readable audio file"),
        (b"RIFF\x10\0\0\0WAVE", "cannot be read"),
    ],
)
def test_a_file_that_is_not_audio_raises_an_error(tmp_path, content, message):
    path = tmp_path / "x.wav"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AudioError, match=message), open_audio(str(path), RATE_HZ):
        pass


def test_damage_in_the_middle_raises_an_error_with_its_position(tmp_path):
    path = tmp_path / "damaged.flac"
    soundfile.write(path, noise(20, RATE_HZ), RATE_HZ)
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(AudioError, match=r"at \d+\.\d s"), open_audio(str(path), RATE_HZ) as audio:
        audio.read_samples(0, audio.samples)


@pytest.mark.parametrize("rate_hz", [RATE_HZ, 22_050])
def test_a_truncated_recording_ends_at_the_frames_that_the_scan_could_read(tmp_path, rate_hz):
    path = tmp_path / "truncated.flac"
    soundfile.write(path, noise(20, rate_hz), rate_hz)
    complete = read_all(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])
    scanned = probe(str(tmp_path), "card", "truncated.flac", NamingScheme())
    with open_audio(str(path), RATE_HZ, frames=scanned.frames) as audio:
        read = np.concatenate([*audio.stream()])
        assert audio.duration_s == pytest.approx(scanned.duration_s, abs=1e-3) and 11 < audio.duration_s < 13
    np.testing.assert_allclose(read[:-1000], complete[: len(read) - 1000], atol=1e-4)
    with open_audio(
        str(path), RATE_HZ, frames=1 << 40
    ) as audio:  # never beyond the length that the file states
        assert audio.duration_s == pytest.approx(20)


def test_a_minute_gives_eleven_chunks_so_641_birdeep_minutes_give_the_papers_7051():
    assert len(list(chunk_offsets(60 * RATE_HZ, Chunking()))) * 641 == 7051


@pytest.mark.parametrize(
    ("seconds", "chunks"),
    [
        (0.0, []),
        (5.11, []),
        (5.12, [(0.0, 5.12)]),
        (10.24, [(0.0, 10.24), (5.12, 5.12)]),
        (12.0, [(0.0, 10.24), (5.12, 6.88)]),
    ],
)
def test_a_last_chunk_is_kept_if_half_of_it_is_audio(seconds, chunks):
    planned = list(chunk_offsets(round(seconds * RATE_HZ), Chunking()))
    assert planned == [(round(first_s * RATE_HZ), round(audio_s * RATE_HZ)) for first_s, audio_s in chunks]


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seconds=st.floats(0, 9),
    hop_s=st.floats(0.1, 2.5),
    block_s=st.floats(0.3, 3),
)
def test_chunks_equal_naive_slices_of_the_complete_recording(tmp_path, monkeypatch, seconds, hop_s, block_s):
    monkeypatch.setattr(reader, "BLOCK_S", block_s)
    path = tmp_path / "a.wav"
    soundfile.write(path, noise(seconds, RATE_HZ) + 0.05, RATE_HZ, subtype="FLOAT")
    complete, chunking = read_all(path), Chunking(chunk_s=1.5, hop_s=hop_s)
    chunks = list(read_chunks(str(path), "a.wav", chunking))
    for number, (chunk, wave) in enumerate(chunks):
        first, valid_samples = round(chunk.start_s * RATE_HZ), round(chunk.audio_s * RATE_HZ)
        valid = complete[first : first + valid_samples]
        np.testing.assert_allclose(wave[:valid_samples], valid - valid.mean(), atol=1e-6)
        assert len(wave) == 1.5 * RATE_HZ
        assert not wave[valid_samples:].any()
        assert chunk.index == number
    assert len(chunks) == len(list(chunk_offsets(len(complete), chunking)))


def test_memory_does_not_grow_with_the_recording(tmp_path):
    def peak_bytes(minutes: int) -> int:
        path = tmp_path / f"{minutes}.wav"
        soundfile.write(path, np.zeros(minutes * 60 * 48_000, np.int16), 48_000)
        tracemalloc.start()
        for _ in read_chunks(str(path), "long", Chunking()):
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak_bytes(9) < 1.1 * peak_bytes(3)
