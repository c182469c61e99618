"""What a run has found, as review looks at it: one table of all sounds with their names, one of all that was heard."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mast.detection.found import Found
from mast.events import BOX as NAMED_BY
from mast.events import Detected, arrow_schema, event_id
from mast.review.verdicts import Verdict

if TYPE_CHECKING:
    import pyarrow as pa

THRESHOLD = b"mast.threshold"
"""Key of the score from which a run has kept sounds, in the table's own story."""

MIDDLE = 0.5
"""The score that leaves most open, where no run says otherwise."""

BOX = ("start_s", "low_hz", "end_s", "high_hz")
NAMED_AT_ONCE = 1 << 14
HEARD_COLUMNS = ("recording_id", "site", "start_local")

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]


def sounds_of(found: Found, min_score: float | None = None) -> pa.Table:
    """All sounds of a run in the order of its recordings: the columns of `Detected`, and the `event_id` of each."""
    import pyarrow as pa

    empty = arrow_schema(Detected).empty_table()
    tables = [part.events for part in found.parts(min_score)]
    table = with_names(pa.concat_tables([empty, *tables]).unify_dictionaries()).combine_chunks()
    return table.replace_schema_metadata({THRESHOLD: repr(min_score or found.threshold).encode()})


def with_names(events: pa.Table) -> pa.Table:
    """Sounds with their `event_id`; few at a time become Python's."""
    import pyarrow as pa

    names = [
        pa.array(map(event_id, *(batch[name].to_pylist() for name in NAMED_BY)), pa.string())
        for batch in events.select(NAMED_BY).to_batches(NAMED_AT_ONCE)
    ]
    return events.append_column("event_id", pa.chunked_array(names, pa.string()))


def heard_of(found: Found) -> pa.Table:
    """All recordings of a run of which anything was heard: name, site, the clock at its start, and `effort_s`."""
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
            [*(part.recordings[name] for name in HEARD_COLUMNS), part.status["effort_s"]],
            names=[*HEARD_COLUMNS, "effort_s"],
        ).cast(schema)
        for part in found.parts()
    ]
    table = pa.concat_tables([schema.empty_table(), *parts])
    return table.filter(pc.greater(table["effort_s"], 0.0))


def threshold_of(sounds: pa.Table) -> float:
    """The score from which the run of these sounds counts them."""
    told = (sounds.schema.metadata or {}).get(THRESHOLD)
    return MIDDLE if told is None else float(told)


def boxes_of(sounds: pa.Table) -> Floats:
    """start_s, low_hz, end_s, high_hz of every sound. → (N, 4)"""
    return np.stack([sounds[name].to_numpy() for name in BOX], axis=1).reshape(-1, 4)


def decided_among(sounds: pa.Table, decided: Iterable[Verdict]) -> Mask:
    """Which sounds somebody has decided about; one whose verdict was undone is open again. → (N,)"""
    return named_among(sounds, [verdict.subject for verdict in decided if verdict.state != "open"])


def named_among(sounds: pa.Table, names: Collection[str]) -> Mask:
    """Which sounds have one of these names. → (N,)"""
    import pyarrow as pa
    import pyarrow.compute as pc

    known: Mask = pc.is_in(sounds["event_id"], value_set=pa.array(names, pa.string())).to_numpy()
    return known


def codes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """A number for each value of a column of words, the same for the same; nothing known is one of them. → (N,)"""
    import pyarrow as pa

    words = column.cast(pa.string()).fill_null("").combine_chunks()
    numbers: NDArray[np.int64] = words.dictionary_encode().indices.to_numpy().astype(np.int64)
    return numbers


def rank_within(groups: NDArray[np.int64], *keys: NDArray[np.generic]) -> NDArray[np.int64]:
    """Place of each row within its group, 0 for the first, by the keys in their order. (N,) → (N,)"""
    order = np.lexsort((*reversed(keys), groups))
    ordered = groups[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else ordered
    lengths = np.diff(np.append(first, len(ordered)))
    ranks = np.empty(len(groups), np.int64)
    ranks[order] = np.arange(len(ordered)) - np.repeat(first, lengths)
    return ranks
