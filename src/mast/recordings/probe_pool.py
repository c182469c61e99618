"""Probe files in worker processes; the rows keep the order of the walk for any number of workers.

The found paths are written to a *spool* file in batches, one JSON line each; a job is the position of a batch in it.
The processes import only the modules that a probe needs, and a decoder that crashes a process costs one file, not the
scan.
"""

from __future__ import annotations

import gc
import json
import marshal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Self

from mast.recordings.discover_files import FoundFile, walk
from mast.recordings.metadata import NamingScheme
from mast.recordings.probe import CollectionContext, Row, probe_row
from mast.storage import is_remote
from mast.workers.pool import Supervisor, WorkerPool, available_cores
from mast.workers.process import PAYLOAD, Answer, Serve, worker_main

BATCH_FILES = 256
POOL_MIN_FILES = 3000
"""Fewer files are probed in this process, which takes less time than starting workers."""

MAX_WORKERS = 16
_MAX_PENDING = 16  # batches per worker, of about 60 kB, that may wait while the table is written
_REMOTE_THREADS = (
    16  # concurrent requests per worker: an object store has high latency but serves many requests at once
)


@dataclass(frozen=True, slots=True)
class Spool:
    """All found files, on disk in batches of files of one collection; `batches` are the positions of their lines."""

    path: Path
    files: int
    batches: Sequence[int]
    ignored: dict[str, int]


def write_spool(path: Path, contexts: Sequence[CollectionContext], on_file: Callable[[int], None]) -> Spool:
    """Walk all collections and write the found files to a spool; call `on_file` with the number of files so far."""
    files, batches = 0, list[int]()
    ignored: Counter[str] = Counter()
    with path.open("wb") as spool:
        for context in contexts:
            naming = context.naming
            values = (
                context.collection,
                context.root,
                naming.site,
                naming.time_zone,
                context.now.isoformat(),
            )
            found_files = walk(context.root, ignored)
            while batch := [*islice(found_files, BATCH_FILES)]:
                batches.append(spool.tell())
                spool.write(json.dumps([values, batch]).encode() + b"\n")
                files += len(batch)
                on_file(files)
    return Spool(path, files, batches, dict(ignored.most_common()))


class ProbePool:
    """Processes that probe the files of a spool; they can start, and import, while the spool is being written."""

    def __init__(self, spool: Path, workers: int | None = None) -> None:
        """Use `workers` processes; by default one per core, or none below `POOL_MIN_FILES` files."""
        self._min_files = 0 if workers else POOL_MIN_FILES
        self._count = min(workers or available_cores(), MAX_WORKERS)
        self._pool = WorkerPool([ProbeSupervisor(spool) for _ in range(self._count)], _MAX_PENDING)
        self._is_started = False

    def __enter__(self) -> Self:
        """Return the pool; no process starts yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all processes."""
        self._pool.stop()

    def expect(self, files: int) -> None:
        """Start the workers if at least `files` files make them worth it."""
        if not self._is_started and self._count > 1 and files >= self._min_files:
            self._is_started = True
            self._pool.start()

    def rows(self, spool: Spool) -> Iterator[list[Row]]:
        """Yield the rows of every file of the complete spool, batch by batch in its order."""
        self.expect(spool.files)
        if not self._is_started:
            yield from (probe_batch(spool.path, batch) for batch in spool.batches)
            return
        with closing(self._pool.run(spool.batches, in_order=True)) as batches:
            yield from (_unpack(rows) for rows in batches if rows is not None)


class ProbeSupervisor(Supervisor[int, bytes]):
    """Supervisor of one process that probes the files of a spool; rows stay in the format of `marshal`."""

    module, purpose = "mast.recordings.probe_pool", "scanning"

    def __init__(self, spool: Path) -> None:
        super().__init__(str(spool))
        self._spool = spool

    def run(self, batch: int) -> bytes:
        """Return the rows of a batch; if it crashes the process, probe its files one by one."""
        if answer := self.process.call({"batch": batch}):
            return bytes(answer[PAYLOAD])
        context, found_files = _read_batch(self._spool, batch)
        rows: list[Row] = []
        for number, found_file in enumerate(found_files):
            answer = self.process.call({"batch": batch, "file": number})
            crash = found_file._replace(fault="unreadable", detail="reading it crashed the decoder")
            rows += _unpack(answer[PAYLOAD]) if answer else [probe_row(context, crash)]
        return marshal.dumps(rows)


def probe_batch(spool: Path, batch: int, file: int | None = None) -> list[Row]:
    """Return the rows of a batch, or of one of its files."""
    context, found_files = _read_batch(spool, batch)
    probe = partial(probe_row, context)
    if file is not None:
        return [probe(found_files[file])]
    if not is_remote(context.root):
        return [*map(probe, found_files)]
    with ThreadPoolExecutor(_REMOTE_THREADS) as threads:
        return [*threads.map(probe, found_files)]


def _read_batch(spool: Path, batch: int) -> tuple[CollectionContext, list[FoundFile]]:
    with spool.open("rb") as file:
        file.seek(batch)
        (collection, root, site, time_zone, now), found_files = json.loads(file.readline())
    naming = NamingScheme(site, time_zone)
    context = CollectionContext(collection, root, naming, datetime.fromisoformat(now))
    return context, [FoundFile(*values) for values in found_files]


def _unpack(rows: bytes) -> list[Row]:
    unpacked: list[Row] = marshal.loads(rows)  # noqa: S302 (written by this program)
    return unpacked


def serve(spool: Path, jobs: Iterator[bytes], answer: Callable[[Answer], None]) -> None:
    """Process jobs in a worker process: probe one batch after the other."""
    for line in jobs:
        answer({PAYLOAD: marshal.dumps(probe_batch(spool, **json.loads(line)))})


def _get_ready() -> Serve:
    gc.freeze()  # imported modules stay: the garbage collector can skip them
    gc.set_threshold(50_000)
    return partial(serve, Path(sys.argv[1]))


if __name__ == "__main__":
    worker_main(_get_ready)
