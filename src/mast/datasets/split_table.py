"""The table of splits: every chunk of a study's recordings once, with what it is for.

Recordings are streamed and chunks are arrays, so memory follows the expert's work, not the archive.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from mast import __version__
from mast.config import Splits, Study, checked, collection_of, dotted
from mast.datasets.chunk_boxes import Floats, boxes_in_chunks
from mast.datasets.splits import (
    FIRST_HELD_OUT,
    GUARD,
    IN_DOMAIN,
    SHARED,
    UNLABELLED,
    Dealt,
    Integers,
    Labelled,
    Mask,
    Plan,
    Rule,
    held_out_rules,
    merged,
    plan_blocks,
    pool_of,
    reaches,
    reviewed_spans,
    split_names,
)
from mast.errors import ConfigError, StorageError
from mast.events import Kind, SplitChunk, arrow_schema
from mast.recordings.decode import chunk_and_hop, chunk_counts, heard_samples
from mast.recordings.scan import PROVENANCE
from mast.spectrogram import MelGrid, frames_of
from mast.storage import exists, join, open_binary, written_whole
from mast.study.products import PRODUCTS

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

UNTIMED = "recording without a trusted clock: no rule about dates fits it"
LOST_BOXES = "box of a recording that is left out"
UNCLEAR = "chunk set aside: in it is an ignored sound, or an animal without frequencies"


@dataclass(frozen=True, slots=True)
class Sound:
    """A usable recording: what of it matters for splits. Clocks that cannot be trusted are None."""

    recording_id: str
    site: str | None
    pool: str
    start_utc: datetime | None
    start_local: datetime | None
    samples: int
    time_expansion: float
    sample_rate_hz: int

    @property
    def duration_s(self) -> float:
        """Length by the clock."""
        return self.samples / self.sample_rate_hz / self.time_expansion


@dataclass(slots=True)
class Account:
    """What was left out and why, as the table is written."""

    left_out: Counter[str] = field(default_factory=Counter)
    boxes_left_out: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)


def write_splits(study: Study) -> str:
    """Decide what every chunk is for, from the tables of `mast scan`; returns where the new table is.

    Where a table by the same settings is there already, labelled sound stays what it is for.
    """
    import pyarrow.parquet as pq

    reviewed = reviewed_by_recording(study)
    boxes = boxes_by_recording(study, "animal")
    plan = plan_blocks(_labelled(study, reviewed), study.splits, _dealt(study))
    writer_of = ChunkWriter(study, plan, reviewed, boxes, boxes_by_recording(study, "ignored"))
    account, location = Account(), join(study.work, SPLITS_TABLE)
    schema = arrow_schema(SplitChunk)
    with written_whole(location) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for sounds in _gathered(_sounds(study, account), study):
            writer.write_table(writer_of.table(sounds, account))
        account.boxes_left_out[LOST_BOXES] += writer_of.boxes_left()
        writer.add_key_value_metadata({PROVENANCE: _story(study, plan, account)})
    return location


def _labelled(study: Study, reviewed: Mapping[str, Floats]) -> Iterator[Labelled]:
    """Recordings of which anything was reviewed."""
    for sound in _sounds(study, Account()):
        if sound.recording_id in reviewed:
            spans = reviewed_spans(reviewed[sound.recording_id], sound.duration_s)
            if len(spans):
                yield Labelled(
                    sound.recording_id, sound.site, sound.start_local, sound.duration_s, spans, sound.pool
                )


def _dealt(study: Study) -> dict[str, Dealt]:
    """What of each recording the table that is there shares out, if it was made by the same settings; or nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    location = join(study.work, SPLITS_TABLE)
    if not exists(location):
        return {}
    columns, shared = ["recording_id", "start_s", "filled_s", "split"], pa.array(SHARED)
    with open_binary(location) as file:
        before = pq.ParquetFile(file)
        if not _as_before(study.splits, story_of(before)["splits"]):
            return {}
        lots = [
            lot.filter(pc.is_in(lot["split"], shared))
            for lot in before.iter_batches(CHUNKS_AT_ONCE, columns=columns)
        ]
    table = pa.Table.from_batches(lots, pa.schema([arrow_schema(SplitChunk).field(name) for name in columns]))
    codes = pc.index_in(table["split"], shared)
    numbers = {
        "start_s": table["start_s"],
        "end_s": pc.add(table["start_s"], table["filled_s"]),
        "split": codes,
    }
    rows = _by_recording(pa.table({"recording_id": table["recording_id"], **numbers}), tuple(numbers))
    return {
        name: Dealt(own[:, :2] / _expansion(study, name), own[:, 2].astype(np.int64))
        for name, own in rows.items()
    }


def _as_before(splits: Splits, then: Mapping[str, Any]) -> bool:
    """Whether a table was made by the same settings; one that is newer than the table had its default then."""
    try:
        return checked(Splits, then, SPLITS_TABLE) == splits
    except ConfigError:  # of a version with other settings
        return False


def _expansion(study: Study, recording_id: str) -> float:
    """Time expansion of a recording's collection, 1 where the study no longer has it."""
    try:
        return study.collections[collection_of(recording_id, study.collections)].time_expansion
    except ConfigError:
        return 1.0


def _sounds(study: Study, account: Account) -> Iterator[Sound]:
    """Usable recordings, streamed; the others are counted by reason."""
    import pyarrow.parquet as pq

    rules = held_out_rules(study.splits)
    with open_binary(existing(study, "recordings.parquet")) as file:
        for batch in pq.ParquetFile(file).iter_batches(RECORDINGS_AT_ONCE, columns=COLUMNS):
            for row in batch.to_pylist():
                reason = _unusable(row, study)
                if reason:
                    account.left_out[reason] += 1
                else:
                    sound = _sound(row, study, rules)
                    account.remarks[UNTIMED] += sound.start_local is None
                    yield sound


def _unusable(row: Mapping[str, Any], study: Study) -> str | None:
    if row["status"] == "quarantined":
        return "quarantined"
    if row["duplicate_of"] is not None:
        return "duplicate of another recording"
    if row["collection"] not in study.collections:
        return "of a collection that the study no longer names: scan again"
    if not row["frames"] or not row["sample_rate_hz"]:
        return "of unknown length"
    return None


def _sound(row: Mapping[str, Any], study: Study, rules: tuple[Rule, ...]) -> Sound:
    trusted = not CLOCK_FAULTS.intersection(row["faults"])
    local = row["start_local"] if trusted else None
    factor = study.collections[row["collection"]].time_expansion
    rate_hz = study.chunking.sample_rate_hz
    return Sound(
        recording_id=row["recording_id"],
        site=row["site"],
        pool=pool_of(rules, row["path"], row["site"], local.date() if local else None),
        start_utc=row["start_utc"] if trusted else None,
        start_local=local,
        samples=heard_samples(row["frames"], row["sample_rate_hz"], rate_hz, factor),
        time_expansion=factor,
        sample_rate_hz=rate_hz,
    )


def _gathered(sounds: Iterable[Sound], study: Study) -> Iterator[list[Sound]]:
    """Recordings in lots of about `CHUNKS_AT_ONCE` chunks."""
    _, hop = chunk_and_hop(study.chunking)
    lot: list[Sound] = []
    chunks = 0
    for sound in sounds:
        lot.append(sound)
        chunks += sound.samples // hop
        if chunks >= CHUNKS_AT_ONCE:
            yield lot
            lot, chunks = [], 0
    if lot:
        yield lot


@dataclass(frozen=True, slots=True)
class ChunkWriter:
    """Turns recordings into rows of the table; boxes are taken out as their recordings come by."""

    study: Study
    plan: Plan
    reviewed: Mapping[str, Floats]
    boxes: dict[str, Floats]
    ignored: Mapping[str, Floats]

    def boxes_left(self) -> int:
        """Boxes whose recordings did not come by."""
        return sum(map(len, self.boxes.values()))

    def table(self, sounds: list[Sound], account: Account) -> pa.Table:
        """Chunks of some recordings as rows of `SplitChunk`."""
        chunk, hop = chunk_and_hop(self.study.chunking)
        samples = np.array([sound.samples for sound in sounds])
        counts = chunk_counts(samples, self.study.chunking)
        account.left_out["too short for a chunk"] += int((counts == 0).sum())
        ends = np.cumsum(counts)
        row = np.repeat(np.arange(len(sounds)), counts)
        index = np.arange(len(row)) - (ends - counts)[row]
        rate_hz = self.study.chunking.sample_rate_hz
        start_s = index * hop / rate_hz
        filled_s = np.minimum(chunk, samples[row] - index * hop) / rate_hz
        split = np.full(len(row), UNLABELLED)
        boxes = np.zeros(len(row), np.int64)
        for sound, end, count in zip(sounds, ends, counts, strict=True):
            here = slice(end - count, end)
            if sound.recording_id in self.reviewed:
                split[here] = self._splits(sound, start_s[here], filled_s[here], account)
            if sound.recording_id in self.boxes:
                boxes[here] = self._box_counts(sound, start_s[here], filled_s[here], account)
        return self._arrow(sounds, row, (index, start_s, filled_s, split, boxes))

    def _splits(self, sound: Sound, start_s: Floats, filled_s: Floats, account: Account) -> Integers:
        """Codes of a reviewed recording's chunks: looked at in part only, or unclear, they are guard. (n,) → (n,)"""
        begin_s, end_s = start_s / sound.time_expansion, (start_s + filled_s) / sound.time_expansion
        spans = reviewed_spans(self.reviewed[sound.recording_id], sound.duration_s)
        touched, whole = reaches(spans, begin_s, end_s)
        codes = np.where(touched, GUARD, UNLABELLED)
        if sound.pool != IN_DOMAIN:
            codes[whole] = FIRST_HELD_OUT + list(self.study.splits.held_out).index(sound.pool)
        elif whole.any():
            at_s = self.plan.positions_s[sound.recording_id]
            blocks = self.plan.blocks[sound.site]
            codes[whole] = blocks.split_at(begin_s[whole] + at_s, end_s[whole] + at_s)
        set_aside = whole & (codes != GUARD) & self._unclear(sound.recording_id, begin_s, end_s)
        account.remarks[UNCLEAR] += int(set_aside.sum())
        codes[set_aside] = GUARD
        return codes

    def _unclear(self, recording_id: str, begin_s: Floats, end_s: Floats) -> Mask:
        """Which stretches have a sound that is neither a box to learn nor background. (n,) → (n,)"""
        none = np.zeros((0, 4))
        animals = self.boxes.get(recording_id, none)
        without_frequencies = animals[np.isnan(animals).any(axis=1)]
        sounds = np.concatenate([self.ignored.get(recording_id, none), without_frequencies])
        return reaches(merged(sounds[:, 0::2]), begin_s, end_s)[0]

    def _box_counts(self, sound: Sound, start_s: Floats, filled_s: Floats, account: Account) -> Integers:
        settings = self.study.spectrogram
        grid = MelGrid(settings, frames_of(self.study.chunking.chunk_s, settings))
        events = self.boxes.pop(sound.recording_id)
        found = boxes_in_chunks(events, start_s, filled_s, grid, sound.time_expansion)
        account.boxes_left_out += found.dropped
        return np.bincount(found.chunk, minlength=len(start_s))

    def _arrow(self, sounds: list[Sound], row: Integers, columns: tuple[Any, ...]) -> pa.Table:
        import pyarrow as pa

        index, start_s, filled_s, split, boxes = columns
        factor = np.array([sound.time_expansion for sound in sounds])
        since_us = np.rint(start_s / factor[row] * 1e6).astype(np.int64)
        names = pa.array(split_names(self.study.splits))
        values = {
            "recording_id": pa.array([sound.recording_id for sound in sounds], pa.string()).take(row),
            "index": index,
            "start_s": start_s,
            "filled_s": filled_s,
            "split": names.take(pa.array(split)),
            "pool": pa.array([sound.pool for sound in sounds], pa.string()).take(row),
            "site": pa.array([sound.site for sound in sounds], pa.string()).take(row),
            "start_utc": _clock([sound.start_utc for sound in sounds], row, since_us),
            "start_local": _clock([sound.start_local for sound in sounds], row, since_us),
            "boxes": boxes,
        }
        schema = arrow_schema(SplitChunk)
        arrays = [pa.array(values[item.name]).cast(item.type) for item in schema]
        return pa.table(arrays, schema=schema)


def _clock(starts: list[datetime | None], row: Integers, since_us: Integers) -> pa.Array:
    """Clock times of chunks in microseconds, from those of their recordings."""
    import pyarrow as pa

    known = np.array([start is not None for start in starts], bool)
    begin_us = pa.array(starts, pa.timestamp("us", tz="UTC")).cast(pa.int64()).fill_null(0).to_numpy()
    times = pa.array(begin_us[row] + since_us, mask=~known[row])
    return times.cast(pa.timestamp("us"))


def existing(study: Study, name: str) -> str:
    """Where a product of the study is, or how to make it."""
    location = join(study.work, name)
    if not exists(location):
        verb = next((item.verb for item in PRODUCTS if item.name == name), "scan")
        raise StorageError(f"{location} is not there yet. Make it with mast {verb} study.yaml.")
    return location


def reviewed_by_recording(study: Study) -> dict[str, Floats]:
    """Reviewed spans of every recording that has any: start_s, end_s, NaN at its recording's end. (n, 2) each"""
    return _by_recording(_expert_table(study, "reviewed.parquet"), ("start_s", "end_s"))


def boxes_by_recording(study: Study, kind: Kind) -> dict[str, Floats]:
    """Experts' boxes of one kind: start_s, low_hz, end_s, high_hz, NaN where a frequency is unknown. (n, 4) each"""
    import pyarrow.compute as pc

    table = _expert_table(study, "annotations.parquet")
    chosen = table and table.filter(pc.equal(table["kind"], kind))
    return _by_recording(chosen, ("start_s", "low_hz", "end_s", "high_hz"))


def _expert_table(study: Study, name: str) -> pa.Table | None:
    import pyarrow.parquet as pq

    location = join(study.work, name)
    if not exists(location):
        return None
    with open_binary(location) as file:
        return pq.read_table(file)


def _by_recording(table: pa.Table | None, columns: tuple[str, ...]) -> dict[str, Floats]:
    """Numbers of a table by recording, NaN where they are unknown. (n, columns) each"""
    if not table:
        return {}
    table = table.sort_by([(column, "ascending") for column in ("recording_id", *columns)])
    values = np.stack([table[column].to_numpy() for column in columns], axis=1)
    ids = table["recording_id"].to_numpy()
    first = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    return dict(zip(ids[first], np.split(values, first[1:]), strict=True))


def story_of(table: pq.ParquetFile) -> dict[str, Any]:
    """How a table of splits came about."""
    story: dict[str, Any] = json.loads(table.metadata.metadata[PROVENANCE])
    return story


def check_cut(study: Study) -> None:
    """Refuse a table whose chunks were cut otherwise than the study says now; older tables do not tell."""
    import pyarrow.parquet as pq

    location = existing(study, SPLITS_TABLE)
    with open_binary(location) as file:
        then, now = dotted(story_of(pq.ParquetFile(file)).get("cut", {})), dotted(_cut(study))
    changed = [
        f"{name} was {then[name]}, is now {now[name]}"
        for name in now
        if name in then and then[name] != now[name]
    ]
    if changed:
        raise ConfigError(
            f"{location}: its chunks were cut otherwise ({'; '.join(changed)}). Run mast splits again."
        )


def _cut(study: Study) -> dict[str, Any]:
    """The settings by which recordings are cut, as a study file has them."""
    own = {name: {"time_expansion": item.time_expansion} for name, item in study.collections.items()}
    return {"chunking": study.chunking.model_dump(mode="json"), "collections": own}


def _story(study: Study, plan: Plan, account: Account) -> str:
    story = {
        "mast_version": __version__,
        "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "splits": study.splits.model_dump(mode="json"),
        "cut": _cut(study),
        "blocks": plan.block_count(),
        "kept_blocks": plan.kept,
        "left_out": dict(+account.left_out),
        "boxes_left_out": dict(+account.boxes_left_out),
        "remarks": dict(+account.remarks),
    }
    return json.dumps(story, ensure_ascii=False)
