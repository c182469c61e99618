"""Map the annotators' labels to kinds of a study: animal, noise or ignored."""

from __future__ import annotations

import difflib
from collections import Counter

from mast.annotations.model import Annotations
from mast.config import Labels
from mast.errors import AnnotationError
from mast.records import Kind

WILDCARD = "*"


def label_kind(label: str | None, labels: Labels) -> Kind | None:
    """Return the kind of a label, else the kind of '*', else None; a missing label has the kind of '*'."""
    groups: dict[str, Kind] = {
        **dict.fromkeys(labels.animal, "animal"),
        **dict.fromkeys(labels.noise, "noise"),
        **dict.fromkeys(labels.ignore, "ignored"),
    }
    return groups.get(WILDCARD if label is None else label, groups.get(WILDCARD))


def label_kinds(annotations: Annotations, labels: Labels) -> tuple[Kind, ...]:
    """Return the kind of each event, in order; raise AnnotationError with a list of labels that are not mapped."""
    counts = Counter(event.label for event in annotations.events)
    kinds = {label: label_kind(label, labels) for label in counts}
    unmapped = [label for label in counts if kinds[label] is None]
    if unmapped:
        lines = [f"  {_describe(label, labels)}: {counts[label]}" for label in sorted(unmapped, key=str)]
        raise AnnotationError(
            "These labels occur in the annotations but not in the study's label map (with number of events):\n"
            + "\n".join(lines)
            + "\nAdd each to labels.animal, labels.noise or labels.ignore; '*' matches every label that is not listed."
        )
    return tuple(kind for event in annotations.events if (kind := kinds[event.label]) is not None)


def _describe(label: str | None, labels: Labels) -> str:
    if label is None:
        return "(no label)"
    mapped = [*labels.animal, *labels.noise, *labels.ignore]
    nearest = difflib.get_close_matches(label, mapped, n=1, cutoff=0.7)
    return f"{label!r} (did you mean {nearest[0]!r}?)" if nearest else repr(label)
