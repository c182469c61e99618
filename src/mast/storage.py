"""Read, write and list files; a *location* is a local path or `s3://bucket/key`."""

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

from filelock import FileLock, Timeout

from mast.errors import StorageError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

LOCK = ".lock"
"""File that `exclusive_lock` locks; it stays, and is hidden from listings."""

READ_AHEAD_BYTES = 1 << 20
"""Bytes per request to an object store: far fewer round trips than with libsndfile's small reads."""


def is_remote(location: str) -> bool:
    """Return True if a location is on an object store."""
    return location.startswith("s3://")


def join(root: str, path: str) -> str:
    """Return the location of `path`, written with slashes, below `root`."""
    return f"{root.rstrip('/')}/{path}" if is_remote(root) else str(Path(root, *path.split("/")))


def resolve_remote(location: str) -> tuple[FileSystem, str]:
    """Return the file system and key of a remote location; AWS_ environment variables set endpoint, region and keys.

    The key is used unchanged, without URL decoding, because file names contain spaces, `#` and `?`.
    """
    key = location.removeprefix("s3://").rstrip("/")
    if not key.partition("/")[0]:
        raise StorageError(f"{location}: no bucket. Write it as s3://bucket/prefix.")
    return _file_system(*endpoint_and_region()), key


def endpoint_and_region() -> tuple[str | None, str | None]:
    """Return endpoint and region of the object store from the environment; None leaves the choice to the client."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return endpoint, os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")


@cache
def _file_system(endpoint: str | None, region: str | None) -> FileSystem:
    """Return the client of an object store; cached, so each store has one client."""
    from pyarrow.fs import S3FileSystem

    return S3FileSystem(endpoint_override=endpoint, region=region)


def exists(location: str) -> bool:
    """Return True if a file or folder exists at a location."""
    if not is_remote(location):
        return Path(location).exists()
    filesystem, key = resolve_remote(location)
    return bool(filesystem.get_file_info(key).type.name != "NotFound")


def is_folder(location: str) -> bool:
    """Return True if a folder exists at a location."""
    if not is_remote(location):
        return Path(location).is_dir()
    filesystem, key = resolve_remote(location)
    return bool(filesystem.get_file_info(key).type.name == "Directory")


def modified_ns(location: str) -> int | None:
    """Return the modification time of a file in nanoseconds since 1970, or None if there is no file."""
    if is_remote(location):
        filesystem, key = resolve_remote(location)
        info = filesystem.get_file_info(key)
        return cast(int, info.mtime_ns) if info.is_file else None
    path = Path(location)
    return path.stat().st_mtime_ns if path.is_file() else None


def list_files(folder: str) -> list[str]:
    """Return the relative paths of all files below a folder, sorted, without hidden files."""
    if is_remote(folder):
        from pyarrow.fs import FileSelector

        filesystem, key = resolve_remote(folder)
        found = filesystem.get_file_info(FileSelector(key, recursive=True))
        names = [item.path.removeprefix(key).lstrip("/") for item in found if item.is_file]
    else:
        root = Path(folder)
        names = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
    return sorted(name for name in names if not any(part.startswith(".") for part in name.split("/")))


def open_binary(location: str) -> BinaryIO:
    """Open a location for reading; reads from an object store are buffered. Raise OSError if the file is missing."""
    if not is_remote(location):
        return Path(location).open("rb")
    filesystem, key = resolve_remote(location)
    return io.BufferedReader(cast(io.RawIOBase, _Remote(filesystem, key)), READ_AHEAD_BYTES)


@contextmanager
def atomic_write(location: str) -> Iterator[BinaryIO]:
    """Open a file for writing that appears only when complete; a killed process leaves no partial file."""
    if is_remote(location):
        filesystem, key = resolve_remote(location)
        with tempfile.TemporaryFile() as buffer:
            yield cast(BinaryIO, buffer)
            buffer.seek(0)
            with filesystem.open_output_stream(key) as stream:
                shutil.copyfileobj(buffer, stream, READ_AHEAD_BYTES)
        return
    path = Path(location)
    suffix = f"{os.getpid()}-{secrets.token_hex(4)}"  # containers on one disk may have equal process ids
    partial = path.with_name(f".{path.name}.{suffix}.partial")
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


def delete(location: str) -> None:
    """Delete the file at a location, if it exists."""
    if not is_remote(location):
        Path(location).unlink(missing_ok=True)
    elif exists(location):
        filesystem, key = resolve_remote(location)
        filesystem.delete_file(key)


@contextmanager
def exclusive_lock(folder: str, command: str) -> Iterator[None]:
    """Lock a local folder for `mast command`; the operating system releases the lock whenever the process ends."""
    if is_remote(folder):
        yield
        return
    try:
        with FileLock(Path(folder, LOCK), blocking=False):
            yield
    except Timeout:
        raise StorageError(
            f"{folder}: another mast {command} is using this folder. Wait until it has finished."
        ) from None


class _Remote(io.RawIOBase):
    """Raw file interface to a remote object, for `io.BufferedReader`."""

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
