"""File names in the folder of a run: `run.json`, the table of recordings, and the events and status of every part.

`mast label-events` adds the labels of every part and the rule that assigned them; `mast cluster` adds the clusters of
every part.
"""

from __future__ import annotations

import re

from mast.errors import StorageError
from mast.storage import exists, join

RUN, RECORDINGS = "run.json", "recordings.parquet"
EVENTS, STATUS, VECTORS = "events", "status", "vectors"
LABELS, LABELLING = "labels", "labelling.json"
CLUSTERS = "clusters"
GRAPH, WEIGHTS = "engine.xml", "engine.bin"

_PART = re.compile(r"part-(\d+)\.parquet")


def require_run(folder: str) -> None:
    """Raise StorageError if a folder contains no detection run."""
    if not exists(join(folder, RUN)):
        raise StorageError(
            f"{folder} contains no run of mast detect. Specify the folder that it wrote with --out."
        )


def part_in(folder: str, kind: str, number: int) -> str:
    """Return the path of a part's file, where `kind` is the folder: EVENTS, STATUS, VECTORS, LABELS or CLUSTERS."""
    return join(folder, f"{kind}/part-{number:06d}.parquet")


def part_number(name: str) -> int | None:
    """Return the part number in a file name, or None if it is not the file of a part."""
    match = _PART.fullmatch(name)
    return int(match[1]) if match else None
