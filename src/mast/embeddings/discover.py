"""`mast discover`: groups of sounds that nobody has named, the most promising first, to look at and to listen to.

Rows of the table of vectors pass by in batches, and only what is told of each group is kept: memory does not grow with
the number of sounds.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mast.annotations.files import keep_only
from mast.annotations.text import open_table
from mast.config import AnnotationFormat
from mast.datasets.order import randomness
from mast.detection.export import SHAPES, Exported, export
from mast.detection.folder import CLUSTERS, part_in
from mast.detection.found import Found, open_found
from mast.embeddings.discovery import (
    LEAST,
    MOST_EVENTS,
    Floats,
    Groups,
    Integers,
    Projection,
    Sums,
    group_all,
    group_cells,
    least_that_groups,
    novelty,
    ranked,
    usual_novelty,
)
from mast.embeddings.examples import Examples, Known
from mast.embeddings.table import EMBEDDINGS, batches, open_vectors, vectors_in
from mast.errors import ConfigError, StorageError
from mast.evaluation.retrieval import Named
from mast.events import Embedded, EventCluster, arrow_schema, from_table, write_table
from mast.storage import exists, join, remove

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

KEPT, EXEMPLARS = 32, 6
"""Sounds nearest to a group's middle that are kept while they pass by, and those of them that stand for it."""

TABLE = "clusters.csv"
COLUMNS = (
    *("cluster", "candidate", "sounds", "novelty", "days", "sites", "worth"),
    *("nearest_name", "low_hz", "high_hz", "lasting_s", "exemplars"),
)

OnProgress = Callable[[str, float, float | None], None]
"""`on_progress(stage, done, total)`, in sounds."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A group of sounds, by its place in the order: 1 is the most promising. `exemplars` are those most like the rest."""

    number: int
    sums: Sums
    exemplars: tuple[Embedded, ...]

    @property
    def nearest_name(self) -> str:
        """What most of its sounds are most like, of all that has a name."""
        return max(self.sums.nearest, key=lambda name: self.sums.nearest[name], default="")


@dataclass(frozen=True, slots=True)
class Discovered:
    """All groups in their order, and where they are told; `alone` counts sounds that are in none.

    Where there is no group, `enough` is a `--least` that would make some.
    """

    found: Found
    clusters: Sequence[Cluster]
    events: int
    alone: int
    examples: Examples | None
    enough: int | None = None

    @property
    def folder(self) -> str:
        """Where everything is."""
        return join(self.found.folder, CLUSTERS)

    def summary(self) -> str:
        """The account for a person to read."""
        new = sum(item.sums.is_candidate for item in self.clusters)
        lines = [self.examples.summary()] if self.examples else []
        lines.append(
            f"{self.events:,} sounds: {len(self.clusters):,} groups, {new:,} of them may be new; {self.alone:,} sounds "
            "are in none"
        )
        if self.enough:
            lines.append(f"With --least {self.enough} there are groups.")
        for item in self.clusters[:5]:
            sums = item.sums
            lines.append(
                f"  {item.number}: {sums.events:,} sounds, days {len(sums.days):,}, sites {len(sums.sites):,}, novelty "
                f"{sums.mean(sums.novelty):.2f}"
            )
        return "\n".join([*lines, f"All groups: {join(self.folder, TABLE)}"])


@dataclass(frozen=True)
class _Judge:
    """What examples say of sounds: how new they are, and whose name is nearest; without examples, all is new."""

    named: Named | None
    usual: float = 0.0

    @classmethod
    def by(cls, examples: Examples | None) -> _Judge:
        """Examples as the measure."""
        return cls(examples.named, usual_novelty(examples.named)) if examples else cls(None)

    def __call__(self, vectors: Floats) -> tuple[Floats, list[str]]:
        """(B, C) → (B,), B"""
        if self.named is None:
            return np.ones(len(vectors), np.float32), [""] * len(vectors)
        unlike, nearest = novelty(vectors, self.named.vectors)
        return unlike, [str(label) for label in self.named.labels[nearest]]


def discover(
    events: str,
    known: Known | None = None,
    table: str | None = None,
    least: int = LEAST,
    seed: int = 0,
    on_progress: OnProgress = lambda stage, done, total: None,
) -> Discovered:
    """Group the sounds of a run, put groups in order by what is `known`, and write down which sound is in which."""
    found = known.found if known else open_found(events)
    dataset = known.dataset if known else open_vectors(table or join(events, EMBEDDINGS))[0]
    examples = known.examples if known else None
    judge = _Judge.by(examples)
    project = Projection.of(sample_of(dataset, MOST_EVENTS, seed))
    on_progress("grouping", 0, None)
    groups = grouped(dataset, project, least, seed)
    sums, exemplars = _summed(dataset, project, groups, judge, on_progress)
    order = ranked(sums)
    place = {number: rank for rank, number in enumerate(order, start=1)}
    # Until all parts have the new numbers, none can be taken.
    remove(join(found.folder, f"{CLUSTERS}/{TABLE}"))
    for to in SHAPES:
        keep_only((), _taken(found, to), found.fingerprint)
    alone = _write_numbers(found, dataset, project, groups, judge, place)
    clusters = [Cluster(place[number], sums[number], exemplars[number]) for number in order]
    enough = None if clusters else _enough(dataset, project, least)
    discovered = Discovered(found, clusters, dataset.count_rows(), alone, examples, enough)
    with open_table(join(discovered.folder, TABLE), COLUMNS) as add:
        add(map(_cells, clusters))
    return discovered


def sample_of(dataset: lance.LanceDataset, most: int, seed: int = 0) -> Floats:
    """Vectors of sounds of a table drawn by lot, or of all in their order. → (n, C)"""
    count = dataset.count_rows()
    if count <= most:
        width = dataset.schema.field("vector").type.list_size
        every = map(vectors_in, batches(dataset, ["vector"]))
        return np.concatenate([np.zeros((0, width), np.float32), *every])
    rows = np.sort(randomness(seed).choice(count, most, replace=False))
    return vectors_in(dataset.take(rows.tolist(), columns=["vector"]).combine_chunks().to_batches()[0])


def grouped(dataset: lance.LanceDataset, project: Projection, least: int, seed: int) -> Groups:
    """Groups of a table's sounds, one by one where they are few enough."""
    if dataset.count_rows() <= MOST_EVENTS:
        return group_all(project(sample_of(dataset, MOST_EVENTS)), least)
    return group_cells(lambda: (project(vectors_in(own)) for own in batches(dataset, ["vector"])), seed)


def _enough(dataset: lance.LanceDataset, project: Projection, least: int) -> int | None:
    """How many sounds should make a group for some to be there, where it is sounds that are grouped."""
    few = dataset.count_rows() <= MOST_EVENTS
    return least_that_groups(project(sample_of(dataset, MOST_EVENTS)), least) if few else None


def _numbered(
    dataset: lance.LanceDataset, project: Projection, groups: Groups, columns: Sequence[str]
) -> Iterator[tuple[pa.RecordBatch, Floats, Floats, Integers]]:
    """Batches of a table with vectors, places and the numbers of their groups."""
    first = 0
    for batch in batches(dataset, columns):
        vectors = vectors_in(batch)
        places = project(vectors)
        yield batch, vectors, places, groups.numbers(first, places)
        first += len(batch)


def _summed(
    dataset: lance.LanceDataset,
    project: Projection,
    groups: Groups,
    judge: _Judge,
    on_progress: OnProgress,
) -> tuple[list[Sums], list[tuple[Embedded, ...]]]:
    """What is told of each group, and the sounds that stand for it."""
    import pyarrow as pa

    names = arrow_schema(Embedded).names
    sums = [Sums() for _ in range(groups.count)]
    kept: list[list[tuple[float, str, Embedded]]] = [[] for _ in range(groups.count)]
    total, done = dataset.count_rows(), 0
    for batch, vectors, places, numbers in _numbered(dataset, project, groups, [*names, "vector"]):
        unlike, nearest = judge(vectors)
        rows: list[Embedded] = from_table(pa.Table.from_batches([batch]).select(names), Embedded)
        for row, (event, number) in enumerate(zip(rows, numbers.tolist(), strict=True)):
            if number < 0:
                continue
            sums[number].new += bool(unlike[row] > judge.usual)
            _add(sums[number], event, float(unlike[row]), nearest[row])
            nearness = -float(((places[row] - groups.middles[number]) ** 2).sum())
            heapq.heappush(kept[number], (nearness, event.event_id, event))
            if len(kept[number]) > KEPT:
                heapq.heappop(kept[number])
        done += len(batch)
        on_progress("adding sounds", done, total)
    return sums, [_spread([event for _, _, event in sorted(own, reverse=True)]) for own in kept]


def _add(sums: Sums, event: Embedded, unlike: float, nearest: str) -> None:
    sums.events += 1
    sums.novelty += unlike
    if event.start_local is not None:
        sums.days.add(event.start_local.date())
    if event.site is not None:
        sums.sites.add(event.site)
    sums.low_hz += event.low_hz
    sums.high_hz += event.high_hz
    sums.lasting_s += event.end_s - event.start_s
    if nearest:
        sums.nearest[nearest] = sums.nearest.get(nearest, 0) + 1


def _spread(events: Sequence[Embedded]) -> tuple[Embedded, ...]:
    """Some sounds, each recording in turn, in the order in which they come."""
    turns: dict[str, int] = {}
    ranks = []
    for place, event in enumerate(events):
        turns[event.recording_id] = turns.get(event.recording_id, 0) + 1
        ranks.append((turns[event.recording_id], place))
    return tuple(events[place] for _, place in sorted(ranks)[:EXEMPLARS])


def _write_numbers(
    found: Found,
    dataset: lance.LanceDataset,
    project: Projection,
    groups: Groups,
    judge: _Judge,
    place: dict[int, int],
) -> int:
    """Write which sound is in which group, a file for each part; counts those in none."""
    waiting: list[EventCluster] = []
    last: int | None = None
    alone = 0
    for batch, vectors, _, numbers in _numbered(dataset, project, groups, ["event_id", "part", "vector"]):
        unlike, _ = judge(vectors)
        columns = (
            batch["event_id"].to_pylist(),
            batch["part"].to_pylist(),
            numbers.tolist(),
            unlike.tolist(),
        )
        for event_id, part, number, new in zip(*columns, strict=True):
            if part != last and last is not None:
                _write_part(found, last, waiting)
                waiting = []
            last = part
            alone += number < 0
            waiting.append(EventCluster(event_id, place.get(number), new))
    if last is not None:
        _write_part(found, last, waiting)
    return alone


def _write_part(found: Found, number: int, rows: list[EventCluster]) -> None:
    write_table(rows, EventCluster, part_in(found.folder, CLUSTERS, number))


def _cells(cluster: Cluster) -> list[str]:
    sums = cluster.sums
    return [
        str(cluster.number),
        "yes" if sums.is_candidate else "no",
        str(sums.events),
        f"{sums.mean(sums.novelty):.4f}",
        str(len(sums.days)),
        str(len(sums.sites)),
        f"{sums.worth:.4f}",
        cluster.nearest_name,
        *(f"{sums.mean(value):.1f}" for value in (sums.low_hz, sums.high_hz)),
        f"{sums.mean(sums.lasting_s):.3f}",
        " ".join(event.event_id for event in cluster.exemplars),
    ]


def take(events: str, numbers: Sequence[int], to: AnnotationFormat, out: str | None = None) -> Exported:
    """Write all sounds of some groups, as `discover` has numbered them, as tables for an expert."""
    found = open_found(events)
    wanted = set(numbers)
    if not exists(join(found.folder, f"{CLUSTERS}/{TABLE}")):
        raise StorageError(
            f"{events}: sounds have not been grouped yet. Run mast discover without --take first."
        )
    if all(wanted.isdisjoint(found.clusters(part).values()) for part in found.numbers):
        raise ConfigError(
            f"--take {','.join(map(str, numbers))}: no such group. {TABLE} in {found.folder} has all."
        )

    def labels(part: int) -> dict[str, str]:
        every = found.clusters(part)
        return {name: f"group {number}" for name, number in every.items() if number in wanted}

    return export(events, to, out or _taken(found, to), labels=labels)


def _taken(found: Found, to: AnnotationFormat) -> str:
    """The folder that groups are written into, unless another is asked for."""
    return join(found.folder, f"{CLUSTERS}/{to}")
