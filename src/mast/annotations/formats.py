"""Registry of annotation formats, and functions that read, write and detect them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from mast.annotations import audacity, audubon_core, batdetect2, birdeep, camtrap_dp, plain_csv, raven
from mast.annotations.aoef import io as aoef
from mast.annotations.delimited import decode_text
from mast.annotations.model import Annotations, merge, with_recordings
from mast.annotations.table_io import Columns
from mast.config import AnnotationFormat
from mast.errors import AnnotationError
from mast.records import Recording
from mast.storage import exists, is_folder, join, list_files, open_binary

HEAD_BYTES = 1 << 16
"""Number of bytes read to detect a format."""


class Format(Protocol):
    """Interface of the module of a format."""

    @property
    def SUFFIXES(self) -> tuple[str, ...]:  # noqa: N802
        """Endings of file names, in lower case."""
        ...

    def sniff(self, head: str) -> bool:
        """Return True if a file that begins with `head` is in this format."""
        ...

    def read(self, path: str | Path, name: str | None = None) -> Annotations:
        """Read a file; `name` is its path below the folder being read."""
        ...

    def write(self, annotations: Annotations, path: str | Path) -> Counter[str]:
        """Write a file or folder; return counts of everything the format cannot store."""
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
"""Formats in the order of detection: stricter ones first."""


class StreamingFormat(Protocol):
    """Interface of the module of a format that writes annotations larger than memory."""

    def write_parts(self, parts: Iterable[Annotations], path: str | Path, columns: Columns) -> Counter[str]:
        """Write a file or package from parts that hold complete recordings, in a table with these columns."""
        ...


STREAMING_FORMATS: dict[AnnotationFormat, StreamingFormat] = {
    "raven": raven,
    "audacity": audacity,
    "csv": plain_csv,
    "aoef": aoef,
    "audubon-core": audubon_core,
    "camtrap-dp": camtrap_dp,
}


def read_annotations(path: str | Path, format: AnnotationFormat) -> Annotations:  # noqa: A002
    """Read an annotation file, or all files of a folder that are in this format, in the order of their names.

    Args:
        path: File or folder; may be on S3.
        format: Format of the files.

    Raises:
        AnnotationError: A file cannot be read, or no file of the folder is in the format.
    """
    location = str(path)
    module = FORMATS[format]
    if format == "camtrap-dp" or not is_folder(location):
        return module.read(location)
    parts, skipped = [], 0
    for name in list_files(location):
        if name.lower().endswith(module.SUFFIXES):
            file = join(location, name)
            if module.sniff(_head(file)):
                parts.append(module.read(file, name))
            else:
                skipped += 1
    if not parts:
        endings = " or ".join(module.SUFFIXES)
        raise AnnotationError(f"{location}: no file ({endings}) in this folder is in the format {format}.")
    merged = merge(parts)
    problems = Counter({f"file in the folder that is not in the format {format}: skipped": skipped})
    return replace(merged, problems=merged.problems + problems)


def write_annotations(
    annotations: Annotations,
    path: str | Path,
    format: AnnotationFormat,  # noqa: A002
    recordings: Sequence[Recording] = (),
) -> Counter[str]:
    """Write annotations to a file or folder.

    Args:
        annotations: Events, reviewed spans and metadata to write.
        path: File or folder; may be on S3.
        format: Format to write.
        recordings: Recordings of a scan; they add durations, clock times and the order of files.

    Returns:
        Counts of everything the format cannot store, by description.
    """
    return FORMATS[format].write(with_recordings(annotations, recordings), str(path))


def detect_format(path: str | Path) -> AnnotationFormat:
    """Detect the format of a file, or of the first recognised file of a folder."""
    location = str(path)
    if not exists(location):
        raise AnnotationError(f"{location}: there is no such file or folder.")
    folder = is_folder(location)
    for name in list_files(location) if folder else [""]:
        file = join(location, name) if folder else location
        head: str | None = None
        for format_name, module in FORMATS.items():
            if file.lower().endswith(module.SUFFIXES):
                head = _head(file) if head is None else head
                if head.strip() and module.sniff(head):
                    return format_name
    raise AnnotationError(
        f"{location}: format not recognised. Specify it with --from: one of {', '.join(sorted(FORMATS))}."
    )


def _head(location: str) -> str:
    try:
        with open_binary(location) as file:
            return decode_text(file.read(HEAD_BYTES))
    except OSError as error:
        raise AnnotationError(f"{location}: cannot be read: {error.strerror or error}.") from None
