"""Basic review queues: each sorts the events without a verdict and states the reason for each item.

These queues need only the event table; `registry.available_queues` adds those that need more, such as embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mast.review.event_table import category_codes, decided_mask, rank_within, threshold_of
from mast.review.verdicts import Verdict
from mast.types import Integers

if TYPE_CHECKING:
    import pyarrow as pa


STRATA = 10
"""Number of score bins of the audit, of equal width: fine enough to show how precision rises, and each soon filled."""

SEED = 0


@dataclass(frozen=True, slots=True)
class QueueItem:
    """Item of a review queue: a span of a recording, the events in it to decide, and the reason as a sentence."""

    recording_id: str
    start_s: float
    end_s: float
    event_ids: tuple[str, ...]
    reason: str

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys for assigning the item to a user: its event ids, or recording and start for a span without events."""
        return self.event_ids or (f"{self.recording_id} {self.start_s}",)


Queue = Callable[["pa.Table", Mapping[str, Verdict], int], list[QueueItem]]
"""Function from the event table (with `event_id`), the latest verdicts and the number of items, to the items."""


def sequential(events: pa.Table, decided: Mapping[str, Verdict], count: int) -> list[QueueItem]:
    """Return open events in the order of the recordings."""
    chosen = np.flatnonzero(~decided_mask(events, decided.values()))[:count]
    return queue_items(events, chosen, ["the next event in this recording"] * len(chosen))


def uncertain(events: pa.Table, decided: Mapping[str, Verdict], count: int) -> list[QueueItem]:
    """Return the open events that score closest to the threshold: first one per recording, then a second."""
    threshold = threshold_of(events)
    rows = np.flatnonzero(~decided_mask(events, decided.values()))
    score = events["score"].to_numpy()[rows]
    distance = np.abs(score - threshold)
    turn = rank_within(category_codes(events["recording_id"])[rows], distance, rows)
    chosen = np.lexsort((rows, distance, turn))[:count]
    reasons = [f"score {value:.2f}, close to the threshold {threshold:.2f}" for value in score[chosen]]
    return queue_items(events, rows[chosen], reasons)


def random_sample(events: pa.Table, decided: Mapping[str, Verdict], count: int) -> list[QueueItem]:
    """Return a random sample of open events with equal numbers in each score bin, to estimate precision."""
    stratum, rank = random_sample_order(events)
    rows = np.flatnonzero(~decided_mask(events, decided.values()))
    chosen = rows[np.lexsort((-stratum[rows], rank[rows]))[:count]]
    reasons = [
        f"random sample of the events with scores {low / STRATA:.1f} to {(low + 1) / STRATA:.1f}"
        for low in stratum[chosen]
    ]
    return queue_items(events, chosen, reasons)


def random_sample_order(events: pa.Table, seed: int = SEED) -> tuple[Integers, Integers]:
    """Return the score bin of each event and its random rank within that bin, shapes (N,) and (N,).

    The rank follows from the event id: no state needs to be stored, and a longer sample starts with the shorter one.
    """
    stratum = strata_of(events)
    return stratum, rank_within(stratum, hash_order(events["event_id"], seed))


def strata_of(events: pa.Table) -> Integers:
    """Return the score bin of each event, from 0 for the lowest scores, shape (N,)."""
    bins: Integers = np.clip((events["score"].to_numpy() * STRATA + 1e-9).astype(np.int64), 0, STRATA - 1)
    return bins


def hash_order(event_ids: pa.ChunkedArray, seed: int) -> NDArray[np.uint64]:
    """Return a pseudo-random number for each event id, different for each seed, shape (N,).

    Event ids are digests; the steps of SplitMix64 mix their 24 bytes with the seed.
    """
    texts = (
        np.asarray(event_ids.to_numpy(zero_copy_only=False), "S24") if len(event_ids) else np.zeros(0, "S24")
    )
    words = texts.view(np.uint64).reshape(-1, 3)  # (N, 24 bytes) → (N, 3)
    mixed = np.full(len(words), seed, np.uint64)
    for column in words.T:
        mixed = (mixed ^ column) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed


def queue_items(events: pa.Table, rows: Integers, reasons: Sequence[str]) -> list[QueueItem]:
    """Return a queue item for each of these rows of the event table."""
    selected = events.select(["recording_id", "start_s", "end_s", "event_id"]).take(rows).to_pylist()
    return [
        QueueItem(row["recording_id"], row["start_s"], row["end_s"], (row["event_id"],), reason)
        for row, reason in zip(selected, reasons, strict=True)
    ]


QUEUES: dict[str, Queue] = {"sequential": sequential, "uncertain": uncertain, "random-sample": random_sample}
