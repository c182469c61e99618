"""The one door to files: a *location* is a local path or `s3://bucket/key`, and everything else is the same."""

from __future__ import annotations

import io
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from mast.errors import StorageError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

READ_AHEAD_BYTES = 1 << 20
"""One request to an object store fetches this much: far fewer round trips than libsndfile's small reads."""


def is_remote(location: str) -> bool:
    """Whether a location lies on an object store."""
    return location.startswith("s3://")


def join(root: str, path: str) -> str:
    """Location of `path`, written with slashes, below `root`."""
    return f"{root.rstrip('/')}/{path}" if is_remote(root) else str(Path(root, *path.split("/")))


def remote(location: str) -> tuple[FileSystem, str]:
    """File system and key of a remote location; endpoint, region and keys come from the usual AWS_ variables.

    The key is taken to the letter: recorders write spaces, and people write `#` and `?`.
    """
    key = location.removeprefix("s3://").rstrip("/")
    if not key.partition("/")[0]:
        raise StorageError(f"{location}: no bucket. Write it as s3://bucket/prefix.")
    return _file_system(*endpoint_and_region()), key


def endpoint_and_region() -> tuple[str | None, str | None]:
    """Where the environment says the object store is; None where it leaves that to the client."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return endpoint, os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")


@cache
def _file_system(endpoint: str | None, region: str | None) -> FileSystem:
    """One client for all of a store."""
    from pyarrow.fs import S3FileSystem

    return S3FileSystem(endpoint_override=endpoint, region=region)


def exists(location: str) -> bool:
    """Whether there is a file or folder at a location."""
    if not is_remote(location):
        return Path(location).exists()
    filesystem, key = remote(location)
    return bool(filesystem.get_file_info(key).type.name != "NotFound")


def is_folder(location: str) -> bool:
    """Whether there is a folder at a location."""
    if not is_remote(location):
        return Path(location).is_dir()
    filesystem, key = remote(location)
    return bool(filesystem.get_file_info(key).type.name == "Directory")


def modified_ns(location: str) -> int | None:
    """When the file at a location was written, in nanoseconds since 1970; None where there is none."""
    if is_remote(location):
        filesystem, key = remote(location)
        info = filesystem.get_file_info(key)
        return cast(int, info.mtime_ns) if info.is_file else None
    path = Path(location)
    return path.stat().st_mtime_ns if path.is_file() else None


def files_below(folder: str) -> list[str]:
    """Paths of all files below a folder, sorted, without hidden ones."""
    if is_remote(folder):
        from pyarrow.fs import FileSelector

        filesystem, key = remote(folder)
        found = filesystem.get_file_info(FileSelector(key, recursive=True))
        names = [item.path.removeprefix(key).lstrip("/") for item in found if item.is_file]
    else:
        root = Path(folder)
        names = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
    return sorted(name for name in names if not any(part.startswith(".") for part in name.split("/")))


def open_binary(location: str) -> BinaryIO:
    """Open a location for reading, buffered where each read would be a request; missing files raise OSError."""
    if not is_remote(location):
        return Path(location).open("rb")
    filesystem, key = remote(location)
    return io.BufferedReader(cast(io.RawIOBase, _Remote(filesystem, key)), READ_AHEAD_BYTES)


@contextmanager
def written_whole(location: str) -> Iterator[BinaryIO]:
    """Write a file that appears only when complete: readers and a killed run never meet half of it."""
    if is_remote(location):
        filesystem, key = remote(location)
        with tempfile.TemporaryFile() as buffer:
            yield cast(BinaryIO, buffer)
            buffer.seek(0)
            with filesystem.open_output_stream(key) as stream:
                shutil.copyfileobj(buffer, stream, READ_AHEAD_BYTES)
        return
    path = Path(location)
    mark = f"{os.getpid()}-{secrets.token_hex(4)}"  # containers on one disk may have the same process numbers
    partial = path.with_name(f".{path.name}.{mark}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            partial.unlink()


def remove(location: str) -> None:
    """Let there be no file at a location."""
    if not is_remote(location):
        Path(location).unlink(missing_ok=True)
    elif exists(location):
        filesystem, key = remote(location)
        filesystem.delete_file(key)


@contextmanager
def held_alone(folder: str, verb: str) -> Iterator[None]:
    """Hold a local folder for `mast verb` alone; the system lets go of it when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows
        fcntl = None  # type: ignore[assignment]
    if is_remote(folder) or fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StorageError(
            f"{folder}: another mast {verb} is at work on it. Wait until it is done."
        ) from None
    finally:
        os.close(handle)


class _Remote(io.RawIOBase):
    """A remote object as the raw file that `io.BufferedReader` wants."""

    def __init__(self, filesystem: FileSystem, key: str) -> None:
        self._file = filesystem.open_input_file(key)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return cast(int, self._file.tell())

    def tell(self) -> int:
        return cast(int, self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
