"""Verdicts become labels of a study: what people stand for is learned next, and what they looked at is known.

A detector takes everything in a chunk without a box for background. So only what was reviewed from end to end is
learned from, and nothing around a sound that is unsure or still open.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mast.annotations import Annotations, Source, write_annotations
from mast.annotations.study import LABELS, UNSURE, label_tables
from mast.config import Study
from mast.detection.found import open_found
from mast.detection.tally import length
from mast.review.reading import read_verdicts, verdicts_at
from mast.review.sounds import sounds_of
from mast.review.taking import Taken, event_of, take
from mast.review.verdicts import Verdict
from mast.storage import join


@dataclass(frozen=True, slots=True)
class Labelled:
    """What was taken over from a review, and the table it was written to."""

    taken: Taken
    location: str
    losses: Counter[str]

    def summary(self) -> str:
        """The account for a person to read."""
        taken = self.taken
        seconds = sum((span.end_s or 0.0) - span.start_s for span in taken.reviewed)
        inside = [item for item in taken.accepted if item.subject not in taken.outside]
        drawn = sum(item.score is None for item in inside)
        lines = [
            f"{len(inside):,} sounds, {drawn:,} of them drawn by hand; {length(seconds)} reviewed from end to "
            f"end; {taken.rejected:,} sounds rejected → {self.location}"
        ]
        for count, what in (
            (len(taken.unsure), "unsure: nothing is learned from around them"),
            (taken.open, "in reviewed spans without a verdict: nothing is learned from around them"),
            (len(taken.outside), "in no reviewed span: left out until someone reviews around them"),
        ):
            if count:
                lines.append(f"  {count:,} sounds {what}")
        return "\n".join([*lines, *(f"  {count:,} x {what}" for what, count in self.losses.items())])


def table_of(study: Study, run: str, verdicts: Sequence[Verdict]) -> str:
    """Where the labels of a review are, or would be: after those that are there.

    A review is known by its run and its first verdict, which nothing ever changes: two people may each review a copy of
    the same run, and a model that has learned the same again finds the same sounds under another name.
    """
    first = min(verdicts, key=lambda item: item.number, default=None)
    told = (run, first.at_utc.isoformat(), first.who, first.subject) if first else (run,)
    review = hashlib.sha256("\n".join(told).encode()).hexdigest()[:32]
    tables = label_tables(study)
    known = [place for place in tables if place.endswith(f"-{review}.csv")]
    return known[0] if known else join(study.work, f"{LABELS}/{len(tables) + 1:03d}-{review}.csv")


def write_labels(study: Study, events: str, location: str | None = None) -> Labelled:
    """Write what was decided about a run as a table of the study, which `mast scan` reads with the experts' own.

    Each review has a table of its own, numbered in the order of the rounds, and taking the labels again replaces it. A
    sound in no reviewed span stays out: it would teach nothing, or stand beside an expert's own box.
    """
    found, verdicts = open_found(events), read_verdicts(verdicts_at(events, location))
    taken = take(sounds_of(found), verdicts)
    boxes = [
        event_of(item, label)
        for group, label in ((taken.accepted, None), (taken.unsure, UNSURE))
        for item in group
        if item.subject not in taken.outside
    ]
    ordered = sorted(boxes, key=lambda event: (event.recording_id, event.start_s, event.low_hz or 0.0))
    place = table_of(study, found.fingerprint, verdicts)
    annotations = Annotations(tuple(ordered), taken.reviewed, sources=(Source(place, "csv"),))
    return Labelled(taken, place, write_annotations(annotations, place, "csv"))
