"""Some chunks of an archive, to prepare an engine with, and what was prepared, which lies in the run's folder.

All who work at a run open what is kept there, so that they find the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mast.config import Chunking
from mast.detection.folder import GRAPH, WEIGHTS
from mast.errors import StorageError
from mast.models.programs import Program
from mast.recordings.decode import Audio, chunk_and_hop, open_audio
from mast.recordings.store import to_int16
from mast.storage import exists, join, open_binary, written_whole

CHUNKS = 64
"""Chunks that scales are measured on, each of another recording if there are so many."""

COLUMNS = ["collection", "path", "frames"]
"""What a table of recordings has to tell of one, so that its middle can be found."""


def chunks_of(
    table: str,
    recordings: int,
    roots: Mapping[str, str],
    expansions: Mapping[str, float],
    chunking: Chunking,
) -> tuple[Tensor, Tensor]:
    """The middle of recordings evenly spread over a table, and how much of each is sound. → (B, N), (B,)

    What cannot be read is passed over; where nothing can, silence has to do.
    """
    rate_hz, (samples, _) = chunking.sample_rate_hz, chunk_and_hop(chunking)
    found = []
    for collection, path, frames in _spread(table, recordings):
        with suppress(Exception):  # its fault is told when it is heard
            location = join(roots[collection], path)
            with open_audio(location, rate_hz, expansions[collection], frames) as audio:
                found.append(_middle(audio, samples))
    found = found or [np.zeros(samples, np.int16)]
    sound = np.stack([np.pad(item, (0, samples - len(item))) for item in found])
    return torch.from_numpy(sound), torch.tensor([len(item) for item in found])


def _spread(table: str, recordings: int) -> list[tuple[str, str, int | None]]:
    """Collection, path and readable frames of some recordings, of all parts of a table; no more of it is in memory."""
    import pyarrow.parquet as pq

    wanted = set(np.linspace(0, recordings - 1, min(CHUNKS, recordings)).astype(int).tolist())
    chosen: list[tuple[str, str, int | None]] = []
    first_row = 0
    with open_binary(table) as file:
        for batch in pq.ParquetFile(file, pre_buffer=False).iter_batches(columns=COLUMNS):
            rows = sorted(row - first_row for row in wanted if 0 <= row - first_row < len(batch))
            if rows:
                chosen += [tuple(row[name] for name in COLUMNS) for row in batch.take(rows).to_pylist()]
            first_row += len(batch)
    return chosen


def _middle(audio: Audio, samples: int) -> NDArray[np.int16]:
    """At most so many samples from the middle of a recording, of which there have to be some."""
    first = max(0, (audio.samples - samples) // 2)
    wave = audio.read_samples(first, min(first + samples, audio.samples))
    sound = np.empty(len(wave), np.int16)
    to_int16(wave, sound)
    if not len(sound):
        raise ValueError(audio.location)
    return sound


def write_program(out: str, program: Program | None) -> None:
    """Keep what was prepared in the folder of a run."""
    if program is not None:
        for name, content in ((GRAPH, program.graph), (WEIGHTS, program.weights)):
            with written_whole(join(out, name)) as file:
                file.write(content)


def read_program(out: str) -> Program:
    """What was prepared for a run."""
    contents = []
    for name in (GRAPH, WEIGHTS):
        if not exists(join(out, name)):
            raise StorageError(
                f"{join(out, name)} is gone, and the run cannot go on without it. Put it back."
            )
        with open_binary(join(out, name)) as file:
            contents.append(file.read())
    return Program(*contents)
