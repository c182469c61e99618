"""Find recordings below a folder or bucket, sorted by path, with one folder listing in memory at a time."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from mast.errors import StorageError
from mast.storage import is_remote, resolve_remote

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
"""File extensions of recordings, and the format that libsndfile should report for each."""

_PLAIN_ENDINGS = {".WAV", ".wav"}
HIDDEN_FILE = "hidden"
_MAX_EXTENSIONS = 100  # of ignored files, counted separately; the others count as "other"
_SYSTEM_FOLDERS = {"System Volume Information", "$RECYCLE.BIN", "__MACOSX", "lost+found"}


class FoundFile(NamedTuple):
    """One file to read, or a fault found during the walk; size and time only if the listing includes them."""

    path: str
    size_bytes: int | None = None
    modified_ns: int | None = None
    fault: str | None = None
    detail: str | None = None


class _Listing(NamedTuple):
    """A folder's recordings and subfolders (with a trailing slash), last one first; `details` from the listing itself."""

    names: list[str]
    details: dict[str, FoundFile]
    identity: tuple[int, int] | None = None


_List = Callable[[str, Sequence[_Listing]], _Listing]


def walk(root: str, ignored: Counter[str]) -> Iterator[FoundFile]:
    """Yield every recording below `root` and every fault found during the walk; count other files in `ignored`.

    Links are followed. Hidden files (including the `._` files of macOS) and folders of operating systems are not
    recordings; they are counted as "hidden".
    """
    list_folder = _remote_lister(root, ignored) if is_remote(root) else _local_lister(root, ignored)
    try:
        levels = [("", list_folder("", ()))]
    except OSError as error:
        raise StorageError(_listing_error(root, error)) from None
    while levels:
        folder, listing = levels[-1]
        if not listing.names:
            levels.pop()
            continue
        name = listing.names.pop()
        path = folder + name
        if not name.endswith("/"):
            yield make_found_file(path, listing.details.get(name) if listing.details else None)
            continue
        try:
            levels.append((path, list_folder(path, [level for _, level in levels])))
        except OSError as error:
            fault = "no-permission" if isinstance(error, PermissionError) else "unreadable"
            reason = f"the folder could not be opened: {error.strerror or error}"
            yield make_found_file(path[:-1], FoundFile("", fault=fault, detail=reason))


def file_extension(name: str) -> str:
    """Return a file's extension in lower case, without the dot."""
    return name.rpartition(".")[2].strip().lower() if "." in name else ""


def make_found_file(path: str, details: FoundFile | None = None) -> FoundFile:
    """Return `details` with its path set; a path that is not valid text is escaped and becomes a fault."""
    if not path.isascii():
        try:
            path.encode()
        except UnicodeEncodeError:
            escaped = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            return FoundFile(escaped, fault="invalid-filename")
    return details._replace(path=path) if details else FoundFile(path)


def _is_recording(name: str, ignored: Counter[str]) -> bool:
    extension = file_extension(name)
    if extension in AUDIO_FORMATS:
        return True
    label = f".{extension}" if extension else "no extension"
    ignored[label if label in ignored or len(ignored) < _MAX_EXTENSIONS else "other"] += 1
    return False


def _is_hidden(name: str, ignored: Counter[str]) -> bool:
    if name.startswith(".") or name in _SYSTEM_FOLDERS:
        ignored[HIDDEN_FILE] += 1
        return True
    return False


def _local_lister(root: str, ignored: Counter[str]) -> _List:
    def list_folder(folder: str, above: Sequence[_Listing]) -> _Listing:
        location = os.path.join(root, folder)  # noqa: PTH118 (a Path would change unusual names)
        folder_stat = os.stat(location)  # noqa: PTH116
        identity = (folder_stat.st_dev, folder_stat.st_ino)
        ancestors = [identity, *(level.identity for level in above)]
        names: list[str] = []
        details: dict[str, FoundFile] = {}
        with os.scandir(location) as entries:
            for entry in entries:
                name = entry.name
                if name[-4:] in _PLAIN_ENDINGS and name[0] != "." and entry.is_file(follow_symlinks=False):
                    names.append(name)  # most files, without a second system call
                    continue
                if _is_hidden(name, ignored):
                    continue
                if entry.is_symlink() and (fault := _link_fault(entry, ancestors)):
                    if file_extension(name) in AUDIO_FORMATS or "." not in name:
                        details[name] = FoundFile("", fault=fault)
                        names.append(name)
                    else:
                        _is_recording(name, ignored)
                elif entry.is_dir():
                    names.append(f"{name}/")
                elif entry.is_file() and _is_recording(name, ignored):
                    names.append(name)
        names.sort(reverse=True)
        return _Listing(names, details, identity)

    return list_folder


def _link_fault(entry: os.DirEntry[str], ancestors: Sequence[tuple[int, int] | None]) -> str | None:
    """Return the fault of a link that cannot be followed, or None."""
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

    filesystem, key = resolve_remote(root)

    def list_folder(folder: str, _above: Sequence[_Listing]) -> _Listing:
        names: list[str] = []
        details: dict[str, FoundFile] = {}
        for info in filesystem.get_file_info(FileSelector(f"{key.rstrip('/')}/{folder}".rstrip("/"))):
            name = info.base_name
            if _is_hidden(name, ignored):
                continue
            if info.type == FileType.Directory:
                names.append(f"{name}/")
            elif _is_recording(name, ignored):
                details[name] = FoundFile("", info.size, info.mtime_ns)
                names.append(name)
        names.sort(reverse=True)
        return _Listing(names, details)

    return list_folder


def _listing_error(root: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{root}: there is no such folder. Check its spelling, and that its drive is mounted."
    if isinstance(error, NotADirectoryError):
        return f"{root} is a file. Specify the folder that contains it."
    if isinstance(error, PermissionError):
        return f"{root}: you have no permission to list this folder. Change its permissions and scan again."
    return f"{root}: cannot be listed: {error.strerror or error}."
