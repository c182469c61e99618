"""Decode the recordings of a study once into its prepared audio, one table. A run can be killed at any time.

Worker processes write parts; this process appends them to the table, in order and several at a time. A killed run leaves
files that belong to no version of the table: the next run deletes them and resumes at the first missing part, so that
the rows equal those of an uninterrupted run.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast.audio.reader import resampled_length
from mast.errors import ConfigError, StorageError
from mast.records import PreparedRecording, arrow_schema
from mast.storage import atomic_write, exclusive_lock, is_remote, join, open_binary
from mast.store import writer as parts_module
from mast.store.audio_store import (
    AudioStore,
    StoreLayout,
    append_fragments,
    build_metadata,
    create_dataset,
    open_dataset,
    read_metadata,
    store_schema,
)
from mast.store.writer import Source, StorePart, WriteSupervisor, WrittenPart, plan_parts
from mast.types import OnSeconds
from mast.workers.pool import WorkerPool, available_cores

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

    from mast.config import Chunking, Collection


COMMIT_PARTS = 4
COMMIT_FRACTION = 1 / 32
"""Parts are committed when this number, or this fraction of the parts already committed, is waiting. Each commit writes
the complete list of parts, so this keeps the cost of all commits proportional to the work."""

MAX_PROCESSES = 64
_COLUMNS = [
    *("recording_id", "collection", "path", "site", "size_bytes", "modified_utc", "status"),
    *("sample_rate_hz", "frames", "start_utc", "content_hash", "duplicate_of"),
]


@dataclass(frozen=True, slots=True)
class PrepareResult:
    """Location and content of the store; quarantined recordings and duplicates are excluded."""

    location: str
    recordings: int
    failed: int
    quarantined: int
    duplicates: int
    seconds: float


@dataclass
class _RecordingCounts:
    """Counts of the recordings, computed before work starts."""

    recordings: int = 0
    quarantined: int = 0
    duplicates: int = 0
    samples: int = 0
    fingerprint: str = ""


def prepare(
    recordings_table: str,
    collections: Mapping[str, Collection],
    store_location: str,
    chunking: Chunking,
    on_progress: OnSeconds = lambda done_s, total_s: None,
    workers: int | None = None,
) -> PrepareResult:
    """Write the usable recordings of a scan to the store at `store_location`, and `prepared.parquet` next to it.

    If the previous run was interrupted, resume it.
    """
    layout = StoreLayout.of(chunking)
    counts = _count_recordings(recordings_table, collections, layout)
    _open_or_create(store_location, layout, counts.fingerprint)
    with exclusive_lock(store_location, "prepare"):
        dataset = _open_or_create(
            store_location, layout, counts.fingerprint
        )  # again, as it may have changed before the lock was acquired
        if not is_remote(store_location):  # in an object store, another run could be writing
            _delete_orphans(dataset)
        log = _CommitLog(dataset, layout, counts.samples, on_progress)
        parts = plan_parts(_usable(recordings_table, collections, layout), layout)
        first = next((part for part in parts if not log.has(part)), None)
        if first is not None:
            count = min(workers or available_cores(), MAX_PROCESSES)
            pool = WorkerPool([WriteSupervisor(store_location, layout) for _ in range(count)])
            with closing(pool.run(chain([first], parts), in_order=True)) as results:
                for written in results:
                    if written is not None:
                        log.append(written)
            log.commit()
            _delete_orphans(log.dataset)
        return _report(store_location, counts)


class _CommitLog:
    """Parts that are committed, and parts that wait to be committed."""

    def __init__(
        self, dataset: lance.LanceDataset, layout: StoreLayout, total_samples: int, on_progress: OnSeconds
    ) -> None:
        self.dataset = dataset
        self._layout, self._total_samples, self._on_progress = layout, total_samples, on_progress
        self._done_samples = 0
        self._pending: list[str] = []
        self._parts, self._corrupt = 0, ""
        rows = dataset.count_rows()
        if rows:
            last = dataset.take([rows - 1], columns=["recording_id", "part", "fault"]).to_pylist()[0]
            self._parts = last["part"] + 1
            self._corrupt = last["recording_id"] if last["fault"] else ""

    def has(self, part: StorePart) -> bool:
        """Return True if a previous run committed this part."""
        if part.number < self._parts:
            self._done_samples += part.samples(self._layout)
            return True
        return False

    def append(self, written: WrittenPart) -> None:
        """Append a part; discard it if it continues a recording that has a decoding error in an earlier part."""
        head = written.part.spans[0]
        if not (head.first_block and head.source.recording_id == self._corrupt):
            self._pending.extend(written.fragments)
            self._corrupt = written.corrupt[-1] if written.corrupt else ""
        self._done_samples += written.part.samples(self._layout)
        if len(self._pending) >= max(COMMIT_PARTS, self._parts * COMMIT_FRACTION):
            self.commit()
            self._parts = written.part.number + 1
        rate_hz = self._layout.sample_rate_hz
        self._on_progress(self._done_samples / rate_hz, self._total_samples / rate_hz)

    def commit(self) -> None:
        """Commit the waiting fragments to the table, all or none."""
        if not self._pending:
            return
        self.dataset = append_fragments(self.dataset, self._pending, "prepare")
        self._pending = []


def _count_recordings(
    table: str, collections: Mapping[str, Collection], layout: StoreLayout
) -> _RecordingCounts:
    """Count the recordings, and hash all inputs that determine the store's content."""
    counts = _RecordingCounts()
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([asdict(layout), parts_module.PART_S]).encode())
    for row in _rows(table):
        if row["status"] == "quarantined":
            counts.quarantined += 1
        elif row["duplicate_of"] is not None:
            counts.duplicates += 1
        else:
            source = _source(row, collections, layout)
            content = row["content_hash"] if row["content_hash"] is not None else str(row["modified_utc"])
            identity = (
                source.recording_id,
                source.site,
                source.time_expansion,
                source.start_utc_us,
                source.samples,
            )
            digest.update(json.dumps([*identity, row["size_bytes"], content]).encode())
            counts.recordings += 1
            counts.samples += source.samples
    counts.fingerprint = digest.hexdigest()
    return counts


def _usable(table: str, collections: Mapping[str, Collection], layout: StoreLayout) -> Iterator[Source]:
    """Yield usable recordings, without duplicates: two copies could end up in training and in test."""
    for row in _rows(table):
        if row["status"] != "quarantined" and row["duplicate_of"] is None:
            yield _source(row, collections, layout)


def _rows(table: str) -> Iterator[dict[str, Any]]:
    """Stream the rows of the recordings table, in its order."""
    import pyarrow.parquet as pq

    try:
        with open_binary(table) as file:
            for batch in pq.ParquetFile(file).iter_batches(batch_size=4096, columns=_COLUMNS):
                yield from batch.to_pylist()
    except FileNotFoundError:
        raise StorageError(f"{table}: there is no such table. Create it with mast scan.") from None


def _source(row: Mapping[str, Any], collections: Mapping[str, Collection], layout: StoreLayout) -> Source:
    collection = collections.get(row["collection"])
    if collection is None:
        raise ConfigError(
            f"{row['recording_id']} belongs to collection {row['collection']!r}, which is not in the study. "
            "Scan again."
        )
    start = row["start_utc"]
    return Source(
        row["recording_id"],
        row["collection"],
        row["site"],
        join(collection.root, row["path"]),
        collection.time_expansion,
        None if start is None else math.floor(start.timestamp()) * 1_000_000 + start.microsecond,
        resampled_length(
            row["frames"], row["sample_rate_hz"], layout.sample_rate_hz, collection.time_expansion
        ),
        row["frames"],
    )


def _open_or_create(location: str, layout: StoreLayout, fingerprint: str) -> lance.LanceDataset:
    """Open the store, or create it empty; raise StorageError if it was made from other inputs."""
    metadata = build_metadata(layout, fingerprint)
    dataset = open_dataset(location)
    if dataset is None:
        return create_dataset(location, store_schema(metadata))
    if (existing := read_metadata(dataset)) != metadata:
        changed = [name for name in metadata if existing.get(name) != metadata[name]]
        difference = {
            "format": "by another version of MAST",
            "layout": "with other settings of chunking",
        }.get(changed[0], "from other recordings, or with other sites, time zones or time expansion")
        raise StorageError(
            f"{location}: this audio was prepared {difference}, and cannot be continued. Delete it, or set another "
            "work_dir in the study, and run mast prepare again."
        )
    return dataset


def _delete_orphans(dataset: lance.LanceDataset) -> None:
    """Delete files of killed runs and earlier versions of the table; no other process may be writing."""
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)


def _report(location: str, counts: _RecordingCounts) -> PrepareResult:
    """Write `prepared.parquet` from the content of the store."""
    import pyarrow.parquet as pq

    store = AudioStore(location)
    table = _prepared(store)
    folder = location.rpartition("/")[0] if is_remote(location) else str(Path(location).parent)
    with atomic_write(join(folder, "prepared.parquet")) as file:
        pq.write_table(table, file, compression="zstd")
    failed = len(table) - table["reason"].null_count
    seconds = sum(store.recordings["samples"].to_numpy()) / store.layout.sample_rate_hz
    return PrepareResult(
        location, counts.recordings, failed, counts.quarantined, counts.duplicates, float(seconds)
    )


def _prepared(store: AudioStore) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    existing = store.recordings
    columns = [
        existing["recording_id"],
        pc.if_else(existing["fault"].is_null(), "ok", "failed"),
        existing["fault"],
        existing["steps"],
        pc.divide(existing["samples"].cast(pa.float64()), float(store.layout.sample_rate_hz)),
    ]
    return pa.table(columns, schema=arrow_schema(PreparedRecording))
