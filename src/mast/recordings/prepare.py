"""Turn the recordings of a study into its prepared audio: decoded once, kept as one table, safe to kill at any moment.

Processes write parts; this one appends them to the table, in order and many at a time. A run that was killed left
files that belong to no version of the table: the next run deletes them and goes on with the first part that is
missing, so that the rows end up as if nothing had happened.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast.errors import ConfigError, StorageError
from mast.events import Prepared, arrow_schema
from mast.recordings import parts as parts_module
from mast.recordings.decode import heard_samples
from mast.recordings.parts import Part, Source, Writers, Written, plan_parts
from mast.recordings.store import (
    AudioStore,
    Layout,
    append_fragments,
    create_dataset,
    make_story,
    open_dataset,
    read_story,
    store_schema,
)
from mast.recordings.workers import cores
from mast.storage import held_alone, is_remote, join, open_binary, written_whole

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

    from mast.config import Chunking, Collection

OnProgress = Callable[[float, float], None]
"""`on_progress(done_s, total_s)`, in seconds of audio."""

COMMIT_PARTS = 4
COMMIT_SHARE = 1 / 32
"""Parts are committed once there are this many, or this share of those committed before: each commit writes the whole
list of parts, and so all commits together stay in proportion to the work."""

MAX_PROCESSES = 64
_COLUMNS = [
    *("recording_id", "collection", "path", "site", "size_bytes", "modified_utc", "status"),
    *("sample_rate_hz", "frames", "start_utc", "content_hash", "duplicate_of"),
]


@dataclass(frozen=True, slots=True)
class PrepareResult:
    """Where the store is, and what went into it; quarantined recordings and duplicates were left out."""

    location: str
    recordings: int
    failed: int
    quarantined: int
    duplicates: int
    seconds: float


@dataclass
class _Tally:
    """What the recordings come to, known before work begins."""

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
    on_progress: OnProgress = lambda done_s, total_s: None,
    workers: int | None = None,
) -> PrepareResult:
    """Write the usable recordings of a scan to the store at `store_location`, and `prepared.parquet` beside it.

    Run again after whatever stopped it, it goes on where it was.
    """
    layout = Layout.of(chunking)
    tally = _tally(recordings_table, collections, layout)
    _open_or_create(store_location, layout, tally.fingerprint)
    with held_alone(store_location, "prepare"):
        dataset = _open_or_create(store_location, layout, tally.fingerprint)  # as it is now that it is ours
        if not is_remote(store_location):  # elsewhere nobody knows whether another run is writing
            _delete_orphans(dataset)
        log = _Log(dataset, layout, tally.samples, on_progress)
        parts = plan_parts(_usable(recordings_table, collections, layout), layout)
        first = next((part for part in parts if not log.has(part)), None)
        if first is not None:
            writers = Writers(store_location, layout, min(workers or cores(), MAX_PROCESSES))
            with closing(writers.written(chain([first], parts))) as results:
                for written in results:
                    log.append(written)
            log.commit()
            _delete_orphans(log.dataset)
        return _report(store_location, tally)


class _Log:
    """The parts that are in the store, and those that are about to be."""

    def __init__(
        self, dataset: lance.LanceDataset, layout: Layout, total_samples: int, on_progress: OnProgress
    ) -> None:
        self.dataset = dataset
        self._layout, self._total_samples, self._on_progress = layout, total_samples, on_progress
        self._done_samples = 0
        self._waiting: list[str] = []
        self._parts, self._broken = 0, ""
        rows = dataset.count_rows()
        if rows:
            last = dataset.take([rows - 1], columns=["recording_id", "part", "fault"]).to_pylist()[0]
            self._parts = last["part"] + 1
            self._broken = last["recording_id"] if last["fault"] else ""

    def has(self, part: Part) -> bool:
        """Whether a part was committed by an earlier run."""
        if part.number < self._parts:
            self._done_samples += part.samples(self._layout)
            return True
        return False

    def append(self, written: Written) -> None:
        """Take a part in; what follows a break in the same recording, which other processes wrote, is left out."""
        head = written.part.spans[0]
        if not (head.first_step and head.source.recording_id == self._broken):
            self._waiting.extend(written.fragments)
            self._broken = written.broken[-1] if written.broken else ""
        self._done_samples += written.part.samples(self._layout)
        if len(self._waiting) >= max(COMMIT_PARTS, self._parts * COMMIT_SHARE):
            self.commit()
            self._parts = written.part.number + 1
        rate_hz = self._layout.sample_rate_hz
        self._on_progress(self._done_samples / rate_hz, self._total_samples / rate_hz)

    def commit(self) -> None:
        """Add what is waiting to the table, all or nothing."""
        if not self._waiting:
            return
        self.dataset = append_fragments(self.dataset, self._waiting, "prepare")
        self._waiting = []


def _tally(table: str, collections: Mapping[str, Collection], layout: Layout) -> _Tally:
    """Count the recordings, and make one word of everything that decides what the store will hold."""
    tally = _Tally()
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([asdict(layout), parts_module.PART_S]).encode())
    for row in _rows(table):
        if row["status"] == "quarantined":
            tally.quarantined += 1
        elif row["duplicate_of"] is not None:
            tally.duplicates += 1
        else:
            source = _source(row, collections, layout)
            content = row["content_hash"] if row["content_hash"] is not None else str(row["modified_utc"])
            place = (
                source.recording_id,
                source.site,
                source.time_expansion,
                source.start_utc_us,
                source.samples,
            )
            digest.update(json.dumps([*place, row["size_bytes"], content]).encode())
            tally.recordings += 1
            tally.samples += source.samples
    tally.fingerprint = digest.hexdigest()
    return tally


def _usable(table: str, collections: Mapping[str, Collection], layout: Layout) -> Iterator[Source]:
    """Recordings that can be read; of files with the same content, one: two could end up in training and in test."""
    for row in _rows(table):
        if row["status"] != "quarantined" and row["duplicate_of"] is None:
            yield _source(row, collections, layout)


def _rows(table: str) -> Iterator[dict[str, Any]]:
    """Rows of the table of recordings, in its order, streamed."""
    import pyarrow.parquet as pq

    try:
        with open_binary(table) as file:
            for batch in pq.ParquetFile(file).iter_batches(batch_size=4096, columns=_COLUMNS):
                yield from batch.to_pylist()
    except FileNotFoundError:
        raise StorageError(f"{table}: there is no such table. Make it with mast scan.") from None


def _source(row: Mapping[str, Any], collections: Mapping[str, Collection], layout: Layout) -> Source:
    collection = collections.get(row["collection"])
    if collection is None:
        raise ConfigError(
            f"{row['recording_id']} belongs to the collection {row['collection']!r}, which the study does not have. "
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
        heard_samples(row["frames"], row["sample_rate_hz"], layout.sample_rate_hz, collection.time_expansion),
        row["frames"],
    )


def _open_or_create(location: str, layout: Layout, fingerprint: str) -> lance.LanceDataset:
    """The store, empty if it is new; one that was made from something else is refused."""
    story = make_story(layout, fingerprint)
    dataset = open_dataset(location)
    if dataset is None:
        return create_dataset(location, store_schema(story))
    if (found := read_story(dataset)) != story:
        changed = [name for name in story if found.get(name) != story[name]]
        what = {"format": "by another version of MAST", "layout": "with other settings of chunking"}.get(
            changed[0], "from other recordings, or with other sites, time zones or time expansion"
        )
        raise StorageError(
            f"{location}: this audio was prepared {what}, and the two must not mix. Delete it, or set another work "
            "folder in the study, and run mast prepare again."
        )
    return dataset


def _delete_orphans(dataset: lance.LanceDataset) -> None:
    """Delete what killed runs left and earlier versions of the table; nothing else is writing now."""
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)


def _report(location: str, tally: _Tally) -> PrepareResult:
    """Write `prepared.parquet` from what the store holds."""
    import pyarrow.parquet as pq

    store = AudioStore(location)
    table = _prepared(store)
    folder = location.rpartition("/")[0] if is_remote(location) else str(Path(location).parent)
    with written_whole(join(folder, "prepared.parquet")) as file:
        pq.write_table(table, file, compression="zstd")
    failed = len(table) - table["reason"].null_count
    seconds = sum(store.recordings["samples"].to_numpy()) / store.layout.sample_rate_hz
    return PrepareResult(
        location, tally.recordings, failed, tally.quarantined, tally.duplicates, float(seconds)
    )


def _prepared(store: AudioStore) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    found = store.recordings
    columns = [
        found["recording_id"],
        pc.if_else(found["fault"].is_null(), "ok", "failed"),
        found["fault"],
        found["steps"],
        pc.divide(found["samples"].cast(pa.float64()), float(store.layout.sample_rate_hz)),
    ]
    return pa.table(columns, schema=arrow_schema(Prepared))
