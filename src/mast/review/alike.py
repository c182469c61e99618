"""Queues that know how sounds sound: what is unlike all that was decided, and what is like that which was rejected.

They read `embeddings.lance`, the vectors of `mast embed`, a sample at a time; without it, false alarms are told by the
band, the length and the site of a sound.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mast.embeddings.table import open_vectors
from mast.review.queues import SEED, Ask, Integers, asks_for
from mast.review.sounds import boxes_of, codes, decided_among, named_among, threshold_of
from mast.review.verdicts import Verdict

if TYPE_CHECKING:
    import pyarrow as pa

Vectors = NDArray[np.float32]

SAMPLE = 20_000
"""So many open sounds are compared, drawn by lot or with the highest scores; what is rarer than one of these waits."""

KNOWN = 2000
"""So many decided sounds are compared with, drawn by lot."""

NOVEL_SHARE = 0.25
"""Of the open sounds those farthest from all decided ones, which are then grouped."""

TURNS = 10
"""Of k-means; the groups need not be exact."""

TRIES = 4
"""Vectors that are weighed against each other as the beginning of a group."""

SITE_APART = 1.0
"""How far apart sounds of two sites are, where 1 is a standard deviation of band or length."""


def novel(sounds: pa.Table, decided: Mapping[str, Verdict], count: int, *, vectors: str) -> list[Ask]:
    """Of the sounds that are farthest from all that was decided, the middle of each group, large groups first.

    Single odd ones are mostly noise: a group is what would be learned from.
    """
    names, found = sample_vectors(vectors, SAMPLE)
    is_open = ~decided_among(sounds, decided.values())
    rows = _rows(sounds, names)
    kept = (rows >= 0) & np.append(is_open, False)[rows]  # of an unknown sound, at -1, none
    rows, found = rows[kept], found[kept]
    known = named_vectors(
        vectors, _drawn([item.subject for item in decided.values() if item.state != "open"])
    )
    if len(known) and len(rows):
        apart = nearest(found, known)
        far = apart >= np.quantile(apart, 1 - NOVEL_SHARE)
        rows, found = rows[far], found[far]
    middles, sizes = grouped(found, count)
    unlike = "unlike all that was decided so far" if len(known) else "of a group that nobody has looked at"
    whys = [f"{unlike}, one of {size} that are alike" if size > 1 else unlike for size in sizes]
    return asks_for(sounds, rows[middles], whys)


def false_alarms(
    sounds: pa.Table, decided: Mapping[str, Verdict], count: int, *, vectors: str | None
) -> list[Ask]:
    """Sounds with the highest scores among those that are nearer to a rejected sound than to any accepted one.

    `vectors` is where the table of `mast embed` is; None compares band, length and site.
    """
    score = sounds["score"].to_numpy()
    is_open = ~decided_among(sounds, decided.values()) & (score >= threshold_of(sounds))
    rows = np.flatnonzero(is_open)
    rows = rows[np.argsort(-score[rows], kind="stable")[:SAMPLE]]
    judged = [
        _drawn([item.subject for item in decided.values() if item.state == state and item.score is not None])
        for state in ("rejected", "accepted")
    ]
    if vectors is None:
        parts = [rows, *(np.flatnonzero(named_among(sounds, names)) for names in judged)]
        every = described(sounds.take(np.concatenate(parts)))
        found, bad, good = np.split(every, np.cumsum([len(part) for part in parts])[:-1])
        how = "has the band and length of a rejected one (no vectors yet: mast embed)"
    else:
        names, found = _open_vectors(vectors, sounds, rows)
        rows = _rows(sounds, names)
        bad, good = (named_vectors(vectors, names) for names in judged)
        how = "sounds like one that was rejected"
    if not len(bad) or not len(rows):
        return []
    is_alarm = nearest(found, bad) < (nearest(found, good) if len(good) else np.inf)
    chosen = rows[is_alarm]
    chosen = chosen[np.lexsort((chosen, -score[chosen]))[:count]]
    return asks_for(sounds, chosen, [f"scores {score[row]:.2f}, yet {how}" for row in chosen])


def described(sounds: pa.Table) -> Vectors:
    """Length and band of every sound on scales of equal spread, and its site: what is alike is near. → (N, 3 + sites)"""
    start_s, low_hz, end_s, high_hz = boxes_of(sounds).T
    plain = np.log(np.stack([end_s - start_s + 0.01, low_hz + 100, high_hz + 100], axis=1))
    spread = plain.std(axis=0) if len(plain) else np.ones(3)
    site = codes(sounds["site"])
    sites = np.eye(site.max(initial=0) + 1)[site] * (SITE_APART / np.sqrt(2))
    return np.concatenate([plain / np.where(spread > 0, spread, 1), sites], axis=1).astype(np.float32)


def nearest(found: Vectors, known: Vectors, rows_at_once: int = 4096) -> Vectors:
    """Squared distance of each to the nearest known one. (N, C), (K, C) → (N,)"""
    lengths = (known**2).sum(axis=1)
    parts = [
        (own**2).sum(axis=1) + (lengths - 2 * own @ known.T).min(axis=1)
        for own in np.array_split(found, max(1, len(found) // rows_at_once))
    ]
    return np.concatenate(parts)


def grouped(found: Vectors, count: int) -> tuple[Integers, list[int]]:
    """The sound in the middle of each of at most so many groups of vectors, the largest group first, and their sizes."""
    if not len(found) or count < 1:
        return np.zeros(0, np.int64), []
    middles = _far_apart(found, count)
    for _ in range(TURNS):
        group = _nearest_of(found, middles)
        sums = np.zeros_like(middles)
        np.add.at(sums, group, found)
        sizes = np.bincount(group, minlength=len(middles))
        middles = (sums[sizes > 0] / sizes[sizes > 0, None]).astype(np.float32)
    group = _nearest_of(found, middles)
    sizes = np.bincount(group, minlength=len(middles))
    apart = ((found - middles[group]) ** 2).sum(axis=1)
    order = np.lexsort((np.arange(len(found)), apart, group))
    ordered = group[order]
    first = order[np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))]
    largest = np.argsort(-sizes[group[first]], kind="stable")
    return first[largest], sizes[group[first[largest]]].tolist()


def _far_apart(found: Vectors, count: int) -> Vectors:
    """Vectors to begin groups from: of a few drawn by their distance from those before, the one that is near most."""
    rng = np.random.default_rng(SEED)
    chosen = [int(rng.integers(len(found)))]
    apart = np.maximum(nearest(found, found[chosen]), 0)
    while len(chosen) < count and apart.max() > 1e-6:
        chances = apart.astype(np.float64) / apart.sum(dtype=np.float64)
        tries = rng.choice(len(found), TRIES, p=chances)
        left = [np.minimum(apart, np.maximum(nearest(found, found[[row]]), 0)) for row in tries]
        best = int(np.argmin([item.sum() for item in left]))
        chosen.append(int(tries[best]))
        apart = left[best]
    return found[chosen]


def _nearest_of(found: Vectors, middles: Vectors) -> Integers:
    nearest_one: Integers = ((middles**2).sum(axis=1) - 2 * found @ middles.T).argmin(axis=1)
    return nearest_one


def sample_vectors(location: str, count: int) -> tuple[list[str], Vectors]:
    """Names and vectors of sounds of a table, drawn by lot where there are more. → N, (N, C)"""
    dataset, _ = open_vectors(location)
    total = dataset.count_rows()
    rng = np.random.default_rng(SEED)
    rows = np.sort(rng.choice(total, min(count, total), replace=False))
    return _split(dataset.take(rows.tolist(), columns=["event_id", "vector"]))


def named_vectors(location: str, names: Collection[str]) -> Vectors:
    """Vectors of the sounds of these names, as far as the table has them. → (N, C)"""
    return _named(location, names)[1]


def _open_vectors(location: str, sounds: pa.Table, rows: Integers) -> tuple[list[str], Vectors]:
    return _named(location, sounds["event_id"].take(rows).to_pylist())


def _named(location: str, names: Collection[str]) -> tuple[list[str], Vectors]:
    """Rows by name: their places are looked up in the column of names, and only they are read."""
    import pyarrow as pa
    import pyarrow.compute as pc

    dataset, _ = open_vectors(location)
    column = dataset.to_table(columns=["event_id"])["event_id"]
    rows = np.flatnonzero(pc.is_in(column, value_set=pa.array(names, pa.string())).to_numpy())
    return _split(dataset.take(rows.tolist(), columns=["event_id", "vector"]))


def _split(table: pa.Table) -> tuple[list[str], Vectors]:
    width = table.schema.field("vector").type.list_size
    flat = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return table["event_id"].to_pylist(), np.asarray(flat, np.float32).reshape(-1, width)


def _rows(sounds: pa.Table, names: Sequence[str]) -> Integers:
    """Where sounds of these names are in the table, -1 where they are not. → (N,)"""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.index_in(pa.array(names, pa.string()), value_set=sounds["event_id"].combine_chunks())
    rows: Integers = found.fill_null(-1).to_numpy().astype(np.int64)
    return rows


def _drawn(names: list[str]) -> list[str]:
    """At most `KNOWN` names, by lot."""
    if len(names) <= KNOWN:
        return names
    return [names[row] for row in np.random.default_rng(SEED).choice(len(names), KNOWN, replace=False)]
