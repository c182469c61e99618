"""Table files named after recordings: derive names, choose safe paths, and remove files of earlier exports."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

from mast.storage import atomic_write, delete, join, modified_ns, open_binary

ENDINGS = re.compile(
    r"(\.Table\.\d+)?\.selections?(\.table)?\.txt$"
    r"|\.BirdNET\.(selection\.table|results)\.(txt|csv)$"
    r"|[._-](audacity|labels?|annotations?)\.(txt|csv|tsv)$"
    r"|\.(txt|csv|tsv|json)$",
    re.IGNORECASE,
)
"""Endings that programs append to the name of a recording to name its table."""

INVALID_CHARACTERS = re.compile(r'[<>:"|?*\x00-\x1f\x7f]')
"""Characters that are not valid on some file systems."""

TABLE_SUFFIXES = (".txt", ".tsv", ".csv", ".json")


def recording_name_from_table(table_name: str) -> str:
    """Return the name of the recording from the name of its table: `a/x` for `a/x.Table.1.selections.txt`."""
    name = table_name.replace("\\", "/")
    return ENDINGS.sub("", name) or name


def is_one_file(location: str) -> bool:
    """Return True if a target is one file, False if it is a folder with one file for each recording."""
    return location.lower().endswith(TABLE_SUFFIXES)


def table_paths(recording_ids: Iterable[str], ending: str) -> dict[str, str]:
    """Return a relative path for each recording's table: inside the folder, valid on every file system, and unique."""
    stems = {recording_id: _safe(recording_id) for recording_id in recording_ids}
    taken: set[str] = set()
    for recording_id in sorted(stems, key=lambda name: stems[name] != name):  # valid names are never changed
        stem, count = stems[recording_id], 1
        while stems[recording_id].casefold() in taken:
            count += 1
            stems[recording_id] = f"{stem}-{count}"
        taken.add(stems[recording_id].casefold())
    return {recording_id: stem + ending for recording_id, stem in stems.items()}


def table_path(recording_id: str, ending: str) -> str:
    """Return a unique relative path for the table of one recording; the other recordings need not be known."""
    stem = _safe(recording_id)
    suffix = (
        ""
        if stem == recording_id
        else f"-{sha256(recording_id.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    )
    return stem + suffix + ending


def remove_stale_exports(names: Iterable[str], folder: str, run: str) -> int:
    """Delete files that earlier exports of a run wrote into a folder, except `names`; return the number of edited files.

    A hidden file in the folder lists the exported files. Files modified later than this list were edited by a user
    and are kept.
    """
    kept, edited = set(names), 0
    location = join(folder, f".mast-{run}.txt")
    listed_ns = modified_ns(location)
    if listed_ns is not None:
        with open_binary(location) as file:
            listed = file.read().decode("utf-8", "surrogateescape").split("\n")
        for name in listed:
            path = join(folder, name)
            if name in kept or name != _safe(name) or (written_ns := modified_ns(path)) is None:
                continue
            if written_ns > listed_ns:
                edited += 1
            else:
                delete(path)
    if kept:
        with atomic_write(location) as file:
            file.write("\n".join(sorted(kept)).encode("utf-8", "surrogateescape"))
    else:
        delete(location)
    return edited


def _safe(name: str) -> str:
    """Return a relative path inside its folder that is valid on every file system."""
    parts = [INVALID_CHARACTERS.sub("_", part.strip()) for part in name.replace("\\", "/").split("/")]
    return "/".join(part for part in parts if part.strip(" .")) or "recording"
