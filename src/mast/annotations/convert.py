"""Convert annotations between formats and count everything that cannot be imported or written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mast.annotations.delimited import format_counts
from mast.annotations.formats import detect_format, read_annotations, write_annotations
from mast.annotations.recording_names import rename_recordings, resolve
from mast.config import AnnotationFormat
from mast.errors import AnnotationError
from mast.records import Recording, from_table
from mast.storage import open_binary
from mast.wording import counted


@dataclass(frozen=True, slots=True)
class Conversion:
    """Result of a conversion: numbers read, `problems` on import, and `losses` that the target cannot store."""

    source: str
    target: str
    source_format: AnnotationFormat
    target_format: AnnotationFormat
    events: int
    recordings: int
    reviewed: int
    problems: Counter[str]
    losses: Counter[str]

    def summary(self) -> str:
        """Return the result as text."""
        lines = [
            f"{self.source} ({self.source_format}): {counted(self.events, 'event')} in "
            f"{counted(self.recordings, 'recording')}, "
            f"{self.reviewed} of them reviewed",
            *format_counts("Not imported from the source:", self.problems),
            *format_counts(f"Not stored in {self.target_format}:", self.losses),
            f"Written: {self.target} ({self.target_format})",
        ]
        return "\n".join(lines)


def convert(
    source: str | Path,
    target: str | Path,
    to: AnnotationFormat,
    from_: AnnotationFormat | None = None,
    recordings: str | Path | Sequence[Recording] | None = None,
) -> Conversion:
    """Convert an annotation file or folder to another format.

    Args:
        source: File or folder to read.
        target: File or folder to write.
        to: Format to write.
        from_: Format of the source; detected if None.
        recordings: Recordings of a scan, or its recordings.parquet; they add durations and clock times. Recording
            names that match become recording ids of the scan; other names are kept.

    Returns:
        Numbers of events and recordings, and everything that was not imported or not written.

    Raises:
        AnnotationError: The source cannot be read, or the target cannot be written.
    """
    source_format = from_ or detect_format(source)
    annotations = read_annotations(source, source_format)
    scanned = read_recordings(recordings) if isinstance(recordings, str | Path) else list(recordings or ())
    if scanned:
        names, _ = resolve(annotations.recording_ids(), [item.recording_id for item in scanned])
        annotations = rename_recordings(annotations, names)
    losses = write_annotations(annotations, target, to, scanned)
    return Conversion(
        source=str(source),
        target=str(target),
        source_format=source_format,
        target_format=to,
        events=len(annotations.events),
        recordings=len(annotations.recording_ids()),
        reviewed=len({span.recording_id for span in annotations.reviewed}),
        problems=annotations.problems,
        losses=losses,
    )


def read_recordings(path: str | Path) -> list[Recording]:
    """Load the recordings of a scan from its Parquet table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_binary(str(path)) as file:
            return from_table(pq.read_table(file), Recording)
    except (OSError, KeyError, pa.ArrowInvalid) as error:
        raise AnnotationError(
            f"{path}: not a table of recordings: {error}. Pass recordings.parquet as written by mast scan."
        ) from None
