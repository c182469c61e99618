"""Read the results of a run part by part, from the folder that `mast detect` writes, on a disk or an object store.

A part contains the recordings, their status and their events for a few hours of audio; only one part is read at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast.errors import ConfigError, StorageError
from mast.recordings.scan import truncated_recordings
from mast.runs.layout import (
    CLUSTERS,
    EVENTS,
    LABELLING,
    LABELS,
    RECORDINGS,
    RUN,
    STATUS,
    part_in,
    part_number,
    require_run,
)
from mast.storage import exists, is_folder, is_remote, join, list_files, open_binary

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 1 << 14


@dataclass(frozen=True, slots=True)
class ResultsPart:
    """Recordings of a part in their order, the status of each, and the events in them.

    The tables have the columns of `Recording`, `RecordingStatus` and `DetectedEvent`; the first two have one row per
    recording.
    """

    number: int
    recordings: pa.Table
    status: pa.Table
    events: pa.Table


@dataclass(frozen=True)
class DetectionResults:
    """Results in a run's folder; `fingerprint` is a hash of its settings and recordings.

    `threshold` is the minimum score of its events; `numbers` are the numbers of the finished parts.
    """

    folder: str
    fingerprint: str
    model: str
    version: str
    threshold: float
    roots: dict[str, str]
    expansions: dict[str, float]
    numbers: tuple[int, ...]
    total_parts: int

    @property
    def unfinished(self) -> int:
        """Number of parts that are not finished."""
        return self.total_parts - len(self.numbers)

    @cached_property
    def cut_short(self) -> dict[str, int]:
        """Number of readable frames of every truncated recording, by `recording_id`."""
        return truncated_recordings(join(self.folder, RECORDINGS))

    def location(self, collection: str, path: str) -> str:
        """Return the path or URL of a recording."""
        root = self.roots[collection]
        return join(root if is_remote(root) else str(Path(root).absolute()), path)

    def split_id(self, recording_id: str) -> tuple[str, str]:
        """Split a `recording_id` into its collection and path."""
        collections = [name for name in self.roots if recording_id.startswith(f"{name}/")]
        if not collections:
            raise StorageError(
                f"{recording_id} does not belong to any of the collections {', '.join(self.roots)}."
            )
        name = max(collections, key=len)
        return name, recording_id.removeprefix(f"{name}/")

    def parts(self, min_score: float | None = None) -> Iterator[ResultsPart]:
        """Yield the finished parts in order, with the events of score >= `min_score`."""
        import pyarrow.compute as pc

        with _Rows(join(self.folder, RECORDINGS)) as rows:
            for number in self.numbers:
                status = _table(part_in(self.folder, STATUS, number))
                events = self.events(number)
                if min_score is not None:
                    events = events.filter(pc.greater_equal(events["score"], min_score))
                yield ResultsPart(number, rows.rows_for(status["recording_id"]), status, events)

    def count(self, min_score: float | None = None) -> int:
        """Return the number of events of score >= `min_score`; only the column of scores is read."""
        import pyarrow.compute as pc

        parts = (_table(part_in(self.folder, EVENTS, number), ["score"])["score"] for number in self.numbers)
        return sum(pc.sum(pc.greater_equal(scores, min_score or 0.0)).as_py() or 0 for scores in parts)

    def events(self, number: int) -> pa.Table:
        """Read the events of a part."""
        return _table(part_in(self.folder, EVENTS, number))

    def labels(self, number: int) -> dict[str, str]:
        """Read the tentative labels that `mast label-events` assigned to events of a part, by `event_id`.

        Return no labels if the labelling rule is missing: then the labelling was stopped before its end.
        """
        if not exists(join(self.folder, f"{LABELS}/{LABELLING}")):
            return {}
        return _read_column(part_in(self.folder, LABELS, number), "label")

    def clusters(self, number: int) -> dict[str, int]:
        """Read the clusters that `mast cluster` assigned to events of a part, by `event_id`; only events in a cluster."""
        return _read_column(part_in(self.folder, CLUSTERS, number), "cluster")

    def labelling(self) -> dict[str, Any] | None:
        """Read the rule by which labels were assigned, or None if `mast label-events` has not finished."""
        location = join(self.folder, f"{LABELS}/{LABELLING}")
        if not exists(location):
            return None
        with open_binary(location) as file:
            rule: dict[str, Any] = json.loads(file.read())
        return rule


def open_results(folder: str, min_score: float | None = None) -> DetectionResults:
    """Open the results in a folder; raise ConfigError if `min_score` is below the threshold of the run or above 1."""
    require_run(folder)
    location = join(folder, RUN)
    try:
        with open_binary(location) as file:
            run: dict[str, Any] = json.loads(file.read())
        settings, collections = run["settings"], run["collections"]
        results = DetectionResults(
            folder=folder,
            fingerprint=run["fingerprint"],
            model=settings["model"],
            version=run["mast_version"],
            threshold=settings["threshold"],
            roots={name: collection["root"] for name, collection in collections.items()},
            expansions={name: collection["time_expansion"] for name, collection in collections.items()},
            numbers=part_numbers(join(folder, STATUS)),  # written last
            total_parts=run["parts"],
        )
    except (ValueError, KeyError, TypeError):
        raise StorageError(f"{location} was not written by MAST.") from None
    if min_score is not None and not results.threshold <= min_score <= 1:
        raise ConfigError(
            f"--min-score {min_score:g}: this run contains only events of score >= {results.threshold:.3g}. Specify a "
            "number from that to 1, or run mast detect with a lower --min-score."
        )
    return results


def part_numbers(folder: str) -> tuple[int, ...]:
    """Return the numbers of the parts that have a file in a folder of a run, sorted."""
    names = list_files(folder) if is_folder(folder) else []
    return tuple(sorted(number for name in names if (number := part_number(name)) is not None))


def _table(location: str, columns: list[str] | None = None) -> pa.Table:
    import pyarrow.parquet as pq

    with open_binary(location) as file:
        return pq.read_table(file, columns=columns)


def _read_column(location: str, column: str) -> dict[str, Any]:
    """Read a column of a table of a part, by `event_id`, without nulls; empty if there is no such table."""
    if not exists(location):
        return {}
    table = _table(location)
    pairs = zip(table["event_id"].to_pylist(), table[column].to_pylist(), strict=True)
    return {event: value for event, value in pairs if value is not None}


class _Rows:
    """Sequential reader of the table of recordings, which reads it only once."""

    def __init__(self, location: str) -> None:
        import pyarrow.parquet as pq

        self._location = location
        self._file = open_binary(location)
        self._batches = pq.ParquetFile(self._file, pre_buffer=False).iter_batches(batch_size=_BATCH_ROWS)
        self._buffered: pa.Table | None = None

    def rows_for(self, recording_ids: pa.ChunkedArray) -> pa.Table:
        """Return the rows of these recordings, which are consecutive; rows before them are skipped."""
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = self._buffered
        while rows is None or (first := pc.index(rows["recording_id"], recording_ids[0]).as_py()) < 0:
            rows = self._read_next()
        rows = rows.slice(first)
        while len(rows) < len(recording_ids):
            rows = pa.concat_tables([rows, self._read_next()])
        self._buffered = rows.slice(len(recording_ids))
        return rows.slice(0, len(recording_ids))

    def _read_next(self) -> pa.Table:
        import pyarrow as pa

        for batch in self._batches:
            return pa.Table.from_batches([batch])
        raise StorageError(
            f"{self._location} does not contain the recordings of the parts in this folder. Was it changed? Restore it."
        )

    def __enter__(self) -> _Rows:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
