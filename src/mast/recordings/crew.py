"""Threads that do jobs side by side, each one after the other; what becomes of a job is told as soon as it is done."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeVar

Job = TypeVar("Job")
Done = TypeVar("Done")

_LOOK_S = 0.2  # so often who waits may look at how far it is


def work_off(
    jobs: Iterator[Job], hands: Sequence[Callable[[Job], Done]], end: Callable[[], None]
) -> Generator[Done | None]:
    """What becomes of every job, in the order in which they are done, and None now and then in between.

    Each of the `hands` works in a thread of its own. The first error of one ends it all, and so does closing this
    generator: `end` is to make hands that are at a job let go of it.
    """
    taking = threading.Lock()
    ended: queue.SimpleQueue[tuple[Done] | Exception | None] = queue.SimpleQueue()

    def take() -> Job | None:
        with taking:
            return next(jobs, None)

    def work(do: Callable[[Job], Done]) -> None:
        try:
            while (job := take()) is not None:
                ended.put((do(job),))
            ended.put(None)
        except Exception as error:  # told by the thread that waits
            ended.put(error)

    threads = [threading.Thread(target=work, args=(do,)) for do in hands]
    try:
        for thread in threads:
            thread.start()
        working = len(threads)
        while working:
            try:
                answer = ended.get(timeout=_LOOK_S)
            except queue.Empty:
                yield None
                continue
            if isinstance(answer, Exception):
                raise answer
            if answer is None:
                working -= 1
            else:
                yield answer[0]
    finally:
        end()
        for thread in threads:
            if thread.ident:
                thread.join()
