"""What the annotators' words mean to a study: animal, noise, or neither."""

from __future__ import annotations

import difflib
from collections import Counter

from mast.annotations.tables import Annotations
from mast.config import Labels
from mast.errors import AnnotationError
from mast.events import Kind

EVERY_OTHER = "*"


def kind_of(label: str | None, labels: Labels) -> Kind | None:
    """The group a label stands in, else the group of '*', else None; an event without a label only follows '*'."""
    groups: dict[str, Kind] = {
        **dict.fromkeys(labels.animal, "animal"),
        **dict.fromkeys(labels.noise, "noise"),
        **dict.fromkeys(labels.ignored, "ignored"),
    }
    return groups.get(EVERY_OTHER if label is None else label, groups.get(EVERY_OTHER))


def kinds_of(annotations: Annotations, labels: Labels) -> tuple[Kind, ...]:
    """What each event is, in order; refuses, and lists them all, where labels are not mapped."""
    counts = Counter(event.label for event in annotations.events)
    kinds = {label: kind_of(label, labels) for label in counts}
    unmapped = [label for label in counts if kinds[label] is None]
    if unmapped:
        lines = [f"  {_describe(label, labels)}: {counts[label]}" for label in sorted(unmapped, key=str)]
        raise AnnotationError(
            "These labels are in the annotations but not in the study's label map, with their number of events:\n"
            + "\n".join(lines)
            + "\nAdd each to labels.animal, labels.noise or labels.ignored; '*' stands for every label not named."
        )
    return tuple(kind for event in annotations.events if (kind := kinds[event.label]) is not None)


def _describe(label: str | None, labels: Labels) -> str:
    if label is None:
        return "(no label)"
    known = [*labels.animal, *labels.noise, *labels.ignored]
    near = difflib.get_close_matches(label, known, n=1, cutoff=0.7)
    return f"{label!r} (did you mean {near[0]!r}?)" if near else repr(label)
