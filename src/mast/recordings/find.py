"""Find recordings below a folder or bucket, in the order of their paths as text, one folder in memory at a time."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from mast.errors import StorageError
from mast.storage import is_remote, remote

AUDIO_FORMATS = {
    "wav": "WAV",
    "wave": "WAV",
    "rf64": "WAV",
    "bwf": "WAV",
    "w64": "W64",
    "flac": "FLAC",
    "ogg": "OGG",
    "oga": "OGG",
    "opus": "OGG",
    "mp3": "MP3",
    "aif": "AIFF",
    "aiff": "AIFF",
    "aifc": "AIFF",
    "caf": "CAF",
    "au": "AU",
    "snd": "AU",
}
"""Extensions of recordings, and the format libsndfile should find behind each."""

_PLAIN_ENDINGS = {".WAV", ".wav"}
HIDDEN = "hidden"
_MAX_KINDS = 100  # of ignored files, counted apart; the rest are "other"
_SYSTEM_FOLDERS = {"System Volume Information", "$RECYCLE.BIN", "__MACOSX", "lost+found"}


class Found(NamedTuple):
    """One file to read, or a fault met on the way; size and time only where the listing tells them."""

    path: str
    size_bytes: int | None = None
    modified_ns: int | None = None
    fault: str | None = None
    detail: str | None = None


class _Listing(NamedTuple):
    """A folder's recordings and folders (these end with a slash), last one first; `told` by the listing itself."""

    names: list[str]
    told: dict[str, Found]
    identity: tuple[int, int] | None = None


_List = Callable[[str, Sequence[_Listing]], _Listing]


def walk(root: str, ignored: Counter[str]) -> Iterator[Found]:
    """Every recording below `root`, and every fault met on the way; other files are counted in `ignored`.

    Links are followed. Hidden files (among them the `._` files of macOS) and the systems' own folders are not
    recordings; they are counted as "hidden".
    """
    list_folder = _remote_lister(root, ignored) if is_remote(root) else _local_lister(root, ignored)
    try:
        levels = [("", list_folder("", ()))]
    except OSError as error:
        raise StorageError(_why_not_listed(root, error)) from None
    while levels:
        folder, listing = levels[-1]
        if not listing.names:
            levels.pop()
            continue
        name = listing.names.pop()
        path = folder + name
        if not name.endswith("/"):
            yield named(path, listing.told.get(name) if listing.told else None)
            continue
        try:
            levels.append((path, list_folder(path, [level for _, level in levels])))
        except OSError as error:
            fault = "no-permission" if isinstance(error, PermissionError) else "unreadable"
            reason = f"the folder could not be opened: {error.strerror or error}"
            yield named(path[:-1], Found("", fault=fault, detail=reason))


def kind(name: str) -> str:
    """A file's extension in small letters, without the dot."""
    return name.rpartition(".")[2].strip().lower() if "." in name else ""


def named(path: str, told: Found | None = None) -> Found:
    """A find under its path; a path that is no text becomes one, escaped, and a fault."""
    if not path.isascii():
        try:
            path.encode()
        except UnicodeEncodeError:
            escaped = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            return Found(escaped, fault="odd-name")
    return told._replace(path=path) if told else Found(path)


def _is_recording(name: str, ignored: Counter[str]) -> bool:
    extension = kind(name)
    if extension in AUDIO_FORMATS:
        return True
    label = f".{extension}" if extension else "no extension"
    ignored[label if label in ignored or len(ignored) < _MAX_KINDS else "other"] += 1
    return False


def _is_hidden(name: str, ignored: Counter[str]) -> bool:
    if name.startswith(".") or name in _SYSTEM_FOLDERS:
        ignored[HIDDEN] += 1
        return True
    return False


def _local_lister(root: str, ignored: Counter[str]) -> _List:
    def list_folder(folder: str, above: Sequence[_Listing]) -> _Listing:
        location = os.path.join(root, folder)  # noqa: PTH118 (a Path would drop the spaces of odd names)
        here = os.stat(location)  # noqa: PTH116
        identity = (here.st_dev, here.st_ino)
        ancestors = [identity, *(level.identity for level in above)]
        names: list[str] = []
        told: dict[str, Found] = {}
        with os.scandir(location) as entries:
            for entry in entries:
                name = entry.name
                if name[-4:] in _PLAIN_ENDINGS and name[0] != "." and entry.is_file(follow_symlinks=False):
                    names.append(name)  # nearly all there is, and soon told
                    continue
                if _is_hidden(name, ignored):
                    continue
                if entry.is_symlink() and (fault := _link_fault(entry, ancestors)):
                    if kind(name) in AUDIO_FORMATS or "." not in name:
                        told[name] = Found("", fault=fault)
                        names.append(name)
                    else:
                        _is_recording(name, ignored)
                elif entry.is_dir():
                    names.append(f"{name}/")
                elif entry.is_file() and _is_recording(name, ignored):
                    names.append(name)
        names.sort(reverse=True)
        return _Listing(names, told, identity)

    return list_folder


def _link_fault(entry: os.DirEntry[str], ancestors: Sequence[tuple[int, int] | None]) -> str | None:
    """Why a link cannot be followed, if so."""
    try:
        target = entry.stat()
    except OSError as error:
        if isinstance(error, PermissionError):
            return "no-permission"
        return "link-loop" if error.errno == errno.ELOOP else "broken-link"
    loops = stat.S_ISDIR(target.st_mode) and (target.st_dev, target.st_ino) in ancestors
    return "link-loop" if loops else None


def _remote_lister(root: str, ignored: Counter[str]) -> _List:
    from pyarrow.fs import FileSelector, FileType

    filesystem, key = remote(root)

    def list_folder(folder: str, _above: Sequence[_Listing]) -> _Listing:
        names: list[str] = []
        told: dict[str, Found] = {}
        for info in filesystem.get_file_info(FileSelector(f"{key.rstrip('/')}/{folder}".rstrip("/"))):
            name = info.base_name
            if _is_hidden(name, ignored):
                continue
            if info.type == FileType.Directory:
                names.append(f"{name}/")
            elif _is_recording(name, ignored):
                told[name] = Found("", info.size, info.mtime_ns)
                names.append(name)
        names.sort(reverse=True)
        return _Listing(names, told)

    return list_folder


def _why_not_listed(root: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{root}: there is no such folder. Check its spelling, and that its drive is mounted."
    if isinstance(error, NotADirectoryError):
        return f"{root} is a file. Give the folder that holds it."
    if isinstance(error, PermissionError):
        return f"{root}: you may not look into this folder. Change its permissions and scan again."
    return f"{root}: cannot be listed: {error.strerror or error}."
