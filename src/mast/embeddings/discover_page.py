"""The page of `mast discover`: a map of all sounds, and the groups with sounds that stand for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mast import __version__
from mast.datasets.order import randomness
from mast.embeddings.chunk_map import NEIGHBOURS, flattened, spread
from mast.embeddings.discover import Cluster, Discovered
from mast.embeddings.discovery import Floats, Projection, Sums
from mast.embeddings.examples import Bounds, Example
from mast.embeddings.neighbours import place_of
from mast.embeddings.sheet import drawn
from mast.embeddings.table import vectors_in
from mast.errors import MissingExtraError
from mast.events import Embedded
from mast.pictures.box_map import FINGERPRINT, HEIGHT, SCRIPT, WIDTH, Point, colour_of, marks, on_canvas
from mast.pictures.html import render_page
from mast.storage import join, written_whole

if TYPE_CHECKING:
    import lance

PAGE = "discover.html"
SHOWN, TILES, DOTS, EXAMPLES = 24, 3, 2000, 18
"""Groups of a page, sounds of a group that can be heard, sounds on the map, and examples, at most; what can be heard is
some 250 kB."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A sound with its picture and its wave, each as an address that holds it, or why there is none."""

    name: str
    title: str
    where: str
    recording_id: str
    bounds: Bounds
    event_id: str = ""
    picture: str = ""
    sound: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GroupCard:
    """A group as the page shows it."""

    number: int
    colour: str
    sums: Sums
    nearest_name: str
    tiles: Sequence[Tile]


def check_umap() -> None:
    """Refuse before the long work what would be missing after it."""
    if find_spec("umap") is None:
        raise MissingExtraError("A map", "train")


def write_page(
    discovered: Discovered, dataset: lance.LanceDataset, out: str | None = None, seed: int = 0
) -> str:
    """Write the page, by default beside the groups; tells where."""
    page = out or join(discovered.folder, PAGE)
    with written_whole(page) as file:
        file.write(discover_page(discovered, dataset, seed).encode("utf-8", "backslashreplace"))
    return page


def discover_page(discovered: Discovered, dataset: lance.LanceDataset, seed: int = 0) -> str:
    """The page: a map, the groups in their order, and some examples."""
    shown = list(discovered.clusters[:SHOWN])
    owner = {event.event_id: item.number for item in shown for event in item.exemplars[:TILES]}
    exemplars = [event for item in shown for event in item.exemplars[:TILES]]
    named = discovered.examples
    chosen = spread(named.named.labels, EXAMPLES, seed) if named else np.zeros(0, np.int64)
    squares = [named.boxes[row] for row in chosen.tolist()] if named else []
    dots, numbers = _dots(discovered, dataset, seed)
    vectors = np.concatenate(
        [dots, _vectors(dataset, exemplars, dots.shape[1]), *([named.named.vectors[chosen]] if named else [])]
    )
    places = on_canvas(laid_out(vectors, seed))  # (N, 2)
    first = len(dots) + len(exemplars)
    heard = [*numbers, *(owner[event.event_id] for event in exemplars)]
    return render_page(
        "discover.html",
        {
            "found": discovered.found,
            "version": __version__,
            "script": SCRIPT,
            "fingerprint": FINGERPRINT,
            "width": WIDTH,
            "height": HEIGHT,
            "events": discovered.events,
            "shown": len(dots),
            "alone": discovered.alone,
            "clusters": discovered.clusters,
            "candidates": sum(item.sums.is_candidate for item in discovered.clusters),
            "examples": len(named.boxes) if named else 0,
            "dots": [Point(x, y, colour_of(number)) for (x, y), number in zip(places, numbers, strict=False)],
            "circles": [
                Point(
                    x,
                    y,
                    colour_of(owner[event.event_id]),
                    f"e-{event.event_id}",
                    f"group {owner[event.event_id]}",
                )
                for (x, y), event in zip(places[len(dots) : first], exemplars, strict=True)
            ],
            "squares": [
                Point(x, y, "", f"x-{place}", box.label)
                for place, ((x, y), box) in enumerate(zip(places[first:], squares, strict=True))
            ],
            "marks": marks(places[:first], heard, len(shown)),
            "groups": [_card(discovered, item) for item in shown],
            "example_tiles": list(_example_tiles(squares)),
        },
    )


def laid_out(vectors: Floats, seed: int) -> NDArray[np.floating]:
    """Vectors in two dimensions: by UMAP, or where there are too few for it, by their principal components. → (N, 2)"""
    if len(vectors) <= NEIGHBOURS + 1:
        return Projection.of(vectors)(vectors)[:, :2]
    return flattened(vectors, seed)


def _dots(discovered: Discovered, dataset: lance.LanceDataset, seed: int) -> tuple[Floats, list[int | None]]:
    """Sounds drawn by lot, and the groups they are in."""
    count = dataset.count_rows()
    rows = np.sort(randomness(seed).choice(count, min(count, DOTS), replace=False, shuffle=False))
    width = dataset.schema.field("vector").type.list_size
    if not len(rows):
        return np.zeros((0, width), np.float32), []
    table = dataset.take(rows.tolist(), columns=["event_id", "part", "vector"])
    groups: dict[str, int] = {}
    for part in sorted(set(table["part"].to_pylist())):
        groups |= discovered.found.clusters(part)
    batch = table.combine_chunks().to_batches()[0]
    return vectors_in(batch), [groups.get(name) for name in table["event_id"].to_pylist()]


def _vectors(dataset: lance.LanceDataset, events: Sequence[Embedded], width: int) -> Floats:
    """Vectors of some sounds, in their order. → (n, C)"""
    if not events:
        return np.zeros((0, width), np.float32)
    words = ", ".join(f"'{event.event_id}'" for event in events)
    table = dataset.to_table(columns=["event_id", "vector"], filter=f"event_id IN ({words})")
    row = {name: place for place, name in enumerate(table["event_id"].to_pylist())}
    vectors = vectors_in(table.combine_chunks().to_batches()[0])
    return vectors[[row[event.event_id] for event in events]]


def _card(discovered: Discovered, cluster: Cluster) -> GroupCard:
    tiles = [_event_tile(discovered, cluster.number, event) for event in cluster.exemplars[:TILES]]
    return GroupCard(cluster.number, colour_of(cluster.number), cluster.sums, cluster.nearest_name, tiles)


def _event_tile(discovered: Discovered, number: int, event: Embedded) -> Tile:
    bounds = (event.start_s, event.low_hz, event.end_s, event.high_hz)
    terms = [f"at {event.site}"] if event.site else []
    terms += [f"{event.start_local:%Y-%m-%d %H:%M:%S}"] if event.start_local else []
    tile = Tile(
        f"e-{event.event_id}", f"Group {number}", ", ".join(terms), event.recording_id, bounds, event.event_id
    )
    picture, sound, reason = drawn(*place_of(discovered.found, event.recording_id), bounds)
    return replace(tile, picture=picture, sound=sound, reason=reason)


def _example_tiles(boxes: Sequence[Example]) -> Iterator[Tile]:
    for place, box in enumerate(boxes):
        picture, sound, reason = drawn(box.location, box.time_expansion, box.frames, box.bounds)
        yield Tile(f"x-{place}", box.label, "", box.recording_id, box.bounds, "", picture, sound, reason)
