"""Probe one file: its format and length, its level in three blocks, its metadata and its faults.

A probe opens a file once, reads its head and three short blocks, and never raises: an unreadable file becomes a row with
its fault. Uncompressed WAV files are parsed by `mast.audio.wav_header`, all other files by libsndfile.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from mast.audio.wav_header import HEAD_BYTES, DamagedHeader, WavHeader, read_wav_header
from mast.recordings.discover_files import AUDIO_FORMATS, FoundFile, file_extension
from mast.recordings.faults import worst_status
from mast.recordings.levels import Levels, block_starts, fingerprint, levels_of_bytes, levels_of_floats
from mast.recordings.metadata import FileMetadata, NamingScheme, read_metadata
from mast.records import Recording, from_table, rows_to_table
from mast.storage import is_remote, join, open_binary, resolve_remote

if TYPE_CHECKING:
    import soundfile

Row = tuple[Any, ...]
"""The values of a `Recording` in the order of its fields, times as microseconds since 1970 as in its table."""

_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_LOCAL = _EPOCH_UTC.replace(tzinfo=None)
_MICROSECOND = timedelta(microseconds=1)
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_UNRECOGNISED = 1  # libsndfile's error code for an unknown format
_BLOCK_FRAMES = 1024  # of compressed audio, read in each of the three blocks


class CollectionContext(NamedTuple):
    """Collection data for a probe; clock times more than a day after `now` are faults."""

    collection: str
    root: str
    naming: NamingScheme
    now: datetime


class _ProbedAudio(NamedTuple):
    """Format, length, levels and faults from a file's content."""

    faults: tuple[str, ...] = ()
    detail: str | None = None
    container: str | None = None
    encoding: str | None = None
    sample_rate_hz: int | None = None
    channels: int | None = None
    frames: int | None = None
    comment: str | None = None
    guano: str | None = None
    peak: float | None = None
    clipped_fraction: float | None = None
    content_hash: int | None = None


def probe(root: str, collection: str, path: str, naming: NamingScheme) -> Recording:
    """Probe the recording at `path` below `root`."""
    row = probe_row(CollectionContext(collection, root, naming, datetime.now(UTC)), FoundFile(path))
    recording: Recording = from_table(rows_to_table([row], Recording), Recording)[0]
    return recording


def probe_row(context: CollectionContext, found_file: FoundFile) -> Row:
    """Probe a found file and return the values of its `Recording`."""
    size_bytes, modified_ns = found_file.size_bytes or 0, found_file.modified_ns
    metadata = _NO_METADATA
    if found_file.fault:
        audio = _ProbedAudio((found_file.fault,), found_file.detail)
        return _row(context.collection, found_file.path, size_bytes, modified_ns, audio, metadata)
    file: _LocalFile | _RemoteFile | None = None
    try:
        file = (
            _RemoteFile(context.root, found_file)
            if is_remote(context.root)
            else _LocalFile(context.root, found_file.path)
        )
        size_bytes, modified_ns = file.size_bytes, file.modified_ns
        audio = _read(file)
        metadata = read_metadata(found_file.path, audio.comment, audio.guano, context.naming, context.now)
    except Exception as error:  # one bad file must never end a scan, whatever a decoder throws
        audio = _failure(error)
    finally:
        if file is not None:
            file.close()
    return _row(context.collection, found_file.path, size_bytes, modified_ns, audio, metadata)


def _row(
    collection: str,
    path: str,
    size_bytes: int,
    modified_ns: int | None,
    audio: _ProbedAudio,
    metadata: FileMetadata,
) -> Row:
    faults, detail = audio.faults, audio.detail
    if audio.frames:
        if (
            AUDIO_FORMATS.get(file_extension(path)) not in (None, audio.container)
            and audio.container != "RF64"
        ):
            faults += ("misnamed",)
        if metadata.faults:
            faults += metadata.faults
        if metadata.detail:
            detail = f"{detail}; {metadata.detail}" if detail else metadata.detail
    return (
        f"{collection}/{path}",
        collection,
        path,
        size_bytes,
        None if modified_ns is None else modified_ns // 1000,
        worst_status(faults),
        faults,
        detail,
        audio.container,
        audio.encoding,
        audio.sample_rate_hz,
        audio.channels,
        audio.frames,
        None if audio.frames is None or not audio.sample_rate_hz else audio.frames / audio.sample_rate_hz,
        (metadata.start_utc - _EPOCH_UTC) // _MICROSECOND if metadata.start_utc else None,
        (metadata.start_local - _EPOCH_LOCAL) // _MICROSECOND if metadata.start_local else None,
        metadata.utc_offset_min,
        metadata.start_source,
        metadata.zone_source,
        metadata.site,
        metadata.site_source,
        metadata.device,
        metadata.device_source,
        metadata.gain,
        metadata.gain_source,
        audio.comment,
        audio.peak,
        audio.clipped_fraction,
        audio.content_hash,
        None,
    )


_NO_METADATA = FileMetadata(None, None, None, None, None, None, None, None, None, None, None, (), None)


def _read(file: _LocalFile | _RemoteFile) -> _ProbedAudio:
    if file.size_bytes == 0:
        return _ProbedAudio(("empty-file",))
    head = file.read_at(0, HEAD_BYTES)
    try:
        header = read_wav_header(head, file.size_bytes, file.read_at)
    except DamagedHeader as error:
        return _ProbedAudio(("damaged-header",), str(error))
    if header is None or header.encoding is None:
        return _read_by_libsndfile(file, head, header)
    return _read_plain_wav(file, head, header, header.encoding)


def _read_plain_wav(
    file: _LocalFile | _RemoteFile, head: bytes, header: WavHeader, encoding: str
) -> _ProbedAudio:
    """Compute levels from three blocks of samples, without a decoder."""
    frame_bytes = header.frame_bytes
    frames = header.present_bytes // frame_bytes
    if not frames:
        return _ProbedAudio(("no-sound",), None, "WAV", encoding, header.sample_rate_hz, header.channels, 0)
    starts, count = block_starts(header.data_offset, header.present_bytes, frame_bytes)
    first = head[starts[0] : starts[0] + count]
    if len(first) < count:
        first = file.read_at(starts[0], count)
    blocks = b"".join([first, *[file.read_at(start, count) for start in starts[1:]]])
    levels = levels_of_bytes(blocks, encoding, frame_bytes)
    length_fault = header.length_fault
    return _ProbedAudio(
        (length_fault, *levels.faults) if length_fault else levels.faults,
        _length_detail(header) if length_fault else None,
        "RF64" if head[:4] != b"RIFF" else "WAV",
        encoding,
        header.sample_rate_hz,
        header.channels,
        frames,
        header.comment,
        header.guano,
        levels.peak,
        levels.clipped_fraction,
        fingerprint(head[: header.data_offset], blocks),
    )


def _read_by_libsndfile(
    file: _LocalFile | _RemoteFile, head: bytes, header: WavHeader | None
) -> _ProbedAudio:
    """Compute levels from three decoded blocks; the last block also tests if the audio reaches its stated end."""
    import soundfile

    try:
        with soundfile.SoundFile(file.source(), closefd=False) as audio:
            frames, blocks = _decoded_blocks(audio)
            container, encoding, rate_hz = audio.format, audio.subtype, audio.samplerate
            channels, comment = audio.channels, audio.comment
            stated_frames = audio.frames
    except soundfile.LibsndfileError as error:
        if error.code == _UNRECOGNISED and header is None and head.strip(b"\0"):
            return _ProbedAudio(("not-audio",))
        return _ProbedAudio(
            ("damaged-header",), error.error_string if head.strip(b"\0") else "it starts with zeros"
        )
    if frames < stated_frames:
        frames = _readable_frames(file, stated_frames)
    length_fault = header.length_fault if header else None
    if frames < stated_frames:
        length_fault = "truncated"
    starts, count = block_starts(0, file.size_bytes)
    raw = b"".join([file.read_at(start, count) for start in starts])
    levels = levels_of_floats(blocks) if frames and blocks else Levels(("no-sound",))
    detail = f"{frames} of {stated_frames} frames are readable" if frames < stated_frames else None
    return _ProbedAudio(
        (length_fault, *levels.faults) if length_fault and frames else levels.faults,
        detail or (_length_detail(header) if header and header.length_fault else None),
        "WAV" if container == "WAVEX" else container,
        encoding,
        rate_hz,
        channels,
        frames,
        (header.comment if header else None) or comment or None,
        header.guano if header else None,
        levels.peak,
        levels.clipped_fraction,
        fingerprint(head, raw) if frames else None,
    )


def _decoded_blocks(audio: soundfile.SoundFile) -> tuple[int, list[Any]]:
    """Return the number of frames, or 0 if a block is not readable, and the samples of the readable blocks."""
    blocks: list[Any] = []
    starts, count = block_starts(0, audio.frames, block=_BLOCK_FRAMES)
    for start in starts:
        block = _decoded(audio, start, count)
        if block is None:
            return 0, blocks
        blocks.append(block)
    return audio.frames, blocks


def _decoded(audio: soundfile.SoundFile, at: int, count: int) -> Any:
    """Return `count` frames from frame `at`, or None if none is readable."""
    import soundfile

    try:
        audio.seek(at)
        block = audio.read(count, dtype="float32", always_2d=True)
    except soundfile.LibsndfileError:
        return None
    return block if len(block) else None


def _readable_frames(file: _LocalFile | _RemoteFile, stated_frames: int) -> int:
    """Find the number of readable frames by bisection, with a new decoder for each read: a failed one is not reused."""
    import soundfile

    def block(at: int, count: int) -> Any:
        with soundfile.SoundFile(file.source(), closefd=False) as audio:
            return _decoded(audio, at, count)

    readable, unreadable = 0, stated_frames
    while unreadable - readable > _BLOCK_FRAMES:
        middle = (readable + unreadable) // 2
        if block(middle, 1) is None:
            unreadable = middle
        else:
            readable = middle
    rest = block(readable, unreadable - readable)
    return readable + (0 if rest is None else len(rest))


def _length_detail(header: WavHeader) -> str:
    stated = "no length" if header.declared_bytes is None else f"{header.declared_bytes} bytes"
    return f"the header states {stated} of audio, the file contains {header.present_bytes}"


def _failure(error: Exception) -> _ProbedAudio:
    """Describe a file that could not be read."""
    if isinstance(error, PermissionError):
        return _ProbedAudio(("no-permission",))
    text = (
        error.strerror
        if isinstance(error, OSError) and error.strerror
        else f"{type(error).__name__}: {error}"
    )
    return _ProbedAudio(("unreadable",), text.encode("utf-8", "backslashreplace").decode())


class _LocalFile:
    """An open file on a disk, read by system calls for speed: an archive has millions of files."""

    __slots__ = ("_descriptor", "modified_ns", "size_bytes")

    def __init__(self, root: str, path: str) -> None:
        self._descriptor = os.open(f"{root}/{path}", _OPEN_FLAGS)
        file_stat = os.fstat(self._descriptor)
        self.size_bytes, self.modified_ns = file_stat.st_size, file_stat.st_mtime_ns

    if hasattr(os, "pread"):

        def read_at(self, offset: int, count: int) -> bytes:
            return os.pread(self._descriptor, count, offset)

    else:  # Windows

        def read_at(self, offset: int, count: int) -> bytes:
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            return os.read(self._descriptor, count)

    def source(self) -> int:
        """Return the descriptor of the open file, at its start, for libsndfile."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)


class _RemoteFile:
    """An object in an object store; size and time come from the listing, if available."""

    __slots__ = ("_file", "_location", "_streams", "modified_ns", "size_bytes")

    def __init__(self, root: str, found_file: FoundFile) -> None:
        self._location = join(root, found_file.path)
        filesystem, key = resolve_remote(self._location)
        self._file = filesystem.open_input_file(key)
        self._streams: list[BinaryIO] = []
        self.size_bytes: int = self._file.size() if found_file.size_bytes is None else found_file.size_bytes
        self.modified_ns = found_file.modified_ns or filesystem.get_file_info(key).mtime_ns

    def read_at(self, offset: int, count: int) -> bytes:
        count = min(count, self.size_bytes - offset)
        data: bytes = self._file.read_at(count, offset) if count > 0 else b""
        return data

    def source(self) -> BinaryIO:
        """Open a buffered stream for libsndfile, which reads large blocks."""
        self._streams.append(open_binary(self._location))
        return self._streams[-1]

    def close(self) -> None:
        for stream in (*self._streams, self._file):
            stream.close()
