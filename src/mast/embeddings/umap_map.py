"""`mast plot-embeddings`: plot a UMAP of a study's chunk embeddings (paper, Representation Analysis)."""

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
from mast.datasets.sampler import make_rng
from mast.datasets.split_table import require_artifact
from mast.datasets.study_datasets import split_chunks
from mast.embeddings.chunk_embeddings import embed_chunks
from mast.errors import ConfigError, MissingExtraError, StorageError
from mast.models.devices import DTYPES, best_precision, resolve_device
from mast.models.loading import load_encoder
from mast.plotting.chunk_map import ChunkPoint, plot_chunk_map
from mast.records import write_table
from mast.storage import atomic_write, join
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE
from mast.types import Floats32, OnCount
from mast.wording import counted

NEIGHBOURS = 15
"""Number of neighbours in UMAP: its default, because the paper does not specify it."""

FIGURE = "chunk_map.png"
FIGURE_FORMATS = (".png", ".pdf", ".svg")
NOT_REVIEWED = ("unlabelled", "guard")
"""Splits whose box counts are not meaningful: no annotator has reviewed these chunks, or only part of a chunk."""


@dataclass(frozen=True, slots=True)
class MapResult:
    """Counts of the plotted chunks, and the locations of the figure and the table."""

    figure: str
    table: str
    chunks: int
    recordings: int
    sites: int
    reviewed: int

    def summary(self) -> str:
        """Return a readable summary."""
        return (
            f"{counted(self.chunks, 'chunk')} of {counted(self.recordings, 'recording')} at "
            f"{counted(self.sites, 'site')}, {self.reviewed:,} of them reviewed by an "
            f"annotator → {self.figure}\nCoordinates of every chunk: {self.table}"
        )


def map_study(
    study: Study,
    model_location: str,
    out: str | None = None,
    chunks: int = 2000,
    seed: int = 0,
    device: str = "auto",
    on_progress: OnCount = lambda done, total: None,
) -> MapResult:
    """Plot a UMAP of up to `chunks` chunk embeddings of a study, and write their coordinates beside the figure.

    Args:
        study: Study with prepared audio.
        model_location: Location of an encoder or detector.
        out: Figure file, PNG, PDF or SVG; by default `chunk_map.png` in the work folder.
        chunks: Maximum number of chunks, spread evenly over the recordings.
        seed: Seed of the random sample and of UMAP.
        device: Device of the encoder.
        on_progress: Called with the numbers of embedded chunks and of all chunks.

    Returns:
        Locations of the figure and the table, and counts.

    Raises:
        ConfigError: The suffix of `out` is not a figure format.
        MissingExtraError: UMAP is not installed.
        StorageError: The study has too few prepared chunks.
    """
    figure = out or join(study.work_dir, FIGURE)
    if PurePosixPath(figure).suffix.lower() not in FIGURE_FORMATS:
        raise ConfigError(f"{figure}: the figure format must be one of {', '.join(FIGURE_FORMATS)}.")
    if find_spec("umap") is None:  # fail before the long computation, not after it
        raise MissingExtraError("A map", "train")
    store = AudioStore(require_artifact(study, STORE))
    table, locations = split_chunks(study, store)
    chosen = subsample(table["recording_id"].to_numpy(), chunks, seed)
    if len(chosen) <= NEIGHBOURS:
        raise StorageError(
            f"{study.work_dir}: a map needs more than {NEIGHBOURS} chunks of prepared audio, not {len(chosen)}. Increase "
            "--chunks, or add recordings and run mast scan, mast split and mast prepare again."
        )
    loaded = load_encoder(model_location, store)
    kind = resolve_device(device)
    vectors = embed_chunks(
        loaded.network.to(kind),
        loaded.frontend.to(kind),
        store,
        locations[chosen],
        DTYPES[best_precision(kind)],
        on_progress=on_progress,
    )
    points = map_points(table.take(chosen), umap_projection(vectors, seed))
    return _write(points, loaded.description.identity, figure)


def subsample(names: NDArray[Any], maximum: int, seed: int) -> NDArray[np.int64]:
    """Return the sorted rows of a random sample of at most `maximum` items, spread evenly over `names`. (N,) → (n,)

    No name gets two items more than another name that has unsampled items left.
    """
    random_rank = make_rng(seed).permutation(len(names))
    _, name_index = np.unique(names, return_inverse=True)
    order = np.lexsort((random_rank, name_index))
    counts = np.bincount(name_index)
    turn = np.empty(len(names), np.int64)
    turn[order] = np.arange(len(names)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen: NDArray[np.int64] = np.sort(np.lexsort((random_rank, turn))[:maximum])
    return chosen


def umap_projection(vectors: Floats32, seed: int) -> NDArray[np.float32]:
    """Project vectors to two dimensions with UMAP, reproducibly for a seed. (N, C) → (N, 2)"""
    threads = torch.get_num_threads()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Tensorflow not installed", ImportWarning)
        warnings.filterwarnings("ignore", "n_jobs value 1 overridden to 1", UserWarning)
        from umap import UMAP

        # One thread: several would add the same numbers in a different order each time.
        umap = UMAP(n_neighbors=NEIGHBOURS, random_state=seed, n_jobs=1)
        coordinates: NDArray[np.float32] = umap.fit_transform(vectors)
    torch.set_num_threads(threads)  # UMAP uses numba, which changes the number of the shared OpenMP threads
    return coordinates


def map_points(table: pa.Table, coordinates: NDArray[np.float32]) -> list[ChunkPoint]:
    """Combine N rows of the split table with their coordinates (N, 2)."""
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
        for row, (x, y) in zip(table.to_pylist(), coordinates, strict=True)
    ]


def _hour(time: datetime | None) -> float | None:
    return None if time is None else time.hour + time.minute / 60 + time.second / 3600


def _write(points: list[ChunkPoint], model: str, figure: str) -> MapResult:
    """Write the figure and, under the same name, the table."""
    recordings = len({point.recording_id for point in points})
    title = (
        f"{counted(len(points), 'chunk')} of {counted(recordings, 'recording')}; chunks with "
        f"similar embeddings by model {model} lie close together (UMAP)"
    )
    suffix = PurePosixPath(figure).suffix
    table = f"{figure.removesuffix(suffix)}.parquet"
    write_table(points, ChunkPoint, table)
    with atomic_write(figure) as file:
        plot_chunk_map(points, title).savefig(file, format=suffix.lstrip(".").lower())
    return MapResult(
        figure,
        table,
        chunks=len(points),
        recordings=recordings,
        sites=len({point.site for point in points} - {None}),
        reviewed=sum(point.boxes is not None for point in points),
    )
