"""Read the prepared audio of a study: 16 kHz mono int16 in a Lance table, with a row per block, at any offset.

A block has the length of a chunk, and blocks do not overlap; a chunk that starts inside a block is read from two blocks,
so overlapping chunks need no extra disk space. The audio is a Lance *blob*: only the requested bytes are read, from a
disk or an object store.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mast.audio.reader import chunk_and_hop, chunk_counts
from mast.config import Chunking
from mast.errors import MissingExtraError, StorageError
from mast.records import AudioBlock, arrow_schema
from mast.storage import endpoint_and_region, is_remote

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

FULL_SCALE = 32767
"""A sample of 1.0 as int16; the range is symmetric around 0."""

FORMAT = "1"
"""Version that changes whenever the same recordings would give different rows."""

DATA_VERSION = "2.1"
"""Version of Lance's file format in which a part is one file and a blob is readable without an extension type."""

METADATA_KEY = b"mast"
"""Key of the store's metadata in the table's metadata: JSON with layout, format and fingerprint."""

_INDEX_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """Sample rate and block length of the store."""

    sample_rate_hz: int
    block_samples: int

    @classmethod
    def of(cls, chunking: Chunking) -> Self:
        """Return the layout for `chunking`: a block has the length of a chunk."""
        return cls(chunking.sample_rate_hz, chunk_and_hop(chunking)[0])


def to_int16(wave: NDArray[np.float32], out: NDArray[np.int16]) -> None:
    """Round a waveform in -1…1 to int16; values outside this range are clipped."""
    scaled = wave * np.float32(FULL_SCALE)
    np.rint(scaled, out=scaled)
    np.clip(scaled, -FULL_SCALE, FULL_SCALE, out=scaled)
    np.copyto(out, scaled, casting="unsafe")


def to_float(samples: NDArray[np.int16]) -> NDArray[np.float32]:
    """Convert samples of the store to a waveform in -1…1."""
    return samples.astype(np.float32) / np.float32(FULL_SCALE)


class AudioStore:
    """A prepared store, opened at its first use in each process, so that it can be sent to workers."""

    def __init__(self, location: str) -> None:
        self.location = location

    def __reduce__(self) -> tuple[type[AudioStore], tuple[str]]:
        """Return the location only: Lance handles cannot be sent, so a receiving process opens the store again."""
        return AudioStore, (self.location,)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.dataset.count_rows())

    @cached_property
    def dataset(self) -> lance.LanceDataset:
        """Lance table of the store."""
        dataset = open_dataset(self.location)
        if dataset is None:
            raise StorageError(f"{self.location}: there is no prepared audio. Create it with mast prepare.")
        return dataset

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the inputs of the store's content."""
        return str(read_metadata(self.dataset)["fingerprint"])

    @cached_property
    def layout(self) -> StoreLayout:
        """Sample rate and length of the blocks."""
        return StoreLayout(**read_metadata(self.dataset)["layout"])

    @cached_property
    def recordings(self) -> pa.Table:
        """Table with a row per recording, in the order of the store: its ids, `first_row`, `steps`, `samples`, `fault`.

        `steps` is the number of valid blocks.
        """
        return _index(self.dataset)

    def chunks(self, chunking: Chunking, recordings: ArrayLike | None = None) -> NDArray[np.int64]:
        """Return every chunk (paper, Audio preprocessing) of the given recordings, or of all.

        `recordings` has row numbers of the table `self.recordings`. → (N, 2): first row of the recording, first sample of
        the chunk
        """
        selected = np.arange(len(self._samples)) if recordings is None else np.asarray(recordings, np.int64)
        _, hop = chunk_and_hop(chunking)
        counts = chunk_counts(self._samples[selected], chunking)
        rows = np.repeat(self._first_rows[selected], counts)
        numbers = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.stack([rows, numbers * hop], axis=1)

    def valid_lengths(self, spans: ArrayLike, samples: int) -> NDArray[np.int64]:
        """Return the number of valid samples in each span; samples past the recording's end are padding. (B, 2) → (B,)"""
        starts, ends, _ = self._locations(spans)
        counts: NDArray[np.int64] = np.clip(ends - starts, 0, samples)
        return counts

    def read(self, spans: ArrayLike, samples: int) -> NDArray[np.int16]:
        """Read `samples` samples from each (row, offset in samples), 0 past its recording's end. (B, 2) → (B, samples)

        The row may be any row of the recording; offsets may extend beyond it into later rows.
        """
        starts, ends, first_rows = self._locations(spans)
        block_samples = self.layout.block_samples
        requests: list[tuple[int, int, int]] = []
        targets: list[tuple[int, int]] = []
        for index, (start, end, first_row) in enumerate(zip(starts, ends, first_rows, strict=True)):
            at, stop = int(start), int(min(end, start + samples))
            while at < stop:
                row, inside = divmod(at, block_samples)
                count = min(block_samples - inside, stop - at)
                requests.append((int(first_row) + row, 2 * inside, 2 * count))
                targets.append((index, at - int(start)))
                at += count
        audio = np.zeros((len(starts), samples), np.int16)
        if requests:
            blobs = self.dataset.read_blob_ranges("audio", requests, selector="indices", preserve_order=True)
            for (index, first), (_, _, data) in zip(targets, blobs, strict=True):
                part = np.frombuffer(data or b"", "<i2")
                audio[index, first : first + len(part)] = part
        return audio

    @cached_property
    def _first_rows(self) -> NDArray[np.int64]:
        return np.asarray(self.recordings["first_row"])

    @cached_property
    def _samples(self) -> NDArray[np.int64]:
        return np.asarray(self.recordings["samples"])

    def _locations(self, spans: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return each span's first sample in its recording, the recording's length in samples, and its first row."""
        rows, offsets = np.asarray(spans, np.int64).reshape(-1, 2).T
        if rows.size and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError(f"rows must be from 0 to {len(self) - 1}, not from {rows.min()} to {rows.max()}")
        recording = np.searchsorted(self._first_rows, rows, side="right") - 1
        first_rows = self._first_rows[recording]
        starts = (rows - first_rows) * self.layout.block_samples + offsets
        if starts.size and starts.min() < 0:
            raise IndexError("a span cannot start before its recording")
        return starts, self._samples[recording], first_rows


def store_schema(metadata: dict[str, Any] | None = None) -> pa.Schema:
    """Return the schema of the block table with its audio, and the store's metadata if given."""
    import pyarrow as pa

    audio = pa.field("audio", pa.large_binary(), nullable=False, metadata={"lance-encoding:blob": "true"})
    return (
        arrow_schema(AudioBlock)
        .append(audio)
        .with_metadata({METADATA_KEY: json.dumps(metadata)} if metadata else None)
    )


def build_metadata(layout: StoreLayout, fingerprint: str) -> dict[str, Any]:
    """Return the metadata of a store."""
    return {"format": FORMAT, "layout": asdict(layout), "fingerprint": fingerprint}


def read_metadata(dataset: lance.LanceDataset) -> dict[str, Any]:
    """Read the metadata of a store; empty for a Lance table that MAST did not create."""
    metadata: dict[str, Any] = json.loads((dataset.schema.metadata or {}).get(METADATA_KEY, b"{}"))
    return metadata


def open_dataset(location: str) -> lance.LanceDataset | None:
    """Open the Lance table at a location; return None if there is none."""
    module = require_lance()
    try:
        dataset: lance.LanceDataset = module.dataset(location, storage_options=storage_options(location))
    except ValueError:  # Lance raises this if there is no table
        return None
    except OSError as error:
        raise StorageError(f"{location}: cannot be opened: {error}") from error
    return dataset


def create_dataset(location: str, schema: pa.Schema) -> lance.LanceDataset:
    """Create a Lance table without rows."""
    try:
        dataset: lance.LanceDataset = require_lance().write_dataset(
            schema.empty_table(),
            location,
            data_storage_version=DATA_VERSION,
            storage_options=storage_options(location),
        )
    except OSError as error:
        raise StorageError(f"{location}: cannot be written: {error}") from error
    return dataset


def append_fragments(
    dataset: lance.LanceDataset, fragments: Sequence[str], command: str
) -> lance.LanceDataset:
    """Commit written fragments to the table, all or none; only one `command` at a time may append."""
    module, before = require_lance(), dataset.version
    added = [module.FragmentMetadata.from_json(text) for text in fragments]
    try:
        dataset = module.LanceDataset.commit(
            dataset, module.LanceOperation.Append(added), read_version=before
        )
    except OSError as error:
        raise StorageError(f"{dataset.uri}: cannot be written: {error}") from error
    if dataset.version != before + 1:
        raise StorageError(
            f"{dataset.uri}: another process wrote to it at the same time. Delete it, and run only one mast {command}."
        )
    return dataset


def storage_options(location: str) -> dict[str, str] | None:
    """Return Lance's options for an object store from the AWS_ variables that `mast.storage` reads.

    Lance finds the credentials itself.
    """
    if not is_remote(location):
        return None
    endpoint, region = endpoint_and_region()
    options = {"aws_region": region} if region else {}
    if endpoint:
        options |= {
            "aws_endpoint": endpoint,
            "allow_http": str(endpoint.startswith("http://")).lower(),
            "aws_region": region or "us-east-1",
        }
    return options


def require_lance(purpose: str = "The prepared audio store") -> Any:
    """Import Lance; raise MissingExtraError with the install command if it is missing."""
    try:
        import lance
    except ImportError:
        raise MissingExtraError(purpose, "train") from None
    return lance


def _index(dataset: lance.LanceDataset) -> pa.Table:
    """Build the table of recordings from the store's rows; it needs a few dozen bytes per recording."""
    import pyarrow as pa

    names = ["recording_id", "collection", "site", "start_utc"]
    schema = pa.schema([dataset.schema.field(name) for name in names])
    heads, first_rows, samples = [], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    faults: dict[int, str] = {}
    row = 0
    scanner = dataset.scanner(columns=[*names, "block", "samples", "fault"], batch_size=_INDEX_ROWS)
    for batch in scanner.to_batches():
        first = np.flatnonzero(np.asarray(batch["block"]) == 0)
        heads.append(batch.select(names).take(pa.array(first)))
        first_rows.append(first + row)
        samples.append(np.asarray(batch["samples"]))
        for index in np.flatnonzero(np.asarray(batch["fault"].is_valid())):
            faults[row + int(index)] = batch["fault"][int(index)].as_py()
        row += batch.num_rows
    first_row, block_lengths = np.concatenate(first_rows), np.concatenate(samples)
    ends = np.append(first_row[1:], row)[: len(first_row)]
    corrupt = np.searchsorted(first_row, np.array([*faults], np.int64), side="right") - 1
    reasons: list[str | None] = [None] * len(first_row)
    for recording, reason in zip(corrupt, faults.values(), strict=True):
        reasons[recording] = reason
    steps = ends - first_row - np.bincount(corrupt, minlength=len(first_row))
    sums = np.add.reduceat(block_lengths, first_row) if len(first_row) else block_lengths
    table = pa.Table.from_batches(heads, schema)
    for name in ("collection", "site"):
        table = table.set_column(names.index(name), name, table[name].dictionary_encode())
    for name, values in (("first_row", first_row), ("steps", steps), ("samples", sums)):
        table = table.append_column(name, pa.array(values, pa.int64()))
    return table.append_column("fault", pa.array(reasons, pa.string())).combine_chunks()
