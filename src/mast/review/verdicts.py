"""Verdicts of annotators on events and spans: append-only records, and the latest verdict on each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from mast.records import UtcTime

REVIEW_DATABASE = "review.sqlite"
"""Name of the SQLite file with the verdicts on a run, in the run's folder."""

State = Literal["open", "accepted", "rejected", "unsure"]
"""State of an event. Reverting the first verdict makes the event open again. A fully reviewed span is accepted."""

USER_DRAWN, SPAN = "drawn-", "span-"
"""Prefixes of the ids of events that annotators drew, and of spans."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Decision of one user on one event or span: the complete state after it, never changed afterwards.

    `event_id` identifies a detection of the model, an event that a user drew (a new id), or a span. `version` is 1 for
    the first verdict on an event; each later verdict replaces the previous one. If two users decide at the same time,
    the second verdict has a version that is already taken. `start_s` … `high_hz` is the box after the verdict, in
    seconds and Hz of the recording; a span has no frequencies. `score` is the model's score, and None for an event that
    a user drew. `queue` is the review queue that listed the event. `reverts` is the version that an undo reverted.
    """

    number: int
    event_id: str
    version: int
    kind: Literal["sound", "span"]
    state: State
    recording_id: str
    start_s: float
    end_s: float
    low_hz: float | None
    high_hz: float | None
    label: str | None
    score: float | None
    model: str | None
    user: str
    created_at: UtcTime
    queue: str | None = None
    reverts: int | None = None


def latest_verdicts(verdicts: Iterable[Verdict]) -> dict[str, Verdict]:
    """Return the latest verdict (highest version) on each event or span, by `event_id`."""
    last: dict[str, Verdict] = {}
    for verdict in verdicts:
        if verdict.event_id not in last or verdict.version > last[verdict.event_id].version:
            last[verdict.event_id] = verdict
    return last
