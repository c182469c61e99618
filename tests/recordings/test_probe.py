from __future__ import annotations

import marshal
import os
import struct
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from mast.recordings import probe as probe_module
from mast.recordings.discover_files import FoundFile
from mast.recordings.faults import FAULTS, worst_status
from mast.recordings.levels import BLOCK_BYTES, block_starts, levels_of_bytes
from mast.recordings.metadata import NamingScheme
from mast.recordings.probe import CollectionContext, probe, probe_row
from mast.records import Recording
from tests.recordings.builders import RATE_HZ, form, info, noise, wav

NAME = "20230510_073000.WAV"
COMMENT = info("Recorded at 07:30:00 10/05/2023 (UTC) by AudioMoth 24E144036037EA46 at medium gain.")


def probed(folder: Path, content: bytes, name: str = NAME) -> Recording:
    (folder / name).write_bytes(content)
    return probe(str(folder), "card", name, NamingScheme())


def test_a_good_recording_gives_all_values(tmp_path: Path) -> None:
    recording = probed(tmp_path, wav(noise(), before=COMMENT))
    modified = datetime.fromtimestamp((tmp_path / NAME).stat().st_mtime, UTC)
    assert (recording.recording_id, recording.status, recording.faults) == (f"card/{NAME}", "ok", ())
    assert recording.modified_utc is not None
    assert abs((recording.modified_utc - modified).total_seconds()) < 0.001
    assert (recording.container, recording.encoding, recording.sample_rate_hz) == ("WAV", "PCM_16", RATE_HZ)
    assert (recording.channels, recording.frames, recording.duration_s) == (1, RATE_HZ, 1.0)
    assert recording.start_utc == datetime(2023, 5, 10, 7, 30, tzinfo=UTC)
    assert recording.peak is not None
    assert 0 < recording.peak < 1
    assert recording.clipped_fraction == 0
    assert recording.comment is not None


LOUD = (np.clip(np.random.default_rng(0).normal(0, 3e4, RATE_HZ), -32768, 32767)).astype("<i2").tobytes()
NAN = np.where(np.arange(RATE_HZ) % 9, np.float32(0.1), np.float32(np.nan)).astype("<f4").tobytes()


@pytest.mark.parametrize(
    ("fault", "content"),
    [
        ("empty-file", b""),
        ("not-audio", b"Dear diary, " * 50),
        ("damaged-header", wav(noise())[:20]),
        ("damaged-header", bytes(5000)),
        ("no-sound", wav(b"", before=COMMENT)),
        ("truncated", wav(noise(), before=COMMENT)[:20_000]),
        ("wrong-length", wav(noise(), before=COMMENT, stated_bytes=0, riff_bytes=0)),
        ("wrong-length", wav(noise(), before=COMMENT, stated_bytes=1000)),
        ("nan-samples", wav(NAN, before=COMMENT, layout=form(tag=3, bits=32))),
        ("silent", wav(bytes(32_000), before=COMMENT)),
        ("silent", wav(b"\5\0" * 16_000, before=COMMENT)),
        ("silent", wav(b"\5\0\7\0" * 16_000, before=COMMENT, layout=form(channels=2))),
        ("clipped", wav(LOUD, before=COMMENT)),
    ],
)
def test_each_fault_of_content_is_reported_alone(tmp_path: Path, fault: str, content: bytes) -> None:
    recording = probed(tmp_path, content)
    assert recording.faults == (fault,)
    assert recording.status == FAULTS[fault].status
    assert recording.size_bytes == len(content)


def test_a_row_has_plain_values_that_survive_marshalling(tmp_path: Path) -> None:
    contents = [wav(LOUD, before=COMMENT), wav(noise()), wav(NAN, layout=form(tag=3, bits=32)), b"text", b""]
    for number, content in enumerate(contents):
        (tmp_path / f"20240511_07300{number}.WAV").write_bytes(content)
        context = CollectionContext("c", str(tmp_path), NamingScheme(), datetime.now(UTC))
        row = probe_row(context, FoundFile(f"20240511_07300{number}.WAV"))
        assert marshal.loads(marshal.dumps(row)) == row


def test_a_suspect_file_keeps_all_its_audio(tmp_path: Path) -> None:
    recording = probed(tmp_path, wav(noise(), before=COMMENT, stated_bytes=0, riff_bytes=0))
    assert recording.frames == RATE_HZ
    assert recording.detail == "the header states 0 bytes of audio, the file contains 32000"


def test_a_file_over_4_gb_is_measured_to_its_end(tmp_path: Path) -> None:
    data_bytes = (1 << 32) + 64_000
    head = wav(b"", before=COMMENT, stated_bytes=64_000)
    (tmp_path / NAME).write_bytes(head + noise())
    os.truncate(tmp_path / NAME, len(head) + data_bytes)
    recording = probe(str(tmp_path), "card", NAME, NamingScheme())
    assert "over-4-gb" in recording.faults
    assert recording.frames == data_bytes // 2


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")]
)
def test_a_file_that_cannot_be_opened_is_quarantined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def refuse(*_: object) -> int:
        raise error

    (tmp_path / NAME).write_bytes(wav(noise()))
    monkeypatch.setattr(os, "open", refuse)
    recording = probe(str(tmp_path), "card", NAME, NamingScheme())
    assert recording.faults == (("no-permission",) if error.errno == 13 else ("unreadable",))
    assert recording.status == "quarantined"


def test_a_disk_that_fails_while_reading_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(probe_module._LocalFile, "read_at", fail)
    recording = probed(tmp_path, wav(noise()))
    assert (recording.faults, recording.detail) == (("unreadable",), "Input/output error")
    assert recording.size_bytes == 32_044


def test_even_a_bug_costs_one_row_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(*_: object) -> None:
        raise ZeroDivisionError("odd \udce9")

    monkeypatch.setattr(probe_module, "read_metadata", defect)
    assert probed(tmp_path, wav(noise())).detail == "ZeroDivisionError: odd \\udce9"


def test_a_missing_file_is_unreadable(tmp_path: Path) -> None:
    assert probe(str(tmp_path), "card", "gone.wav", NamingScheme()).faults == ("unreadable",)


@pytest.mark.parametrize(
    ("name", "container"),
    [("a.flac", "FLAC"), ("a.ogg", "OGG"), ("a.mp3", "MP3"), ("a.aif", "AIFF"), ("a.w64", "W64"), ("a.caf", "CAF"),
     ("a.au", "AU"), ("a.rf64", "RF64")],
)  # fmt: skip
def test_other_formats_are_read_by_libsndfile(tmp_path: Path, name: str, container: str) -> None:
    audio = np.random.default_rng(0).normal(0, 0.1, 3 * RATE_HZ)
    soundfile.write(tmp_path / name, audio, RATE_HZ, format=container)
    recording = probe(str(tmp_path), "card", name, NamingScheme())
    assert recording.faults == ("no-start-time",)
    assert (recording.container, recording.sample_rate_hz) == (container, RATE_HZ)
    assert recording.duration_s == pytest.approx(3, abs=0.1)
    assert recording.peak == pytest.approx(np.abs(audio).max(), abs=0.25)
    assert recording.content_hash is not None


def test_a_flac_named_wav_is_misnamed_but_read(tmp_path: Path) -> None:
    soundfile.write(tmp_path / NAME, np.random.default_rng(0).normal(0, 0.1, RATE_HZ), RATE_HZ, format="FLAC")
    recording = probe(str(tmp_path), "card", NAME, NamingScheme())
    assert recording.faults == ("misnamed",)
    assert (recording.status, recording.container, recording.frames) == ("suspect", "FLAC", RATE_HZ)


@pytest.mark.parametrize("container", ["FLAC", "MP3"])
def test_a_truncated_compressed_file_has_the_readable_length(tmp_path: Path, container: str) -> None:
    path = tmp_path / f"20230510_073000.{container.lower()}"
    soundfile.write(path, np.random.default_rng(0).normal(0, 0.1, 20 * RATE_HZ), RATE_HZ, format=container)
    os.truncate(path, path.stat().st_size // 2)
    recording = probe(str(tmp_path), "card", path.name, NamingScheme())
    assert "truncated" in recording.faults
    assert recording.duration_s == pytest.approx(10, abs=1)


def test_a_compressed_file_without_audio_is_quarantined(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.aif", np.zeros(0), RATE_HZ, format="AIFF")
    assert probe(str(tmp_path), "card", "a.aif", NamingScheme()).faults == ("no-sound",)


def test_a_damaged_flac_is_damaged_not_unknown(tmp_path: Path) -> None:
    recording = probed(tmp_path, b"fLaC" + bytes(range(200)), "a.flac")
    assert recording.status == "quarantined"
    assert recording.faults in {("damaged-header",), ("not-audio",)}


def test_a_codec_in_a_wav_keeps_the_recorders_comment(tmp_path: Path) -> None:
    with soundfile.SoundFile(tmp_path / NAME, "w", RATE_HZ, 1, "ULAW", format="WAV") as file:
        file.comment = "Recorded by hand"
        file.write(np.random.default_rng(0).normal(0, 0.1, RATE_HZ))
    recording = probe(str(tmp_path), "card", NAME, NamingScheme())
    assert (recording.encoding, recording.frames, recording.comment) == ("ULAW", RATE_HZ, "Recorded by hand")


def test_a_shortened_codec_in_a_wav_is_truncated(tmp_path: Path) -> None:
    soundfile.write(
        tmp_path / NAME, np.random.default_rng(0).normal(0, 0.1, RATE_HZ), RATE_HZ, "ULAW", format="WAV"
    )
    os.truncate(tmp_path / NAME, 10_000)
    recording = probe(str(tmp_path), "card", NAME, NamingScheme())
    assert recording.faults == ("truncated",)
    assert recording.detail is not None
    assert 9000 < (recording.frames or 0) < 10_000


def test_path_and_header_give_metadata(tmp_path: Path) -> None:
    recording = probed(tmp_path, wav(noise()), "SM4_20230510_073000.wav")
    assert recording.faults == ("no-time-zone",)
    assert recording.site == "SM4"


@pytest.mark.parametrize("encoding", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
def test_levels_agree_with_libsndfile_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    audio = np.random.default_rng(1).normal(0, 0.1, (500, 2))
    soundfile.write(tmp_path / NAME, audio, RATE_HZ, encoding, format="WAV")
    read, _ = soundfile.read(tmp_path / NAME)
    recording = probe(str(tmp_path), "card", NAME, NamingScheme())
    assert recording.peak == pytest.approx(np.abs(read).max(), abs=1e-6)
    assert recording.encoding == encoding


def test_all_blocks_are_sampled(tmp_path: Path) -> None:
    samples = np.zeros(1_000_000, "<i2")
    for start in block_starts(0, samples.nbytes, 2)[0]:
        one = samples.copy()
        one[start // 2 + 3] = 1234
        assert probed(tmp_path, wav(one.tobytes(), before=COMMENT)).peak == pytest.approx(1234 / 32768)


def test_floats_above_full_scale_are_loud_but_not_clipped() -> None:
    loud = (np.random.default_rng(0).normal(0, 3, 1000)).astype("<f4")
    assert levels_of_bytes(loud.tobytes(), "FLOAT", 4).faults == ()
    assert levels_of_bytes(np.clip(loud, -1, 1).tobytes(), "FLOAT", 4).faults == ("clipped",)


def test_audio_of_only_nan_has_no_peak() -> None:
    nothing = np.full(100, np.nan, "<f8").tobytes()
    assert levels_of_bytes(nothing, "DOUBLE", 8) == (("nan-samples",), None, None)


@given(st.integers(0, 100), st.integers(1, 100_000), st.integers(1, 20))
def test_blocks_are_inside_the_audio_and_aligned_to_frames(start: int, frames: int, frame: int) -> None:
    starts, count = block_starts(start, frames * frame, frame)
    assert all((at - start) % frame == 0 for at in starts)
    assert starts[0] == start
    assert starts[-1] + count == start + frames * frame
    assert count <= max(4 * BLOCK_BYTES, frame)


def test_equal_files_share_a_content_hash_and_others_do_not(tmp_path: Path) -> None:
    one = probed(tmp_path, wav(noise(3, seed=1)))
    same = probed(tmp_path, wav(noise(3, seed=1)), "other.wav")
    other = probed(tmp_path, wav(noise(3, seed=2)))
    assert one.content_hash == same.content_hash != other.content_hash
    assert 0 <= (one.content_hash or 0) < 1 << 63


@given(st.binary(max_size=400), st.booleans())
def test_a_probe_never_raises(tmp_path_factory: pytest.TempPathFactory, content: bytes, riff: bool) -> None:
    folder = tmp_path_factory.getbasetemp()
    head = b"RIFF" + struct.pack("<I", 99) + b"WAVE" + form()[: len(content)] if riff else b""
    assert probed(folder, head + content, "random.wav").status in {"ok", "suspect", "quarantined"}


def test_the_worst_fault_decides() -> None:
    assert worst_status(()) == "ok"
    assert worst_status(("silent", "clipped")) == "suspect"
    assert worst_status(("silent", "unreadable")) == "quarantined"
