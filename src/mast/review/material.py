"""What people review: the recordings of a run or of a study, and the sounds that a model or an expert has put in them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mast.config import Study, load_study
from mast.detection.found import Found, open_found
from mast.errors import ConfigError
from mast.review.asking import queues_of
from mast.review.known import known_of
from mast.review.queues import Queue, in_order
from mast.review.sounds import THRESHOLD, with_names
from mast.storage import is_remote, join
from mast.study.products import fingerprint

if TYPE_CHECKING:
    import pyarrow as pa

MOST_SOUNDS = 3_000_000
"""All sounds are held in memory, some 200 bytes each, so that any of them can be asked for."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording as the page shows it; `version` changes with the file. Times and Hz are its own.

    `frames` are those that can be read.
    """

    recording_id: str
    location: str
    version: str
    site: str | None
    duration_s: float
    sample_rate_hz: int
    frames: int | None
    start_local: datetime | None


@dataclass(frozen=True)
class Material:
    """Recordings in their order, and sounds in theirs: rows as `Detected`, with their `event_id` and `label`.

    `stretches` are the first and the last but one row of the sounds of each recording. (N, 2) `run` is where they come
    from, if they were found by a model; `queues` are the orders in which they can be asked for.
    """

    name: str
    fingerprint: str
    roots: dict[str, str]
    recordings: pa.Table
    sounds: pa.Table
    stretches: Any
    run: Found | None
    queues: dict[str, Queue]

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of every recording."""
        return {name: row for row, name in enumerate(self.recordings["recording_id"].to_pylist())}

    @cached_property
    def sound_rows(self) -> dict[str, int]:
        """The row of every sound."""
        return {name: row for row, name in enumerate(self.sounds["event_id"].to_pylist())}

    def recording(self, recording_id: str) -> Recorded | None:
        """A recording by its name; what is no recording of this material has no location either."""
        row = self.rows.get(recording_id)
        if row is None:
            return None
        facts = self.recordings.slice(row, 1).to_pylist()[0]
        root = self.roots[facts["collection"]]
        return Recorded(
            recording_id=recording_id,
            location=join(root if is_remote(root) else str(Path(root).absolute()), facts["path"]),
            version=f"{facts['size_bytes']} {facts['modified_utc']}",
            site=facts["site"],
            duration_s=facts["duration_s"],
            sample_rate_hz=facts["sample_rate_hz"],
            frames=facts["frames"],
            start_local=facts["start_local"],
        )

    def sound(self, subject: str) -> dict[str, Any] | None:
        """A sound by its name."""
        row = self.sound_rows.get(subject)
        return None if row is None else self.sounds.slice(row, 1).to_pylist()[0]

    def sounds_of(self, recording_id: str) -> pa.Table:
        """The sounds of a recording, by their start."""
        first, stop = self.stretches[self.rows[recording_id]].tolist()
        return self.sounds.slice(first, stop - first)


def open_material(source: str, min_score: float | None = None) -> Material:
    """The recordings and sounds of a run, by its folder, or of a study, by its file."""
    if source.lower().endswith((".yaml", ".yml")):
        return _of_study(load_study(Path(source)), source)
    return _of_run(source, min_score)


def _of_run(folder: str, min_score: float | None) -> Material:
    import pyarrow as pa

    found = open_found(folder, min_score)
    parts, count = [], 0
    for part in found.parts(min_score):
        parts.append(part)
        count += len(part.events)
        if count > MOST_SOUNDS:
            raise ConfigError(
                f"{found.count(min_score):,} sounds are more than can be shown at once ({MOST_SOUNDS:,}). "
                "Leave out those that score less with --min-score."
            )
    if not parts:
        raise ConfigError(
            f"{folder}: no recording has been heard yet. Let mast detect finish its first part."
        )
    recordings = pa.concat_tables([part.recordings for part in parts])
    sounds = pa.concat_tables([part.events for part in parts]).unify_dictionaries()
    sounds = sounds.append_column("label", pa.nulls(len(sounds), pa.string()))
    name = Path(folder).name if not is_remote(folder) else folder
    sounds = sounds.replace_schema_metadata({THRESHOLD: repr(min_score or found.threshold).encode()})
    return _material(name, found.fingerprint, found.roots, recordings, sounds, found)


def _of_study(study: Study, source: str) -> Material:
    """A study's recordings with its experts' boxes, as they are without its own review."""
    recordings, _, sounds = known_of(study, source)
    roots = {name: collection.root for name, collection in study.collections.items()}
    named = fingerprint(name.encode() for name in recordings["recording_id"].to_pylist())
    return _material(Path(source).stem, named, roots, recordings, sounds)


def _material(
    name: str,
    named: str,
    roots: dict[str, str],
    recordings: pa.Table,
    sounds: pa.Table,
    run: Found | None = None,
) -> Material:
    """Sounds in the order of their recordings, each with its name; recordings that cannot be heard are left out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    heard = pc.and_(
        pc.greater(pc.fill_null(recordings["duration_s"], 0.0), 0.0),
        pc.greater(pc.fill_null(recordings["sample_rate_hz"], 0), 0),
    )
    recordings = recordings.filter(heard)
    names = pc.cast(sounds["recording_id"], "string")
    at = pc.fill_null(pc.index_in(names, recordings["recording_id"].combine_chunks()), -1).to_numpy()
    order = np.lexsort((sounds["start_s"].to_numpy(), at))
    order = order[np.searchsorted(at[order], 0) :]  # without sounds of recordings that are left out
    sounds = with_names(sounds.take(pa.array(order)))
    edges = np.searchsorted(at[order], np.arange(len(recordings) + 1))
    stretches = np.stack([edges[:-1], edges[1:]], axis=1)
    queues: dict[str, Queue] = {"in order": in_order} if run is None else queues_of(run)
    return Material(name, named, roots, recordings, sounds, stretches, run, queues)
