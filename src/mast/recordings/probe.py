"""What one file is: where its sound lies, how loud it is at a few places, who made it when, and what is wrong.

A probe opens a file once, reads its head and three short blocks, and never raises: what cannot be read becomes a
row that says why. Plain WAV goes through our own walk of the header, everything else through libsndfile.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from mast.events import Recording, from_table, rows_to_table
from mast.recordings.faults import worst_status
from mast.recordings.find import AUDIO_FORMATS, Found, kind
from mast.recordings.levels import Levels, block_starts, fingerprint, levels_of_bytes, levels_of_floats
from mast.recordings.metadata import Facts, Naming, read_facts
from mast.recordings.riff import HEAD_BYTES, DamagedHeader, WavHeader, read_wav_header
from mast.storage import is_remote, join, open_binary, remote

if TYPE_CHECKING:
    import soundfile

Row = tuple[Any, ...]
"""The values of a `Recording` in the order of its fields, times as microseconds since 1970 as in its table."""

_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_LOCAL = _EPOCH_UTC.replace(tzinfo=None)
_MICROSECOND = timedelta(microseconds=1)
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_UNRECOGNISED = 1  # libsndfile's error code of a file that is in no format it knows
_BLOCK_FRAMES = 1024  # of compressed sound, read at each of the three places


class Place(NamedTuple):
    """A collection as a probe needs it; a clock that shows a time after `now` is wrong."""

    collection: str
    root: str
    naming: Naming
    now: datetime


class _Sound(NamedTuple):
    """What the content of a file tells."""

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
    clipped_share: float | None = None
    content_hash: int | None = None


def probe(root: str, collection: str, path: str, naming: Naming) -> Recording:
    """Everything about the recording at `path` below `root`."""
    row = probe_row(Place(collection, root, naming, datetime.now(UTC)), Found(path))
    recording: Recording = from_table(rows_to_table([row], Recording), Recording)[0]
    return recording


def probe_row(place: Place, found: Found) -> Row:
    """Everything about a found file, as the values of a `Recording`."""
    size_bytes, modified_ns = found.size_bytes or 0, found.modified_ns
    facts = _NO_FACTS
    if found.fault:
        sound = _Sound((found.fault,), found.detail)
        return _row(place.collection, found.path, size_bytes, modified_ns, sound, facts)
    file: _LocalFile | _RemoteFile | None = None
    try:
        file = _RemoteFile(place.root, found) if is_remote(place.root) else _LocalFile(place.root, found.path)
        size_bytes, modified_ns = file.size_bytes, file.modified_ns
        sound = _read(file)
        facts = read_facts(found.path, sound.comment, sound.guano, place.naming, place.now)
    except Exception as error:  # one bad file must never end a scan, whatever a decoder throws
        sound = _failure(error)
    finally:
        if file is not None:
            file.close()
    return _row(place.collection, found.path, size_bytes, modified_ns, sound, facts)


def _row(
    collection: str, path: str, size_bytes: int, modified_ns: int | None, sound: _Sound, facts: Facts
) -> Row:
    faults, detail = sound.faults, sound.detail
    if sound.frames:
        if AUDIO_FORMATS.get(kind(path)) not in (None, sound.container) and sound.container != "RF64":
            faults += ("misnamed",)
        if facts.faults:
            faults += facts.faults
        if facts.detail:
            detail = f"{detail}; {facts.detail}" if detail else facts.detail
    return (
        f"{collection}/{path}",
        collection,
        path,
        size_bytes,
        None if modified_ns is None else modified_ns // 1000,
        worst_status(faults),
        faults,
        detail,
        sound.container,
        sound.encoding,
        sound.sample_rate_hz,
        sound.channels,
        sound.frames,
        None if sound.frames is None or not sound.sample_rate_hz else sound.frames / sound.sample_rate_hz,
        (facts.start_utc - _EPOCH_UTC) // _MICROSECOND if facts.start_utc else None,
        (facts.start_local - _EPOCH_LOCAL) // _MICROSECOND if facts.start_local else None,
        facts.utc_offset_min,
        facts.start_source,
        facts.zone_source,
        facts.site,
        facts.site_source,
        facts.device,
        facts.device_source,
        facts.gain,
        facts.gain_source,
        sound.comment,
        sound.peak,
        sound.clipped_share,
        sound.content_hash,
        None,
    )


_NO_FACTS = Facts(None, None, None, None, None, None, None, None, None, None, None, (), None)


def _read(file: _LocalFile | _RemoteFile) -> _Sound:
    if file.size_bytes == 0:
        return _Sound(("empty-file",))
    head = file.read_at(0, HEAD_BYTES)
    try:
        header = read_wav_header(head, file.size_bytes, file.read_at)
    except DamagedHeader as error:
        return _Sound(("damaged-header",), str(error))
    if header is None or header.encoding is None:
        return _read_by_libsndfile(file, head, header)
    return _read_plain_wav(file, head, header, header.encoding)


def _read_plain_wav(file: _LocalFile | _RemoteFile, head: bytes, header: WavHeader, encoding: str) -> _Sound:
    """Levels from three blocks of samples, without a decoder."""
    frame_bytes = header.frame_bytes
    frames = header.present_bytes // frame_bytes
    if not frames:
        return _Sound(("no-sound",), None, "WAV", encoding, header.sample_rate_hz, header.channels, 0)
    starts, count = block_starts(header.data_offset, header.present_bytes, frame_bytes)
    first = head[starts[0] : starts[0] + count]
    if len(first) < count:
        first = file.read_at(starts[0], count)
    blocks = b"".join([first, *[file.read_at(start, count) for start in starts[1:]]])
    levels = levels_of_bytes(blocks, encoding, frame_bytes)
    length_fault = header.length_fault
    return _Sound(
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
        levels.clipped_share,
        fingerprint(head[: header.data_offset], blocks),
    )


def _read_by_libsndfile(file: _LocalFile | _RemoteFile, head: bytes, header: WavHeader | None) -> _Sound:
    """Levels from three decoded blocks; the last one also tells whether the sound reaches its stated end."""
    import soundfile

    try:
        with soundfile.SoundFile(file.source(), closefd=False) as sound:
            frames, blocks = _decoded_blocks(sound)
            container, encoding, rate_hz = sound.format, sound.subtype, sound.samplerate
            channels, comment = sound.channels, sound.comment
            stated_frames = sound.frames
    except soundfile.LibsndfileError as error:
        if error.code == _UNRECOGNISED and header is None and head.strip(b"\0"):
            return _Sound(("not-audio",))
        return _Sound(
            ("damaged-header",), error.error_string if head.strip(b"\0") else "it begins with zeros"
        )
    if frames < stated_frames:
        frames = _readable_frames(file, stated_frames)
    length_fault = header.length_fault if header else None
    if frames < stated_frames:
        length_fault = "truncated"
    starts, count = block_starts(0, file.size_bytes)
    raw = b"".join([file.read_at(start, count) for start in starts])
    levels = levels_of_floats(blocks) if frames and blocks else Levels(("no-sound",))
    detail = f"{frames} of {stated_frames} frames can be read" if frames < stated_frames else None
    return _Sound(
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
        levels.clipped_share,
        fingerprint(head, raw) if frames else None,
    )


def _decoded_blocks(sound: soundfile.SoundFile) -> tuple[int, list[Any]]:
    """Samples at three places, and the number of frames, which is zero if the last place could not be read."""
    blocks: list[Any] = []
    starts, count = block_starts(0, sound.frames, block=_BLOCK_FRAMES)
    for start in starts:
        block = _decoded(sound, start, count)
        if block is None:
            return 0, blocks
        blocks.append(block)
    return sound.frames, blocks


def _decoded(sound: soundfile.SoundFile, at: int, count: int) -> Any:
    """`count` frames from frame `at` on, or None where nothing can be read."""
    import soundfile

    try:
        sound.seek(at)
        block = sound.read(count, dtype="float32", always_2d=True)
    except soundfile.LibsndfileError:
        return None
    return block if len(block) else None


def _readable_frames(file: _LocalFile | _RemoteFile, stated_frames: int) -> int:
    """Length of the sound that can be read, by halving; a decoder that failed once is not asked again."""
    import soundfile

    def block(at: int, count: int) -> Any:
        with soundfile.SoundFile(file.source(), closefd=False) as sound:
            return _decoded(sound, at, count)

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
    return f"the header states {stated} of sound, {header.present_bytes} are there"


def _failure(error: Exception) -> _Sound:
    """A file that could not be read, in words."""
    if isinstance(error, PermissionError):
        return _Sound(("no-permission",))
    text = (
        error.strerror
        if isinstance(error, OSError) and error.strerror
        else f"{type(error).__name__}: {error}"
    )
    return _Sound(("unreadable",), text.encode("utf-8", "backslashreplace").decode())


class _LocalFile:
    """An open file on a disk; bare system calls, for an archive has millions."""

    __slots__ = ("_descriptor", "modified_ns", "size_bytes")

    def __init__(self, root: str, path: str) -> None:
        self._descriptor = os.open(f"{root}/{path}", _OPEN_FLAGS)
        about = os.fstat(self._descriptor)
        self.size_bytes, self.modified_ns = about.st_size, about.st_mtime_ns

    if hasattr(os, "pread"):

        def read_at(self, offset: int, count: int) -> bytes:
            return os.pread(self._descriptor, count, offset)

    else:  # Windows

        def read_at(self, offset: int, count: int) -> bytes:
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            return os.read(self._descriptor, count)

    def source(self) -> int:
        """What libsndfile reads from: the open file, from its start."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)


class _RemoteFile:
    """An object in a store; its size and time come from the listing where there was one."""

    __slots__ = ("_file", "_location", "_streams", "modified_ns", "size_bytes")

    def __init__(self, root: str, found: Found) -> None:
        self._location = join(root, found.path)
        filesystem, key = remote(self._location)
        self._file = filesystem.open_input_file(key)
        self._streams: list[BinaryIO] = []
        self.size_bytes: int = self._file.size() if found.size_bytes is None else found.size_bytes
        self.modified_ns = found.modified_ns or filesystem.get_file_info(key).mtime_ns

    def read_at(self, offset: int, count: int) -> bytes:
        count = min(count, self.size_bytes - offset)
        data: bytes = self._file.read_at(count, offset) if count > 0 else b""
        return data

    def source(self) -> BinaryIO:
        """What libsndfile reads from: a stream that fetches much at a time."""
        self._streams.append(open_binary(self._location))
        return self._streams[-1]

    def close(self) -> None:
        for stream in (*self._streams, self._file):
            stream.close()
