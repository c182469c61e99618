"""What a run has found, read part by part: the folder that `mast detect` writes, on a disk or an object store.

Recordings, their status and their events come together, some hours of sound at a time, and never all at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast.detection.folder import (
    CLUSTERS,
    EVENTS,
    NAMES,
    NAMING,
    RECORDINGS,
    RUN,
    STATUS,
    part_in,
    part_number,
)
from mast.errors import ConfigError, StorageError
from mast.recordings.scan import cut_short
from mast.storage import exists, files_below, is_folder, is_remote, join, open_binary

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 1 << 14


@dataclass(frozen=True, slots=True)
class FoundPart:
    """Some recordings, in their order, what became of each, and the events in them.

    Tables have the columns of `Recording`, `Heard` and `Detected`; the first two have a row for each recording.
    """

    number: int
    recordings: pa.Table
    status: pa.Table
    events: pa.Table


@dataclass(frozen=True)
class Found:
    """A run's folder; `fingerprint` names its settings and recordings in one word.

    `threshold` is the least score it has kept; `numbers` are the parts that are done.
    """

    folder: str
    fingerprint: str
    model: str
    version: str
    threshold: float
    roots: dict[str, str]
    expansions: dict[str, float]
    numbers: tuple[int, ...]
    parts_in_all: int

    @property
    def unfinished(self) -> int:
        """How many parts are not done yet."""
        return self.parts_in_all - len(self.numbers)

    @cached_property
    def cut_short(self) -> dict[str, int]:
        """Frames that can be read of recordings which break off before their end, by name."""
        return cut_short(join(self.folder, RECORDINGS))

    def place(self, collection: str, path: str) -> str:
        """Where a recording is."""
        root = self.roots[collection]
        return join(root if is_remote(root) else str(Path(root).absolute()), path)

    def split_id(self, recording_id: str) -> tuple[str, str]:
        """Collection and path of a recording, by its name."""
        names = [name for name in self.roots if recording_id.startswith(f"{name}/")]
        if not names:
            raise StorageError(f"{recording_id}: of none of the collections {', '.join(self.roots)}.")
        name = max(names, key=len)
        return name, recording_id.removeprefix(f"{name}/")

    def parts(self, min_score: float | None = None) -> Iterator[FoundPart]:
        """All parts that are done, in order; with the events that score at least so much."""
        import pyarrow.compute as pc

        with _Rows(join(self.folder, RECORDINGS)) as rows:
            for number in self.numbers:
                status = _table(part_in(self.folder, STATUS, number))
                events = self.events(number)
                if min_score is not None:
                    events = events.filter(pc.greater_equal(events["score"], min_score))
                yield FoundPart(number, rows.named(status["recording_id"]), status, events)

    def count(self, min_score: float | None = None) -> int:
        """How many events score at least so much; of all parts, only scores are read."""
        import pyarrow.compute as pc

        parts = (_table(part_in(self.folder, EVENTS, number), ["score"])["score"] for number in self.numbers)
        return sum(pc.sum(pc.greater_equal(scores, min_score or 0.0)).as_py() or 0 for scores in parts)

    def events(self, number: int) -> pa.Table:
        """The events of a part."""
        return _table(part_in(self.folder, EVENTS, number))

    def names(self, number: int) -> dict[str, str]:
        """Tentative names of a part's events by their identity, those that have one; `mast name` gives them.

        Names by no rule are those of a naming that was stopped, and are left out.
        """
        if not exists(join(self.folder, f"{NAMES}/{NAMING}")):
            return {}
        return _told(part_in(self.folder, NAMES, number), "label")

    def clusters(self, number: int) -> dict[str, int]:
        """Groups of a part's events by their identity, those that are in one; `mast discover` makes them."""
        return _told(part_in(self.folder, CLUSTERS, number), "cluster")

    def naming(self) -> dict[str, Any] | None:
        """By which rule names were given; None where they were not."""
        location = join(self.folder, f"{NAMES}/{NAMING}")
        if not exists(location):
            return None
        with open_binary(location) as file:
            rule: dict[str, Any] = json.loads(file.read())
        return rule


def open_found(folder: str, min_score: float | None = None) -> Found:
    """The run in a folder; refused if it has not kept what scores `min_score`."""
    location = join(folder, RUN)
    if not exists(location):
        raise StorageError(
            f"{folder}: no run of mast detect is here. Give the folder that it wrote with --out."
        )
    try:
        with open_binary(location) as file:
            run: dict[str, Any] = json.loads(file.read())
        settings, collections = run["settings"], run["collections"]
        found = Found(
            folder=folder,
            fingerprint=run["fingerprint"],
            model=settings["model"],
            version=run["mast_version"],
            threshold=settings["threshold"],
            roots={name: item["root"] for name, item in collections.items()},
            expansions={name: item["time_expansion"] for name, item in collections.items()},
            numbers=numbers_in(join(folder, STATUS)),  # written last
            parts_in_all=run["parts"],
        )
    except (ValueError, KeyError, TypeError):
        raise StorageError(f"{location} is no run that MAST has written.") from None
    if min_score is not None and not found.threshold <= min_score <= 1:
        raise ConfigError(
            f"--min-score {min_score:g}: this run has kept sounds from {found.threshold:.3g} on. Give a number from "
            "that to 1, or run mast detect with a lower --min-score."
        )
    return found


def numbers_in(folder: str) -> tuple[int, ...]:
    """Numbers of the parts that have a file in a folder of a run."""
    names = files_below(folder) if is_folder(folder) else []
    return tuple(sorted(number for name in names if (number := part_number(name)) is not None))


def _table(location: str, columns: list[str] | None = None) -> pa.Table:
    import pyarrow.parquet as pq

    with open_binary(location) as file:
        return pq.read_table(file, columns=columns)


def _told(location: str, column: str) -> dict[str, Any]:
    """What a table of a part says of its events, by their identity; nothing where it is not there."""
    if not exists(location):
        return {}
    table = _table(location)
    pairs = zip(table["event_id"].to_pylist(), table[column].to_pylist(), strict=True)
    return {event: value for event, value in pairs if value is not None}


class _Rows:
    """The table of recordings, read once from its top to its end."""

    def __init__(self, location: str) -> None:
        import pyarrow.parquet as pq

        self._location = location
        self._file = open_binary(location)
        self._batches = pq.ParquetFile(self._file, pre_buffer=False).iter_batches(batch_size=_BATCH_ROWS)
        self._waiting: pa.Table | None = None

    def named(self, recording_ids: pa.ChunkedArray) -> pa.Table:
        """The rows of these recordings, which stand together; rows before them are passed over."""
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = self._waiting
        while rows is None or (first := pc.index(rows["recording_id"], recording_ids[0]).as_py()) < 0:
            rows = self._next()
        rows = rows.slice(first)
        while len(rows) < len(recording_ids):
            rows = pa.concat_tables([rows, self._next()])
        self._waiting = rows.slice(len(recording_ids))
        return rows.slice(0, len(recording_ids))

    def _next(self) -> pa.Table:
        import pyarrow as pa

        for batch in self._batches:
            return pa.Table.from_batches([batch])
        raise StorageError(
            f"{self._location} does not hold the recordings of the parts beside it. Was it changed? Put it back."
        )

    def __enter__(self) -> _Rows:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
