"""Cache of rendered tiles: the latest in memory, more on disk, both with a size limit."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

MEMORY_BYTES = 64 << 20
DISK_BYTES = 512 << 20
KEPT_FRACTION = 0.8
"""Fraction of the limit to which a full folder is emptied, oldest files first."""


def cache_folder() -> Path:
    """Return the tile folder in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mast" / "tiles"


class TileCache:
    """Cache of tiles by name; a tile that cannot be written or read is rendered again."""

    def __init__(self, folder: Path, memory_bytes: int = MEMORY_BYTES, disk_bytes: int = DISK_BYTES) -> None:
        self._folder, self._memory_limit, self._disk_limit = folder, memory_bytes, disk_bytes
        self._memory: OrderedDict[str, bytes] = OrderedDict()
        self._memory_bytes = 0
        self._lock = threading.Lock()
        self._disk_bytes = sum(size for _, size, _ in self._files())

    def get(self, name: str) -> bytes | None:
        """Return a tile, or None if it is not cached."""
        key = _key(name)
        with self._lock:
            if key in self._memory:
                self._memory.move_to_end(key)
                return self._memory[key]
        with suppress(OSError):
            content = (self._folder / key).read_bytes()
            self._remember(key, content)
            return content
        return None

    def put(self, name: str, content: bytes) -> None:
        """Store a tile."""
        key = _key(name)
        self._remember(key, content)
        partial = self._folder / f".{key}.{threading.get_ident()}"
        with suppress(OSError):  # with a full or read-only disk, the page is only slower
            self._folder.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(content)
            partial.replace(self._folder / key)
        with self._lock:
            self._disk_bytes += len(content)
            if self._disk_bytes > self._disk_limit:
                self._empty()

    def _remember(self, key: str, content: bytes) -> None:
        with self._lock:
            self._memory_bytes += len(content) - len(self._memory.pop(key, b""))
            self._memory[key] = content
            while self._memory_bytes > self._memory_limit:
                _, oldest = self._memory.popitem(last=False)
                self._memory_bytes -= len(oldest)

    def _empty(self) -> None:
        """Delete the oldest files."""
        files = sorted(self._files())
        self._disk_bytes = sum(size for _, size, _ in files)
        for _, size, path in files:
            if self._disk_bytes <= self._disk_limit * KEPT_FRACTION:
                break
            with suppress(OSError):
                path.unlink()
            self._disk_bytes -= size

    def _files(self) -> list[tuple[float, int, Path]]:
        """Return (modification time, bytes, path) of all files."""
        files = []
        with suppress(OSError):
            for path in self._folder.iterdir():
                with suppress(OSError):  # another server may have deleted it
                    status = path.stat()
                    files.append((status.st_mtime, status.st_size, path))
        return files


def _key(name: str) -> str:
    return hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
