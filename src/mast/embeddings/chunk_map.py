"""`mast map`: chunks of a study laid out by how they sound to a model (paper, Representation Analysis)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from mast.config import Study
from mast.datasets.examples import prepared_chunks
from mast.datasets.order import randomness
from mast.datasets.split_table import existing
from mast.embeddings.chunks import OnProgress, Vectors, embed_chunks
from mast.errors import ConfigError, MissingExtraError, StorageError
from mast.events import write_table
from mast.models.devices import DTYPES, accelerator, best_precision
from mast.models.loading import load_encoder
from mast.pictures.chunk_map import ChunkPoint, draw_chunk_map
from mast.recordings.store import AudioStore
from mast.storage import join, written_whole
from mast.study.products import STORE

NEIGHBOURS = 15
"""Chunks that UMAP takes for a chunk's surroundings: its own default, as the paper names none."""

PICTURE = "chunk_map.png"
PICTURE_FORMATS = (".png", ".pdf", ".svg")
NOT_REVIEWED = ("unlabelled", "guard")
"""Splits whose numbers of boxes say nothing: an expert has looked at none of a chunk, or perhaps at a part."""


@dataclass(frozen=True, slots=True)
class MapResult:
    """What was drawn, and where it is."""

    picture: str
    table: str
    chunks: int
    recordings: int
    sites: int
    reviewed: int

    def summary(self) -> str:
        """A few lines for a person."""
        return (
            f"{self.chunks:,} chunks of {self.recordings:,} recordings at {self.sites:,} sites, "
            f"{self.reviewed:,} of them reviewed by an expert → {self.picture}\n"
            f"Every chunk with its place: {self.table}"
        )


def map_study(
    study: Study,
    model_location: str,
    out: str | None = None,
    chunks: int = 2000,
    seed: int = 0,
    device: str = "auto",
    on_progress: OnProgress = lambda done, total: None,
) -> MapResult:
    """Draw up to so many chunks of a study as a model hears them, and write a table of their places beside the picture.

    `out` is by default in the work folder.
    """
    picture = out or join(study.work, PICTURE)
    if PurePosixPath(picture).suffix.lower() not in PICTURE_FORMATS:
        raise ConfigError(f"{picture}: a map is written as {', '.join(PICTURE_FORMATS)}. Name it so.")
    if find_spec("umap") is None:  # told before the long work, not after it
        raise MissingExtraError("A map", "train")
    store = AudioStore(existing(study, STORE))
    table, places = prepared_chunks(study, store)
    chosen = spread(table["recording_id"].to_numpy(), chunks, seed)
    if len(chosen) <= NEIGHBOURS:
        raise StorageError(
            f"{study.work}: a map needs more than {NEIGHBOURS} chunks of prepared sound, not {len(chosen)}. Ask for "
            "more with --chunks, or add recordings and run mast scan, mast splits and mast prepare again."
        )
    loaded = load_encoder(model_location, store)
    kind = accelerator(device)
    vectors = embed_chunks(
        loaded.network.to(kind),
        loaded.frontend.to(kind),
        store,
        places[chosen],
        DTYPES[best_precision(kind)],
        on_progress=on_progress,
    )
    points = points_of(table.take(chosen), flattened(vectors, seed))
    return _written(points, loaded.description.identity, picture)


def spread(names: NDArray[Any], most: int, seed: int) -> NDArray[np.int64]:
    """Rows of up to so many chunks, spread evenly: no recording gives two more than another that has them. (N,) → (n,)"""
    lots = randomness(seed).permutation(len(names))
    _, recording = np.unique(names, return_inverse=True)
    order = np.lexsort((lots, recording))
    counts = np.bincount(recording)
    turn = np.empty(len(names), np.int64)
    turn[order] = np.arange(len(names)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen: NDArray[np.int64] = np.sort(np.lexsort((lots, turn))[:most])
    return chosen


def flattened(vectors: Vectors, seed: int) -> NDArray[np.float32]:
    """Vectors in two dimensions, neighbours kept together (UMAP); the same for a seed. (N, C) → (N, 2)"""
    threads = torch.get_num_threads()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Tensorflow not installed", ImportWarning)
        warnings.filterwarnings("ignore", "n_jobs value 1 overridden to 1", UserWarning)
        from umap import UMAP

        # One thread: several would add the same numbers up in another order each time.
        layout = UMAP(n_neighbors=NEIGHBOURS, random_state=seed, n_jobs=1)
        places: NDArray[np.float32] = layout.fit_transform(vectors)
    torch.set_num_threads(threads)  # numba, on which UMAP is built, has set that of the OpenMP they share
    return places


def points_of(table: pa.Table, places: NDArray[np.float32]) -> list[ChunkPoint]:
    """Rows of the split table with their places on the map. (N, 2) → N points"""
    return [
        ChunkPoint(
            recording_id=row["recording_id"],
            start_s=row["start_s"],
            site=row["site"],
            hour=_hour(row["start_local"]),
            boxes=None if row["split"] in NOT_REVIEWED else row["boxes"],
            x=float(x),
            y=float(y),
        )
        for row, (x, y) in zip(table.to_pylist(), places, strict=True)
    ]


def _hour(clock: datetime | None) -> float | None:
    return None if clock is None else clock.hour + clock.minute / 60 + clock.second / 3600


def _written(points: list[ChunkPoint], model: str, picture: str) -> MapResult:
    """Write the picture and, under the same name, the table."""
    recordings = len({point.recording_id for point in points})
    title = (
        f"{len(points):,} chunks of {recordings:,} recordings; those that sound alike to model {model} lie close "
        "together (UMAP)"
    )
    suffix = PurePosixPath(picture).suffix
    table = f"{picture.removesuffix(suffix)}.parquet"
    write_table(points, ChunkPoint, table)
    with written_whole(picture) as file:
        draw_chunk_map(points, title).savefig(file, format=suffix.lstrip(".").lower())
    return MapResult(
        picture,
        table,
        chunks=len(points),
        recordings=recordings,
        sites=len({point.site for point in points} - {None}),
        reviewed=sum(point.boxes is not None for point in points),
    )
