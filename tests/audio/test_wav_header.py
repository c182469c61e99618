from __future__ import annotations

import io
import struct

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.audio.wav_header import (
    HEAD_BYTES,
    DamagedHeader,
    WavHeader,
    _common_header,
    _walked_header,
    read_wav_header,
)
from tests.recordings.builders import chunk, form, info, noise, wav

GB = 1 << 30


def parse(content: bytes) -> WavHeader | None:
    return read_wav_header(
        content[:HEAD_BYTES], len(content), lambda offset, count: content[offset : offset + count]
    )


def parsed(content: bytes) -> WavHeader:
    header = parse(content)
    assert header is not None
    return header


def parsed_sparse(head: bytes, size_bytes: int) -> WavHeader:
    """Parse the header of a file that is filled with zeros up to `size_bytes`."""

    def read_at(offset: int, count: int) -> bytes:
        return head[offset : offset + count].ljust(min(count, max(size_bytes - offset, 0)), b"\0")

    header = read_wav_header(head[:HEAD_BYTES], size_bytes, read_at)
    assert header is not None
    return header


@pytest.mark.parametrize("content", [b"", b"RI", b"fLaC" + bytes(50), b"RIFF\0\0\0\0AVI " + bytes(50)])
def test_a_file_that_is_not_wav_has_no_header(content: bytes) -> None:
    assert parse(content) is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (wav(noise())[:8], "no format"),
        (wav(noise())[:20], "truncated"),
        (wav(noise())[:30], "truncated"),
        (wav(noise())[:38], "no audio data"),
        (wav(noise(), layout=b""), "no format"),
        (wav(noise(), layout=form(channels=0)), "0 channels"),
        (wav(noise(), layout=form(rate_hz=0)), "at 0 Hz"),
        (wav(noise(), layout=chunk(b"fmt ", b"\1\0")), "truncated"),
    ],
)
def test_a_header_without_a_path_to_the_audio_is_damaged(content: bytes, reason: str) -> None:
    with pytest.raises(DamagedHeader, match=reason):
        parse(content)


def test_a_consistent_header_is_read_as_written() -> None:
    header = parsed(
        wav(noise(), before=info("Recorded at dawn"), after=chunk(b"guan", b"GUANO|Version: 1.0\n"))
    )
    assert header.has_consistent_length
    assert header.declared_bytes == header.present_bytes == 32_000
    assert (header.encoding, header.sample_rate_hz, header.channels) == ("PCM_16", 16_000, 1)
    assert (header.comment, header.guano) == ("Recorded at dawn", "GUANO|Version: 1.0")


def test_text_chunks_after_the_audio_are_read() -> None:
    header = parsed(wav(noise(), after=info("late words")))
    assert header.has_consistent_length
    assert header.comment == "late words"


def test_an_odd_chunk_is_followed_with_and_without_padding() -> None:
    bare = struct.pack("<4sI", b"note", 3) + b"abc"
    for before in (chunk(b"note", b"abc"), bare):
        assert parsed(wav(noise(), before=before)).present_bytes == 32_000


def test_bytes_after_the_last_complete_frame_are_not_audio() -> None:
    assert parsed(wav(noise() + b"x")).present_bytes == 32_000


def test_a_short_file_is_truncated() -> None:
    content = wav(noise())
    header = parsed(content[:-12_001])
    assert header.length_fault == "truncated"
    assert (header.declared_bytes, header.present_bytes) == (32_000, 19_998)


def test_an_unfinished_header_gives_all_the_audio_after_it() -> None:
    header = parsed(wav(noise(), stated_bytes=0, riff_bytes=0))
    assert header.length_fault == "wrong-length"
    assert header.present_bytes == 32_000


def test_a_length_that_is_too_short_is_not_accepted() -> None:
    header = parsed(wav(noise(), stated_bytes=1000))
    assert header.length_fault == "wrong-length"
    assert (header.declared_bytes, header.present_bytes) == (1000, 32_000)


def test_an_empty_recording_with_text_after_it_is_consistent() -> None:
    header = parsed(wav(b"", after=info("nothing came")))
    assert header.has_consistent_length
    assert header.present_bytes == 0
    assert header.comment == "nothing came"


@pytest.mark.parametrize("stated", [0xFFFFFFFF, 0x7FFFF000])
def test_a_placeholder_length_from_a_pipe_counts_as_unknown(stated: int) -> None:
    header = parsed(wav(noise(), stated_bytes=stated))
    assert header.declared_bytes is None
    assert header.present_bytes == 32_000
    assert header.length_fault == "wrong-length"


def test_a_wav_over_4_gb_keeps_its_actual_length() -> None:
    data_bytes = 5 * GB + 2
    head = wav(b"", stated_bytes=data_bytes % (4 * GB))
    header = parsed_sparse(head, len(head) + data_bytes)
    assert header.length_fault == "over-4-gb"
    assert header.present_bytes == data_bytes


def test_a_wav_over_4_gb_without_a_usable_length_extends_to_its_end() -> None:
    for stated, declared in ((1000, 1000), (0xFFFFFFFF, None)):
        head = wav(b"", stated_bytes=stated)
        header = parsed_sparse(head, len(head) + 6 * GB)
        assert header.length_fault == "over-4-gb"
        assert (header.declared_bytes, header.present_bytes) == (declared, 6 * GB)


def test_rf64_states_lengths_over_4_gb_correctly() -> None:
    ds64 = chunk(b"ds64", struct.pack("<QQQI", 5 * GB, 5 * GB, 0, 0))
    head = wav(b"", before=ds64, stated_bytes=0xFFFFFFFF, riff=b"RF64")
    header = parsed_sparse(head, len(head) + 5 * GB)
    assert header.has_consistent_length
    assert header.present_bytes == 5 * GB


def test_unfinished_rf64_gives_all_the_audio_after_its_header() -> None:
    ds64 = chunk(b"ds64", bytes(28))
    header = parsed(wav(noise(), before=ds64, stated_bytes=0xFFFFFFFF, riff=b"RF64"))
    assert header.length_fault == "wrong-length"
    assert header.present_bytes == 32_000


SUBTYPES = [
    (container, subtype)
    for container in ("WAV", "WAVEX", "RF64")
    for subtype in soundfile.available_subtypes(container)
    if subtype in {"PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"}
]


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(SUBTYPES),
    st.integers(0, 50),
    st.integers(1, 6),
    st.sampled_from([8000, 44_100, 384_000]),
    st.one_of(st.none(), st.text("abc €ü", min_size=1, max_size=50)),
)
def test_headers_agree_with_libsndfile(
    kind: tuple[str, str], frames: int, channels: int, rate_hz: int, comment: str | None
) -> None:
    buffer = io.BytesIO()
    with soundfile.SoundFile(buffer, "w", rate_hz, channels, kind[1], format=kind[0]) as file:
        if comment is not None:
            file.comment = comment
        file.write(np.zeros((frames, channels)))
    header = parsed(buffer.getvalue())
    assert header.has_consistent_length
    assert (header.encoding, header.sample_rate_hz, header.channels) == (kind[1], rate_hz, channels)
    assert header.present_bytes // header.frame_bytes == frames
    if kind[0] != "RF64":
        assert (header.comment or "") == (comment or "").rstrip()


@pytest.mark.parametrize("subtype", ["ULAW", "IMA_ADPCM", "MS_ADPCM"])
def test_a_codec_has_no_encoding_name(subtype: str) -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.zeros(4000), 16_000, format="WAV", subtype=subtype)
    assert parsed(buffer.getvalue()).encoding is None


def parse_or_refuse(content: bytes) -> None:
    try:
        header = parse(content)
    except DamagedHeader:
        return
    if header is not None:
        assert 0 <= header.data_offset <= len(content) + 8
        assert 0 <= header.present_bytes <= max(len(content) - header.data_offset, 0)
        assert header.present_bytes % header.frame_bytes == 0


@given(st.binary(max_size=300))
def test_random_bytes_never_break_the_parser(content: bytes) -> None:
    parse_or_refuse(content)
    parse_or_refuse(b"RIFF\0\0\0\0WAVE" + content)


@given(st.integers(0, 200), st.binary(min_size=1, max_size=12), st.integers(0, 5000))
def test_mutated_headers_never_break_the_parser(position: int, patch: bytes, length: int) -> None:
    ds64 = chunk(b"ds64", struct.pack("<QQQI", 0, 99, 0, 0))
    content = wav(noise(0.1), before=ds64 + info("words"), after=chunk(b"guan", b"x: y"), riff=b"RF64")
    parse_or_refuse(content[:position] + patch + content[position + len(patch) :])
    parse_or_refuse(content[:length])


@given(
    st.booleans(),
    st.integers(1, 3),
    st.sampled_from([(1, 16), (1, 24), (3, 32), (17, 4)]),
    st.integers(0, 400),
    st.binary(max_size=3),
    st.integers(-2, 2),
)
def test_the_fast_parser_of_common_headers_equals_the_full_parser(
    commented: bool, channels: int, kind: tuple[int, int], frames: int, rest: bytes, length_error: int
) -> None:
    layout = form(kind[0], channels, bits=kind[1])
    data = noise(1)[: frames * channels * 2] + rest
    comment = info("Recorded at 19:22:55 14/12/2020 (UTC) by AudioMoth 24E1") if commented else b""
    content = wav(data, layout=layout + comment, stated_bytes=max(len(data) + length_error, 0))
    quick = _common_header(content[:HEAD_BYTES], len(content))
    walked = _walked_header(content[:HEAD_BYTES], len(content), lambda at, count: content[at : at + count])
    assert quick in (None, walked)
    if length_error == 0 and len(content) >= 44:
        assert quick is not None
