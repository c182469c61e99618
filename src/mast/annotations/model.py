"""Format-independent content of annotation files: `Annotations`, and functions that merge and split them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta

from mast.records import Event, Recording, RecordingStatus, ReviewedSpan


@dataclass(frozen=True, slots=True)
class SourceFile:
    """File that annotations were read from."""

    path: str
    format: str


@dataclass(frozen=True, slots=True)
class RecordingMetadata:
    """Metadata of a recording; None where unknown.

    `start_utc` needs a known time zone; `start_local` is the time on the recorder's clock. `location` is the path of
    the file.
    """

    recording_id: str
    duration_s: float | None = None
    sample_rate_hz: int | None = None
    channels: int | None = None
    bit_depth: int | None = None
    gain: str | None = None
    start_utc: datetime | None = None
    start_local: datetime | None = None
    utc_offset_min: int | None = None
    site: str | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Annotations:
    """Events, completely reviewed spans, and metadata of the recordings.

    `recordings` are in the order of their file sequence. `processed` are the recordings that a model processed, with
    or without detections; no annotation file stores this. `problems` counts everything in the files that could not be
    imported, by description.
    """

    events: tuple[Event, ...] = ()
    reviewed: tuple[ReviewedSpan, ...] = ()
    recordings: tuple[RecordingMetadata, ...] = ()
    problems: Counter[str] = field(default_factory=Counter)
    sources: tuple[SourceFile, ...] = ()
    processed: tuple[RecordingStatus, ...] = ()

    def recording_ids(self) -> tuple[str, ...]:
        """Return all recording ids: first `recordings` in their order, then the others by first occurrence."""
        names = (
            item.recording_id
            for group in (self.recordings, self.events, self.reviewed, self.processed)
            for item in group
        )
        return tuple(dict.fromkeys(names))

    def metadata_by_recording(self) -> dict[str, RecordingMetadata]:
        """Return metadata by recording id, empty for recordings without metadata."""
        metadata = {item.recording_id: item for item in self.recordings}
        return {name: metadata.get(name, RecordingMetadata(name)) for name in self.recording_ids()}


def merge(parts: Iterable[Annotations]) -> Annotations:
    """Merge annotations: keep events in order and each reviewed span once, and merge the metadata of each recording."""
    parts = list(parts)
    problems: Counter[str] = Counter()
    for part in parts:
        problems.update(part.problems)
    return Annotations(
        events=tuple(event for part in parts for event in part.events),
        reviewed=tuple(dict.fromkeys(span for part in parts for span in part.reviewed)),
        recordings=merge_metadata(item for part in parts for item in part.recordings),
        problems=problems,
        sources=tuple(dict.fromkeys(source for part in parts for source in part.sources)),
        processed=tuple(item for part in parts for item in part.processed),
    )


def merge_metadata(items: Iterable[RecordingMetadata]) -> tuple[RecordingMetadata, ...]:
    """Merge metadata to one entry per recording, in order of first occurrence; earlier entries take precedence."""
    joined: dict[str, RecordingMetadata] = {}
    for item in items:
        earlier = joined.setdefault(item.recording_id, item)
        additions = {
            entry.name: getattr(item, entry.name)
            for entry in fields(RecordingMetadata)
            if getattr(earlier, entry.name) is None
        }
        joined[item.recording_id] = replace(earlier, **additions)
    return tuple(joined.values())


def with_recordings(annotations: Annotations, recordings: Sequence[Recording]) -> Annotations:
    """Add the recordings of a scan; their order and metadata take precedence.

    Quarantined files are left out, because no program can open them in a file sequence.
    """
    scanned = (metadata_of(recording) for recording in recordings if recording.status != "quarantined")
    return replace(annotations, recordings=merge_metadata([*scanned, *annotations.recordings]))


def metadata_of(recording: Recording) -> RecordingMetadata:
    """Return the metadata of a scanned recording."""
    digits = re.search(r"\d+", recording.encoding or "")
    return RecordingMetadata(
        recording_id=recording.recording_id,
        duration_s=recording.duration_s,
        sample_rate_hz=recording.sample_rate_hz,
        channels=recording.channels,
        bit_depth=int(digits.group()) if digits else None,
        gain=recording.gain,
        start_utc=recording.start_utc,
        start_local=recording.start_local,
        utc_offset_min=recording.utc_offset_min,
        site=recording.site,
    )


def local_start(metadata: RecordingMetadata) -> datetime | None:
    """Return the time on the recorder's clock at the start, or None if unknown."""
    if (
        metadata.start_local is None
        and metadata.start_utc is not None
        and metadata.utc_offset_min is not None
    ):
        return (metadata.start_utc + timedelta(minutes=metadata.utc_offset_min)).replace(tzinfo=None)
    return metadata.start_local


def by_recording(annotations: Annotations) -> dict[str, Annotations]:
    """Split annotations into one part for each recording."""
    metadata_by_recording = annotations.metadata_by_recording()
    events: dict[str, list[Event]] = {name: [] for name in metadata_by_recording}
    spans: dict[str, list[ReviewedSpan]] = {name: [] for name in metadata_by_recording}
    for event in annotations.events:
        events[event.recording_id].append(event)
    for span in annotations.reviewed:
        spans[span.recording_id].append(span)
    processed = {item.recording_id: (item,) for item in annotations.processed}
    return {
        name: Annotations(
            events=tuple(events[name]),
            reviewed=tuple(spans[name]),
            recordings=(metadata_by_recording[name],),
            sources=annotations.sources,
            processed=processed.get(name, ()),
        )
        for name in metadata_by_recording
    }


def is_whole(span: ReviewedSpan) -> bool:
    """Return True if a reviewed span covers its whole recording."""
    return span.start_s <= 0 and span.end_s is None
