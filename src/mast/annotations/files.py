"""Files named after recordings: a recording's name from a table's, a safe place for it, and none of earlier exports."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

from mast.storage import join, modified_ns, open_binary, remove, written_whole

ENDINGS = re.compile(
    r"(\.Table\.\d+)?\.selections?(\.table)?\.txt$"
    r"|\.BirdNET\.(selection\.table|results)\.(txt|csv)$"
    r"|[._-](audacity|labels?|annotations?)\.(txt|csv|tsv)$"
    r"|\.(txt|csv|tsv|json)$",
    re.IGNORECASE,
)
"""What programs append to a recording's name for its table."""

RESERVED = re.compile(r'[<>:"|?*\x00-\x1f\x7f]')
"""Characters that some file system refuses."""

TABLE_SUFFIXES = (".txt", ".tsv", ".csv", ".json")


def recording_named_by(table_name: str) -> str:
    """The recording a table is named after: `a/x.Table.1.selections.txt` is about `a/x`."""
    name = table_name.replace("\\", "/")
    return ENDINGS.sub("", name) or name


def is_one_file(location: str) -> bool:
    """Whether a target is one file; otherwise it is a folder that gets a file for each recording."""
    return location.lower().endswith(TABLE_SUFFIXES)


def places_below(recording_ids: Iterable[str], ending: str) -> dict[str, str]:
    """A relative path for each recording's table: below the folder, on every file system, no two alike."""
    stems = {recording_id: _safe(recording_id) for recording_id in recording_ids}
    taken: set[str] = set()
    for recording_id in sorted(
        stems, key=lambda name: stems[name] != name
    ):  # a name that fits is never changed
        stem, count = stems[recording_id], 1
        while stems[recording_id].casefold() in taken:
            count += 1
            stems[recording_id] = f"{stem}-{count}"
        taken.add(stems[recording_id].casefold())
    return {recording_id: stem + ending for recording_id, stem in stems.items()}


def place_below(recording_id: str, ending: str) -> str:
    """A relative path for one recording's table that no other recording has, without knowing the others."""
    stem = _safe(recording_id)
    mark = (
        ""
        if stem == recording_id
        else f"-{sha256(recording_id.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    )
    return stem + mark + ending


def keep_only(names: Iterable[str], folder: str, run: str) -> int:
    """Remove what earlier exports of a run have written into a folder, but for these files. → changed ones that stay

    A hidden list in the folder tells what exports have written. What was changed after the list is somebody's work.
    """
    kept, changed = set(names), 0
    location = join(folder, f".mast-{run}.txt")
    listed_ns = modified_ns(location)
    if listed_ns is not None:
        with open_binary(location) as file:
            before = file.read().decode("utf-8", "surrogateescape").split("\n")
        for name in before:
            place = join(folder, name)
            if name in kept or name != _safe(name) or (written_ns := modified_ns(place)) is None:
                continue
            if written_ns > listed_ns:
                changed += 1
            else:
                remove(place)
    if kept:
        with written_whole(location) as file:
            file.write("\n".join(sorted(kept)).encode("utf-8", "surrogateescape"))
    else:
        remove(location)
    return changed


def _safe(name: str) -> str:
    """A path without anything that leads elsewhere or that some file system refuses."""
    parts = [RESERVED.sub("_", part.strip()) for part in name.replace("\\", "/").split("/")]
    return "/".join(part for part in parts if part.strip(" .")) or "recording"
