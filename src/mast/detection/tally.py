"""What came of a run, added up from the status of its parts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from mast.errors import StorageError
from mast.recordings.clocks import length
from mast.recordings.scan import PROVENANCE
from mast.storage import open_binary

if TYPE_CHECKING:
    import pyarrow as pa

MAX_REASONS = 1000
"""Kinds of reasons that are counted apart; the rest are "other reasons"."""

SHOWN_REASONS = 5
_AT_ONCE = 16  # files that are read at the same time: an object store answers late, but many at once
_NUMBER = re.compile(r"\d[\d.,:]*(?<=\d)")


@dataclass
class Tally:
    """Recordings by what became of them, the seconds that were heard, the sounds found, and what went wrong.

    Reasons that differ in nothing but numbers are one.
    """

    ok: int = 0
    empty: int = 0
    quarantined: int = 0
    heard_s: float = 0.0
    events: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def recordings(self) -> int:
        """How many there are in all."""
        return self.ok + self.empty + self.quarantined

    def add(self, status: pa.Table) -> None:
        """Count in the status of a part."""
        import pyarrow.compute as pc

        words = Counter(status["status"].to_pylist())
        self.ok += words["ok"]
        self.empty += words["empty"]
        self.quarantined += words["quarantined"]
        self.heard_s += pc.sum(status["effort_s"]).as_py() or 0.0
        self.events += pc.sum(status["events"]).as_py() or 0
        for reason in status["reason"].drop_null().to_pylist():
            word = _NUMBER.sub("…", reason)
            known = word in self.reasons or len(self.reasons) < MAX_REASONS
            self.reasons[word if known else "other reasons"] += 1

    def summary(self) -> str:
        """The account for a person to read."""
        lines = [
            f"{self.recordings:,} recordings, {length(self.heard_s)} heard: {self.events:,} sounds in {self.ok:,} "
            f"of them, none in {self.empty:,}"
        ]
        if self.quarantined:
            lines.append(f"{self.quarantined:,} quarantined, which could not be heard, or not to their end:")
            lines += [f"  {count:,} × {reason}" for reason, count in self.reasons.most_common(SHOWN_REASONS)]
            if (left := len(self.reasons) - SHOWN_REASONS) > 0:
                lines.append(f"  and {left:,} more reasons")
        return "\n".join(lines)


def tally_of(locations: Iterable[str], fingerprint: str) -> Tally:
    """What the status of some parts adds up to; a part that another run has made is refused."""
    tally, left = Tally(), iter(locations)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        while some := list(islice(left, _AT_ONCE)):
            for location, (made_by, status) in zip(some, threads.map(_read, some), strict=True):
                if made_by != fingerprint:
                    raise StorageError(
                        f"{location} is of another run: two began at the same moment, or files were put here. "
                        "Begin anew with another folder after --out."
                    )
                tally.add(status)
    return tally


def _read(location: str) -> tuple[str | None, pa.Table]:
    """Fingerprint of the run that made a part's status, and the status."""
    import pyarrow.parquet as pq

    with open_binary(location) as file:
        parquet = pq.ParquetFile(file)
        story = json.loads((parquet.schema_arrow.metadata or {}).get(PROVENANCE, b"{}"))
        return story.get("fingerprint"), parquet.read(["status", "reason", "effort_s", "events"])
