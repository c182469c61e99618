"""Verdicts become labels of a study: what people stand for is learned next, and what they looked at is known.

A detector takes everything in a chunk without a box for background. So only what was reviewed from end to end is
learned from, and nothing around a sound that is unsure or still open.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from mast.annotations import Annotations, Source, write_annotations
from mast.annotations.study import LABELS, OF_STUDY, UNSURE, label_tables
from mast.config import Study
from mast.detection.found import open_found
from mast.events import Annotation, Event, Reviewed, event_id
from mast.recordings.clocks import length
from mast.review.known import known_of
from mast.review.reading import read_verdicts, verdicts_at
from mast.review.sounds import sounds_of, with_names
from mast.review.taking import Taken, event_of, take
from mast.review.verdicts import DRAWN, Verdict, holding
from mast.storage import join


@dataclass(frozen=True, slots=True)
class Labelled:
    """What was taken over from a review, and the table it was written to.

    `undecided` counts the experts' boxes beside these that nobody has decided about.
    """

    taken: Taken
    location: str
    losses: Counter[str]
    undecided: int = 0

    def summary(self) -> str:
        """The account for a person to read."""
        taken = self.taken
        seconds = sum((span.end_s or 0.0) - span.start_s for span in taken.reviewed)
        inside = [item for item in taken.accepted if item.subject not in taken.outside]
        drawn = sum(item.subject.startswith(DRAWN) for item in inside)
        lines = [
            f"{len(inside):,} sounds, {drawn:,} of them drawn by hand; {length(seconds)} reviewed from end to "
            f"end; {taken.rejected:,} sounds rejected → {self.location}"
        ]
        for count, what in (
            (len(taken.unsure), "unsure: nothing is learned from around them"),
            (self.undecided, "beside them without a verdict: they stay as the experts left them"),
            (
                taken.open,
                "in reviewed spans without a verdict: nothing is learned from around them. Was the review with "
                "--min-score? Give it here, too",
            ),
            (len(taken.outside), "in no reviewed span: left out until someone reviews around them"),
        ):
            if count:
                lines.append(f"  {count:,} sounds {what}")
        return "\n".join([*lines, *(f"  {count:,} x {what}" for what, count in self.losses.items())])


def table_of(study: Study, run: str | None, verdicts: Sequence[Verdict]) -> str:
    """Where the labels of a review are, or would be: those of a run after those that are there, the study's own last.

    A review is known by its run and its first verdict, which nothing ever changes: two people may each review a copy of
    the same run, and a model that has learned the same again finds the same sounds under another name.
    """
    first = min(verdicts, key=lambda item: item.number, default=None)
    told = (run or "", *((first.at_utc.isoformat(), first.who, first.subject) if first else ()))
    review = hashlib.sha256("\n".join(told).encode()).hexdigest()[:32]
    if run is None:
        return join(study.work, f"{LABELS}/{OF_STUDY}{review}.csv")
    tables = label_tables(study)
    known = [place for place in tables if place.endswith(f"-{review}.csv")]
    return known[0] if known else join(study.work, f"{LABELS}/{len(tables) + 1:03d}-{review}.csv")


def write_labels(
    study: Study, events: str | None = None, location: str | None = None, min_score: float | None = None
) -> Labelled:
    """Write what was decided about a run, or about the study itself, as a table that `mast scan` reads with the experts'.

    Each review has a table of its own, those of runs numbered in the order of the rounds, and taking the labels again
    replaces it. A sound in no reviewed span stays out: it would teach nothing, or stand beside an expert's own box.
    Nobody was shown what scores less than the `min_score` of the review: it is not open, but was left out.
    """
    verdicts = read_verdicts(verdicts_at(study.work if events is None else events, location))
    if events is None:
        return _write_own(study, verdicts)
    found = open_found(events, min_score)
    taken = take(sounds_of(found, min_score), verdicts)
    place = table_of(study, found.fingerprint, verdicts)
    return Labelled(taken, place, _write(_left_by(taken), taken.reviewed, place))


def _write_own(study: Study, verdicts: Sequence[Verdict]) -> Labelled:
    """Write all that is known of the recordings that a review of the study has touched.

    An expert's box that nobody decides about stays as it is. A verdict on one that the experts' tables no longer have
    says nothing.
    """
    recordings, expertise, sounds = known_of(study)
    sounds = with_names(sounds)
    boxes = list(zip(sounds["event_id"].to_pylist(), expertise.annotations, strict=True))
    known = dict(boxes)
    held = holding(
        item
        for item in verdicts
        if item.kind == "span" or item.subject in known or item.subject.startswith(DRAWN)
    )
    decided = {name: item for name, item in held.items() if item.state != "open"}
    touched = {item.recording_id for item in decided.values()}
    names, lengths_s = (recordings[name].to_pylist() for name in ("recording_id", "duration_s"))
    ends_s = dict(zip(names, lengths_s, strict=True))
    before = [
        replace(span, end_s=ends_s[span.recording_id] if span.end_s is None else span.end_s)
        for span in expertise.reviewed
        if span.recording_id in touched
    ]
    taken = take(sounds.slice(0, 0), held.values(), before)
    undecided = [box for name, box in boxes if box.recording_id in touched and name not in decided]
    place = table_of(study, None, verdicts)
    losses = _write([*_left_by(taken, known), *undecided], taken.reviewed, place)
    return Labelled(taken, place, losses, len(undecided))


def _left_by(taken: Taken, known: Mapping[str, Annotation] = MappingProxyType({})) -> list[Event]:
    """Sounds as people left them, but for those in no reviewed span; one of unknown band that nobody moved has none."""
    left = []
    for group, label in ((taken.accepted, None), (taken.unsure, UNSURE)):
        for item in group:
            if item.subject in taken.outside:
                continue
            event, box = event_of(item, label), known.get(item.subject)
            left.append(
                replace(event, low_hz=None, high_hz=None) if box and _is_unmoved(item, box) else event
            )
    return left


def _is_unmoved(item: Verdict, box: Annotation) -> bool:
    """Whether a box without frequencies is as it was: from the bottom to the top of its recording."""
    if box.low_hz is not None or item.low_hz is None or item.high_hz is None:
        return False
    return event_id(item.recording_id, item.start_s, item.end_s, item.low_hz, item.high_hz) == item.subject


def _write(events: Iterable[Event], reviewed: tuple[Reviewed, ...], place: str) -> Counter[str]:
    """Write a table of labels. → what it cannot hold"""
    ordered = sorted(events, key=lambda event: (event.recording_id, event.start_s, event.low_hz or 0.0))
    return write_annotations(
        Annotations(tuple(ordered), reviewed, sources=(Source(place, "csv"),)), place, "csv"
    )
