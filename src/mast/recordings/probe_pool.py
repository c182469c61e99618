"""Probe files in worker processes; the rows keep the order of the walk for any number of workers.

The found paths are written to a *spool* file; worker i of n reads batches i, i + n, … of it and sends rows through its
pipe.

These are plain child processes, not a `multiprocessing` pool: they import only the modules that a probe needs
(regardless of the caller's script), they end with their parent, and a decoder that crashes a process costs one file,
not the scan.
"""

from __future__ import annotations

import gc
import marshal
import os
import signal
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import IO, Any, BinaryIO, Self

from mast.errors import MastError
from mast.recordings.discover_files import FoundFile, walk
from mast.recordings.metadata import NamingScheme
from mast.recordings.probe import CollectionContext, Row, probe_row
from mast.storage import is_remote
from mast.workers.process import child_environment, last_stderr_line

BATCH_FILES = 256
POOL_MIN_FILES = 3000
"""Fewer files are probed in this process, which takes less time than starting workers."""

MAX_WORKERS = 16
_REMOTE_THREADS = (
    16  # concurrent requests per worker: an object store has high latency but serves many requests at once
)
_PIPE_BYTES = 1 << 20  # a worker runs a few batches ahead of its reader
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Spool:
    """All found files, on disk: the collection contexts, then batches of files, each of one context."""

    path: Path
    files: int
    batches: int
    ignored: dict[str, int]


def write_spool(path: Path, contexts: Sequence[CollectionContext], on_file: Callable[[int], None]) -> Spool:
    """Walk all collections and write the found files to a spool; call `on_file` with the number of files so far."""
    files = batches = 0
    ignored: Counter[str] = Counter()
    with path.open("wb") as spool:
        _send(spool, [_context_values(context) for context in contexts])
        for index, context in enumerate(contexts):
            found_files = walk(context.root, ignored)
            while batch := [tuple(found_file) for found_file in islice(found_files, BATCH_FILES)]:
                _send(spool, (index, batch))
                files += len(batch)
                batches += 1
                on_file(files)
    return Spool(path, files, batches, dict(ignored.most_common()))


class ProbePool:
    """Processes that probe the files of a spool; they can start, and import, while the spool is being written."""

    def __init__(self, spool: Path, workers: int | None = None) -> None:
        """Use `workers` processes; by default one per core, or none below `POOL_MIN_FILES` files."""
        self._spool, self._requested = spool, workers
        self._count = min(workers or available_cores(), MAX_WORKERS)
        self._pool: list[_Worker] = []

    def __enter__(self) -> Self:
        """Return the pool; no process starts yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all processes."""
        for worker in self._pool:
            worker.stop()

    def expect(self, files: int) -> None:
        """Start the workers if at least `files` files make them worth it."""
        if not self._pool and self._count > 1 and (self._requested or files >= POOL_MIN_FILES):
            self._pool = [_Worker(self._spool, index, self._count) for index in range(self._count)]

    def rows(self, spool: Spool) -> Iterator[list[Row]]:
        """Yield the rows of every file of the complete spool, batch by batch in its order."""
        self.expect(spool.files)
        if not self._pool:
            yield from _batches(self._spool, 0, 1)
            return
        for worker in self._pool:
            worker.resume()
        for batch in range(spool.batches):
            yield self._pool[batch % self._count].rows(batch)


class _Worker:
    """A child process that probes every `step`-th batch; its stderr is hidden from the user."""

    def __init__(self, spool: Path, first: int, step: int, single: int | None = None) -> None:
        self._spool, self._step = spool, step
        self._start(first, single)

    def _start(self, first: int, single: int | None = None) -> None:
        self._started = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        arguments = [
            str(self._spool),
            str(first),
            str(self._step),
            *([] if single is None else [str(single)]),
        ]
        self._process = subprocess.Popen(  # noqa: S603 (a module of MAST)
            [sys.executable, "-P", "-m", "mast.recordings.probe_pool", *arguments],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            stdin=subprocess.PIPE,
            pipesize=_PIPE_BYTES,
            env=child_environment(),
        )

    def resume(self) -> None:
        """Start probing; the spool is complete."""
        if self._process.stdin:
            with suppress(BrokenPipeError):  # it could not start; `receive` reports that
                self._process.stdin.close()

    def rows(self, batch: int) -> list[Row]:
        """Return the rows of a batch; if it crashed the worker, probe file by file and start a new worker."""
        rows: list[Row] | None = self.receive()
        if rows is None:
            self.stop()
            rows = _rows_one_by_one(self._spool, batch)
            self._start(batch + self._step)
            self.resume()
        return rows

    def receive(self) -> Any:
        """Return the next item from the worker, or None after it ended."""
        if not self._started and _receive(self._process.stdout) is None:
            raise MastError(f"a scanning process could not start: {last_stderr_line(self._errors)}")
        self._started = True
        return _receive(self._process.stdout)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                with suppress(BrokenPipeError):
                    pipe.close()


def work(spool: Path, first: int, step: int, single: int | None, out: BinaryIO) -> None:
    """Probe every `step`-th batch, starting with batch `first`, and send the rows.

    With `single`, probe the files of batch `first` one by one, starting with file `single`.
    """
    _send(out, "ready")
    if single is None:
        for rows in _batches(spool, first, step):
            _send(out, rows)
        return
    context, found_files = next(_found_files(spool, first, 1))
    for found_file in found_files[single:]:
        _send(out, probe_row(context, found_file))


def _batches(spool: Path, first: int, step: int) -> Iterator[list[Row]]:
    with ThreadPoolExecutor(_REMOTE_THREADS) as threads:
        for context, found_files in _found_files(spool, first, step):
            if is_remote(context.root):
                yield list(
                    threads.map(
                        lambda found_file, context=context: probe_row(context, found_file), found_files
                    )
                )
            else:
                yield [probe_row(context, found_file) for found_file in found_files]


def _found_files(spool: Path, first: int, step: int) -> Iterator[tuple[CollectionContext, list[FoundFile]]]:
    """Yield every `step`-th batch of a spool, starting with batch `first`."""
    with spool.open("rb") as file:
        contexts = [_context(*values) for values in _receive(file)]
        for _ in range(first):
            _skip(file)
        while batch := _receive(file):
            index, found_files = batch
            yield contexts[index], [FoundFile(*values) for values in found_files]
            for _ in range(step - 1):
                _skip(file)


def _rows_one_by_one(spool: Path, batch: int) -> list[Row]:
    """Return the rows of a batch that crashed a worker; report the files that crash it again as unreadable."""
    context, found_files = next(_found_files(spool, batch, 1))
    rows: list[Row] = []
    while len(rows) < len(found_files):
        worker = _Worker(spool, batch, 1, len(rows))
        worker.resume()
        try:
            while (row := worker.receive()) is not None:
                rows.append(row)
        finally:
            worker.stop()
        if len(rows) < len(found_files):
            crash = found_files[len(rows)]._replace(
                fault="unreadable", detail="reading it crashed the decoder"
            )
            rows.append(probe_row(context, crash))
    return rows


def _context_values(context: CollectionContext) -> tuple[str | None, ...]:
    return (
        context.collection,
        context.root,
        context.naming.site,
        context.naming.time_zone,
        context.now.isoformat(),
    )


def _context(
    collection: str, root: str, site: str | None, time_zone: str | None, now: str
) -> CollectionContext:
    return CollectionContext(collection, root, NamingScheme(site, time_zone), datetime.fromisoformat(now))


def available_cores() -> int:
    """Return the number of cores this process may use; on a cluster this is less than the machine's number."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _send(file: IO[bytes], item: Any) -> None:
    data = marshal.dumps(item)
    file.write(_LENGTH.pack(len(data)))
    file.write(data)
    file.flush()


def _receive(file: IO[bytes] | None) -> Any:
    """Return the next item, or None if the file or pipe ends, even in the middle of an item."""
    if file is None or len(length := file.read(_LENGTH.size)) < _LENGTH.size:
        return None
    data = file.read(size := _LENGTH.unpack(length)[0])
    return marshal.loads(data) if len(data) == size else None  # noqa: S302 (written by this program)


def _skip(file: IO[bytes]) -> None:
    if len(length := file.read(_LENGTH.size)) == _LENGTH.size:
        file.seek(_LENGTH.unpack(length)[0], os.SEEK_CUR)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which stops its workers
    gc.freeze()  # imported modules stay: the garbage collector can skip them
    gc.set_threshold(50_000)
    sys.stdin.buffer.read()  # ends when the spool is complete, or with the parent
    _single = int(sys.argv[4]) if len(sys.argv) > 4 else None
    try:
        work(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), _single, sys.stdout.buffer)
    except BrokenPipeError:
        os._exit(1)  # the parent has ended
