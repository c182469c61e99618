"""What to show next, and why: each queue orders what no one has decided yet.

These need the sounds alone; `asking.queues_of` adds those that know more of a run, such as how its sounds sound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mast.review.sounds import codes, decided_among, rank_within, threshold_of
from mast.review.verdicts import Verdict

if TYPE_CHECKING:
    import pyarrow as pa

Integers = NDArray[np.int64]

STRATA = 10
"""Bins of equal width that scores are cut into for an audit: thin enough to see precision rise, and each soon filled."""

SEED = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """A span of a recording that someone should look at, the sounds in it that are meant, and the reason in words."""

    recording_id: str
    start_s: float
    end_s: float
    subjects: tuple[str, ...]
    why: str

    @property
    def keys(self) -> tuple[str, ...]:
        """By which it is known who was given it: its sounds, or where it begins if it is a span without any."""
        return self.subjects or (f"{self.recording_id} {self.start_s}",)


Queue = Callable[["pa.Table", Mapping[str, Verdict], int], list[Ask]]
"""From the sounds found (rows as `Detected`, with their `event_id`) and the verdicts that hold: so many asks."""


def in_order(sounds: pa.Table, decided: Mapping[str, Verdict], count: int) -> list[Ask]:
    """Sounds as they follow each other in the recordings."""
    chosen = np.flatnonzero(~decided_among(sounds, decided.values()))[:count]
    return asks_for(sounds, chosen, ["the next sound in this recording"] * len(chosen))


def uncertain(sounds: pa.Table, decided: Mapping[str, Verdict], count: int) -> list[Ask]:
    """Sounds that score nearest the threshold: of every recording its most doubtful first, then its second …"""
    threshold = threshold_of(sounds)
    rows = np.flatnonzero(~decided_among(sounds, decided.values()))
    score = sounds["score"].to_numpy()[rows]
    doubt = np.abs(score - threshold)
    turn = rank_within(codes(sounds["recording_id"])[rows], doubt, rows)
    chosen = np.lexsort((rows, doubt, turn))[:count]
    whys = [f"scores {value:.2f}, where {threshold:.2f} decides" for value in score[chosen]]
    return asks_for(sounds, rows[chosen], whys)


def audit(sounds: pa.Table, decided: Mapping[str, Verdict], count: int) -> list[Ask]:
    """Sounds drawn by lot, as many of each bin of scores: the sample that precision is told from."""
    stratum, rank = audit_order(sounds)
    rows = np.flatnonzero(~decided_among(sounds, decided.values()))
    chosen = rows[np.lexsort((-stratum[rows], rank[rows]))[:count]]
    whys = [
        f"drawn by lot among the sounds that score {low / STRATA:.1f} to {(low + 1) / STRATA:.1f}"
        for low in stratum[chosen]
    ]
    return asks_for(sounds, chosen, whys)


def audit_order(sounds: pa.Table, seed: int = SEED) -> tuple[Integers, Integers]:
    """The bin of each sound's score, and its place in the lottery within that bin. → (N,), (N,)

    The lot of a sound follows from its name: nothing needs to be kept, and a longer sample begins as a shorter one.
    """
    stratum = strata_of(sounds)
    return stratum, rank_within(stratum, lots(sounds["event_id"], seed))


def strata_of(sounds: pa.Table) -> Integers:
    """The bin of each sound's score, from 0 for the lowest. → (N,)"""
    bins: Integers = np.clip((sounds["score"].to_numpy() * STRATA + 1e-9).astype(np.int64), 0, STRATA - 1)
    return bins


def lots(names: pa.ChunkedArray, seed: int) -> NDArray[np.uint64]:
    """A number for each name that looks as if drawn at random, another for another seed. → (N,)

    Names of sounds are digests; the steps of SplitMix64 stir their 24 bytes and the seed together.
    """
    texts = np.asarray(names.to_numpy(zero_copy_only=False), "S24") if len(names) else np.zeros(0, "S24")
    words = texts.view(np.uint64).reshape(-1, 3)  # (N, 24 bytes) → (N, 3)
    drawn = np.full(len(words), seed, np.uint64)
    for column in words.T:
        drawn = (drawn ^ column) + np.uint64(0x9E3779B97F4A7C15)
        drawn = (drawn ^ (drawn >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        drawn = (drawn ^ (drawn >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        drawn ^= drawn >> np.uint64(31)
    return drawn


def asks_for(sounds: pa.Table, rows: Integers, whys: Sequence[str]) -> list[Ask]:
    """An ask for each of these rows; only they become Python's."""
    few = sounds.select(["recording_id", "start_s", "end_s", "event_id"]).take(rows).to_pylist()
    return [
        Ask(row["recording_id"], row["start_s"], row["end_s"], (row["event_id"],), why)
        for row, why in zip(few, whys, strict=True)
    ]


QUEUES: dict[str, Queue] = {"in order": in_order, "uncertain": uncertain, "audit": audit}
