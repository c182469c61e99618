"""Read any span of any recording as mono float32 at one rate, in memory that does not grow with the recording.

A span is resampled from a piece of the file that starts where input and output samples coincide and extends a little
beyond both ends. The result therefore equals the same span cut from the complete resampled recording: it does not
depend on where reading started.
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

from mast.audio.wav_header import HEAD_BYTES, DamagedHeader, WavHeader, read_wav_header
from mast.config import Chunking
from mast.errors import AudioError
from mast.records import Chunk
from mast.storage import is_remote, open_binary
from mast.types import Floats32

MARGIN_SAMPLES = 1024
"""Output samples resampled beyond both ends of a span: longer than the half-width of soxr's HQ filter."""

BLOCK_S = 40.0
"""Duration of the audio that streaming keeps in memory at once."""


@dataclass(frozen=True)
class Audio:
    """An open recording, read at `sample_rate_hz` and slowed down by `time_expansion`, up to its `frames`."""

    location: str
    sample_rate_hz: int
    ratio: Fraction
    samples: int
    frames: int
    _file: Any

    @property
    def duration_s(self) -> float:
        """Duration after time expansion."""
        return self.samples / self.sample_rate_hz

    def read(self, start_s: float, duration_s: float) -> Floats32:
        """Return a span as mono samples; shorter if the recording ends within it, empty beyond the end."""
        first = round(start_s * self.sample_rate_hz)
        return self.read_samples(first, first + round(duration_s * self.sample_rate_hz))

    def read_samples(self, first: int, stop: int) -> Floats32:
        """Return samples `first` to `stop`, counted at `sample_rate_hz` and limited to the recording."""
        first, stop = max(first, 0), min(stop, self.samples)
        if first >= stop:
            return np.zeros(0, np.float32)
        if self.ratio == 1:
            return self._native(first, stop)
        step = self.ratio.denominator
        aligned = max(first - MARGIN_SAMPLES, 0) // step * step
        frames = self._native(int(aligned * self.ratio), math.ceil((stop + MARGIN_SAMPLES) * self.ratio))
        resampled = soxr.resample(frames, float(self.ratio), 1.0, quality="HQ")[
            first - aligned : stop - aligned
        ]
        missing = stop - first - len(resampled)  # soxr may drop the last sample by rounding
        return np.pad(resampled, (0, missing)) if missing else resampled

    def stream(self) -> Iterator[Floats32]:
        """Yield the complete recording in consecutive blocks of `BLOCK_S` seconds."""
        block = round(BLOCK_S * self.sample_rate_hz)
        for first in range(0, self.samples, block):
            yield self.read_samples(first, first + block)

    def _native(self, first: int, stop: int) -> Floats32:
        """Read frames at the file's own rate, with channels averaged and NaN or infinite samples set to 0."""
        stop = min(stop, self.frames)
        sixteen_bit = self._file.subtype == "PCM_16"  # nearly all files: half the bytes, never NaN
        try:
            self._file.seek(first)
            frames = self._file.read(
                stop - first, dtype="int16" if sixteen_bit else "float32", always_2d=True
            )
        except (soundfile.LibsndfileError, OSError) as error:
            raise AudioError(f"{self.location}: {error} at {first / self._file.samplerate:.1f} s.") from error
        if len(frames) < stop - first:
            end_s = (first + len(frames)) / self._file.samplerate
            raise AudioError(f"{self.location}: the audio ends at {end_s:.1f} s; the file is damaged there.")
        mono = frames[:, 0] if frames.shape[1] == 1 else frames.mean(axis=1, dtype=np.float32)
        wave: Floats32 = (
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

    `time_expansion=10` reads a bat recording at a tenth of its speed. `frames` is the number of frames that a scan could
    read: the header of a truncated file still states the full length, but the audio ends at `frames`.
    """
    try:
        with _sound_file(location) as file:
            rate_hz = sample_rate_hz or round(file.samplerate / time_expansion)
            frames = file.frames if frames is None else min(frames, file.frames)
            samples = resampled_length(frames, file.samplerate, rate_hz, time_expansion)
            ratio = _ratio(file.samplerate, rate_hz, time_expansion)
            yield Audio(location, rate_hz, ratio, samples, frames, file)
    except FileNotFoundError:
        raise AudioError(f"{location}: there is no such file.") from None
    except soundfile.LibsndfileError as error:
        raise AudioError(f"{location}: not a readable audio file ({error.error_string}).") from error
    except (DamagedHeader, OSError) as error:
        reason = getattr(error, "strerror", None) or error  # without naming the file a second time
        raise AudioError(f"{location}: cannot be read: {reason}.") from error


def resampled_length(frames: int, file_rate_hz: int, sample_rate_hz: int, time_expansion: float) -> int:
    """Return the length in samples of a recording of `frames`, read at `sample_rate_hz` with `time_expansion`."""
    return math.floor(frames / _ratio(file_rate_hz, sample_rate_hz, time_expansion))


def _ratio(file_rate_hz: int, sample_rate_hz: int, time_expansion: float) -> Fraction:
    """Return the number of the file's frames per output sample."""
    return Fraction(file_rate_hz, sample_rate_hz) / Fraction(time_expansion).limit_denominator(1000)


def chunk_offsets(samples: int, chunking: Chunking) -> Iterator[tuple[int, int]]:
    """Yield (first sample, number of valid samples) of every chunk (paper, Audio preprocessing).

    Chunks start every hop; the last ones are kept if at least `min_audio_fraction` of the chunk is audio.
    """
    chunk, hop = chunk_and_hop(chunking)
    for first in range(0, samples, hop):
        valid_samples = min(chunk, samples - first)
        if valid_samples < chunking.min_audio_fraction * chunk:
            return
        yield first, valid_samples


def chunk_counts(samples: NDArray[np.int64], chunking: Chunking) -> NDArray[np.int64]:
    """Return the number of chunks that `chunk_offsets` yields for recordings of `samples`. (N,) → (N,)"""
    chunk, hop = chunk_and_hop(chunking)
    minimum = max(1, math.ceil(chunking.min_audio_fraction * chunk))
    return np.where(samples < minimum, 0, (samples - minimum) // hop + 1)


def chunk_and_hop(chunking: Chunking) -> tuple[int, int]:
    """Return the chunk length and the hop between chunk starts, in samples."""
    rate_hz = chunking.sample_rate_hz
    return round(chunking.chunk_s * rate_hz), round(chunking.hop_s * rate_hz)


def read_chunks(
    location: str, recording_id: str, chunking: Chunking, time_expansion: float = 1.0
) -> Iterator[tuple[Chunk, Floats32]]:
    """Yield every chunk of a recording, mean-centred and zero-padded to full length; decode once, in order."""
    chunk, _ = chunk_and_hop(chunking)
    with open_audio(location, chunking.sample_rate_hz, time_expansion) as audio:
        blocks = audio.stream()
        buffered, buffered_first = np.zeros(0, np.float32), 0
        for index, (first, valid_samples) in enumerate(chunk_offsets(audio.samples, chunking)):
            while buffered_first + len(buffered) < first + valid_samples:
                buffered = np.concatenate([buffered, next(blocks)])
                past = min(first - buffered_first, len(buffered))
                buffered, buffered_first = buffered[past:], buffered_first + past
            valid = buffered[first - buffered_first :][:valid_samples]
            wave = np.pad(valid - valid.mean(), (0, chunk - valid_samples))
            rate_hz = chunking.sample_rate_hz
            yield Chunk(recording_id, index, first / rate_hz, valid_samples / rate_hz), wave


@contextmanager
def _sound_file(location: str) -> Iterator[soundfile.SoundFile]:
    """Open a file with libsndfile; a WAV with a wrong length in its header is read up to the actual length."""
    with open_binary(location) as stream:
        header = _wav_header(stream)
        if header is None or header.has_consistent_length or header.encoding is None:
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
    """Part of a stream, presented to libsndfile as a file."""

    def __init__(self, stream: BinaryIO, offset: int, count: int) -> None:
        self._stream, self._offset, self._count, self._at = stream, offset, count, 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._count}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, count: int = -1) -> bytes:
        remaining = max(0, self._count - self._at)
        self._stream.seek(self._offset + self._at)
        data = self._stream.read(remaining if count < 0 else min(count, remaining))
        self._at += len(data)
        return data

    def write(self, _: bytes) -> int:  # soundfile requires the method; nothing is ever written
        raise io.UnsupportedOperation("write")
