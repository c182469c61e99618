"""The HTML page of `mast cluster`: a map of all events, and the clusters with their exemplars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mast.datasets.sampler import make_rng
from mast.embeddings.clustering.cluster import ClusterStats, PcaProjection
from mast.embeddings.clustering.run import Cluster, ClusteringResult
from mast.embeddings.references import Bounds, ReferenceEvent
from mast.embeddings.search_report import render_clip
from mast.embeddings.umap_map import NEIGHBOURS, subsample, umap_projection
from mast.embeddings.vector_search import locator_of
from mast.embeddings.vector_table import vectors_in
from mast.errors import MissingExtraError
from mast.plotting.embedding_map import (
    FINGERPRINT,
    HEIGHT,
    SCRIPT,
    WIDTH,
    MapPoint,
    colour_of,
    marks,
    to_canvas,
)
from mast.plotting.html import render_page
from mast.records import EmbeddedEvent
from mast.storage import atomic_write, join
from mast.types import Floats32
from mast.version import __version__

if TYPE_CHECKING:
    import lance

PAGE = "clusters.html"
MAX_CARDS, TILES, DOTS, EXAMPLES = 24, 3, 2000, 18
"""Maximum numbers of clusters on a page, of exemplars per cluster, of events on the map, and of references; each
exemplar and each reference embeds a spectrogram and audio, about 250 kB."""


@dataclass(frozen=True, slots=True)
class ExemplarTile:
    """An event with its spectrogram and audio as data URLs, or the reason why there are none."""

    name: str
    title: str
    where: str
    recording_id: str
    bounds: Bounds
    event_id: str = ""
    image: str = ""
    audio: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ClusterCard:
    """A cluster as shown on the page."""

    number: int
    colour: str
    stats: ClusterStats
    nearest_name: str
    tiles: Sequence[ExemplarTile]


def require_umap() -> None:
    """Raise `MissingExtraError` without UMAP, before a long computation that needs it at its end."""
    if find_spec("umap") is None:
        raise MissingExtraError("A map", "train")


def write_page(
    result: ClusteringResult, dataset: lance.LanceDataset, out: str | None = None, seed: int = 0
) -> str:
    """Write the page, by default into the folder of the clusters; return its location."""
    page = out or join(result.folder, PAGE)
    with atomic_write(page) as file:
        file.write(clustering_page(result, dataset, seed).encode("utf-8", "backslashreplace"))
    return page


def clustering_page(result: ClusteringResult, dataset: lance.LanceDataset, seed: int = 0) -> str:
    """Render the page: a map, the clusters in order of rank, and a sample of the references."""
    shown = list(result.clusters[:MAX_CARDS])
    owner = {event.event_id: item.number for item in shown for event in item.exemplars[:TILES]}
    exemplars = [event for item in shown for event in item.exemplars[:TILES]]
    references = result.references
    chosen = subsample(references.labels.labels, EXAMPLES, seed) if references else np.zeros(0, np.int64)
    squares = [references.boxes[row] for row in chosen.tolist()] if references else []
    dots, numbers = _dots(result, dataset, seed)
    vectors = np.concatenate(
        [
            dots,
            _vectors(dataset, exemplars, dots.shape[1]),
            *([references.labels.vectors[chosen]] if references else []),
        ]
    )
    coordinates = to_canvas(layout(vectors, seed))  # (N, 2)
    first = len(dots) + len(exemplars)
    point_clusters = [*numbers, *(owner[event.event_id] for event in exemplars)]
    return render_page(
        "clusters.html",
        {
            "results": result.results,
            "version": __version__,
            "script": SCRIPT,
            "fingerprint": FINGERPRINT,
            "width": WIDTH,
            "height": HEIGHT,
            "events": result.events,
            "shown": len(dots),
            "unclustered": result.unclustered,
            "clusters": result.clusters,
            "candidates": sum(item.stats.is_candidate for item in result.clusters),
            "examples": len(references.boxes) if references else 0,
            "dots": [
                MapPoint(x, y, colour_of(number))
                for (x, y), number in zip(coordinates, numbers, strict=False)
            ],
            "circles": [
                MapPoint(
                    x,
                    y,
                    colour_of(owner[event.event_id]),
                    f"e-{event.event_id}",
                    f"cluster {owner[event.event_id]}",
                )
                for (x, y), event in zip(coordinates[len(dots) : first], exemplars, strict=True)
            ],
            "squares": [
                MapPoint(x, y, "", f"x-{index}", box.label)
                for index, ((x, y), box) in enumerate(zip(coordinates[first:], squares, strict=True))
            ],
            "marks": marks(coordinates[:first], point_clusters, len(shown)),
            "groups": [_card(result, item) for item in shown],
            "example_tiles": list(_reference_tiles(squares)),
        },
    )


def layout(vectors: Floats32, seed: int) -> NDArray[np.floating]:
    """Project vectors to two dimensions with UMAP, or with principal components if there are too few. → (N, 2)"""
    if len(vectors) <= NEIGHBOURS + 1:
        return PcaProjection.of(vectors)(vectors)[:, :2]
    return umap_projection(vectors, seed)


def _dots(
    result: ClusteringResult, dataset: lance.LanceDataset, seed: int
) -> tuple[Floats32, list[int | None]]:
    """Return the vectors of a random sample of events, and their clusters."""
    count = dataset.count_rows()
    rows = np.sort(make_rng(seed).choice(count, min(count, DOTS), replace=False, shuffle=False))
    width = dataset.schema.field("vector").type.list_size
    if not len(rows):
        return np.zeros((0, width), np.float32), []
    table = dataset.take(rows.tolist(), columns=["event_id", "part", "vector"])
    clusters: dict[str, int] = {}
    for part in sorted(set(table["part"].to_pylist())):
        clusters |= result.results.clusters(part)
    batch = table.combine_chunks().to_batches()[0]
    return vectors_in(batch), [clusters.get(name) for name in table["event_id"].to_pylist()]


def _vectors(dataset: lance.LanceDataset, events: Sequence[EmbeddedEvent], width: int) -> Floats32:
    """Return the vectors of events, in their order. → (n, C)"""
    if not events:
        return np.zeros((0, width), np.float32)
    ids = ", ".join(f"'{event.event_id}'" for event in events)
    table = dataset.to_table(columns=["event_id", "vector"], filter=f"event_id IN ({ids})")
    row = {name: index for index, name in enumerate(table["event_id"].to_pylist())}
    vectors = vectors_in(table.combine_chunks().to_batches()[0])
    return vectors[[row[event.event_id] for event in events]]


def _card(result: ClusteringResult, cluster: Cluster) -> ClusterCard:
    tiles = [_event_tile(result, cluster.number, event) for event in cluster.exemplars[:TILES]]
    return ClusterCard(cluster.number, colour_of(cluster.number), cluster.stats, cluster.nearest_name, tiles)


def _event_tile(result: ClusteringResult, number: int, event: EmbeddedEvent) -> ExemplarTile:
    bounds = (event.start_s, event.low_hz, event.end_s, event.high_hz)
    terms = [f"at {event.site}"] if event.site else []
    terms += [f"{event.start_local:%Y-%m-%d %H:%M:%S}"] if event.start_local else []
    tile = ExemplarTile(
        f"e-{event.event_id}",
        f"Cluster {number}",
        ", ".join(terms),
        event.recording_id,
        bounds,
        event.event_id,
    )
    image, audio, reason = render_clip(*locator_of(result.results, event.recording_id), bounds)
    return replace(tile, image=image, audio=audio, reason=reason)


def _reference_tiles(boxes: Sequence[ReferenceEvent]) -> Iterator[ExemplarTile]:
    for index, box in enumerate(boxes):
        image, audio, reason = render_clip(box.location, box.time_expansion, box.frames, box.bounds)
        yield ExemplarTile(
            f"x-{index}", box.label, "", box.recording_id, box.bounds, "", image, audio, reason
        )
