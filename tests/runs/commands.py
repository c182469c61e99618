"""Start `mast` quickly in a process of its own: forked from a server that has imported everything."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path

MODULES = ["mast.cli", "mast.runs.run", "mast.runs.inputs", "mast.runs.local"]


def start(arguments: list[str], output: Path, part_s: float) -> ForkServerProcess:
    """Start `mast` with parts of at least `part_s`; redirect its output to a file."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(MODULES)
    process = context.Process(target=run, args=(arguments, str(output), part_s))
    process.start()
    return process


def run(arguments: list[str], output: str, part_s: float) -> None:
    from mast.cli import main
    from mast.runs import plan

    out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    plan.MIN_PART_S = part_s
    sys.argv = ["mast", *arguments]
    main()
