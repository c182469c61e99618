"""Write the verdicts of a review as labels of a study, for the next training.

In training, everything outside boxes is background. So only fully reviewed spans become training data, without the
time around unsure and open events.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from mast.annotations import Annotations, SourceFile, write_annotations
from mast.annotations.study_annotations import LABELS, STUDY_TABLE, UNCERTAIN_LABEL, label_tables
from mast.config import Study
from mast.recordings.clocks import format_duration
from mast.records import Annotation, Event, ReviewedSpan, event_id
from mast.review.event_table import run_events, with_event_ids
from mast.review.outcome import ReviewOutcome, event_of, summarise_review
from mast.review.read_verdicts import read_verdicts, verdicts_location
from mast.review.study_events import study_events
from mast.review.verdicts import USER_DRAWN, Verdict, latest_verdicts
from mast.runs.results import open_results
from mast.storage import join
from mast.wording import counted


@dataclass(frozen=True, slots=True)
class LabelImport:
    """Labels imported from a review, and the table they were written to.

    `undecided` is the number of annotations in the same recordings without a verdict.
    """

    outcome: ReviewOutcome
    location: str
    losses: Counter[str]
    undecided: int = 0

    def summary(self) -> str:
        """Return the import as text."""
        outcome = self.outcome
        seconds = sum((span.end_s or 0.0) - span.start_s for span in outcome.reviewed)
        inside = [item for item in outcome.accepted if item.event_id not in outcome.outside]
        drawn = sum(item.event_id.startswith(USER_DRAWN) for item in inside)
        lines = [
            f"{counted(len(inside), 'event')}, {drawn:,} of them drawn by hand; {format_duration(seconds)} fully "
            f"reviewed; {counted(outcome.rejected, 'event')} rejected → {self.location}"
        ]
        for count, text in (
            (len(outcome.uncertain), "unsure: excluded from training, with the time around"),
            (self.undecided, "without a verdict in the same recordings: annotation kept unchanged"),
            (
                outcome.open,
                "without a verdict in reviewed spans: excluded from training, with the time around. If the review had "
                "--min-score, use the same value here",
            ),
            (len(outcome.outside), "in no reviewed span: left out until the time around is reviewed"),
        ):
            if count:
                lines.append(f"  {counted(count, 'event')} {text}")
        return "\n".join([*lines, *(f"  {count:,} x {text}" for text, count in self.losses.items())])


def labels_location(study: Study, run: str | None, verdicts: Sequence[Verdict]) -> str:
    """Return the existing or new file for the labels of a review: numbered for a run, last for the study's own review.

    A review is identified by its run and its first verdict, which never change: two users may each review a copy of the
    same run, and another model with the same weights detects the same events under another fingerprint.
    """
    first = min(verdicts, key=lambda item: item.number, default=None)
    details = (run or "", *((first.created_at.isoformat(), first.user, first.event_id) if first else ()))
    review = hashlib.sha256("\n".join(details).encode()).hexdigest()[:32]
    if run is None:
        return join(study.work_dir, f"{LABELS}/{STUDY_TABLE}{review}.csv")
    tables = label_tables(study)
    existing = [table for table in tables if table.endswith(f"-{review}.csv")]
    return existing[0] if existing else join(study.work_dir, f"{LABELS}/{len(tables) + 1:03d}-{review}.csv")


def write_labels(
    study: Study, events: str | None = None, location: str | None = None, min_score: float | None = None
) -> LabelImport:
    """Write the verdicts on a run, or on the study itself, as a table that `mast scan` reads with the annotations.

    Each review has its own table, numbered in the order of the rounds for runs; writing the labels again replaces it.
    An event in no reviewed span is left out: training would not use it, or it would duplicate an annotation. Detections
    below the `min_score` of the review were not shown, so they do not count as open.
    """
    verdicts = read_verdicts(verdicts_location(study.work_dir if events is None else events, location))
    if events is None:
        return _write_study_review(study, verdicts)
    results = open_results(events, min_score)
    outcome = summarise_review(run_events(results, min_score), verdicts)
    table = labels_location(study, results.fingerprint, verdicts)
    return LabelImport(outcome, table, _write(_kept_annotations(outcome), outcome.reviewed, table))


def _write_study_review(study: Study, verdicts: Sequence[Verdict]) -> LabelImport:
    """Write all annotations of the recordings with verdicts in a review of the study.

    An annotation without a verdict is kept unchanged. Verdicts on annotations that are no longer in the source tables
    are ignored.
    """
    recordings, annotations, events = study_events(study)
    events = with_event_ids(events)
    boxes = list(zip(events["event_id"].to_pylist(), annotations.annotations, strict=True))
    existing = dict(boxes)
    latest = latest_verdicts(
        item
        for item in verdicts
        if item.kind == "span" or item.event_id in existing or item.event_id.startswith(USER_DRAWN)
    )
    decided = {name: item for name, item in latest.items() if item.state != "open"}
    touched = {item.recording_id for item in decided.values()}
    names, lengths_s = (recordings[name].to_pylist() for name in ("recording_id", "duration_s"))
    ends_s = dict(zip(names, lengths_s, strict=True))
    reviewed_before = [
        replace(span, end_s=ends_s[span.recording_id] if span.end_s is None else span.end_s)
        for span in annotations.reviewed
        if span.recording_id in touched
    ]
    outcome = summarise_review(events.slice(0, 0), latest.values(), reviewed_before)
    undecided = [box for name, box in boxes if box.recording_id in touched and name not in decided]
    table = labels_location(study, None, verdicts)
    losses = _write([*_kept_annotations(outcome, existing), *undecided], outcome.reviewed, table)
    return LabelImport(outcome, table, losses, len(undecided))


def _kept_annotations(
    outcome: ReviewOutcome, existing: Mapping[str, Annotation] = MappingProxyType({})
) -> list[Event]:
    """Return the reviewed events in reviewed spans; an unmoved box of unknown frequencies has no frequencies again."""
    kept = []
    for group, label in ((outcome.accepted, None), (outcome.uncertain, UNCERTAIN_LABEL)):
        for item in group:
            if item.event_id in outcome.outside:
                continue
            event, box = event_of(item, label), existing.get(item.event_id)
            kept.append(
                replace(event, low_hz=None, high_hz=None) if box and _is_unmoved(item, box) else event
            )
    return kept


def _is_unmoved(item: Verdict, box: Annotation) -> bool:
    """Return True if a box without frequencies is unchanged: it spans all frequencies of its recording."""
    if box.low_hz is not None or item.low_hz is None or item.high_hz is None:
        return False
    return event_id(item.recording_id, item.start_s, item.end_s, item.low_hz, item.high_hz) == item.event_id


def _write(events: Iterable[Event], reviewed: tuple[ReviewedSpan, ...], location: str) -> Counter[str]:
    """Write a table of labels; return the number of values that the format cannot store, by kind."""
    ordered = sorted(events, key=lambda event: (event.recording_id, event.start_s, event.low_hz or 0.0))
    return write_annotations(
        Annotations(tuple(ordered), reviewed, sources=(SourceFile(location, "csv"),)), location, "csv"
    )
