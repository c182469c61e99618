"""Processes of our own that take jobs and answer in JSON lines, and that end with their parent.

Plain child processes, not a pool: nothing is forked, which Lance and torch do not bear, and one that a decoder brings
down costs one recording.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import IO, Any

from mast.errors import MastError

Answer = dict[str, Any]
Serve = Callable[[Iterator[bytes], Callable[[Answer], None]], None]
"""`serve(jobs, answer)`: one job, a JSON line, after the other, each with an answer, and before it any number of news."""

NEWS = "news"
"""Key of what a child tells while it is still at a job."""

_GRACE_S = 0.5  # for a process without a parent to end by itself
_ENDING_S = 10.0  # for a process that has closed its pipe to be gone, a core dump included


class Child:
    """A child process, started when it is first asked, and again when it has ended.

    What decoders print on the way is not for the user; `ending` says how the process came to its last end.
    """

    def __init__(self, module: str, purpose: str, arguments: Sequence[str] = ()) -> None:
        self._command = [sys.executable, "-P", "-m", module, *arguments]
        self._purpose = purpose
        self._over = False
        self._changing = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self.ending = ""

    def ask(self, job: Answer, on_news: Callable[[Any], None] = lambda news: None) -> Answer | None:
        """The answer to a job, or None if it brought the process down."""
        with suppress(BrokenPipeError):
            process = self._process or self._start()
            if process.stdin and process.stdout:
                process.stdin.write(json.dumps(job).encode() + b"\n")
                process.stdin.flush()
                while (line := process.stdout.readline()).endswith(b"\n"):
                    answer: Answer = json.loads(line)
                    if NEWS not in answer:
                        self._forget_errors()
                        return answer
                    on_news(answer[NEWS])
        self._stop(patience_s=_ENDING_S)
        return None

    def end(self) -> None:
        """Stop for good."""
        with self._changing:
            self._over = True
        self._stop()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._changing:
            if self._over:
                raise MastError("the work was stopped")
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
            self._process = process = subprocess.Popen(  # noqa: S603 (our own module, our own arguments)
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=child_environment(),
            )
        if process.stdout and not process.stdout.readline():
            self._stop(patience_s=_ENDING_S)
            raise MastError(f"a {self._purpose} process could not start: {self.ending}")
        return process

    def _stop(self, patience_s: float = 0.0) -> None:
        with self._changing:  # whoever comes second finds nothing left to stop
            process, self._process = self._process, None
        if process is None:
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
        process.kill()
        process.wait()
        if self._errors:
            self.ending = _ending(process.returncode, self._errors)
            self._errors.close()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                if pipe:
                    pipe.close()

    def _forget_errors(self) -> None:
        """Decoders print to no end over an archive; of that, the process's last words are enough."""
        if self._errors and not self._errors.closed:
            self._errors.truncate(0)
            self._errors.seek(0)  # the child writes on from the same place


def serve_parent(get_ready: Callable[[], Serve]) -> None:
    """What a child process does: get ready, then serve until the parent is gone, and then hardly a moment longer."""
    for number in (signal.SIGINT, signal.SIGTERM):  # these reach the parent as well, which ends its children
        signal.signal(number, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a decoder that prints must not talk into the answers
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin.buffer:
            jobs.put(line)
        jobs.put(b"")
        time.sleep(_GRACE_S)
        os._exit(1)  # even in the middle of a job

    def answer(result: Answer) -> None:
        out.write(json.dumps(result).encode() + b"\n")
        out.flush()

    serve = get_ready()
    answer({"ready": True})
    threading.Thread(target=listen, daemon=True).start()
    try:
        serve(iter(jobs.get, b""), answer)
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # the interpreter's own end would wait for the thread that listens, and abort


def child_environment() -> dict[str, str]:
    """What a child process of ours needs to find the modules that this one has found; it computes on one thread."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def last_words(errors: IO[bytes]) -> str:
    """The last line a child process printed to its errors before it ended."""
    errors.seek(0)
    return errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2] or "it gave no reason"


def _ending(code: int, errors: IO[bytes]) -> str:
    """How a process ended: by which signal, or with which last words."""
    if code >= 0:
        return last_words(errors)
    name = signal.Signals(-code).name
    return f"{name}, as when memory runs out" if name == "SIGKILL" else name
