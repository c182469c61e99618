"""A study's expert boxes: read from all its files, tied to recordings that exist, their labels understood."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from mast.annotations.formats import read_annotations
from mast.annotations.labels import kinds_of
from mast.annotations.matching import Matching, match_recordings, might_match
from mast.annotations.tables import merge
from mast.config import Study
from mast.events import Annotation, Reviewed


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


def read_expertise(study: Study, recording_ids: Iterable[str]) -> Expertise:
    """Read a study's annotation files; labels that its map does not name are refused with their list.

    `recording_ids` is streamed: only those that some table may mean are kept in memory.
    """
    read = [(source.path, read_annotations(source.path, source.format)) for source in study.annotations]
    spoken_of = might_match(name for _, part in read for name in part.recording_ids())
    known = [recording_id for recording_id in recording_ids if spoken_of(recording_id)]
    matched = [(path, match_recordings(part, known)) for path, part in read]
    whole = merge(match.annotations for _, match in matched)
    kinds = iter(kinds_of(whole, study.labels))
    events = tuple(
        Annotation.of(event, next(kinds), path)
        for path, match in matched
        for event in match.annotations.events
    )
    return Expertise(events, whole.reviewed, whole.problems, _missing(match for _, match in matched))


def _missing(matches: Iterable[Matching]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for match in matches for name in (*match.unmatched, *match.ambiguous)))
