"""From one annotation format to another, with an account of what was read and what the other cannot hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mast.annotations.formats import guess_format, read_annotations, write_annotations
from mast.annotations.matching import renamed, resolve
from mast.annotations.text import listed
from mast.config import AnnotationFormat
from mast.errors import AnnotationError
from mast.events import Recording, from_table
from mast.storage import open_binary


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a conversion did: how much was read, what could not be taken over, what could not be written."""

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
        """The account for a person to read."""
        lines = [
            f"{self.source} ({self.source_format}): {self.events} events in {self.recordings} recordings, "
            f"{self.reviewed} of them reviewed",
            *listed("Not taken over from the source:", self.problems),
            *listed(f"Not kept in {self.target_format}:", self.losses),
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
    """Convert a file or folder; `recordings`, or the recordings.parquet of a scan, adds durations and clock times.

    Names that the scan knows become its recording ids; the others stay as they are.
    """
    source_format = from_ or guess_format(source)
    annotations = read_annotations(source, source_format)
    scanned = read_recordings(recordings) if isinstance(recordings, str | Path) else list(recordings or ())
    if scanned:
        names, _ = resolve(annotations.recording_ids(), [item.recording_id for item in scanned])
        annotations = renamed(annotations, names)
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
    """Recordings of a scan's Parquet table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_binary(str(path)) as file:
            return from_table(pq.read_table(file), Recording)
    except (OSError, KeyError, pa.ArrowInvalid) as error:
        raise AnnotationError(
            f"{path}: not a table of recordings: {error}. mast scan writes one as recordings.parquet."
        ) from None
