"""Start `mast review` in a separate process that tests can kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

COMMAND = "from mast.cli import main; main()"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class ReviewServer:
    """`mast review` in a process on a free port."""

    def __init__(self, source: str, *options: str, cache: Path) -> None:
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self._command = [
            sys.executable,
            "-c",
            COMMAND,
            "review",
            source,
            "--no-browser",
            "--port",
            str(self.port),
        ]
        self._command += options
        self._environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "OMP_NUM_THREADS": "1"}
        self.start()

    def start(self) -> None:
        """Start the server and wait until it responds."""
        self.process = subprocess.Popen(self._command, env=self._environment, stdout=subprocess.DEVNULL)
        for _ in range(2400):  # up to 2 minutes on a busy machine
            try:
                urllib.request.urlopen(f"{self.address}/pages/icon.svg", timeout=5).close()
            except OSError:
                assert self.process.poll() is None, "the server has ended"
                time.sleep(0.05)
            else:
                return
        raise AssertionError("the server does not respond")

    def kill(self) -> None:
        """Kill the server without a clean shutdown."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)
