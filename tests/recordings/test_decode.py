"""Any span of any file, equal to the same span of the whole, in bounded memory."""

import struct
import tracemalloc

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mast.config import Chunking
from mast.errors import AudioError
from mast.recordings import decode
from mast.recordings.decode import open_audio, plan_chunks, read_chunks
from mast.recordings.metadata import Naming
from mast.recordings.probe import probe

RATE_HZ = 16_000


def noise(seconds: float, rate_hz: int, channels: int = 1, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((round(seconds * rate_hz), channels)) * 0.1).astype(np.float32)


def whole(path) -> np.ndarray:
    with open_audio(str(path), RATE_HZ) as audio:
        return audio.read_samples(0, audio.samples)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three seconds of noise at many rates, as (path, rate)."""
    folder = tmp_path_factory.mktemp("rates")
    made = []
    for rate_hz in (8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000, 250_000):
        path = folder / f"{rate_hz}.wav"
        soundfile.write(path, noise(3, rate_hz), rate_hz)
        made.append((path, rate_hz))
    return made


def test_an_empty_span_and_one_beyond_the_end_hold_nothing(files):
    with open_audio(str(files[0][0]), RATE_HZ) as audio:
        assert len(audio.read(1.0, 0.0)) == 0
        assert len(audio.read(99.0, 1.0)) == 0
        assert len(audio.read(2.5, 1.0)) == RATE_HZ // 2


def test_at_its_own_rate_a_file_comes_back_sample_for_sample(tmp_path):
    sound = noise(1, RATE_HZ)
    soundfile.write(tmp_path / "a.wav", sound, RATE_HZ, subtype="FLOAT")
    np.testing.assert_array_equal(whole(tmp_path / "a.wav"), sound[:, 0])


@pytest.mark.parametrize("rate_hz", [32_000, 44_100, 250_000])
def test_a_tone_keeps_its_frequency_and_amplitude(tmp_path, rate_hz):
    tone = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(rate_hz) / rate_hz)
    soundfile.write(tmp_path / "tone.wav", tone, rate_hz, subtype="FLOAT")
    heard = whole(tmp_path / "tone.wav")
    expected = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(RATE_HZ) / RATE_HZ)
    np.testing.assert_allclose(heard[500:-500], expected[500:-500], atol=2e-4)


def test_channels_are_averaged(tmp_path):
    sound = noise(0.5, RATE_HZ, channels=4)
    soundfile.write(tmp_path / "four.wav", sound, RATE_HZ, subtype="FLOAT")
    np.testing.assert_allclose(whole(tmp_path / "four.wav"), sound.mean(axis=1), atol=1e-7)


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
def test_any_span_equals_the_same_span_of_the_whole(files, data):
    path, _ = data.draw(st.sampled_from(files))
    everything = whole(path)
    first = data.draw(st.integers(0, len(everything)))
    stop = data.draw(st.integers(first, len(everything) + 100))
    with open_audio(str(path), RATE_HZ) as audio:
        span = audio.read_samples(first, stop)
    np.testing.assert_allclose(span, everything[first:stop], atol=2e-6)


def test_streamed_blocks_join_to_the_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(decode, "BLOCK_S", 0.7)
    soundfile.write(tmp_path / "a.flac", noise(3, 44_100), 44_100)
    with open_audio(str(tmp_path / "a.flac"), RATE_HZ) as audio:
        np.testing.assert_allclose(
            np.concatenate(list(audio.stream())), whole(tmp_path / "a.flac"), atol=2e-6
        )


@pytest.mark.parametrize("suffix", ["flac", "ogg", "mp3", "aiff", "w64", "caf", "au"])
def test_every_container_that_libsndfile_reads_can_be_cut_anywhere(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    soundfile.write(path, noise(2, 32_000), 32_000)
    everything = whole(path)
    with open_audio(str(path), RATE_HZ) as audio:
        np.testing.assert_allclose(audio.read(0.7, 0.5), everything[11_200:19_200], atol=1e-5)


def test_samples_that_are_no_number_are_read_as_silence(tmp_path):
    sound = noise(0.1, RATE_HZ)[:, 0]
    sound[[3, 5]] = np.nan, np.inf
    soundfile.write(tmp_path / "nan.wav", sound, RATE_HZ, subtype="FLOAT")
    heard = whole(tmp_path / "nan.wav")
    assert heard[3] == heard[5] == 0
    assert np.isfinite(heard).all()


@pytest.mark.parametrize("promise", [0, 100, 1 << 30], ids=["nothing", "too little", "too much"])
def test_a_header_that_lies_about_its_length_hides_no_sound(tmp_path, promise):
    path = tmp_path / "lying.wav"
    sound = noise(1, RATE_HZ)
    soundfile.write(path, sound, RATE_HZ, subtype="PCM_16")
    raw = bytearray(path.read_bytes())
    at = raw.index(b"data") + 4
    raw[at : at + 4] = struct.pack("<I", promise)
    path.write_bytes(raw)
    np.testing.assert_allclose(whole(path), sound[:, 0], atol=1e-4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no such file"),
        (b"", "not a sound file"),
        (b"Dear diary, today the owls were silent.", "not a sound file"),
        (b"RIFF\x10\0\0\0WAVE", "cannot be read"),
    ],
)
def test_a_file_that_is_no_sound_is_an_error_that_says_so(tmp_path, content, message):
    path = tmp_path / "x.wav"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AudioError, match=message), open_audio(str(path), RATE_HZ):
        pass


def test_a_damaged_middle_is_an_error_that_says_where(tmp_path):
    path = tmp_path / "broken.flac"
    soundfile.write(path, noise(20, RATE_HZ), RATE_HZ)
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(AudioError, match=r"at \d+\.\d s"), open_audio(str(path), RATE_HZ) as audio:
        audio.read_samples(0, audio.samples)


@pytest.mark.parametrize("rate_hz", [RATE_HZ, 22_050])
def test_a_recording_that_was_cut_short_ends_where_a_scan_could_read_it(tmp_path, rate_hz):
    path = tmp_path / "cut.flac"
    soundfile.write(path, noise(20, rate_hz), rate_hz)
    everything = whole(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])
    scanned = probe(str(tmp_path), "card", "cut.flac", Naming())
    with open_audio(str(path), RATE_HZ, frames=scanned.frames) as audio:
        heard = np.concatenate([*audio.stream()])
        assert audio.duration_s == pytest.approx(scanned.duration_s, abs=1e-3) and 11 < audio.duration_s < 13
    np.testing.assert_allclose(heard[:-1000], everything[: len(heard) - 1000], atol=1e-4)
    with open_audio(str(path), RATE_HZ, frames=1 << 40) as audio:  # never beyond what the file states
        assert audio.duration_s == pytest.approx(20)


def test_a_minute_makes_eleven_chunks_so_641_birdeep_minutes_make_the_papers_7051():
    assert len(list(plan_chunks(60 * RATE_HZ, Chunking()))) * 641 == 7051


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
def test_a_last_chunk_is_kept_when_half_of_it_is_sound(seconds, chunks):
    planned = list(plan_chunks(round(seconds * RATE_HZ), Chunking()))
    assert planned == [(round(first_s * RATE_HZ), round(filled_s * RATE_HZ)) for first_s, filled_s in chunks]


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seconds=st.floats(0, 9),
    hop_s=st.floats(0.1, 2.5),
    block_s=st.floats(0.3, 3),
)
def test_chunks_equal_a_naive_cut_of_the_whole(tmp_path, monkeypatch, seconds, hop_s, block_s):
    monkeypatch.setattr(decode, "BLOCK_S", block_s)
    path = tmp_path / "a.wav"
    soundfile.write(path, noise(seconds, RATE_HZ) + 0.05, RATE_HZ, subtype="FLOAT")
    everything, chunking = whole(path), Chunking(chunk_s=1.5, hop_s=hop_s)
    chunks = list(read_chunks(str(path), "a.wav", chunking))
    for number, (chunk, wave) in enumerate(chunks):
        first, filled = round(chunk.start_s * RATE_HZ), round(chunk.filled_s * RATE_HZ)
        sound = everything[first : first + filled]
        np.testing.assert_allclose(wave[:filled], sound - sound.mean(), atol=1e-6)
        assert len(wave) == 1.5 * RATE_HZ
        assert not wave[filled:].any()
        assert chunk.index == number
    assert len(chunks) == len(list(plan_chunks(len(everything), chunking)))


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
