"""Export reviewed events to other formats: accepted and drawn events with their labels and annotators.

All events of the export are held in memory. This is little for a review, but with `include_unreviewed` it is the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np

from mast.annotations import Annotations, write_annotations
from mast.annotations.delimited import format_counts, format_number
from mast.annotations.model import by_recording, metadata_of
from mast.annotations.paths import remove_stale_exports, table_paths
from mast.config import AnnotationFormat
from mast.outputs.export import (
    EXPORT_LAYOUTS,
    annotations_for,
    changed_tables_note,
    clock_text,
    file_or_folder,
    output_names,
)
from mast.records import Event, Recording, from_table
from mast.review.event_table import decided_mask, run_events, with_event_ids
from mast.review.outcome import ReviewOutcome, event_of, summarise_review
from mast.review.read_verdicts import read_verdicts, verdicts_location
from mast.review.verdicts import Verdict, latest_verdicts
from mast.runs.results import DetectionResults, ResultsPart, open_results
from mast.storage import join
from mast.wording import counted


@dataclass(frozen=True, slots=True)
class ReviewExport:
    """Result of an export; `losses` are the numbers of values that the format cannot store, by kind.

    `accepted` are the accepted events, without those in recordings of other runs. `changed` is the number of tables
    of earlier exports that were kept because a user has changed them.
    """

    format: AnnotationFormat
    out: str
    outcome: ReviewOutcome
    accepted: tuple[Verdict, ...]
    unreviewed: int
    losses: Counter[str]
    changed: int

    def summary(self) -> str:
        """Return the result as text."""
        drawn = sum(item.score is None for item in self.accepted)
        unreviewed = f", and {self.unreviewed:,} unreviewed" if self.unreviewed else ""
        lines = [
            f"{counted(len(self.accepted), 'event')} accepted, {drawn:,} of them drawn by hand{unreviewed}",
            f"Left out: {self.outcome.rejected:,} rejected, {len(self.outcome.uncertain):,} unsure",
            *format_counts(f"Not kept in {self.format}:", self.losses),
            *changed_tables_note(self.changed),
            f"Written: {self.out}",
        ]
        return "\n".join(lines)


def export_reviewed(
    events: str,
    to: AnnotationFormat,
    out: str | None = None,
    *,
    combined: bool | None = None,
    min_score: float | None = None,
    include_unreviewed: bool = False,
    location: str | None = None,
) -> ReviewExport:
    """Export the accepted events of a run; `include_unreviewed` adds the detections without a verdict.

    Tables of an earlier export of this run into the same folder are removed, unless a user has changed them.
    """
    folder = out or join(events, f"{to}-reviewed")
    place = file_or_folder(to, combined, folder)
    results = open_results(events, min_score)
    verdicts = read_verdicts(verdicts_location(events, location))
    outcome = summarise_review(run_events(results, min_score), verdicts)
    accepted: dict[str, list[Verdict]] = {}
    for item in outcome.accepted:
        accepted.setdefault(item.recording_id, []).append(item)
    latest, unreviewed = latest_verdicts(verdicts), 0
    written: list[Verdict] = []
    boxes: list[Event] = []
    recordings: list[Recording] = []
    for part in results.parts(min_score):
        part_recordings: list[Recording] = from_table(part.recordings, Recording)
        recordings += part_recordings
        for recording in part_recordings:
            recording_verdicts = accepted.get(recording.recording_id, [])
            written += recording_verdicts
            boxes += [_to_event(item, recording, to) for item in recording_verdicts]
        if include_unreviewed:
            others = _unreviewed_events(results, part, latest, to)
            unreviewed += len(others)
            boxes += others
    ordered = sorted(boxes, key=lambda event: (event.recording_id, event.start_s, event.low_hz or 0.0))
    metadata = tuple(
        replace(metadata_of(item), location=results.location(item.collection, item.path))
        for item in recordings
        if item.status != "quarantined"
    )
    annotations = Annotations(tuple(ordered), outcome.reviewed, metadata)
    losses, names = _write(annotations, to, place, folder)
    changed = remove_stale_exports(names, folder, results.fingerprint)
    return ReviewExport(to, place, outcome, tuple(written), unreviewed, losses, changed)


def _write(
    annotations: Annotations, to: AnnotationFormat, place: str, folder: str
) -> tuple[Counter[str], list[str]]:
    """Write one file, or a folder with a file for each recording that has events or reviewed spans.

    Return the numbers of values that the format cannot store, and the names of the files.
    """
    if place != folder or not EXPORT_LAYOUTS[to].ending:
        return write_annotations(annotations, place, to), output_names(to, place)
    parts = {name: part for name, part in by_recording(annotations).items() if part.events or part.reviewed}
    names = table_paths(parts, EXPORT_LAYOUTS[to].ending)
    if to in ("raven", "audacity"):  # these formats write folders themselves, if the path ends with a slash
        return write_annotations(annotations, f"{folder}/", to), [*names.values()]
    losses: Counter[str] = Counter()
    for name, part in parts.items():
        losses += write_annotations(part, join(folder, names[name]), to)
    return losses, [*names.values()]


def _to_event(verdict: Verdict, recording: Recording, to: AnnotationFormat) -> Event:
    """Return an accepted event with the columns of the format's tables."""
    return replace(event_of(verdict), columns=_columns(recording, verdict, to))


def _unreviewed_events(
    results: DetectionResults, part: ResultsPart, latest: Mapping[str, Verdict], to: AnnotationFormat
) -> list[Event]:
    """Return the detections of a part without a verdict, unchanged."""
    rows = np.flatnonzero(~decided_mask(with_event_ids(part.events), latest.values()))
    return list(annotations_for(to, results, part.events.take(rows), {}))


def _columns(recording: Recording, verdict: Verdict, to: AnnotationFormat) -> tuple[tuple[str, str], ...]:
    """Return clock times, site and model, if the format's export of detections has these columns."""
    since = timedelta(seconds=verdict.start_s)
    values = {
        "site": recording.site or "",
        "start_utc": clock_text(recording.start_utc and recording.start_utc + since),
        "start_local": clock_text(recording.start_local and recording.start_local + since),
        "utc_offset_min": format_number(recording.utc_offset_min),
        "model": verdict.model or "",
    }
    return tuple((name, values[name]) for name in EXPORT_LAYOUTS[to].columns.free if values[name])
