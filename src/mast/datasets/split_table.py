"""Write and read the table of splits: one row and one split for every chunk of a study's recordings.

Recordings are streamed and chunks are arrays, so memory use depends on the number of annotations, not on the size of
the archive.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from mast.audio.reader import chunk_and_hop, chunk_counts, resampled_length
from mast.audio.spectrogram import MelGrid, chunk_frames
from mast.config import Splits, Study, collection_of, flatten, validate
from mast.datasets.chunk_boxes import boxes_in_chunks
from mast.datasets.splits import (
    FIRST_HELD_OUT_CODE,
    GUARD,
    IN_DOMAIN,
    IN_DOMAIN_SPLITS,
    UNLABELLED,
    AssignedSpans,
    HeldOutRule,
    ReviewedRecording,
    SplitPlan,
    assign_domain,
    held_out_rules,
    intersects_and_within,
    merge_spans,
    plan_blocks,
    reviewed_spans,
    split_names,
)
from mast.errors import ConfigError, StorageError
from mast.recordings.scan import PROVENANCE
from mast.records import Kind, SplitChunk, arrow_schema
from mast.storage import atomic_write, exists, join, open_binary
from mast.study.artifacts import ARTIFACTS
from mast.types import Floats, Integers, Mask
from mast.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

SPLITS_TABLE = "splits.parquet"
RECORDINGS_AT_ONCE = 4096
CHUNKS_AT_ONCE = 1 << 17

CLOCK_FAULTS = {"clock-reset", "clock-in-future", "no-start-time"}
COLUMNS = [
    "recording_id", "collection", "path", "status", "faults", "sample_rate_hz", "frames", "start_utc",
    "start_local", "site", "duplicate_of",
]  # fmt: skip

UNTIMED = "recording without a trusted clock: date rules do not apply to it"
LOST_BOXES = "box of an excluded recording"
AMBIGUOUS = "chunk set to guard: it contains an ignored sound, or an animal box without frequencies"


@dataclass(frozen=True, slots=True)
class UsableRecording:
    """The properties of a usable recording that decide its split. Untrusted clock times are None."""

    recording_id: str
    site: str | None
    domain: str
    start_utc: datetime | None
    start_local: datetime | None
    samples: int
    time_expansion: float
    sample_rate_hz: int

    @property
    def duration_s(self) -> float:
        """Duration in real time, before time expansion."""
        return self.samples / self.sample_rate_hz / self.time_expansion


@dataclass(slots=True)
class ExclusionCounts:
    """Number of excluded recordings and boxes by reason, and of remarks, counted while the table is written."""

    excluded: Counter[str] = field(default_factory=Counter)
    excluded_boxes: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)


def write_splits(study: Study) -> str:
    """Assign every chunk to a split, based on the tables of `mast scan`; return the location of the new table.

    If a table made with the same settings exists, annotated time keeps its split.
    """
    import pyarrow.parquet as pq

    reviewed = reviewed_by_recording(study)
    boxes = boxes_by_recording(study, "animal")
    plan = plan_blocks(_reviewed_recordings(study, reviewed), study.splits, _assigned_spans(study))
    writer_of = ChunkWriter(study, plan, reviewed, boxes, boxes_by_recording(study, "ignored"))
    exclusions, location = ExclusionCounts(), join(study.work_dir, SPLITS_TABLE)
    schema = arrow_schema(SplitChunk)
    with atomic_write(location) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for recordings in _group_batches(_usable_recordings(study, exclusions), study):
            writer.write_table(writer_of.table(recordings, exclusions))
        exclusions.excluded_boxes[LOST_BOXES] += writer_of.count_excluded_boxes()
        writer.add_key_value_metadata({PROVENANCE: _metadata(study, plan, exclusions)})
    return location


def _reviewed_recordings(study: Study, reviewed: Mapping[str, Floats]) -> Iterator[ReviewedRecording]:
    """Yield the usable recordings that have a reviewed span."""
    for recording in _usable_recordings(study, ExclusionCounts()):
        if recording.recording_id in reviewed:
            spans = reviewed_spans(reviewed[recording.recording_id], recording.duration_s)
            if len(spans):
                yield ReviewedRecording(
                    recording.recording_id,
                    recording.site,
                    recording.start_local,
                    recording.duration_s,
                    spans,
                    recording.domain,
                )


def _assigned_spans(study: Study) -> dict[str, AssignedSpans]:
    """Return the assigned spans of each recording in the existing table; empty if its settings differ."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    location = join(study.work_dir, SPLITS_TABLE)
    if not exists(location):
        return {}
    columns, shared = ["recording_id", "start_s", "audio_s", "split"], pa.array(IN_DOMAIN_SPLITS)
    with open_binary(location) as file:
        previous = pq.ParquetFile(file)
        if not _matches_previous(study.splits, split_metadata(previous)["splits"]):
            return {}
        batches = [
            batch.filter(pc.is_in(batch["split"], shared))
            for batch in previous.iter_batches(CHUNKS_AT_ONCE, columns=columns)
        ]
    table = pa.Table.from_batches(
        batches, pa.schema([arrow_schema(SplitChunk).field(name) for name in columns])
    )
    codes = pc.index_in(table["split"], shared)
    numbers = {
        "start_s": table["start_s"],
        "end_s": pc.add(table["start_s"], table["audio_s"]),
        "split": codes,
    }
    rows = _by_recording(pa.table({"recording_id": table["recording_id"], **numbers}), tuple(numbers))
    return {
        name: AssignedSpans(values[:, :2] / _expansion(study, name), values[:, 2].astype(np.int64))
        for name, values in rows.items()
    }


def _matches_previous(splits: Splits, previous: Mapping[str, Any]) -> bool:
    """Return True if the table was made with the same settings; a setting it lacks had its default value."""
    try:
        return validate(Splits, previous, SPLITS_TABLE) == splits
    except ConfigError:  # written by a version with other settings
        return False


def _expansion(study: Study, recording_id: str) -> float:
    """Return the time expansion of a recording's collection, 1 if the study no longer has the collection."""
    try:
        return study.collections[collection_of(recording_id, study.collections)].time_expansion
    except ConfigError:
        return 1.0


def _usable_recordings(study: Study, exclusions: ExclusionCounts) -> Iterator[UsableRecording]:
    """Yield the usable recordings; count the excluded ones by reason."""
    import pyarrow.parquet as pq

    rules = held_out_rules(study.splits)
    with open_binary(require_artifact(study, "recordings.parquet")) as file:
        for batch in pq.ParquetFile(file).iter_batches(RECORDINGS_AT_ONCE, columns=COLUMNS):
            for row in batch.to_pylist():
                reason = _exclusion_reason(row, study)
                if reason:
                    exclusions.excluded[reason] += 1
                else:
                    recording = _usable_recording(row, study, rules)
                    exclusions.remarks[UNTIMED] += recording.start_local is None
                    yield recording


def _exclusion_reason(row: Mapping[str, Any], study: Study) -> str | None:
    if row["status"] == "quarantined":
        return "quarantined"
    if row["duplicate_of"] is not None:
        return "duplicate of another recording"
    if row["collection"] not in study.collections:
        return "in a collection that the study no longer has: run mast scan again"
    if not row["frames"] or not row["sample_rate_hz"]:
        return "of unknown length"
    return None


def _usable_recording(
    row: Mapping[str, Any], study: Study, rules: tuple[HeldOutRule, ...]
) -> UsableRecording:
    trusted = not CLOCK_FAULTS.intersection(row["faults"])
    local = row["start_local"] if trusted else None
    factor = study.collections[row["collection"]].time_expansion
    rate_hz = study.chunking.sample_rate_hz
    return UsableRecording(
        recording_id=row["recording_id"],
        site=row["site"],
        domain=assign_domain(rules, row["path"], row["site"], local.date() if local else None),
        start_utc=row["start_utc"] if trusted else None,
        start_local=local,
        samples=resampled_length(row["frames"], row["sample_rate_hz"], rate_hz, factor),
        time_expansion=factor,
        sample_rate_hz=rate_hz,
    )


def _group_batches(recordings: Iterable[UsableRecording], study: Study) -> Iterator[list[UsableRecording]]:
    """Yield groups of recordings with about `CHUNKS_AT_ONCE` chunks each."""
    _, hop = chunk_and_hop(study.chunking)
    group: list[UsableRecording] = []
    chunks = 0
    for recording in recordings:
        group.append(recording)
        chunks += recording.samples // hop
        if chunks >= CHUNKS_AT_ONCE:
            yield group
            group, chunks = [], 0
    if group:
        yield group


@dataclass(frozen=True, slots=True)
class ChunkWriter:
    """Convert recordings to rows of the table. `boxes` loses the entry of every recording that was converted."""

    study: Study
    plan: SplitPlan
    reviewed: Mapping[str, Floats]
    boxes: dict[str, Floats]
    ignored: Mapping[str, Floats]

    def count_excluded_boxes(self) -> int:
        """Return the number of boxes whose recordings were not converted."""
        return sum(map(len, self.boxes.values()))

    def table(self, recordings: list[UsableRecording], exclusions: ExclusionCounts) -> pa.Table:
        """Return the chunks of recordings as rows of `SplitChunk`."""
        chunk, hop = chunk_and_hop(self.study.chunking)
        samples = np.array([recording.samples for recording in recordings])
        counts = chunk_counts(samples, self.study.chunking)
        exclusions.excluded["too short for a chunk"] += int((counts == 0).sum())
        ends = np.cumsum(counts)
        row = np.repeat(np.arange(len(recordings)), counts)
        index = np.arange(len(row)) - (ends - counts)[row]
        rate_hz = self.study.chunking.sample_rate_hz
        start_s = index * hop / rate_hz
        audio_s = np.minimum(chunk, samples[row] - index * hop) / rate_hz
        split = np.full(len(row), UNLABELLED)
        boxes = np.zeros(len(row), np.int64)
        for recording, end, count in zip(recordings, ends, counts, strict=True):
            rows = slice(end - count, end)
            if recording.recording_id in self.reviewed:
                split[rows] = self._split_codes(recording, start_s[rows], audio_s[rows], exclusions)
            if recording.recording_id in self.boxes:
                boxes[rows] = self._box_counts(recording, start_s[rows], audio_s[rows], exclusions)
        return self._arrow(recordings, row, (index, start_s, audio_s, split, boxes))

    def _split_codes(
        self, recording: UsableRecording, start_s: Floats, audio_s: Floats, exclusions: ExclusionCounts
    ) -> Integers:
        """Return split codes of a reviewed recording's chunks. (n,) → (n,)

        Partly reviewed and ambiguous chunks are guard.
        """
        begin_s, end_s = start_s / recording.time_expansion, (start_s + audio_s) / recording.time_expansion
        spans = reviewed_spans(self.reviewed[recording.recording_id], recording.duration_s)
        touched, within = intersects_and_within(spans, begin_s, end_s)
        codes = np.where(touched, GUARD, UNLABELLED)
        if recording.domain != IN_DOMAIN:
            codes[within] = FIRST_HELD_OUT_CODE + list(self.study.splits.held_out).index(recording.domain)
        elif within.any():
            offset_s = self.plan.positions_s[recording.recording_id]
            blocks = self.plan.blocks[recording.site]
            codes[within] = blocks.split_at(begin_s[within] + offset_s, end_s[within] + offset_s)
        ambiguous = within & (codes != GUARD) & self._is_ambiguous(recording.recording_id, begin_s, end_s)
        exclusions.remarks[AMBIGUOUS] += int(ambiguous.sum())
        codes[ambiguous] = GUARD
        return codes

    def _is_ambiguous(self, recording_id: str, begin_s: Floats, end_s: Floats) -> Mask:
        """Return a mask of the spans with a sound that is neither a target box nor background. (n,) → (n,)"""
        no_boxes = np.zeros((0, 4))
        animals = self.boxes.get(recording_id, no_boxes)
        without_frequencies = animals[np.isnan(animals).any(axis=1)]
        unclear = np.concatenate([self.ignored.get(recording_id, no_boxes), without_frequencies])
        return intersects_and_within(merge_spans(unclear[:, 0::2]), begin_s, end_s)[0]

    def _box_counts(
        self, recording: UsableRecording, start_s: Floats, audio_s: Floats, exclusions: ExclusionCounts
    ) -> Integers:
        settings = self.study.spectrogram
        grid = MelGrid(settings, chunk_frames(self.study.chunking.chunk_s, settings))
        events = self.boxes.pop(recording.recording_id)
        clipped = boxes_in_chunks(events, start_s, audio_s, grid, recording.time_expansion)
        exclusions.excluded_boxes += clipped.dropped
        return np.bincount(clipped.chunk, minlength=len(start_s))

    def _arrow(self, recordings: list[UsableRecording], row: Integers, columns: tuple[Any, ...]) -> pa.Table:
        import pyarrow as pa

        index, start_s, audio_s, split, boxes = columns
        factor = np.array([recording.time_expansion for recording in recordings])
        since_us = np.rint(start_s / factor[row] * 1e6).astype(np.int64)
        names = pa.array(split_names(self.study.splits))
        values = {
            "recording_id": pa.array([recording.recording_id for recording in recordings], pa.string()).take(
                row
            ),
            "index": index,
            "start_s": start_s,
            "audio_s": audio_s,
            "split": names.take(pa.array(split)),
            "domain": pa.array([recording.domain for recording in recordings], pa.string()).take(row),
            "site": pa.array([recording.site for recording in recordings], pa.string()).take(row),
            "start_utc": _clock([recording.start_utc for recording in recordings], row, since_us),
            "start_local": _clock([recording.start_local for recording in recordings], row, since_us),
            "boxes": boxes,
        }
        schema = arrow_schema(SplitChunk)
        arrays = [pa.array(values[column.name]).cast(column.type) for column in schema]
        return pa.table(arrays, schema=schema)


def _clock(starts: list[datetime | None], row: Integers, since_us: Integers) -> pa.Array:
    """Return clock times of chunks in microseconds, given the start times of their recordings."""
    import pyarrow as pa

    has_clock = np.array([start is not None for start in starts], bool)
    begin_us = pa.array(starts, pa.timestamp("us", tz="UTC")).cast(pa.int64()).fill_null(0).to_numpy()
    times = pa.array(begin_us[row] + since_us, mask=~has_clock[row])
    return times.cast(pa.timestamp("us"))


def require_artifact(study: Study, name: str) -> str:
    """Return the location of an artifact of the study; if it is missing, raise StorageError with the command."""
    location = join(study.work_dir, name)
    if not exists(location):
        command = next((artifact.command for artifact in ARTIFACTS if artifact.name == name), "scan")
        raise StorageError(f"{location} is not there yet. Make it with mast {command} study.yaml.")
    return location


def reviewed_by_recording(study: Study) -> dict[str, Floats]:
    """Return the reviewed spans by recording: start_s, end_s; NaN stands for the recording's end. (n, 2) each"""
    return _by_recording(_annotation_table(study, "reviewed.parquet"), ("start_s", "end_s"))


def boxes_by_recording(study: Study, kind: Kind) -> dict[str, Floats]:
    """Return annotations of one kind: start_s, low_hz, end_s, high_hz, NaN for unknown frequencies. (n, 4) each"""
    import pyarrow.compute as pc

    table = _annotation_table(study, "annotations.parquet")
    chosen = table and table.filter(pc.equal(table["kind"], kind))
    return _by_recording(chosen, ("start_s", "low_hz", "end_s", "high_hz"))


def _annotation_table(study: Study, name: str) -> pa.Table | None:
    import pyarrow.parquet as pq

    location = join(study.work_dir, name)
    if not exists(location):
        return None
    with open_binary(location) as file:
        return pq.read_table(file)


def _by_recording(table: pa.Table | None, columns: tuple[str, ...]) -> dict[str, Floats]:
    """Return columns of numbers by recording, NaN for unknown values. (n, columns) each"""
    if not table:
        return {}
    table = table.sort_by([(column, "ascending") for column in ("recording_id", *columns)])
    values = np.stack([table[column].to_numpy() for column in columns], axis=1)
    ids = table["recording_id"].to_numpy()
    first = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    return dict(zip(ids[first], np.split(values, first[1:]), strict=True))


def split_metadata(table: pq.ParquetFile) -> dict[str, Any]:
    """Return the metadata of a table of splits: settings, counts and creation time."""
    metadata: dict[str, Any] = json.loads(table.metadata.metadata[PROVENANCE])
    return metadata


def check_chunking(study: Study) -> None:
    """Raise ConfigError if the table's chunks were made with other settings; older tables do not record them."""
    import pyarrow.parquet as pq

    location = require_artifact(study, SPLITS_TABLE)
    with open_binary(location) as file:
        previous, current = (
            flatten(split_metadata(pq.ParquetFile(file)).get("cut", {})),
            flatten(_chunk_settings(study)),
        )
    changed = [
        f"{name} was {previous[name]}, is now {current[name]}"
        for name in current
        if name in previous and previous[name] != current[name]
    ]
    if changed:
        raise ConfigError(
            f"{location}: its chunks were made with other settings ({'; '.join(changed)}). Run mast split again."
        )


def _chunk_settings(study: Study) -> dict[str, Any]:
    """Return the settings that define the chunks, as in a study file."""
    collections = {
        name: {"time_expansion": collection.time_expansion} for name, collection in study.collections.items()
    }
    return {"chunking": study.chunking.model_dump(mode="json"), "collections": collections}


def _metadata(study: Study, plan: SplitPlan, exclusions: ExclusionCounts) -> str:
    metadata = {
        "mast_version": __version__,
        "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "splits": study.splits.model_dump(mode="json"),
        "cut": _chunk_settings(study),
        "blocks": plan.block_count(),
        "kept_blocks": plan.previous_blocks,
        "excluded": dict(+exclusions.excluded),
        "excluded_boxes": dict(+exclusions.excluded_boxes),
        "remarks": dict(+exclusions.remarks),
    }
    return json.dumps(metadata, ensure_ascii=False)
