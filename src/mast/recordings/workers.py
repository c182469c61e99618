"""Probing in processes, with rows in the order of the walk whatever their number.

Found paths wait in a *spool* file; worker i of n reads batches i, i + n, … of it and sends rows down its pipe.

Plain child processes, not a pool: they import only what a probe needs (whatever the caller's script imports), they
end with their parent, and one that a decoder brings down costs one file, not the scan.
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
from mast.recordings.children import child_environment, last_words
from mast.recordings.find import Found, walk
from mast.recordings.metadata import Naming
from mast.recordings.probe import Place, Row, probe_row
from mast.storage import is_remote

BATCH_FILES = 256
POOL_MIN_FILES = 3000
"""Fewer files are read faster by this process than workers start."""

MAX_WORKERS = 16
_REMOTE_THREADS = 16  # requests under way in each worker: an object store answers late, but many at once
_PIPE_BYTES = 1 << 20  # a worker runs some batches ahead of its reader
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Spool:
    """Everything found, on disk: the places, then batches of finds, each of one place."""

    path: Path
    files: int
    batches: int
    ignored: dict[str, int]


def write_spool(path: Path, places: Sequence[Place], on_found: Callable[[int], None]) -> Spool:
    """Walk all places and write down what is found, telling `on_found` the number of files so far."""
    files = batches = 0
    ignored: Counter[str] = Counter()
    with path.open("wb") as spool:
        _send(spool, [_flat(place) for place in places])
        for index, place in enumerate(places):
            finds = walk(place.root, ignored)
            while batch := [tuple(found) for found in islice(finds, BATCH_FILES)]:
                _send(spool, (index, batch))
                files += len(batch)
                batches += 1
                on_found(files)
    return Spool(path, files, batches, dict(ignored.most_common()))


class Probing:
    """Processes that probe what a spool holds; they may start, and import, while the spool is still written."""

    def __init__(self, spool: Path, workers: int | None = None) -> None:
        """`workers` is by default the number of cores, if there are files enough to be worth starting any."""
        self._spool, self._stated = spool, workers
        self._count = min(workers or cores(), MAX_WORKERS)
        self._pool: list[_Worker] = []

    def __enter__(self) -> Self:
        """Nothing starts yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes."""
        for worker in self._pool:
            worker.stop()

    def expect(self, files: int) -> None:
        """Get ready for at least so many files."""
        if not self._pool and self._count > 1 and (self._stated or files >= POOL_MIN_FILES):
            self._pool = [_Worker(self._spool, index, self._count) for index in range(self._count)]

    def rows(self, spool: Spool) -> Iterator[list[Row]]:
        """Rows of every find of the finished spool, batch by batch in its order."""
        self.expect(spool.files)
        if not self._pool:
            yield from _batches(self._spool, 0, 1)
            return
        for worker in self._pool:
            worker.go()
        for batch in range(spool.batches):
            yield self._pool[batch % self._count].rows(batch)


class _Worker:
    """A child process and the batches it still owes; what decoders print on the way is not for the user."""

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
        self._process = subprocess.Popen(  # noqa: S603 (our own module, our own arguments)
            [sys.executable, "-P", "-m", "mast.recordings.workers", *arguments],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            stdin=subprocess.PIPE,
            pipesize=_PIPE_BYTES,
            env=child_environment(),
        )

    def go(self) -> None:
        """The spool is complete: begin."""
        if self._process.stdin:
            with suppress(BrokenPipeError):  # it could not start, and says so when asked for rows
                self._process.stdin.close()

    def rows(self, batch: int) -> list[Row]:
        """Rows of a batch; should the worker have died over it, file by file, and a new worker takes over."""
        rows: list[Row] | None = self.receive()
        if rows is None:
            self.stop()
            rows = _rows_one_by_one(self._spool, batch)
            self._start(batch + self._step)
            self.go()
        return rows

    def receive(self) -> Any:
        """What the worker sends next, or None once it has ended."""
        if not self._started and _receive(self._process.stdout) is None:
            raise MastError(f"a scanning process could not start: {last_words(self._errors)}")
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
    """What a worker does: every `step`-th batch from `first` on, or one batch's finds from `single` on, one by one."""
    _send(out, "ready")
    if single is None:
        for rows in _batches(spool, first, step):
            _send(out, rows)
        return
    place, finds = next(_finds(spool, first, 1))
    for found in finds[single:]:
        _send(out, probe_row(place, found))


def _batches(spool: Path, first: int, step: int) -> Iterator[list[Row]]:
    with ThreadPoolExecutor(_REMOTE_THREADS) as threads:
        for place, finds in _finds(spool, first, step):
            if is_remote(place.root):
                yield list(threads.map(lambda found, place=place: probe_row(place, found), finds))
            else:
                yield [probe_row(place, found) for found in finds]


def _finds(spool: Path, first: int, step: int) -> Iterator[tuple[Place, list[Found]]]:
    """Every `step`-th batch of a spool, from the `first` on."""
    with spool.open("rb") as file:
        places = [_place(*values) for values in _receive(file)]
        for _ in range(first):
            _skip(file)
        while batch := _receive(file):
            place, finds = batch
            yield places[place], [Found(*found) for found in finds]
            for _ in range(step - 1):
                _skip(file)


def _rows_one_by_one(spool: Path, batch: int) -> list[Row]:
    """Rows of a batch that brought a worker down: the files that do so again are reported as unreadable."""
    place, finds = next(_finds(spool, batch, 1))
    rows: list[Row] = []
    while len(rows) < len(finds):
        worker = _Worker(spool, batch, 1, len(rows))
        worker.go()
        try:
            while (row := worker.receive()) is not None:
                rows.append(row)
        finally:
            worker.stop()
        if len(rows) < len(finds):
            crash = finds[len(rows)]._replace(fault="unreadable", detail="reading it crashed the decoder")
            rows.append(probe_row(place, crash))
    return rows


def _flat(place: Place) -> tuple[str | None, ...]:
    return place.collection, place.root, place.naming.site, place.naming.time_zone, place.now.isoformat()


def _place(collection: str, root: str, site: str | None, time_zone: str | None, now: str) -> Place:
    return Place(collection, root, Naming(site, time_zone), datetime.fromisoformat(now))


def cores() -> int:
    """Cores this process may use, which on a cluster are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _send(file: IO[bytes], item: Any) -> None:
    data = marshal.dumps(item)
    file.write(_LENGTH.pack(len(data)))
    file.write(data)
    file.flush()


def _receive(file: IO[bytes] | None) -> Any:
    """The next item, or None where the file or pipe ends, be it in the middle of one."""
    if file is None or len(length := file.read(_LENGTH.size)) < _LENGTH.size:
        return None
    data = file.read(size := _LENGTH.unpack(length)[0])
    return marshal.loads(data) if len(data) == size else None  # noqa: S302 (written by our own process)


def _skip(file: IO[bytes]) -> None:
    if len(length := file.read(_LENGTH.size)) == _LENGTH.size:
        file.seek(_LENGTH.unpack(length)[0], os.SEEK_CUR)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends its workers
    gc.freeze()  # what was imported stays: the collector need not look at it again and again
    gc.set_threshold(50_000)
    sys.stdin.buffer.read()  # ends when the spool is complete, or with the parent
    _single = int(sys.argv[4]) if len(sys.argv) > 4 else None
    try:
        work(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), _single, sys.stdout.buffer)
    except BrokenPipeError:
        os._exit(1)  # the parent is gone
