"""Recordings and events to review: the detections of a run, or the annotations of a study."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mast.config import Study, load_study
from mast.errors import ConfigError
from mast.review.event_table import THRESHOLD, with_event_ids
from mast.review.queues.basic import Queue, sequential
from mast.review.queues.registry import available_queues
from mast.review.study_events import study_events
from mast.runs.results import DetectionResults, open_results
from mast.storage import is_remote, join
from mast.study.artifacts import fingerprint

if TYPE_CHECKING:
    import pyarrow as pa

MAX_EVENTS = 3_000_000
"""Maximum number of events. All events are held in memory (about 200 bytes each), so that queues can list any of them."""


@dataclass(frozen=True, slots=True)
class ReviewRecording:
    """Recording as the page shows it; `version` changes with the file. Seconds and Hz are those of the recording.

    `frames` is the number of samples that can be read.
    """

    recording_id: str
    location: str
    version: str
    site: str | None
    duration_s: float
    sample_rate_hz: int
    frames: int | None
    start_local: datetime | None


@dataclass(frozen=True)
class ReviewSet:
    """Recordings and their events: rows with the columns of `DetectedEvent`, and `event_id` and `label`.

    `spans` are the first row and the end row (exclusive) of the events of each recording. (N, 2) `run` are the results
    that the events come from, if a model detected them; `queues` are the review queues by name.
    """

    name: str
    fingerprint: str
    roots: dict[str, str]
    recordings: pa.Table
    events: pa.Table
    spans: Any
    run: DetectionResults | None
    queues: dict[str, Queue]

    @cached_property
    def rows(self) -> dict[str, int]:
        """Row of each recording by id."""
        return {name: row for row, name in enumerate(self.recordings["recording_id"].to_pylist())}

    @cached_property
    def event_rows(self) -> dict[str, int]:
        """Row of each event by id."""
        return {name: row for row, name in enumerate(self.events["event_id"].to_pylist())}

    def recording(self, recording_id: str) -> ReviewRecording | None:
        """Return a recording by its id, or None: only recordings of this set have a location."""
        row = self.rows.get(recording_id)
        if row is None:
            return None
        row_values = self.recordings.slice(row, 1).to_pylist()[0]
        root = self.roots[row_values["collection"]]
        return ReviewRecording(
            recording_id=recording_id,
            location=join(root if is_remote(root) else str(Path(root).absolute()), row_values["path"]),
            version=f"{row_values['size_bytes']} {row_values['modified_utc']}",
            site=row_values["site"],
            duration_s=row_values["duration_s"],
            sample_rate_hz=row_values["sample_rate_hz"],
            frames=row_values["frames"],
            start_local=row_values["start_local"],
        )

    def event(self, event_id: str) -> dict[str, Any] | None:
        """Return an event by its id, or None."""
        row = self.event_rows.get(event_id)
        return None if row is None else self.events.slice(row, 1).to_pylist()[0]

    def events_of(self, recording_id: str) -> pa.Table:
        """Return the events of a recording, sorted by start."""
        first, stop = self.spans[self.rows[recording_id]].tolist()
        return self.events.slice(first, stop - first)


def open_review_set(source: str, min_score: float | None = None) -> ReviewSet:
    """Open the recordings and events of a run (by its folder) or of a study (by its YAML file)."""
    if source.lower().endswith((".yaml", ".yml")):
        return _open_study(load_study(Path(source)), source)
    return _open_run(source, min_score)


def _open_run(folder: str, min_score: float | None) -> ReviewSet:
    import pyarrow as pa

    results = open_results(folder, min_score)
    parts, count = [], 0
    for part in results.parts(min_score):
        parts.append(part)
        count += len(part.events)
        if count > MAX_EVENTS:
            raise ConfigError(
                f"{results.count(min_score):,} events exceed the maximum of {MAX_EVENTS:,} for a review. "
                "Leave out low scores with --min-score."
            )
    if not parts:
        raise ConfigError(
            f"{folder}: no recording has been processed yet. Wait until mast detect has written its first part."
        )
    recordings = pa.concat_tables([part.recordings for part in parts])
    events = pa.concat_tables([part.events for part in parts]).unify_dictionaries()
    events = events.append_column("label", pa.nulls(len(events), pa.string()))
    name = Path(folder).name if not is_remote(folder) else folder
    events = events.replace_schema_metadata({THRESHOLD: repr(min_score or results.threshold).encode()})
    return _review_set(name, results.fingerprint, results.roots, recordings, events, results)


def _open_study(study: Study, source: str) -> ReviewSet:
    """Open a study's recordings and annotations, without the labels from its own review."""
    recordings, _, events = study_events(study, source)
    roots = {name: collection.root for name, collection in study.collections.items()}
    recordings_fingerprint = fingerprint(name.encode() for name in recordings["recording_id"].to_pylist())
    return _review_set(Path(source).stem, recordings_fingerprint, roots, recordings, events)


def _review_set(
    name: str,
    events_fingerprint: str,
    roots: dict[str, str],
    recordings: pa.Table,
    events: pa.Table,
    run: DetectionResults | None = None,
) -> ReviewSet:
    """Sort the events by recording and add their ids; leave out recordings without readable audio."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_readable = pc.and_(
        pc.greater(pc.fill_null(recordings["duration_s"], 0.0), 0.0),
        pc.greater(pc.fill_null(recordings["sample_rate_hz"], 0), 0),
    )
    recordings = recordings.filter(is_readable)
    names = pc.cast(events["recording_id"], "string")
    row = pc.fill_null(pc.index_in(names, recordings["recording_id"].combine_chunks()), -1).to_numpy()
    order = np.lexsort((events["start_s"].to_numpy(), row))
    order = order[np.searchsorted(row[order], 0) :]  # without events of left-out recordings
    events = with_event_ids(events.take(pa.array(order)))
    edges = np.searchsorted(row[order], np.arange(len(recordings) + 1))
    spans = np.stack([edges[:-1], edges[1:]], axis=1)
    queues: dict[str, Queue] = {"sequential": sequential} if run is None else available_queues(run)
    return ReviewSet(name, events_fingerprint, roots, recordings, events, spans, run, queues)
