"""What holds now, kept in memory beside the database; who looks at what; and the boxes of a recording as they stand."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mast.review.material import Material
from mast.review.queues import Ask
from mast.review.store import Store
from mast.review.verdicts import Verdict

READ_AGAIN = 256
"""PostgreSQL numbers verdicts before they are kept: the last ones are read again, so that a late one is not missed."""

LENT_S = 300.0
"""So long what one person was given to look at is not given to another."""


@dataclass(frozen=True, slots=True)
class Box:
    """A sound or a span as it stands: the model's, changed by what holds for it; `version` 0 where nobody decided."""

    subject: str
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
    who: str | None


class Ledger:
    """The verdicts that hold, by subject and by recording."""

    def __init__(self, store: Store, material: Material) -> None:
        self._store, self._material = store, material
        self._lock = threading.Lock()
        self._lending = threading.Lock()
        self._last = 0
        self._holding: dict[str, Verdict] = {}
        self._of_recording: dict[str, set[str]] = {}
        self._labels = set(material.sounds["label"].unique().drop_null().to_pylist())
        self._lent: dict[str, tuple[str, float]] = {}
        self.catch_up()

    def catch_up(self) -> None:
        """Learn of what was kept since, by this server or another."""
        self.learn(self._store.verdicts(max(0, self._last - READ_AGAIN)))

    def learn(self, verdicts: Iterable[Verdict]) -> None:
        """Take verdicts in; the highest version of a subject holds."""
        for verdict in verdicts:
            with self._lock:
                self._last = max(self._last, verdict.number)
                before = self._holding.get(verdict.subject)
                if before is None or verdict.version > before.version:
                    self._holding[verdict.subject] = verdict
                    self._of_recording.setdefault(verdict.recording_id, set()).add(verdict.subject)
                    if verdict.label:
                        self._labels.add(verdict.label)

    def holds(self, subject: str) -> Verdict | None:
        """What holds for a subject."""
        return self._holding.get(subject)

    def decided(self) -> dict[str, Verdict]:
        """All that holds, without what was left open again."""
        with self._lock:
            return {name: verdict for name, verdict in self._holding.items() if verdict.state != "open"}

    def labels(self) -> list[str]:
        """Every label in use."""
        with self._lock:
            return sorted(self._labels)

    def count_decided(self, recording_id: str) -> int:
        """How many sounds and spans of a recording someone has decided."""
        with self._lock:
            names = self._of_recording.get(recording_id, ())
            return sum(self._holding[name].state != "open" for name in names)

    def boxes(self, recording_id: str) -> list[Box]:
        """All sounds and spans of a recording as they stand, by their start."""
        rows = self._material.sounds_of(recording_id).to_pylist()
        with self._lock:
            own = {name: self._holding[name] for name in self._of_recording.get(recording_id, ())}
        boxes = [
            _of_verdict(own.pop(row["event_id"])) if row["event_id"] in own else _of_row(row) for row in rows
        ]
        boxes += [_of_verdict(verdict) for verdict in own.values() if verdict.state != "open"]
        return sorted(boxes, key=lambda box: (box.start_s, box.subject))

    def box(self, subject: str) -> Box | None:
        """One of them."""
        verdict = self._holding.get(subject)
        if verdict is not None:
            return _of_verdict(verdict)
        row = self._material.sound(subject)
        return None if row is None else _of_row(row)

    def asks(self, queue: str, count: int, who: str, without: Sequence[str] = ()) -> list[Ask]:
        """What a queue asks for next, but not what someone else was just given, nor what is `without`, by its keys."""
        with self._lending:  # between looking what is lent and lending, nobody else may
            now_s = time.monotonic()
            self._lent = {name: loan for name, loan in self._lent.items() if loan[1] > now_s}
            away = {name for name, (borrower, _) in self._lent.items() if borrower != who} | {*without}
            asked = self._material.queues[queue](self._material.sounds, self.decided(), count + len(away))
            asks = [ask for ask in asked if not away.intersection(ask.keys)][:count]
            self._lent |= {name: (who, now_s + LENT_S) for ask in asks for name in ask.keys}
        return asks


def _of_verdict(verdict: Verdict) -> Box:
    return Box(*(getattr(verdict, name) for name in Box.__slots__))


def _of_row(row: dict[str, Any]) -> Box:
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
