"""Tiles that were drawn before: the last ones in memory, more of them in a folder, and never more than a limit."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

MEMORY_BYTES = 64 << 20
DISK_BYTES = 512 << 20
KEPT_SHARE = 0.8
"""A full folder is emptied to this share, the oldest files first."""


def cache_folder() -> Path:
    """Where programs of this person keep what they can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mast" / "tiles"


class TileCache:
    """Pictures by their name; what cannot be written or read again is drawn again."""

    def __init__(self, folder: Path, memory_bytes: int = MEMORY_BYTES, disk_bytes: int = DISK_BYTES) -> None:
        self._folder, self._memory_limit, self._disk_limit = folder, memory_bytes, disk_bytes
        self._memory: OrderedDict[str, bytes] = OrderedDict()
        self._memory_bytes = 0
        self._lock = threading.Lock()
        self._disk_bytes = sum(size for _, size, _ in self._files())

    def get(self, name: str) -> bytes | None:
        """A picture, if it is kept."""
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
        """Keep a picture."""
        key = _key(name)
        self._remember(key, content)
        partial = self._folder / f".{key}.{threading.get_ident()}"
        with suppress(OSError):  # a full or read-only disk only makes the page slower
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
            if self._disk_bytes <= self._disk_limit * KEPT_SHARE:
                break
            with suppress(OSError):
                path.unlink()
            self._disk_bytes -= size

    def _files(self) -> list[tuple[float, int, Path]]:
        """(when it was made, bytes, where) of all files."""
        found = []
        with suppress(OSError):
            for path in self._folder.iterdir():
                with suppress(OSError):  # another server may have deleted it
                    about = path.stat()
                    found.append((about.st_mtime, about.st_size, path))
        return found


def _key(name: str) -> str:
    return hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
