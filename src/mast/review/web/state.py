"""Current state of a review in memory: the latest verdicts, the boxes of each recording, and assigned queue items."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mast.review.database import ReviewDatabase
from mast.review.queues.basic import QueueItem
from mast.review.review_set import ReviewSet
from mast.review.verdicts import Verdict

REREAD_VERDICTS = 256
"""Number of latest verdicts to read again: PostgreSQL numbers verdicts before it commits them, so one may appear late."""

ASSIGNMENT_TTL_S = 300.0
"""Time for which a queue item that was given to one user is not given to another."""


@dataclass(frozen=True, slots=True)
class Box:
    """Current state of an event or span: the detection, updated by its latest verdict; `version` 0 without a verdict."""

    event_id: str
    version: int
    kind: str
    state: str
    recording_id: str
    start_s: float
    end_s: float
    low_hz: float | None
    high_hz: float | None
    label: str | None
    score: float | None
    user: str | None


class ReviewState:
    """Latest verdicts by event and by recording."""

    def __init__(self, store: ReviewDatabase, review_set: ReviewSet) -> None:
        self._store, self._review_set = store, review_set
        self._lock = threading.Lock()
        self._assigning = threading.Lock()
        self._last_number = 0
        self._latest: dict[str, Verdict] = {}
        self._by_recording: dict[str, set[str]] = {}
        self._labels = set(review_set.events["label"].unique().drop_null().to_pylist())
        self._assigned: dict[str, tuple[str, float]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read the verdicts stored since the last refresh, by this or another server."""
        self.apply(self._store.verdicts(max(0, self._last_number - REREAD_VERDICTS)))

    def apply(self, verdicts: Iterable[Verdict]) -> None:
        """Add verdicts; keep the highest version for each event."""
        for verdict in verdicts:
            with self._lock:
                self._last_number = max(self._last_number, verdict.number)
                previous = self._latest.get(verdict.event_id)
                if previous is None or verdict.version > previous.version:
                    self._latest[verdict.event_id] = verdict
                    self._by_recording.setdefault(verdict.recording_id, set()).add(verdict.event_id)
                    if verdict.label:
                        self._labels.add(verdict.label)

    def current(self, event_id: str) -> Verdict | None:
        """Return the latest verdict on an event or span, or None."""
        return self._latest.get(event_id)

    def decided(self) -> dict[str, Verdict]:
        """Return the latest verdicts, without those that are open again."""
        with self._lock:
            return {name: verdict for name, verdict in self._latest.items() if verdict.state != "open"}

    def labels(self) -> list[str]:
        """Return all labels in use."""
        with self._lock:
            return sorted(self._labels)

    def count_decided(self, recording_id: str) -> int:
        """Return the number of decided events and spans of a recording."""
        with self._lock:
            names = self._by_recording.get(recording_id, ())
            return sum(self._latest[name].state != "open" for name in names)

    def boxes(self, recording_id: str) -> list[Box]:
        """Return the current state of all events and spans of a recording, sorted by start."""
        rows = self._review_set.events_of(recording_id).to_pylist()
        with self._lock:
            latest = {name: self._latest[name] for name in self._by_recording.get(recording_id, ())}
        boxes = [
            _box_of_verdict(latest.pop(row["event_id"])) if row["event_id"] in latest else _box_of_row(row)
            for row in rows
        ]
        boxes += [_box_of_verdict(verdict) for verdict in latest.values() if verdict.state != "open"]
        return sorted(boxes, key=lambda box: (box.start_s, box.event_id))

    def box(self, event_id: str) -> Box | None:
        """Return the current state of one event or span, or None."""
        verdict = self._latest.get(event_id)
        if verdict is not None:
            return _box_of_verdict(verdict)
        row = self._review_set.event(event_id)
        return None if row is None else _box_of_row(row)

    def next_items(self, queue: str, count: int, user: str, exclude: Sequence[str] = ()) -> list[QueueItem]:
        """Return the next items of a queue, without items assigned to other users or with keys in `exclude`."""
        with self._assigning:  # one request at a time, so that no item is assigned twice
            now_s = time.monotonic()
            self._assigned = {key: entry for key, entry in self._assigned.items() if entry[1] > now_s}
            skipped = {key for key, (assignee, _) in self._assigned.items() if assignee != user} | {*exclude}
            candidates = self._review_set.queues[queue](
                self._review_set.events, self.decided(), count + len(skipped)
            )
            items = [item for item in candidates if not skipped.intersection(item.keys)][:count]
            self._assigned |= {key: (user, now_s + ASSIGNMENT_TTL_S) for item in items for key in item.keys}
        return items


def _box_of_verdict(verdict: Verdict) -> Box:
    return Box(*(getattr(verdict, name) for name in Box.__slots__))


def _box_of_row(row: dict[str, Any]) -> Box:
    return Box(
        row["event_id"],
        0,
        "sound",
        "open",
        row["recording_id"],
        row["start_s"],
        row["end_s"],
        row["low_hz"],
        row["high_hz"],
        row["label"],
        row["score"],
        None,
    )
