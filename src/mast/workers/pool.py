"""Run jobs in several threads, each of which runs one job at a time, and yield results as jobs finish."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

_POLL_S = 0.2  # interval at which the caller can update a progress bar


def map_unordered(
    jobs: Iterator[Job], workers: Sequence[Callable[[Job], Result]], end: Callable[[], None]
) -> Generator[Result | None]:
    """Yield results as jobs finish, and None every 0.2 s so that callers can update a progress bar.

    Each of the `workers` runs in a separate thread. The first exception of a worker stops all work and is raised here;
    closing this generator also stops all work. `end` must make busy workers return.
    """
    job_lock = threading.Lock()
    finished: queue.SimpleQueue[tuple[Result] | Exception | None] = queue.SimpleQueue()

    def next_job() -> Job | None:
        with job_lock:
            return next(jobs, None)

    def run(worker: Callable[[Job], Result]) -> None:
        try:
            while (job := next_job()) is not None:
                finished.put((worker(job),))
            finished.put(None)
        except Exception as error:  # raised in the caller's thread
            finished.put(error)

    threads = [threading.Thread(target=run, args=(worker,)) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        running = len(threads)
        while running:
            try:
                result = finished.get(timeout=_POLL_S)
            except queue.Empty:
                yield None
                continue
            if isinstance(result, Exception):
                raise result
            if result is None:
                running -= 1
            else:
                yield result[0]
    finally:
        end()
        for thread in threads:
            if thread.ident:
                thread.join()
