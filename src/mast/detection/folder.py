"""Names in the folder of a run: `run.json`, the table of recordings, and for every part its events and its status.

Where examples have named sounds, also the names of every part, and by which rule they were given; where sounds have been
grouped, the groups of every part.
"""

from __future__ import annotations

import re

from mast.storage import join

RUN, RECORDINGS = "run.json", "recordings.parquet"
EVENTS, STATUS, VECTORS = "events", "status", "vectors"
NAMES, NAMING = "names", "naming.json"
CLUSTERS = "clusters"
GRAPH, WEIGHTS = "engine.xml", "engine.bin"

_PART = re.compile(r"part-(\d+)\.parquet")


def part_in(folder: str, kind: str, number: int) -> str:
    """Where the events, the status or the names of a part are."""
    return join(folder, f"{kind}/part-{number:06d}.parquet")


def part_number(name: str) -> int | None:
    """Which part a file of this name is of, if any."""
    match = _PART.fullmatch(name)
    return int(match[1]) if match else None
