"""The formats by name, and reading and writing through them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from mast.annotations import (
    aoef,
    audacity,
    audubon_core,
    batdetect2,
    birdeep,
    camtrap_dp,
    plain_csv,
    raven,
)
from mast.annotations.rows import Columns
from mast.annotations.tables import Annotations, merge, with_recordings
from mast.annotations.text import decode
from mast.config import AnnotationFormat
from mast.errors import AnnotationError
from mast.events import Recording
from mast.storage import exists, files_below, is_folder, join, open_binary

HEAD_BYTES = 1 << 16
"""A format shows within this much of a file."""


class Format(Protocol):
    """What a format's module offers."""

    @property
    def SUFFIXES(self) -> tuple[str, ...]:  # noqa: N802
        """Endings of its files."""
        ...

    def fits(self, head: str) -> bool:
        """Whether a file that begins so is in this format."""
        ...

    def read(self, path: str | Path, name: str | None = None) -> Annotations:
        """Read a file; `name` is its path below the folder being read."""
        ...

    def write(self, annotations: Annotations, path: str | Path) -> Counter[str]:
        """Write a file or folder, and count what it cannot hold."""
        ...


FORMATS: dict[AnnotationFormat, Format] = {
    "raven": raven,
    "audacity": audacity,
    "birdeep": birdeep,
    "audubon-core": audubon_core,
    "csv": plain_csv,
    "aoef": aoef,
    "batdetect2": batdetect2,
    "camtrap-dp": camtrap_dp,
}
"""In the order in which a file is tried: stricter ones first."""


class Streamed(Protocol):
    """What a format's module offers if it can write more than memory holds."""

    def write_parts(self, parts: Iterable[Annotations], path: str | Path, columns: Columns) -> Counter[str]:
        """Write a file or package of whole recordings that come part by part, in a table with these columns."""
        ...


STREAMED: dict[AnnotationFormat, Streamed] = {
    "raven": raven,
    "audacity": audacity,
    "csv": plain_csv,
    "aoef": aoef,
    "audubon-core": audubon_core,
    "camtrap-dp": camtrap_dp,
}


def read_annotations(path: str | Path, format: AnnotationFormat) -> Annotations:  # noqa: A002
    """Read a file, or all files of a folder that are in this format, in the order of their names."""
    location = str(path)
    module = FORMATS[format]
    if format == "camtrap-dp" or not is_folder(location):
        return module.read(location)
    parts, others = [], 0
    for name in files_below(location):
        if name.lower().endswith(module.SUFFIXES):
            place = join(location, name)
            if module.fits(_head(place)):
                parts.append(module.read(place, name))
            else:
                others += 1
    if not parts:
        endings = " or ".join(module.SUFFIXES)
        raise AnnotationError(f"{location}: no file ({endings}) in this folder is in the format {format}.")
    merged = merge(parts)
    problems = Counter({f"file in the folder that is not in the format {format}: passed over": others})
    return replace(merged, problems=merged.problems + problems)


def write_annotations(
    annotations: Annotations,
    path: str | Path,
    format: AnnotationFormat,  # noqa: A002
    recordings: Sequence[Recording] = (),
) -> Counter[str]:
    """Write annotations, knowing what a scan found out about their recordings; returns what the format cannot hold."""
    return FORMATS[format].write(with_recordings(annotations, recordings), str(path))


def guess_format(path: str | Path) -> AnnotationFormat:
    """The format that a file, or the first telling file of a folder, is in."""
    location = str(path)
    if not exists(location):
        raise AnnotationError(f"{location}: there is no such file or folder.")
    folder = is_folder(location)
    for name in files_below(location) if folder else [""]:
        place = join(location, name) if folder else location
        head: str | None = None
        for format_name, module in FORMATS.items():
            if place.lower().endswith(module.SUFFIXES):
                head = _head(place) if head is None else head
                if head.strip() and module.fits(head):
                    return format_name
    raise AnnotationError(
        f"{location}: cannot tell which format this is. Say it with --from, one of {', '.join(sorted(FORMATS))}."
    )


def _head(location: str) -> str:
    try:
        with open_binary(location) as file:
            return decode(file.read(HEAD_BYTES))
    except OSError as error:
        raise AnnotationError(f"{location}: cannot be read: {error.strerror or error}.") from None
