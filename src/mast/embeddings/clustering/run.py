"""`mast cluster`: cluster the events of a run, and rank the clusters by their priority for review.

The table of vectors is read in batches, and only statistics and exemplars of each cluster are kept: memory does not
grow with the number of events.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mast.annotations.delimited import open_table
from mast.annotations.paths import remove_stale_exports
from mast.config import AnnotationFormat
from mast.datasets.sampler import make_rng
from mast.embeddings.clustering.cluster import (
    MAX_EVENTS,
    MIN_CLUSTER_SIZE,
    Clusters,
    ClusterStats,
    PcaProjection,
    choose_min_cluster_size,
    cluster_all,
    cluster_cells,
    novelty,
    novelty_threshold,
    rank_clusters,
)
from mast.embeddings.references import ReferenceEvents, ReferenceSet
from mast.embeddings.vector_table import EMBEDDINGS, batches, open_vectors, vectors_in
from mast.errors import ConfigError, StorageError
from mast.evaluation.retrieval_metrics import LabelledVectors
from mast.outputs.export import EXPORT_LAYOUTS, ExportResult, export
from mast.records import EmbeddedEvent, EventCluster, arrow_schema, from_table, write_table
from mast.runs.layout import CLUSTERS, part_in
from mast.runs.results import DetectionResults, open_results
from mast.storage import delete, exists, join
from mast.types import Floats32, Integers, OnStage
from mast.wording import counted

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

MAX_EXEMPLARS, EXEMPLARS = 32, 6
"""Number of events nearest to a centroid kept while reading the table, and number of them chosen as exemplars."""

TABLE = "clusters.csv"
COLUMNS = (
    *("cluster", "candidate", "events", "novelty", "days", "sites", "review_priority"),
    *("nearest_name", "low_hz", "high_hz", "duration_s", "exemplars"),
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster and its rank, from 1 for the highest priority; `exemplars` are events near its centroid."""

    number: int
    stats: ClusterStats
    exemplars: tuple[EmbeddedEvent, ...]

    @property
    def nearest_name(self) -> str:
        """Label that is the nearest for most of its events; empty without references."""
        return max(self.stats.nearest, key=lambda label: self.stats.nearest[label], default="")


@dataclass(frozen=True, slots=True)
class ClusteringResult:
    """All clusters in order of rank; `unclustered` is the number of events in none.

    If there are no clusters, `min_size` is a `--min-cluster-size` that gives some.
    """

    results: DetectionResults
    clusters: Sequence[Cluster]
    events: int
    unclustered: int
    references: ReferenceEvents | None
    min_size: int | None = None

    @property
    def folder(self) -> str:
        """Folder of the clusters in the run."""
        return join(self.results.folder, CLUSTERS)

    def summary(self) -> str:
        """Return a readable summary."""
        candidates = sum(item.stats.is_candidate for item in self.clusters)
        lines = [self.references.summary()] if self.references else []
        lines.append(
            f"{counted(self.events, 'event')}: {counted(len(self.clusters), 'cluster')}, "
            f"{candidates:,} of them may be new; "
            f"{counted(self.unclustered, 'event')} in no cluster"
        )
        if self.min_size:
            lines.append(f"No clusters at this size; --min-cluster-size {self.min_size} gives some.")
        for item in self.clusters[:5]:
            stats = item.stats
            lines.append(
                f"  {item.number}: {counted(stats.events, 'event')}, days {len(stats.days):,}, "
                f"sites {len(stats.sites):,}, novelty {stats.mean(stats.novelty):.2f}"
            )
        return "\n".join([*lines, f"All clusters: {join(self.folder, TABLE)}"])


@dataclass(frozen=True)
class _NoveltyScorer:
    """Computes the novelty and the nearest label of events; without references, every event has novelty 1."""

    labels: LabelledVectors | None
    threshold: float = 0.0

    @classmethod
    def from_references(cls, references: ReferenceEvents | None) -> _NoveltyScorer:
        """Create a scorer with the threshold measured on the references."""
        return cls(references.labels, novelty_threshold(references.labels)) if references else cls(None)

    def __call__(self, vectors: Floats32) -> tuple[Floats32, list[str]]:
        """Return the novelty (B,) and the nearest label of each of B vectors (B, C)."""
        if self.labels is None:
            return np.ones(len(vectors), np.float32), [""] * len(vectors)
        distances, nearest = novelty(vectors, self.labels.vectors)
        return distances, [str(label) for label in self.labels.labels[nearest]]


def cluster_events(
    events: str,
    references: ReferenceSet | None = None,
    table: str | None = None,
    min_cluster_size: int = MIN_CLUSTER_SIZE,
    seed: int = 0,
    on_progress: OnStage = lambda stage, done, total: None,
) -> ClusteringResult:
    """Cluster the events of a run, rank the clusters by their novelty to `references`, and write them to the run.

    Args:
        events: Folder of the run; ignored if `references` is given, which includes the run.
        references: The run with labelled annotations; without them, every event is novel.
        table: Location of the vectors, if not in the folder of the run.
        min_cluster_size: Minimum number of events in a cluster.
        seed: Seed of random samples and of k-means.
        on_progress: Called with the stage, and the numbers of processed events and of all events.

    Returns:
        The clusters in order of rank.

    Raises:
        ConfigError: `min_cluster_size` is below 2, or all references are from one recording.
        MissingExtraError: scikit-learn is not installed.
        StorageError: The run or its vectors do not exist.
    """
    results = references.results if references else open_results(events)
    dataset = references.dataset if references else open_vectors(table or join(events, EMBEDDINGS))[0]
    reference_events = references.references if references else None
    scorer = _NoveltyScorer.from_references(reference_events)
    projection = PcaProjection.of(sample_vectors(dataset, MAX_EVENTS, seed))
    on_progress("clustering", 0, None)
    assignment = cluster_table(dataset, projection, min_cluster_size, seed)
    stats, exemplars = _cluster_stats(dataset, projection, assignment, scorer, on_progress)
    order = rank_clusters(stats)
    rank = {number: place for place, number in enumerate(order, start=1)}
    # Until all parts have the new ranks, no cluster can be exported.
    delete(join(results.folder, f"{CLUSTERS}/{TABLE}"))
    for to in EXPORT_LAYOUTS:
        remove_stale_exports((), _export_folder(results, to), results.fingerprint)
    unclustered = _write_clusters(results, dataset, projection, assignment, scorer, rank)
    clusters = [Cluster(rank[number], stats[number], exemplars[number]) for number in order]
    min_size = None if clusters else _min_size(dataset, projection, min_cluster_size)
    result = ClusteringResult(
        results, clusters, dataset.count_rows(), unclustered, reference_events, min_size
    )
    with open_table(join(result.folder, TABLE), COLUMNS) as add:
        add(map(_cells, clusters))
    return result


def sample_vectors(dataset: lance.LanceDataset, maximum: int, seed: int = 0) -> Floats32:
    """Return the vectors of a random sample of `maximum` events in table order, or of all events. → (n, C)"""
    count = dataset.count_rows()
    if count <= maximum:
        width = dataset.schema.field("vector").type.list_size
        vectors = map(vectors_in, batches(dataset, ["vector"]))
        return np.concatenate([np.zeros((0, width), np.float32), *vectors])
    rows = np.sort(make_rng(seed).choice(count, maximum, replace=False))
    return vectors_in(dataset.take(rows.tolist(), columns=["vector"]).combine_chunks().to_batches()[0])


def cluster_table(
    dataset: lance.LanceDataset, projection: PcaProjection, min_cluster_size: int, seed: int
) -> Clusters:
    """Cluster the events of a table: directly up to `MAX_EVENTS`, otherwise by cells."""
    if dataset.count_rows() <= MAX_EVENTS:
        return cluster_all(projection(sample_vectors(dataset, MAX_EVENTS)), min_cluster_size)
    return cluster_cells(
        lambda: (projection(vectors_in(batch)) for batch in batches(dataset, ["vector"])), seed
    )


def _min_size(dataset: lance.LanceDataset, projection: PcaProjection, min_cluster_size: int) -> int | None:
    """Return a minimum cluster size that gives clusters, if events are clustered directly."""
    is_direct = dataset.count_rows() <= MAX_EVENTS
    return (
        choose_min_cluster_size(projection(sample_vectors(dataset, MAX_EVENTS)), min_cluster_size)
        if is_direct
        else None
    )


def _assign_clusters(
    dataset: lance.LanceDataset, projection: PcaProjection, assignment: Clusters, columns: Sequence[str]
) -> Iterator[tuple[pa.RecordBatch, Floats32, Floats32, Integers]]:
    """Yield batches of a table with their vectors, points and cluster indices."""
    first = 0
    for batch in batches(dataset, columns):
        vectors = vectors_in(batch)
        points = projection(vectors)
        yield batch, vectors, points, assignment.numbers(first, points)
        first += len(batch)


def _cluster_stats(
    dataset: lance.LanceDataset,
    projection: PcaProjection,
    assignment: Clusters,
    scorer: _NoveltyScorer,
    on_progress: OnStage,
) -> tuple[list[ClusterStats], list[tuple[EmbeddedEvent, ...]]]:
    """Compute the statistics and the exemplars of each cluster."""
    import pyarrow as pa

    names = arrow_schema(EmbeddedEvent).names
    stats = [ClusterStats() for _ in range(assignment.count)]
    heaps: list[list[tuple[float, str, EmbeddedEvent]]] = [[] for _ in range(assignment.count)]
    total, done = dataset.count_rows(), 0
    for batch, vectors, points, numbers in _assign_clusters(
        dataset, projection, assignment, [*names, "vector"]
    ):
        distances, nearest = scorer(vectors)
        rows: list[EmbeddedEvent] = from_table(pa.Table.from_batches([batch]).select(names), EmbeddedEvent)
        for row, (event, number) in enumerate(zip(rows, numbers.tolist(), strict=True)):
            if number < 0:
                continue
            stats[number].novel += bool(distances[row] > scorer.threshold)
            _add(stats[number], event, float(distances[row]), nearest[row])
            nearness = -float(((points[row] - assignment.centroids[number]) ** 2).sum())
            heapq.heappush(heaps[number], (nearness, event.event_id, event))
            if len(heaps[number]) > MAX_EXEMPLARS:
                heapq.heappop(heaps[number])
        done += len(batch)
        on_progress("collecting statistics", done, total)
    return stats, [_spread_exemplars([event for _, _, event in sorted(heap, reverse=True)]) for heap in heaps]


def _add(stats: ClusterStats, event: EmbeddedEvent, distance: float, nearest: str) -> None:
    stats.events += 1
    stats.novelty += distance
    if event.start_local is not None:
        stats.days.add(event.start_local.date())
    if event.site is not None:
        stats.sites.add(event.site)
    stats.low_hz += event.low_hz
    stats.high_hz += event.high_hz
    stats.duration_s += event.end_s - event.start_s
    if nearest:
        stats.nearest[nearest] = stats.nearest.get(nearest, 0) + 1


def _spread_exemplars(events: Sequence[EmbeddedEvent]) -> tuple[EmbeddedEvent, ...]:
    """Return the first `EXEMPLARS` events in round-robin order over recordings."""
    turns: dict[str, int] = {}
    ranks = []
    for place, event in enumerate(events):
        turns[event.recording_id] = turns.get(event.recording_id, 0) + 1
        ranks.append((turns[event.recording_id], place))
    return tuple(events[place] for _, place in sorted(ranks)[:EXEMPLARS])


def _write_clusters(
    results: DetectionResults,
    dataset: lance.LanceDataset,
    projection: PcaProjection,
    assignment: Clusters,
    scorer: _NoveltyScorer,
    rank: dict[int, int],
) -> int:
    """Write the cluster of each event, one file per part; return the number of events in no cluster."""
    waiting: list[EventCluster] = []
    last: int | None = None
    unclustered = 0
    for batch, vectors, _, numbers in _assign_clusters(
        dataset, projection, assignment, ["event_id", "part", "vector"]
    ):
        distances, _ = scorer(vectors)
        columns = (
            batch["event_id"].to_pylist(),
            batch["part"].to_pylist(),
            numbers.tolist(),
            distances.tolist(),
        )
        for event_id, part, number, distance in zip(*columns, strict=True):
            if part != last and last is not None:
                _write_part(results, last, waiting)
                waiting = []
            last = part
            unclustered += number < 0
            waiting.append(EventCluster(event_id, rank.get(number), distance))
    if last is not None:
        _write_part(results, last, waiting)
    return unclustered


def _write_part(results: DetectionResults, number: int, rows: list[EventCluster]) -> None:
    write_table(rows, EventCluster, part_in(results.folder, CLUSTERS, number))


def _cells(cluster: Cluster) -> list[str]:
    stats = cluster.stats
    return [
        str(cluster.number),
        "yes" if stats.is_candidate else "no",
        str(stats.events),
        f"{stats.mean(stats.novelty):.4f}",
        str(len(stats.days)),
        str(len(stats.sites)),
        f"{stats.priority:.4f}",
        cluster.nearest_name,
        *(f"{stats.mean(value):.1f}" for value in (stats.low_hz, stats.high_hz)),
        f"{stats.mean(stats.duration_s):.3f}",
        " ".join(event.event_id for event in cluster.exemplars),
    ]


def export_clusters(
    events: str, numbers: Sequence[int], to: AnnotationFormat, out: str | None = None
) -> ExportResult:
    """Export all events of the clusters `numbers`, as numbered by `cluster_events`, as annotations for an expert.

    Raise `StorageError` if the run has no clusters, and `ConfigError` if it has none of these numbers.
    """
    results = open_results(events)
    wanted = set(numbers)
    if not exists(join(results.folder, f"{CLUSTERS}/{TABLE}")):
        raise StorageError(f"{events}: this run has no clusters. Run mast cluster without --export first.")
    if all(wanted.isdisjoint(results.clusters(part).values()) for part in results.numbers):
        raise ConfigError(
            f"--export {','.join(map(str, numbers))}: no such cluster. {TABLE} in {results.folder} lists all of them."
        )

    def labels(part: int) -> dict[str, str]:
        clusters = results.clusters(part)
        return {event: f"cluster {number}" for event, number in clusters.items() if number in wanted}

    return export(events, to, out or _export_folder(results, to), labels=labels)


def _export_folder(results: DetectionResults, to: AnnotationFormat) -> str:
    """Return the default folder for exported clusters."""
    return join(results.folder, f"{CLUSTERS}/{to}")
