"""Queues by similarity: events unlike all decided events, and events similar to rejected ones.

They read a sample of `embeddings.lance`, the embeddings of `mast embed`. Without embeddings, likely false positives are
compared by frequency band, duration and site.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mast.embeddings.vector_table import open_vectors
from mast.review.event_table import boxes_of, category_codes, decided_mask, mask_by_id, threshold_of
from mast.review.queues.basic import SEED, QueueItem, queue_items
from mast.review.verdicts import Verdict
from mast.types import Floats32, Integers

if TYPE_CHECKING:
    import pyarrow as pa


MAX_CANDIDATES = 20_000
"""Maximum number of open events to compare: a random sample, or the highest scores. Rarer events come later."""

MAX_REFERENCES = 2000
"""Maximum number of decided events to compare with: a random sample."""

NOVEL_FRACTION = 0.25
"""Fraction of the open events, those farthest from all decided events, to cluster."""

ITERATIONS = 10
"""Number of k-means iterations; the clusters need not be exact."""

TRIES = 4
"""Number of candidate vectors for each initial cluster centre (k-means++)."""

SITE_DISTANCE = 1.0
"""Distance between events of two sites, in standard deviations of frequency or duration."""


def novel_events(
    events: pa.Table, decided: Mapping[str, Verdict], count: int, *, vectors: str
) -> list[QueueItem]:
    """Return the central event of each cluster of the events farthest from all decided events, large clusters first.

    Single outliers are mostly noise; clusters are more useful as training data.
    """
    event_ids, candidates = sample_vectors(vectors, MAX_CANDIDATES)
    is_open = ~decided_mask(events, decided.values())
    rows = _rows(events, event_ids)
    kept = (rows >= 0) & np.append(is_open, False)[rows]  # at -1, an event that is not in the table, False
    rows, candidates = rows[kept], candidates[kept]
    labelled = vectors_by_id(
        vectors, _sampled([item.event_id for item in decided.values() if item.state != "open"])
    )
    if len(labelled) and len(rows):
        distance = nearest_distance(candidates, labelled)
        is_far = distance >= np.quantile(distance, 1 - NOVEL_FRACTION)
        rows, candidates = rows[is_far], candidates[is_far]
    central, sizes = cluster_rows(candidates, count)
    unlike = "unlike all decided events" if len(labelled) else "no similar event was reviewed"
    reasons = [f"{unlike}; one of {size} similar events" if size > 1 else unlike for size in sizes]
    return queue_items(events, rows[central], reasons)


def likely_false_positives(
    events: pa.Table, decided: Mapping[str, Verdict], count: int, *, vectors: str | None
) -> list[QueueItem]:
    """Return the highest-scoring open events that are nearer to a rejected event than to any accepted one.

    `vectors` is the location of the table of `mast embed`; None compares frequency band, duration and site.
    """
    score = events["score"].to_numpy()
    is_open = ~decided_mask(events, decided.values()) & (score >= threshold_of(events))
    rows = np.flatnonzero(is_open)
    rows = rows[np.argsort(-score[rows], kind="stable")[:MAX_CANDIDATES]]
    decided_ids = [
        _sampled(
            [item.event_id for item in decided.values() if item.state == state and item.score is not None]
        )
        for state in ("rejected", "accepted")
    ]
    if vectors is None:
        parts = [rows, *(np.flatnonzero(mask_by_id(events, event_ids)) for event_ids in decided_ids)]
        features = box_features(events.take(np.concatenate(parts)))
        candidates, rejected, accepted = np.split(features, np.cumsum([len(part) for part in parts])[:-1])
        similar = "frequencies and duration like a rejected event (no embeddings yet: mast embed)"
    else:
        event_ids, candidates = _open_vectors(vectors, events, rows)
        rows = _rows(events, event_ids)
        rejected, accepted = (vectors_by_id(vectors, event_ids) for event_ids in decided_ids)
        similar = "similar to a rejected event"
    if not len(rejected) or not len(rows):
        return []
    is_similar = nearest_distance(candidates, rejected) < (
        nearest_distance(candidates, accepted) if len(accepted) else np.inf
    )
    chosen = rows[is_similar]
    chosen = chosen[np.lexsort((chosen, -score[chosen]))[:count]]
    return queue_items(events, chosen, [f"score {score[row]:.2f}, but {similar}" for row in chosen])


def box_features(events: pa.Table) -> Floats32:
    """Return standardised log duration and frequencies of every event, and its site, shape (N, 3 + sites)."""
    start_s, low_hz, end_s, high_hz = boxes_of(events).T
    values = np.log(np.stack([end_s - start_s + 0.01, low_hz + 100, high_hz + 100], axis=1))
    spread = values.std(axis=0) if len(values) else np.ones(3)
    site = category_codes(events["site"])
    sites = np.eye(site.max(initial=0) + 1)[site] * (SITE_DISTANCE / np.sqrt(2))
    return np.concatenate([values / np.where(spread > 0, spread, 1), sites], axis=1).astype(np.float32)


def nearest_distance(candidates: Floats32, labelled: Floats32, rows_at_once: int = 4096) -> Floats32:
    """Return the squared distance of each candidate to the nearest labelled vector, (N, C), (K, C) → (N,)."""
    lengths = (labelled**2).sum(axis=1)
    parts = [
        (batch**2).sum(axis=1) + (lengths - 2 * batch @ labelled.T).min(axis=1)
        for batch in np.array_split(candidates, max(1, len(candidates) // rows_at_once))
    ]
    return np.concatenate(parts)


def cluster_rows(candidates: Floats32, count: int) -> tuple[Integers, list[int]]:
    """Return the row nearest the centre of each of at most `count` k-means clusters, largest first, and the sizes."""
    if not len(candidates) or count < 1:
        return np.zeros(0, np.int64), []
    centres = _initial_centres(candidates, count)
    for _ in range(ITERATIONS):
        group = _nearest_of(candidates, centres)
        sums = np.zeros_like(centres)
        np.add.at(sums, group, candidates)
        sizes = np.bincount(group, minlength=len(centres))
        centres = (sums[sizes > 0] / sizes[sizes > 0, None]).astype(np.float32)
    group = _nearest_of(candidates, centres)
    sizes = np.bincount(group, minlength=len(centres))
    distance = ((candidates - centres[group]) ** 2).sum(axis=1)
    order = np.lexsort((np.arange(len(candidates)), distance, group))
    ordered = group[order]
    first = order[np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))]
    largest = np.argsort(-sizes[group[first]], kind="stable")
    return first[largest], sizes[group[first[largest]]].tolist()


def _initial_centres(candidates: Floats32, count: int) -> Floats32:
    """Return initial cluster centres by greedy k-means++: the best of `TRIES` vectors sampled by squared distance."""
    rng = np.random.default_rng(SEED)
    chosen = [int(rng.integers(len(candidates)))]
    distance = np.maximum(nearest_distance(candidates, candidates[chosen]), 0)
    while len(chosen) < count and distance.max() > 1e-6:
        probability = distance.astype(np.float64) / distance.sum(dtype=np.float64)
        tries = rng.choice(len(candidates), TRIES, p=probability)
        remaining = [
            np.minimum(distance, np.maximum(nearest_distance(candidates, candidates[[row]]), 0))
            for row in tries
        ]
        best = int(np.argmin([item.sum() for item in remaining]))
        chosen.append(int(tries[best]))
        distance = remaining[best]
    return candidates[chosen]


def _nearest_of(candidates: Floats32, centres: Floats32) -> Integers:
    centre: Integers = ((centres**2).sum(axis=1) - 2 * candidates @ centres.T).argmin(axis=1)
    return centre


def sample_vectors(location: str, count: int) -> tuple[list[str], Floats32]:
    """Return the ids and vectors of at most `count` randomly sampled events of a table, N and (N, C)."""
    dataset, _ = open_vectors(location)
    total = dataset.count_rows()
    rng = np.random.default_rng(SEED)
    rows = np.sort(rng.choice(total, min(count, total), replace=False))
    return _split(dataset.take(rows.tolist(), columns=["event_id", "vector"]))


def vectors_by_id(location: str, event_ids: Collection[str]) -> Floats32:
    """Return the vectors of the events with these ids that are in the table, (N, C)."""
    return _vectors_for(location, event_ids)[1]


def _open_vectors(location: str, events: pa.Table, rows: Integers) -> tuple[list[str], Floats32]:
    return _vectors_for(location, events["event_id"].take(rows).to_pylist())


def _vectors_for(location: str, event_ids: Collection[str]) -> tuple[list[str], Floats32]:
    """Return ids and vectors by id: look up the rows in the id column and read only these."""
    import pyarrow as pa
    import pyarrow.compute as pc

    dataset, _ = open_vectors(location)
    column = dataset.to_table(columns=["event_id"])["event_id"]
    rows = np.flatnonzero(pc.is_in(column, value_set=pa.array(event_ids, pa.string())).to_numpy())
    return _split(dataset.take(rows.tolist(), columns=["event_id", "vector"]))


def _split(table: pa.Table) -> tuple[list[str], Floats32]:
    width = table.schema.field("vector").type.list_size
    flat = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return table["event_id"].to_pylist(), np.asarray(flat, np.float32).reshape(-1, width)


def _rows(events: pa.Table, event_ids: Sequence[str]) -> Integers:
    """Return the row of each id in the event table, or -1, shape (N,)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    indices = pc.index_in(pa.array(event_ids, pa.string()), value_set=events["event_id"].combine_chunks())
    rows: Integers = indices.fill_null(-1).to_numpy().astype(np.int64)
    return rows


def _sampled(event_ids: list[str]) -> list[str]:
    """Return a random sample of at most `MAX_REFERENCES` ids."""
    if len(event_ids) <= MAX_REFERENCES:
        return event_ids
    return [
        event_ids[row]
        for row in np.random.default_rng(SEED).choice(len(event_ids), MAX_REFERENCES, replace=False)
    ]
