"""Select calibration chunks for int8 quantisation, and store the quantised program in the run's folder.

All processes of a run open the stored program, so that they return the same detections.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mast.audio.reader import Audio, chunk_and_hop, open_audio
from mast.config import Chunking
from mast.errors import StorageError
from mast.models.openvino import OpenVINOModel
from mast.runs.layout import GRAPH, WEIGHTS
from mast.storage import atomic_write, exists, join, open_binary
from mast.store.audio_store import to_int16

CHUNKS = 64
"""Maximum number of calibration chunks on which scales are measured, each from a different recording."""

COLUMNS = ["collection", "path", "frames"]
"""Columns of the table of recordings that locate the middle of a recording."""


def calibration_chunks(
    table: str,
    recordings: int,
    roots: Mapping[str, str],
    expansions: Mapping[str, float],
    chunking: Chunking,
) -> tuple[Tensor, Tensor]:
    """Return the middle chunk of recordings evenly spaced in a table, and its number of audio samples. → (B, N), (B,)

    Unreadable recordings are skipped. If no recording can be read, return one chunk of silence.
    """
    rate_hz, (samples, _) = chunking.sample_rate_hz, chunk_and_hop(chunking)
    chunks = []
    for collection, path, frames in _spread_positions(table, recordings):
        with suppress(Exception):  # the fault is reported when the recording is processed
            location = join(roots[collection], path)
            with open_audio(location, rate_hz, expansions[collection], frames) as audio:
                chunks.append(_middle_chunk(audio, samples))
    chunks = chunks or [np.zeros(samples, np.int16)]
    padded = np.stack([np.pad(chunk, (0, samples - len(chunk))) for chunk in chunks])
    return torch.from_numpy(padded), torch.tensor([len(chunk) for chunk in chunks])


def _spread_positions(table: str, recordings: int) -> list[tuple[str, str, int | None]]:
    """Return collection, path and readable frames of up to CHUNKS recordings, evenly spaced; rows are read in batches."""
    import pyarrow.parquet as pq

    positions = set(np.linspace(0, recordings - 1, min(CHUNKS, recordings)).astype(int).tolist())
    chosen: list[tuple[str, str, int | None]] = []
    first_row = 0
    with open_binary(table) as file:
        for batch in pq.ParquetFile(file, pre_buffer=False).iter_batches(columns=COLUMNS):
            rows = sorted(row - first_row for row in positions if 0 <= row - first_row < len(batch))
            if rows:
                chosen += [tuple(row[name] for name in COLUMNS) for row in batch.take(rows).to_pylist()]
            first_row += len(batch)
    return chosen


def _middle_chunk(audio: Audio, samples: int) -> NDArray[np.int16]:
    """Return up to `samples` samples from the middle of a recording; raise ValueError if it has none. → (N,)"""
    first = max(0, (audio.samples - samples) // 2)
    wave = audio.read_samples(first, min(first + samples, audio.samples))
    chunk = np.empty(len(wave), np.int16)
    to_int16(wave, chunk)
    if not len(chunk):
        raise ValueError(audio.location)
    return chunk


def write_program(out: str, program: OpenVINOModel | None) -> None:
    """Write the program of a quantised engine to the folder of a run, if there is one."""
    if program is not None:
        for name, content in ((GRAPH, program.graph), (WEIGHTS, program.weights)):
            with atomic_write(join(out, name)) as file:
                file.write(content)


def read_program(out: str) -> OpenVINOModel:
    """Read the program of a quantised engine from the folder of a run."""
    contents = []
    for name in (GRAPH, WEIGHTS):
        if not exists(join(out, name)):
            raise StorageError(
                f"{join(out, name)} is missing, and the run cannot resume without it. Restore the file."
            )
        with open_binary(join(out, name)) as file:
            contents.append(file.read())
    return OpenVINOModel(*contents)
