"""Run worker processes that receive jobs and send answers as JSON lines, and that end with their parent.

These are plain child processes, not a `multiprocessing` pool: nothing is forked, as Lance and torch do not support fork,
and a decoder that crashes a process costs one recording.
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
"""`serve(jobs, answer)`: process jobs (JSON lines) one by one; send any number of progress messages, then one answer."""

PROGRESS = "progress"
"""Key of a progress message, sent while a job is running."""

PAYLOAD = "payload"
"""Key of the bytes in an answer, if it has any; their number is in its line, and they follow it."""

_PIPE_BYTES = 1 << 17  # of a buffer: enough for most answers, so that reading one takes few system calls
_GRACE_S = 0.5  # for a process whose parent has ended to end by itself
_ENDING_S = 10.0  # for a process that has closed its pipe to end, including a core dump


class WorkerProcess:
    """A child process, started at the first job or before, and restarted if it has ended.

    Its stderr is hidden from the user; `ending` describes how the process last ended.
    """

    def __init__(self, module: str, purpose: str, arguments: Sequence[str] = ()) -> None:
        self._command = [sys.executable, "-P", "-m", module, *arguments]
        self._purpose = purpose
        self._is_ready = False
        self._stopped = threading.Event()
        self._state_lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self.ending = ""

    def call(self, job: Answer, on_progress: Callable[[Any], None] = lambda progress: None) -> Answer | None:
        """Return the answer to a job, or None if the job crashed the process."""
        with suppress(BrokenPipeError):
            process = self.start()
            self._wait_until_ready(process)
            if process.stdin and process.stdout:
                process.stdin.write(json.dumps(job).encode() + b"\n")
                process.stdin.flush()
                while (line := process.stdout.readline()).endswith(b"\n"):
                    answer: Answer = json.loads(line)
                    if PROGRESS in answer:
                        on_progress(answer[PROGRESS])
                        continue
                    if count := answer.get(PAYLOAD):
                        answer[PAYLOAD] = process.stdout.read(count)
                        if len(answer[PAYLOAD]) < count:
                            break
                    self._discard_errors()
                    return answer
        self._end(patience_s=_ENDING_S)
        return None

    def start(self) -> subprocess.Popen[bytes]:
        """Start the process if it is not running, and return it; it may not be ready for a job yet."""
        with self._state_lock:
            if self._stopped.is_set():
                raise MastError("the work was stopped")
            if self._process:
                return self._process
            self._is_ready = False
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
            self._process = subprocess.Popen(  # noqa: S603 (a module of MAST)
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                bufsize=_PIPE_BYTES,
                env=child_environment(),
            )
            return self._process

    def stop(self) -> None:
        """Stop the process permanently; another thread may call this during a job."""
        with self._state_lock:
            self._stopped.set()
        self._end()

    def pause(self, seconds: float) -> bool:
        """Wait before another attempt at a job; return False if the process was stopped."""
        return not self._stopped.wait(seconds)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        if not self._is_ready and process.stdout and not process.stdout.readline():
            self._end(patience_s=_ENDING_S)
            raise MastError(f"a {self._purpose} process could not start: {self.ending}")
        self._is_ready = True

    def _end(self, patience_s: float = 0.0) -> None:
        with self._state_lock:  # a second caller finds no process to stop
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

    def _discard_errors(self) -> None:
        """Truncate stderr after each answer: decoders print without limit, and only the last lines are needed."""
        if self._errors and not self._errors.closed:
            self._errors.truncate(0)
            self._errors.seek(0)  # the child continues to write at this position


def worker_main(get_ready: Callable[[], Serve]) -> None:
    """Run a worker process: call `get_ready`, then serve jobs until the parent ends; exit at most 0.5 s later."""
    for number in (signal.SIGINT, signal.SIGTERM):  # these reach the parent as well, which stops its children
        signal.signal(number, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a decoder that prints must not write into the answers
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def receive_jobs() -> None:
        for line in sys.stdin.buffer:
            jobs.put(line)
        jobs.put(b"")
        time.sleep(_GRACE_S)
        os._exit(1)  # even in the middle of a job

    def answer(result: Answer) -> None:
        payload = result.get(PAYLOAD, b"")
        line = {**result, PAYLOAD: len(payload)} if payload else result
        out.write(json.dumps(line).encode() + b"\n" + payload)
        out.flush()

    serve = get_ready()
    answer({"ready": True})
    threading.Thread(target=receive_jobs, daemon=True).start()
    try:
        serve(iter(jobs.get, b""), answer)
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # a normal exit would wait for the thread that receives jobs, and abort


def child_environment() -> dict[str, str]:
    """Return the environment of a child process: this process's module path, and one thread for arithmetic."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def last_stderr_line(errors: IO[bytes]) -> str:
    """Return the last line that a child process wrote to stderr before it ended."""
    errors.seek(0)
    return errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2] or "it gave no reason"


def _ending(code: int, errors: IO[bytes]) -> str:
    """Describe how a process ended: its signal, or its last line on stderr."""
    if code >= 0:
        return last_stderr_line(errors)
    name = signal.Signals(-code).name
    return f"{name}, as when memory runs out" if name == "SIGKILL" else name
