"""What people decide about sounds: rows that are only ever added, and what holds after them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from mast.events import UtcTime

State = Literal["open", "accepted", "rejected", "unsure"]
"""What holds for a sound; an undone first verdict leaves it open. A span is accepted where it was wholly reviewed."""

DRAWN, SPAN = "drawn-", "span-"
"""What begins the names of sounds that people drew, and of spans."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one person decided about one sound or span: the whole of what holds from then on, never changed afterwards.

    `subject` names the sound: the `event_id` of a sound the model found, a fresh name for one that a person drew, or
    the name of a span. `version` is 1 for the first verdict on it; each later one replaces the one before, so that two
    people who decide at once are told apart: the second holds a version that is taken. `start_s` … `high_hz` is the
    box after the verdict, in the recording's own seconds and Hz; a span has no frequencies. `score` is the model's, and
    None for what a person drew. `queue` says which list asked for it. `undoes` is the version that an undo took back.
    """

    number: int
    subject: str
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
    who: str
    at_utc: UtcTime
    queue: str | None = None
    undoes: int | None = None


def holding(verdicts: Iterable[Verdict]) -> dict[str, Verdict]:
    """The verdict that holds for each subject: the one with its highest version."""
    last: dict[str, Verdict] = {}
    for verdict in verdicts:
        if verdict.subject not in last or verdict.version > last[verdict.subject].version:
            last[verdict.subject] = verdict
    return last
