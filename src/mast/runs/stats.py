"""Sum up a run from the status of its parts: recordings by status, hours processed, events and failure reasons."""

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
from mast.recordings.clocks import format_duration
from mast.recordings.scan import PROVENANCE
from mast.storage import open_binary
from mast.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

MAX_REASONS = 1000
"""Maximum number of distinct reasons that are counted separately; the rest are "other reasons"."""

SHOWN_REASONS = 5
_CONCURRENT_READS = (
    16  # files read concurrently: an object store has high latency but serves many requests at once
)
_NUMBER = re.compile(r"\d[\d.,:]*(?<=\d)")


@dataclass
class RunStats:
    """Number of recordings by status, seconds of processed audio, number of events, and failure reasons.

    Reasons that differ only in numbers are counted together.
    """

    ok: int = 0
    empty: int = 0
    quarantined: int = 0
    processed_s: float = 0.0
    events: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def recordings(self) -> int:
        """Number of recordings of any status."""
        return self.ok + self.empty + self.quarantined

    def add(self, status: pa.Table) -> None:
        """Add the status of a part."""
        import pyarrow.compute as pc

        counts = Counter(status["status"].to_pylist())
        self.ok += counts["ok"]
        self.empty += counts["empty"]
        self.quarantined += counts["quarantined"]
        self.processed_s += pc.sum(status["effort_s"]).as_py() or 0.0
        self.events += pc.sum(status["events"]).as_py() or 0
        for reason in status["reason"].drop_null().to_pylist():
            pattern = _NUMBER.sub("…", reason)
            is_counted = pattern in self.reasons or len(self.reasons) < MAX_REASONS
            self.reasons[pattern if is_counted else "other reasons"] += 1

    def summary(self) -> str:
        """Return a text summary for the user."""
        lines = [
            f"{counted(self.recordings, 'recording')}, {format_duration(self.processed_s)} "
            f"processed: {counted(self.events, 'event')} in {self.ok:,} of them, none in "
            f"{self.empty:,}"
        ]
        if self.quarantined:
            lines.append(f"{self.quarantined:,} quarantined, which could not be processed completely:")
            lines += [f"  {count:,} × {reason}" for reason, count in self.reasons.most_common(SHOWN_REASONS)]
            if (left := len(self.reasons) - SHOWN_REASONS) > 0:
                lines.append(f"  and {counted(left, 'more reason')}")
        return "\n".join(lines)


def read_run_stats(locations: Iterable[str], fingerprint: str) -> RunStats:
    """Read and sum up the status of parts; raise StorageError if another run wrote one of them."""
    stats, remaining = RunStats(), iter(locations)
    with ThreadPoolExecutor(_CONCURRENT_READS) as threads:
        while batch := list(islice(remaining, _CONCURRENT_READS)):
            for location, (run_fingerprint, status) in zip(batch, threads.map(_read, batch), strict=True):
                if run_fingerprint != fingerprint:
                    raise StorageError(
                        f"{location} belongs to another run: two runs started at the same moment, or files were copied "
                        "here. Start again with another folder after --out."
                    )
                stats.add(status)
    return stats


def _read(location: str) -> tuple[str | None, pa.Table]:
    """Read a part's status; return the fingerprint of the run that wrote it, and the table."""
    import pyarrow.parquet as pq

    with open_binary(location) as file:
        parquet = pq.ParquetFile(file)
        metadata = json.loads((parquet.schema_arrow.metadata or {}).get(PROVENANCE, b"{}"))
        return metadata.get("fingerprint"), parquet.read(["status", "reason", "effort_s", "events"])
