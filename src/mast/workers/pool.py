"""Run jobs in several worker processes, each supervised by one thread."""

from __future__ import annotations

import os
import queue
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import ClassVar, Generic, TypeVar

from mast.workers.process import WorkerProcess

Job = TypeVar("Job")
Result = TypeVar("Result")

_POLL_S = 0.2  # interval at which the caller can update a progress bar


class Supervisor(ABC, Generic[Job, Result]):
    """Supervisor of one worker process; a subclass names its module, and decides what follows a crash."""

    module: ClassVar[str]
    purpose: ClassVar[str]
    progress = 0.0
    """Progress of all jobs so far, for a subclass that measures it."""

    def __init__(self, *arguments: str) -> None:
        self.process = WorkerProcess(self.module, self.purpose, arguments)

    @abstractmethod
    def run(self, job: Job) -> Result:
        """Run a job in the worker process."""


class WorkerPool(Generic[Job, Result]):
    """Supervisors that run jobs in parallel, until the first error or until the pool is stopped.

    Up to `max_pending` jobs per worker run, wait for a worker, or wait for the caller to take their results.
    """

    def __init__(self, supervisors: Sequence[Supervisor[Job, Result]], max_pending: int = 4) -> None:
        self._supervisors = supervisors
        self._max_pending = max_pending * len(supervisors)
        self._idle: queue.SimpleQueue[Supervisor[Job, Result]] = queue.SimpleQueue()
        for supervisor in supervisors:
            self._idle.put(supervisor)

    @property
    def progress(self) -> float:
        """Progress of all jobs so far."""
        return sum(supervisor.progress for supervisor in self._supervisors)

    def start(self) -> None:
        """Start all processes now; by default each starts at its first job."""
        for supervisor in self._supervisors:
            supervisor.process.start()

    def stop(self) -> None:
        """Stop all processes permanently; jobs in progress raise an error."""
        for supervisor in self._supervisors:
            supervisor.process.stop()

    def run(self, jobs: Iterable[Job], *, in_order: bool = False) -> Generator[Result | None]:
        """Yield results as jobs finish, and None every 0.2 s so that callers can update a progress bar.

        The results are in the order of the jobs if `in_order`. The first error is raised and stops the pool; closing
        this generator also stops it.
        """
        jobs = iter(jobs)
        pending: list[Future[Result]] = []
        with ThreadPoolExecutor(max(1, len(self._supervisors))) as threads:
            try:
                while True:
                    free = self._max_pending - len(pending)
                    pending += [threads.submit(self._run, job) for job in islice(jobs, free)]
                    if not pending:
                        return
                    finished = wait(pending[:1] if in_order else pending, _POLL_S, FIRST_COMPLETED).done
                    if not finished:
                        yield None
                    for future in [future for future in pending if future in finished]:
                        pending.remove(future)
                        yield future.result()
            finally:
                for future in pending:
                    future.cancel()
                self.stop()

    def _run(self, job: Job) -> Result:
        supervisor = self._idle.get()
        try:
            return supervisor.run(job)
        finally:
            self._idle.put(supervisor)


def available_cores() -> int:
    """Return the number of cores this process may use; on a cluster this is less than the machine's number."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
