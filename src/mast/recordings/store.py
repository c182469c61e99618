"""The prepared audio of a study: 16 kHz mono int16 in a Lance table, a row for every step, read at any offset.

A step is one chunk long and steps do not overlap; a chunk that starts between two is cut across both, so overlapping
chunks cost no disk. The sound is a Lance *blob*: only the bytes asked for are read, from a disk or an object store.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mast.config import Chunking
from mast.errors import MissingExtraError, StorageError
from mast.events import Step, arrow_schema
from mast.recordings.decode import chunk_and_hop, chunk_counts
from mast.storage import endpoint_and_region, is_remote

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

FULL_SCALE = 32767
"""A sample of 1.0 as int16; both limits of the sound are equally far from 0."""

FORMAT = "1"
"""Changes whenever the same recordings would give other rows."""

DATA_VERSION = "2.1"
"""Lance's file format: here a part is one file, and a blob needs no extension type to read."""

STORY = b"mast"
"""Key of the store's own story in the table's metadata: JSON with layout, format and fingerprint."""

_INDEX_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Layout:
    """How sound lies in the store."""

    sample_rate_hz: int
    step_samples: int

    @classmethod
    def of(cls, chunking: Chunking) -> Self:
        """One step is one chunk."""
        return cls(chunking.sample_rate_hz, chunk_and_hop(chunking)[0])


def to_int16(wave: NDArray[np.float32], out: NDArray[np.int16]) -> None:
    """Round a wave in -1…1 to int16; what is louder is clipped."""
    scaled = wave * np.float32(FULL_SCALE)
    np.rint(scaled, out=scaled)
    np.clip(scaled, -FULL_SCALE, FULL_SCALE, out=scaled)
    np.copyto(out, scaled, casting="unsafe")


def to_float(samples: NDArray[np.int16]) -> NDArray[np.float32]:
    """Samples of the store as a wave in -1…1."""
    return samples.astype(np.float32) / np.float32(FULL_SCALE)


class AudioStore:
    """A prepared store, opened for reading when first used in each process, so that it can be sent to workers."""

    def __init__(self, location: str) -> None:
        self.location = location

    def __reduce__(self) -> tuple[type[AudioStore], tuple[str]]:
        """A process that receives the store opens it anew: Lance's handles stay where they were made."""
        return AudioStore, (self.location,)

    def __len__(self) -> int:
        """Number of rows."""
        return int(self.dataset.count_rows())

    @cached_property
    def dataset(self) -> lance.LanceDataset:
        """The table behind the store."""
        dataset = open_dataset(self.location)
        if dataset is None:
            raise StorageError(f"{self.location}: there is no prepared audio. Make it with mast prepare.")
        return dataset

    @cached_property
    def fingerprint(self) -> str:
        """What the content was made from, as one word."""
        return str(read_story(self.dataset)["fingerprint"])

    @cached_property
    def layout(self) -> Layout:
        """Rate and length of the steps."""
        return Layout(**read_story(self.dataset)["layout"])

    @cached_property
    def recordings(self) -> pa.Table:
        """A row per recording in the order of the store: what it is, `first_row`, `steps`, `samples`, `fault`."""
        return _index(self.dataset)

    def chunks(self, chunking: Chunking, recordings: ArrayLike | None = None) -> NDArray[np.int64]:
        """Every chunk (paper, Audio preprocessing) of some recordings, by their place in `recordings`, or of all.

        → (N, 2): first row of the recording, first sample of the chunk
        """
        chosen = np.arange(len(self._samples)) if recordings is None else np.asarray(recordings, np.int64)
        _, hop = chunk_and_hop(chunking)
        counts = chunk_counts(self._samples[chosen], chunking)
        rows = np.repeat(self._first_rows[chosen], counts)
        numbers = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.stack([rows, numbers * hop], axis=1)

    def filled(self, spans: ArrayLike, samples: int) -> NDArray[np.int64]:
        """How many samples of each span are sound; the rest, past the recording's end, is padding. (B, 2) → (B,)"""
        starts, ends, _ = self._places(spans)
        counts: NDArray[np.int64] = np.clip(ends - starts, 0, samples)
        return counts

    def read(self, spans: ArrayLike, samples: int) -> NDArray[np.int16]:
        """Sound from each (row, offset in samples) on, zero past its recording's end. (B, 2) → (B, samples)

        The row is any of the recording's; offsets may reach beyond it into later rows.
        """
        starts, ends, first_rows = self._places(spans)
        step = self.layout.step_samples
        requests: list[tuple[int, int, int]] = []
        targets: list[tuple[int, int]] = []
        for item, (start, end, first_row) in enumerate(zip(starts, ends, first_rows, strict=True)):
            at, stop = int(start), int(min(end, start + samples))
            while at < stop:
                row, inside = divmod(at, step)
                count = min(step - inside, stop - at)
                requests.append((int(first_row) + row, 2 * inside, 2 * count))
                targets.append((item, at - int(start)))
                at += count
        sound = np.zeros((len(starts), samples), np.int16)
        if requests:
            found = self.dataset.read_blob_ranges("audio", requests, selector="indices", preserve_order=True)
            for (item, first), (_, _, data) in zip(targets, found, strict=True):
                part = np.frombuffer(data or b"", "<i2")
                sound[item, first : first + len(part)] = part
        return sound

    @cached_property
    def _first_rows(self) -> NDArray[np.int64]:
        return np.asarray(self.recordings["first_row"])

    @cached_property
    def _samples(self) -> NDArray[np.int64]:
        return np.asarray(self.recordings["samples"])

    def _places(self, spans: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """First sample of each span in its recording, the recording's end, and the recording's first row."""
        rows, offsets = np.asarray(spans, np.int64).reshape(-1, 2).T
        if rows.size and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError(f"rows go from 0 to {len(self) - 1}, not from {rows.min()} to {rows.max()}")
        recording = np.searchsorted(self._first_rows, rows, side="right") - 1
        first_rows = self._first_rows[recording]
        starts = (rows - first_rows) * self.layout.step_samples + offsets
        if starts.size and starts.min() < 0:
            raise IndexError("a span cannot start before its recording")
        return starts, self._samples[recording], first_rows


def store_schema(story: dict[str, Any] | None = None) -> pa.Schema:
    """The table of steps with its sound, and the store's own story where one is given."""
    import pyarrow as pa

    audio = pa.field("audio", pa.large_binary(), nullable=False, metadata={"lance-encoding:blob": "true"})
    return arrow_schema(Step).append(audio).with_metadata({STORY: json.dumps(story)} if story else None)


def make_story(layout: Layout, fingerprint: str) -> dict[str, Any]:
    """What a store tells about itself."""
    return {"format": FORMAT, "layout": asdict(layout), "fingerprint": fingerprint}


def read_story(dataset: lance.LanceDataset) -> dict[str, Any]:
    """What a store tells about itself; empty for a Lance table that MAST did not make."""
    story: dict[str, Any] = json.loads((dataset.schema.metadata or {}).get(STORY, b"{}"))
    return story


def open_dataset(location: str) -> lance.LanceDataset | None:
    """The Lance table at a location, or None if there is none."""
    module = lance_module()
    try:
        dataset: lance.LanceDataset = module.dataset(location, storage_options=storage_options(location))
    except ValueError:  # what Lance raises where it finds nothing
        return None
    except OSError as error:
        raise StorageError(f"{location}: cannot be opened: {error}") from error
    return dataset


def create_dataset(location: str, schema: pa.Schema) -> lance.LanceDataset:
    """A new Lance table, without rows."""
    try:
        dataset: lance.LanceDataset = lance_module().write_dataset(
            schema.empty_table(),
            location,
            data_storage_version=DATA_VERSION,
            storage_options=storage_options(location),
        )
    except OSError as error:
        raise StorageError(f"{location}: cannot be written: {error}") from error
    return dataset


def append_fragments(dataset: lance.LanceDataset, fragments: Sequence[str], verb: str) -> lance.LanceDataset:
    """The table with what was written to its folder, all or nothing; only one `verb` at a time may add to it."""
    module, before = lance_module(), dataset.version
    added = [module.FragmentMetadata.from_json(text) for text in fragments]
    try:
        dataset = module.LanceDataset.commit(
            dataset, module.LanceOperation.Append(added), read_version=before
        )
    except OSError as error:
        raise StorageError(f"{dataset.uri}: cannot be written: {error}") from error
    if dataset.version != before + 1:
        raise StorageError(
            f"{dataset.uri}: something else wrote to it at the same time. Delete it, and run mast {verb} once."
        )
    return dataset


def storage_options(location: str) -> dict[str, str] | None:
    """How Lance reaches an object store: the AWS_ variables that `mast.storage` reads. Keys it finds by itself."""
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


def lance_module(purpose: str = "The prepared audio store") -> Any:
    """Lance, or the line that installs it."""
    try:
        import lance
    except ImportError:
        raise MissingExtraError(purpose, "train") from None
    return lance


def _index(dataset: lance.LanceDataset) -> pa.Table:
    """Recordings of a store from its rows, in a few dozen bytes each."""
    import pyarrow as pa

    names = ["recording_id", "collection", "site", "start_utc"]
    schema = pa.schema([dataset.schema.field(name) for name in names])
    heads, first_rows, samples = [], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    faults: dict[int, str] = {}
    row = 0
    scanner = dataset.scanner(columns=[*names, "step", "samples", "fault"], batch_size=_INDEX_ROWS)
    for batch in scanner.to_batches():
        first = np.flatnonzero(np.asarray(batch["step"]) == 0)
        heads.append(batch.select(names).take(pa.array(first)))
        first_rows.append(first + row)
        samples.append(np.asarray(batch["samples"]))
        for place in np.flatnonzero(np.asarray(batch["fault"].is_valid())):
            faults[row + int(place)] = batch["fault"][int(place)].as_py()
        row += batch.num_rows
    first_row, every = np.concatenate(first_rows), np.concatenate(samples)
    ends = np.append(first_row[1:], row)[: len(first_row)]
    broken = np.searchsorted(first_row, np.array([*faults], np.int64), side="right") - 1
    reasons: list[str | None] = [None] * len(first_row)
    for recording, reason in zip(broken, faults.values(), strict=True):
        reasons[recording] = reason
    steps = ends - first_row - np.bincount(broken, minlength=len(first_row))
    sums = np.add.reduceat(every, first_row) if len(first_row) else every
    table = pa.Table.from_batches(heads, schema)
    for name in ("collection", "site"):
        table = table.set_column(names.index(name), name, table[name].dictionary_encode())
    for name, values in (("first_row", first_row), ("steps", steps), ("samples", sums)):
        table = table.append_column(name, pa.array(values, pa.int64()))
    return table.append_column("fault", pa.array(reasons, pa.string())).combine_chunks()
