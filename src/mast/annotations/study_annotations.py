"""Load a study's annotations from all its files, matched to existing recordings and with the kind of each label."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from mast.annotations.formats import read_annotations
from mast.annotations.label_map import label_kind, label_kinds
from mast.annotations.model import merge
from mast.annotations.recording_names import RecordingMatch, match_recordings, name_prefilter
from mast.config import AnnotationFormat, Study
from mast.records import Annotation, Event, Kind, ReviewedSpan
from mast.storage import is_folder, join, list_files
from mast.wording import counted

LABELS = "labels"
"""Folder in a study's work folder with one table of annotations for each review."""

STUDY_TABLE = "study-"
"""File name prefix of tables from reviews of the study itself; they sort after all others."""

UNCERTAIN_LABEL = "unsure"
"""Label in these tables for sounds that a reviewer marked as uncertain."""


@dataclass(frozen=True, slots=True)
class StudyAnnotations:
    """Annotations and reviewed spans of a study, with counts of everything that could not be imported."""

    annotations: tuple[Annotation, ...]
    reviewed: tuple[ReviewedSpan, ...]
    problems: Counter[str]
    unmatched: tuple[str, ...]

    def summary(self) -> str:
        """Return the numbers as text."""
        kinds = Counter(item.kind for item in self.annotations)
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "none"
        reviewed = len({span.recording_id for span in self.reviewed})
        lines = [f"Annotations: {counts}; {counted(reviewed, 'recording')} reviewed"]
        lines += [f"  {count} x {name}" for name, count in self.problems.most_common()]
        if self.unmatched:
            lines.append(
                f"  not found: {', '.join(self.unmatched[:5])}{' …' if len(self.unmatched) > 5 else ''}"
            )
        return "\n".join(lines)


def read_study_annotations(
    study: Study, recording_ids: Iterable[str], *, exclude_reviewed: bool = False
) -> StudyAnnotations:
    """Load the annotations of a study from its files and reviews.

    Args:
        study: Study settings.
        recording_ids: Existing recordings; streamed, and only those that may match a table are kept in memory.
        exclude_reviewed: Leave out annotations from reviews of the study itself.

    Raises:
        AnnotationError: A file cannot be read, or has labels that are not in the study's label map; the message lists
            them.
    """
    sources: list[tuple[str, AnnotationFormat]] = [(item.path, item.format) for item in study.annotations]
    tables = [path for path in label_tables(study) if not (exclude_reviewed and _is_of_study(path))]
    read = [
        (path, read_annotations(path, form)) for path, form in [*sources, *((path, "csv") for path in tables)]
    ]
    may_match = name_prefilter(name for _, part in read for name in part.recording_ids())
    candidates = [recording_id for recording_id in recording_ids if may_match(recording_id)]
    matched = _latest([(path, match_recordings(part, candidates)) for path, part in read], tables)
    merged = merge(match.annotations for _, match in matched)
    from_sources = merge(match.annotations for path, match in matched if path not in tables)
    kinds = iter(label_kinds(from_sources, study.labels))
    events = tuple(
        Annotation.of(event, _label_if_accepted(event.label, study) if path in tables else next(kinds), path)
        for path, match in matched
        for event in match.annotations.events
    )
    return StudyAnnotations(events, merged.reviewed, merged.problems, _missing(match for _, match in matched))


def label_tables(study: Study) -> list[str]:
    """Return the tables that `mast apply-review` wrote for a study."""
    folder = join(study.work_dir, LABELS)
    return [join(folder, name) for name in list_files(folder)] if is_folder(folder) else []


def _is_of_study(table: str) -> bool:
    """Return True if a table comes from a review of the study itself."""
    return Path(table).name.startswith(STUDY_TABLE)


def _latest(
    matched: list[tuple[str, RecordingMatch]], tables: Collection[str]
) -> list[tuple[str, RecordingMatch]]:
    """Remove duplicates: in a span that a review covers, drop the events of earlier tables.

    A box with identical bounds in two reviews, across the edge of their reviewed spans, is kept once. For a recording in
    a review of the study itself, drop all annotations of earlier tables.
    """
    reviewed: dict[str, list[ReviewedSpan]] = defaultdict(list)
    seen: set[tuple[object, ...]] = set()
    completed: set[str] = set()
    kept: list[tuple[str, RecordingMatch]] = []
    for path, match in reversed(matched):
        part = match.annotations
        part = replace(
            part, reviewed=tuple(span for span in part.reviewed if span.recording_id not in completed)
        )
        events = [
            event
            for event in part.events
            if event.recording_id not in completed and not _is_within(event, reviewed[event.recording_id])
        ]
        if path in tables:
            events = [event for event in events if _location_key(event) not in seen]
            seen.update(map(_location_key, events))
            for span in part.reviewed:
                reviewed[span.recording_id].append(span)
            if _is_of_study(path):
                completed.update(part.recording_ids())
        kept.append((path, replace(match, annotations=replace(part, events=tuple(events)))))
    return kept[::-1]


def _location_key(event: Event) -> tuple[object, ...]:
    return event.recording_id, event.start_s, event.end_s, event.low_hz, event.high_hz


def _is_within(event: Event, spans: Iterable[ReviewedSpan]) -> bool:
    """Return True if the middle of an event lies in one of the spans."""
    middle_s = (event.start_s + event.end_s) / 2
    return any(span.start_s <= middle_s and (span.end_s is None or middle_s <= span.end_s) for span in spans)


def _label_if_accepted(label: str | None, study: Study) -> Kind:
    """Return the kind of a reviewed event: that of its label if mapped, else animal, because a reviewer accepted it."""
    if label == UNCERTAIN_LABEL:
        return "ignored"
    return (label_kind(label, study.labels) if label is not None else None) or "animal"


def _missing(matches: Iterable[RecordingMatch]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for match in matches for name in (*match.unmatched, *match.ambiguous)))
