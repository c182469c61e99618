"""What to show next, and why: each queue orders what no one has decided yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mast.review.verdicts import Verdict

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Ask:
    """A span of a recording that someone should look at, the sounds in it that are meant, and the reason in words."""

    recording_id: str
    start_s: float
    end_s: float
    subjects: tuple[str, ...]
    why: str


Queue = Callable[["pa.Table", Mapping[str, Verdict], int], list[Ask]]
"""From the sounds found (rows as `Detected`, with their `event_id`) and the verdicts that hold: so many asks."""


def in_order(sounds: pa.Table, decided: Mapping[str, Verdict], count: int) -> list[Ask]:
    """Sounds as they follow each other in the recordings."""
    asks = []
    for row in sounds.to_pylist():
        if row["event_id"] not in decided and len(asks) < count:
            why = "the next sound in this recording"
            asks.append(Ask(row["recording_id"], row["start_s"], row["end_s"], (row["event_id"],), why))
    return asks


QUEUES: dict[str, Queue] = {"in order": in_order}
