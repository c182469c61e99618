"""Tables that review works with: all detections of a run with their ids, and all processed recordings."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mast.records import BOX_COLUMNS as ID_COLUMNS
from mast.records import DetectedEvent, arrow_schema, event_id
from mast.review.verdicts import Verdict
from mast.runs.results import DetectionResults
from mast.types import Floats, Mask

if TYPE_CHECKING:
    import pyarrow as pa

THRESHOLD = b"mast.threshold"
"""Key of the run's score threshold in the metadata of the event table."""

DEFAULT_THRESHOLD = 0.5
"""Score threshold (the most uncertain score) for a table without a run's threshold."""

BOX_COLUMNS = ("start_s", "low_hz", "end_s", "high_hz")
LOOKUP_BATCH = 1 << 14
PROCESSED_COLUMNS = ("recording_id", "site", "start_local")


def run_events(results: DetectionResults, min_score: float | None = None) -> pa.Table:
    """Return all detections of a run in the order of its recordings: the `DetectedEvent` columns and `event_id`."""
    import pyarrow as pa

    empty = arrow_schema(DetectedEvent).empty_table()
    tables = [part.events for part in results.parts(min_score)]
    table = with_event_ids(pa.concat_tables([empty, *tables]).unify_dictionaries()).combine_chunks()
    return table.replace_schema_metadata({THRESHOLD: repr(min_score or results.threshold).encode()})


def with_event_ids(events: pa.Table) -> pa.Table:
    """Add the `event_id` column. Rows become Python objects in batches of `LOOKUP_BATCH`, to save memory."""
    import pyarrow as pa

    event_ids = [
        pa.array(map(event_id, *(batch[name].to_pylist() for name in ID_COLUMNS)), pa.string())
        for batch in events.select(ID_COLUMNS).to_batches(LOOKUP_BATCH)
    ]
    return events.append_column("event_id", pa.chunked_array(event_ids, pa.string()))


def processed_recordings(results: DetectionResults) -> pa.Table:
    """Return the recordings of a run with processed audio: id, site, local start time and `effort_s`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = pa.schema(
        [
            ("recording_id", pa.string()),
            ("site", pa.string()),
            ("start_local", pa.timestamp("us")),
            ("effort_s", pa.float64()),
        ]
    )
    parts = [
        pa.table(
            [*(part.recordings[name] for name in PROCESSED_COLUMNS), part.status["effort_s"]],
            names=[*PROCESSED_COLUMNS, "effort_s"],
        ).cast(schema)
        for part in results.parts()
    ]
    table = pa.concat_tables([schema.empty_table(), *parts])
    return table.filter(pc.greater(table["effort_s"], 0.0))


def threshold_of(events: pa.Table) -> float:
    """Return the score threshold of the run that an event table comes from."""
    threshold = (events.schema.metadata or {}).get(THRESHOLD)
    return DEFAULT_THRESHOLD if threshold is None else float(threshold)


def boxes_of(events: pa.Table) -> Floats:
    """Return start_s, low_hz, end_s, high_hz of every event, shape (N, 4)."""
    return np.stack([events[name].to_numpy() for name in BOX_COLUMNS], axis=1).reshape(-1, 4)


def decided_mask(events: pa.Table, decided: Iterable[Verdict]) -> Mask:
    """Return a mask of the events that have a verdict; an event whose verdict was reverted is open again, shape (N,)."""
    return mask_by_id(events, [verdict.event_id for verdict in decided if verdict.state != "open"])


def mask_by_id(events: pa.Table, event_ids: Collection[str]) -> Mask:
    """Return a mask of the events with one of these ids, shape (N,)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    mask: Mask = pc.is_in(events["event_id"], value_set=pa.array(event_ids, pa.string())).to_numpy()
    return mask


def category_codes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return an integer code for each value of a text column; null has a code, too; shape (N,)."""
    import pyarrow as pa

    texts = column.cast(pa.string()).fill_null("").combine_chunks()
    numbers: NDArray[np.int64] = texts.dictionary_encode().indices.to_numpy().astype(np.int64)
    return numbers


def rank_within(groups: NDArray[np.int64], *keys: NDArray[np.generic]) -> NDArray[np.int64]:
    """Return the rank of each row within its group, from 0, sorted by the keys in their order, (N,) → (N,)."""
    order = np.lexsort((*reversed(keys), groups))
    ordered = groups[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else ordered
    lengths = np.diff(np.append(first, len(ordered)))
    ranks = np.empty(len(groups), np.int64)
    ranks[order] = np.arange(len(ordered)) - np.repeat(first, lengths)
    return ranks
