"""A study's expert boxes: read from all its files, tied to recordings that exist, their labels understood."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from mast.annotations.formats import read_annotations
from mast.annotations.labels import kind_of, kinds_of
from mast.annotations.matching import Matching, match_recordings, might_match
from mast.annotations.tables import merge
from mast.config import AnnotationFormat, Study
from mast.events import Annotation, Event, Kind, Reviewed
from mast.storage import files_below, is_folder, join

LABELS = "labels"
"""Folder of a study's work folder with what its reviews have come to, a table for each."""

OF_STUDY = "study-"
"""How the names of those tables begin that come of reviewing the study itself; they follow all others."""

UNSURE = "unsure"
"""What a reviewer could not tell is labelled so in these tables."""


@dataclass(frozen=True, slots=True)
class Expertise:
    """All that experts said about a study's recordings, and what could not be taken over."""

    annotations: tuple[Annotation, ...]
    reviewed: tuple[Reviewed, ...]
    problems: Counter[str]
    unmatched: tuple[str, ...]

    def summary(self) -> str:
        """The account for a person to read."""
        kinds = Counter(item.kind for item in self.annotations)
        counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "none"
        reviewed = len({span.recording_id for span in self.reviewed})
        lines = [f"Expert boxes: {counted}; {reviewed} recordings reviewed"]
        lines += [f"  {count} x {what}" for what, count in self.problems.most_common()]
        if self.unmatched:
            lines.append(
                f"  not found: {', '.join(self.unmatched[:5])}{' …' if len(self.unmatched) > 5 else ''}"
            )
        return "\n".join(lines)


def read_expertise(
    study: Study, recording_ids: Iterable[str], *, before_its_review: bool = False
) -> Expertise:
    """Read a study's annotation files; labels that its map does not name are refused with their list.

    `recording_ids` is streamed: only those that some table may mean are kept in memory. `before_its_review` leaves out
    what came of reviewing the study itself.
    """
    sources: list[tuple[str, AnnotationFormat]] = [(item.path, item.format) for item in study.annotations]
    tables = [path for path in label_tables(study) if not (before_its_review and _is_of_study(path))]
    read = [
        (path, read_annotations(path, form)) for path, form in [*sources, *((path, "csv") for path in tables)]
    ]
    spoken_of = might_match(name for _, part in read for name in part.recording_ids())
    known = [recording_id for recording_id in recording_ids if spoken_of(recording_id)]
    matched = _latest([(path, match_recordings(part, known)) for path, part in read], tables)
    whole = merge(match.annotations for _, match in matched)
    experts = merge(match.annotations for path, match in matched if path not in tables)
    kinds = iter(kinds_of(experts, study.labels))
    events = tuple(
        Annotation.of(event, _accepted_as(event.label, study) if path in tables else next(kinds), path)
        for path, match in matched
        for event in match.annotations.events
    )
    return Expertise(events, whole.reviewed, whole.problems, _missing(match for _, match in matched))


def label_tables(study: Study) -> list[str]:
    """Tables that `mast labels` has written for a study."""
    folder = join(study.work, LABELS)
    return [join(folder, name) for name in files_below(folder)] if is_folder(folder) else []


def _is_of_study(table: str) -> bool:
    """Whether a table of labels comes of reviewing the study itself."""
    return Path(table).name.startswith(OF_STUDY)


def _latest(matched: list[tuple[str, Matching]], tables: Collection[str]) -> list[tuple[str, Matching]]:
    """Every sound once: where a review has looked at a moment, what earlier tables have there gives way.

    Also a box that two reviews have to the number, across the edge of what each has looked at, is there once. A review
    of the study itself tells all that is known of a recording that it tells anything of.
    """
    looked: dict[str, list[Reviewed]] = defaultdict(list)
    seen: set[tuple[object, ...]] = set()
    told: set[str] = set()
    kept: list[tuple[str, Matching]] = []
    for path, match in reversed(matched):
        own = match.annotations
        own = replace(own, reviewed=tuple(span for span in own.reviewed if span.recording_id not in told))
        events = [
            event
            for event in own.events
            if event.recording_id not in told and not _within(event, looked[event.recording_id])
        ]
        if path in tables:
            events = [event for event in events if _place(event) not in seen]
            seen.update(map(_place, events))
            for span in own.reviewed:
                looked[span.recording_id].append(span)
            if _is_of_study(path):
                told.update(own.recording_ids())
        kept.append((path, replace(match, annotations=replace(own, events=tuple(events)))))
    return kept[::-1]


def _place(event: Event) -> tuple[object, ...]:
    return event.recording_id, event.start_s, event.end_s, event.low_hz, event.high_hz


def _within(event: Event, spans: Iterable[Reviewed]) -> bool:
    """Whether the middle of a sound lies in one of the spans."""
    middle_s = (event.start_s + event.end_s) / 2
    return any(span.start_s <= middle_s and (span.end_s is None or middle_s <= span.end_s) for span in spans)


def _accepted_as(label: str | None, study: Study) -> Kind:
    """What a reviewed sound is: by its label if the study knows that, else an animal, for a person has accepted it."""
    if label == UNSURE:
        return "ignored"
    return (kind_of(label, study.labels) if label is not None else None) or "animal"


def _missing(matches: Iterable[Matching]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for match in matches for name in (*match.unmatched, *match.ambiguous)))
