"""`mast` as a process of its own that is there at once: forked from a server that has imported everything."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path

MODULES = ["mast.cli", "mast.detection.archive", "mast.detection.inputs", "mast.detection.local"]


def start(words: list[str], said: Path, part_s: float) -> ForkServerProcess:
    """Start `mast` with parts of at least `part_s`; what it says goes to a file."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(MODULES)
    process = context.Process(target=run, args=(words, str(said), part_s))
    process.start()
    return process


def run(words: list[str], said: str, part_s: float) -> None:
    from mast.cli import main
    from mast.detection import plan

    out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    plan.MIN_PART_S = part_s
    sys.argv = ["mast", *words]
    main()
