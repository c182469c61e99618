"""Any span of any recording as mono float32 at one rate, in memory that does not grow with the recording.

A span is resampled from a piece of the file that starts where input and output samples coincide and reaches a little
beyond both ends, so that it equals the same span cut from the whole recording: reading never depends on where one began.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, BinaryIO

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from mast.config import Chunking
from mast.errors import AudioError
from mast.events import Chunk
from mast.recordings.riff import HEAD_BYTES, DamagedHeader, WavHeader, read_wav_header
from mast.storage import is_remote, open_binary

Wave = NDArray[np.float32]

MARGIN_SAMPLES = 1024
"""Output samples resampled beyond both ends of a span: longer than the reach of soxr's HQ filter."""

BLOCK_S = 40.0
"""Streaming holds about this much sound at once."""


@dataclass(frozen=True)
class Audio:
    """An open recording, heard at `sample_rate_hz` and slowed down by `time_expansion`, as far as its `frames`."""

    location: str
    sample_rate_hz: int
    ratio: Fraction
    samples: int
    frames: int
    _file: Any

    @property
    def duration_s(self) -> float:
        """Length as heard, after time expansion."""
        return self.samples / self.sample_rate_hz

    def read(self, start_s: float, duration_s: float) -> Wave:
        """The span as mono samples; shorter where the recording ends, empty beyond it."""
        first = round(start_s * self.sample_rate_hz)
        return self.read_samples(first, first + round(duration_s * self.sample_rate_hz))

    def read_samples(self, first: int, stop: int) -> Wave:
        """Samples `first` to `stop`, counted at `sample_rate_hz`, cut to the recording."""
        first, stop = max(first, 0), min(stop, self.samples)
        if first >= stop:
            return np.zeros(0, np.float32)
        if self.ratio == 1:
            return self._native(first, stop)
        step = self.ratio.denominator
        aligned = max(first - MARGIN_SAMPLES, 0) // step * step
        frames = self._native(int(aligned * self.ratio), math.ceil((stop + MARGIN_SAMPLES) * self.ratio))
        heard = soxr.resample(frames, float(self.ratio), 1.0, quality="HQ")[first - aligned : stop - aligned]
        missing = stop - first - len(heard)  # soxr may round the very last sample away
        return np.pad(heard, (0, missing)) if missing else heard

    def stream(self) -> Iterator[Wave]:
        """The whole recording in blocks, one after the other."""
        block = round(BLOCK_S * self.sample_rate_hz)
        for first in range(0, self.samples, block):
            yield self.read_samples(first, first + block)

    def _native(self, first: int, stop: int) -> Wave:
        """Frames of the file at its own rate, channels averaged, samples that are no number read as silence."""
        stop = min(stop, self.frames)
        sixteen_bit = (
            self._file.subtype == "PCM_16"
        )  # as nearly all are: half the bytes, and every one a number
        try:
            self._file.seek(first)
            frames = self._file.read(
                stop - first, dtype="int16" if sixteen_bit else "float32", always_2d=True
            )
        except (soundfile.LibsndfileError, OSError) as error:
            raise AudioError(f"{self.location}: {error} at {first / self._file.samplerate:.1f} s.") from error
        if len(frames) < stop - first:
            end_s = (first + len(frames)) / self._file.samplerate
            raise AudioError(
                f"{self.location}: the sound breaks off at {end_s:.1f} s; the file is damaged there."
            )
        mono = frames[:, 0] if frames.shape[1] == 1 else frames.mean(axis=1, dtype=np.float32)
        wave: Wave = (
            np.multiply(mono, np.float32(1 / 32768), dtype=np.float32)
            if sixteen_bit
            else np.nan_to_num(mono, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
        )
        return wave


@contextmanager
def open_audio(
    location: str, sample_rate_hz: int | None, time_expansion: float = 1.0, frames: int | None = None
) -> Iterator[Audio]:
    """Open a recording for reading at `sample_rate_hz`, or at its own rate if that is None.

    `time_expansion=10` hears a bat at a tenth of its speed. `frames` is how far a scan could read it: one that was cut
    short still states its whole length, and ends there.
    """
    try:
        with _sound_file(location) as file:
            rate_hz = sample_rate_hz or round(file.samplerate / time_expansion)
            frames = file.frames if frames is None else min(frames, file.frames)
            samples = heard_samples(frames, file.samplerate, rate_hz, time_expansion)
            ratio = _ratio(file.samplerate, rate_hz, time_expansion)
            yield Audio(location, rate_hz, ratio, samples, frames, file)
    except FileNotFoundError:
        raise AudioError(f"{location}: there is no such file.") from None
    except soundfile.LibsndfileError as error:
        raise AudioError(f"{location}: not a sound file that can be read ({error.error_string}).") from error
    except (DamagedHeader, OSError) as error:
        reason = getattr(error, "strerror", None) or error  # which does not name the file once more
        raise AudioError(f"{location}: cannot be read: {reason}.") from error


def heard_samples(frames: int, file_rate_hz: int, sample_rate_hz: int, time_expansion: float) -> int:
    """Samples of a recording of so many frames, as heard at `sample_rate_hz` and slowed down."""
    return math.floor(frames / _ratio(file_rate_hz, sample_rate_hz, time_expansion))


def _ratio(file_rate_hz: int, sample_rate_hz: int, time_expansion: float) -> Fraction:
    """Frames of the file for each sample that is heard."""
    return Fraction(file_rate_hz, sample_rate_hz) / Fraction(time_expansion).limit_denominator(1000)


def plan_chunks(samples: int, chunking: Chunking) -> Iterator[tuple[int, int]]:
    """(first, filled) samples of every chunk (paper, Audio preprocessing).

    Chunks start every hop; the last ones are kept while at least `min_filled` of them is sound.
    """
    chunk, hop = chunk_and_hop(chunking)
    for first in range(0, samples, hop):
        filled = min(chunk, samples - first)
        if filled < chunking.min_filled * chunk:
            return
        yield first, filled


def chunk_counts(samples: NDArray[np.int64], chunking: Chunking) -> NDArray[np.int64]:
    """Number of chunks that `plan_chunks` cuts from recordings of so many samples. (N,) → (N,)"""
    chunk, hop = chunk_and_hop(chunking)
    least = max(1, math.ceil(chunking.min_filled * chunk))
    return np.where(samples < least, 0, (samples - least) // hop + 1)


def chunk_and_hop(chunking: Chunking) -> tuple[int, int]:
    """Samples of a chunk, and from one chunk to the next."""
    rate_hz = chunking.sample_rate_hz
    return round(chunking.chunk_s * rate_hz), round(chunking.hop_s * rate_hz)


def read_chunks(
    location: str, recording_id: str, chunking: Chunking, time_expansion: float = 1.0
) -> Iterator[tuple[Chunk, Wave]]:
    """Every chunk of a recording, mean-centred and zero-padded to full length, decoded once and in order."""
    chunk, _ = chunk_and_hop(chunking)
    with open_audio(location, chunking.sample_rate_hz, time_expansion) as audio:
        blocks = audio.stream()
        held, held_first = np.zeros(0, np.float32), 0
        for index, (first, filled) in enumerate(plan_chunks(audio.samples, chunking)):
            while held_first + len(held) < first + filled:
                held = np.concatenate([held, next(blocks)])
                past = min(first - held_first, len(held))
                held, held_first = held[past:], held_first + past
            sound = held[first - held_first :][:filled]
            wave = np.pad(sound - sound.mean(), (0, chunk - filled))
            rate_hz = chunking.sample_rate_hz
            yield Chunk(recording_id, index, first / rate_hz, filled / rate_hz), wave


@contextmanager
def _sound_file(location: str) -> Iterator[soundfile.SoundFile]:
    """The file through libsndfile; a WAV whose header lies about its length is read by what is really there."""
    with open_binary(location) as stream:
        header = _wav_header(stream)
        if header is None or header.honest or header.encoding is None:
            stream.seek(0)
            with soundfile.SoundFile(stream if is_remote(location) else location) as file:
                yield file
        else:
            span = _Span(stream, header.data_offset, header.present_bytes)
            with soundfile.SoundFile(
                span,
                samplerate=header.sample_rate_hz,
                channels=header.channels,
                format="RAW",
                subtype=header.encoding,
                endian="LITTLE",
            ) as file:
                yield file


def _wav_header(stream: BinaryIO) -> WavHeader | None:
    def read_at(offset: int, count: int) -> bytes:
        stream.seek(offset)
        return stream.read(count)

    size_bytes = stream.seek(0, io.SEEK_END)
    return read_wav_header(read_at(0, HEAD_BYTES), size_bytes, read_at)


class _Span:
    """Part of a stream as a file of its own, for libsndfile's eyes."""

    def __init__(self, stream: BinaryIO, offset: int, count: int) -> None:
        self._stream, self._offset, self._count, self._at = stream, offset, count, 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._count}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, count: int = -1) -> bytes:
        left = max(0, self._count - self._at)
        self._stream.seek(self._offset + self._at)
        data = self._stream.read(left if count < 0 else min(count, left))
        self._at += len(data)
        return data

    def write(self, _: bytes) -> int:  # soundfile asks for it; nothing here is ever written
        raise io.UnsupportedOperation("write")
