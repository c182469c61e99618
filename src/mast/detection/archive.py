"""A run over an archive: the folder of its events, what it was made with, and what of it is still to do.

The folder holds `run.json`, the table of recordings as it was when the run began, and a file of events and one of
status for every part. Everything follows from these: who comes later, on whatever machine, goes on where it was.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mast.detection.calibration import chunks_of, write_program
from mast.detection.folder import EVENTS, RECORDINGS, RUN, STATUS, VECTORS, part_number
from mast.detection.inputs import Given, count_recordings, table_of
from mast.detection.part_tables import Orders
from mast.detection.plan import Plan, plan_parts
from mast.detection.story import check_same, read_story, settings_of, story_of, write_story
from mast.errors import ConfigError, StorageError
from mast.models.detector import Detector
from mast.models.engines import QUANTISED, EngineName, best_engine, choose_engine, prepare_engine
from mast.models.loading import Loaded, load_detector
from mast.recordings.clocks import length
from mast.recordings.scan import OnProgress
from mast.storage import exists, is_remote, join, open_binary, remote, written_whole
from mast.study.products import fingerprint

_COPY_BYTES = 1 << 20
_STEADY = 0.95  # of the gaps between parts that were finished: the longest are nights when nobody worked


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` processes that share an archive, the `number`-th from 1; it does every `count`-th part."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """A shard from 3/10."""
        match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
        shard = cls(*map(int, match.groups())) if match else None
        if shard is None or not 1 <= shard.number <= shard.count:
            raise ConfigError(f"--shard {text}: write it as 3/10, the third of ten; the first is 1/10.")
        return shard

    def parts(self, plan: Plan) -> NDArray[np.int64]:
        """Numbers of the parts that are its own."""
        return np.arange(self.number - 1, len(plan), self.count)


WHOLE = Shard()

LONG_S = 24 * 3600.0
"""Sound from which on the fastest engine is worth its preparation, which takes about a minute."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The precision that was asked for, on `cpu` or `cuda`; `auto` goes on with that of a run that has begun.

    Where a run `embeds`, an engine that does not show the encoder's map is not chosen.
    """

    precision: str = "auto"
    kind: str = "cpu"
    embeds: bool = False

    def engine(self, sound_s: float = 0.0) -> EngineName:
        """The engine that a new run over so much sound gets; in a long one it pays to prepare the fastest."""
        is_long = self.precision == "auto" and sound_s >= LONG_S
        engine = choose_engine("fastest" if is_long else self.precision, self.kind)
        return best_engine(self.kind) if self.embeds and engine == "int8" else engine


AUTO = Asked()


@dataclass(frozen=True)
class Archive:
    """A run's folder, planned and ready; `notes` are what the user should know before it begins."""

    orders: Orders
    plan: Plan
    notes: tuple[str, ...] = ()

    @property
    def out(self) -> str:
        """Where everything is."""
        return self.orders.out

    def done(self) -> NDArray[np.bool_]:
        """Which parts are done. → (P,)"""
        done = np.zeros(len(self.plan), np.bool_)
        numbers = [number for number, _ in _finished(self.out)]
        done[[number for number in numbers if number < len(done)]] = True
        return done

    def missing(self, shard: Shard = WHOLE) -> NDArray[np.int64]:
        """Numbers of the parts of a shard that are still to do."""
        own = shard.parts(self.plan)
        return own[~self.done()[own]]

    def summary(self, shard: Shard = WHOLE) -> str:
        """What there is to do, and roughly how long that takes, for a person to read."""
        plan, done = self.plan, self.done()
        own = shard.parts(plan)
        missing = own[~done[own]]
        lines = [
            f"{plan.recordings:,} recordings, {length(plan.seconds.sum())} of sound, in {len(plan):,} parts "
            f"of about {length(plan.part_s)} → {self.out}",
            f"Model {self.orders.identity}, sounds from a score of {self.orders.threshold:.3g}",
        ]
        if shard.count > 1:
            lines.append(f"Shard {shard.number} of {shard.count}: {len(own):,} parts")
        left = length(plan.seconds[missing].sum())
        lines.append(f"{len(own) - len(missing):,} parts done, {len(missing):,} to do ({left} of sound)")
        pace_s = _pace_s([finished_s for _, finished_s in _finished(self.out)])
        if pace_s is not None and len(missing):
            lines.append(f"At the pace so far that takes about {_duration(pace_s * int((~done).sum()))}")
        return "\n".join(lines)

    def tidy(self) -> None:
        """Delete what killed processes left half-written, once nothing is left to do."""
        if is_remote(self.out) or not self.done().all():
            return
        for folder in (Path(self.out), *(Path(self.out, name) for name in (EVENTS, VECTORS, STATUS))):
            for path in folder.glob(".*.partial"):
                with suppress(OSError):
                    path.unlink()


def open_archive(
    given: Given,
    model: str,
    out: str,
    min_score: float | None = None,
    on_progress: OnProgress = lambda stage, done, total: None,
    asked: Asked = AUTO,
) -> Archive:
    """A run into the folder `out`, begun or taken up again; another model or other settings are refused.

    Whether it embeds may differ from time to time: that changes nothing of what is found.
    """
    loaded = load_detector(model)
    settings = settings_of(loaded, given, min_score)
    if not (has_begun := read_story(out) is not None):
        _begin(given, model, out, settings, loaded, asked, on_progress)
    run, table = read_story(out) or {}, join(out, RECORDINGS)
    settings["engine"] = asked.engine() if asked.precision != "auto" else run["settings"].get("engine")
    check_same(out, run["settings"], settings)
    if not exists(table):
        raise StorageError(f"{table} is gone, and the run cannot go on without it. Put it back.")
    plan = _plan(table, given)
    orders = _orders(given, model, out, settings, loaded, plan)
    if orders.fingerprint != run["fingerprint"]:
        raise StorageError(
            f"{table} was changed since this run began. Put it back, or give another folder with --out."
        )
    counted = count_recordings(given, on_progress) if has_begun else plan.recordings
    return Archive(replace(orders, embeds=asked.embeds), plan, tuple(_notes(table, plan, counted)))


@contextmanager
def preview(
    given: Given,
    model: str,
    out: str,
    min_score: float | None = None,
    on_progress: OnProgress = lambda stage, done, total: None,
    asked: Asked = AUTO,
) -> Iterator[Archive]:
    """A run as it would be, or as it stands; nothing is written to its folder."""
    if read_story(out) is not None:
        yield open_archive(given, model, out, min_score, on_progress, asked)
        return
    loaded = load_detector(model)
    settings = settings_of(loaded, given, min_score)
    with table_of(given, on_progress) as table:
        plan = _plan(table, given)
        settings["engine"] = asked.engine(float(plan.seconds.sum()))
        yield Archive(_orders(given, model, out, settings, loaded, plan), plan)


def _begin(
    given: Given,
    model: str,
    out: str,
    settings: dict[str, Any],
    loaded: Loaded[Detector],
    asked: Asked,
    on_progress: OnProgress,
) -> None:
    """Write the table of recordings and then `run.json`; not if another shard was faster: its table is for all."""
    with table_of(given, on_progress) as table:
        plan = _plan(table, given)
        settings["engine"] = asked.engine(float(plan.seconds.sum()))
        orders = _orders(given, model, out, settings, loaded, plan)
        story = story_of(given, settings, orders, loaded, plan)
        if exists(join(out, RUN)):
            return
        if orders.engine in QUANTISED:
            chunking = loaded.description.chunking
            chunks = chunks_of(table, plan.recordings, orders.roots, orders.expansions, chunking)
            program = prepare_engine(orders.engine, loaded, *chunks)
            if exists(join(out, RUN)):  # it has taken a while
                return
            write_program(out, program)
        with open_binary(table) as source, written_whole(join(out, RECORDINGS)) as target:
            shutil.copyfileobj(source, target, _COPY_BYTES)
    write_story(out, story)


def _orders(
    given: Given, model: str, out: str, settings: dict[str, Any], loaded: Loaded[Detector], plan: Plan
) -> Orders:
    location = model if "://" in model else str(Path(model).absolute())
    folder = out if is_remote(out) else str(Path(out).absolute())
    return Orders(
        out=folder,
        model=location,
        identity=loaded.description.identity,
        fingerprint=fingerprint([json.dumps(settings, sort_keys=True).encode(), plan.identity.encode()]),
        roots={name: item.root for name, item in given.collections.items()},
        expansions=_expansions(given),
        detection=settings["detection"],
        threshold=settings["threshold"],
        hop_s=settings["hop_s"],
        engine=settings["engine"],
    )


def _expansions(given: Given) -> dict[str, float]:
    return {name: item.time_expansion for name, item in given.collections.items()}


def _plan(table: str, given: Given) -> Plan:
    return plan_parts(table, _expansions(given))


def _notes(table: str, plan: Plan, counted: int) -> Iterator[str]:
    """What the user should know about the recordings, `counted` of which there are now."""
    if counted != plan.recordings:
        yield (
            f"This run is about the {plan.recordings:,} recordings that were there when it began; now there are "
            f"{counted:,}. For those that came later, name them and another folder with --out."
        )
    if copies := _count_copies(table):
        yield (
            f"{copies:,} recordings are copies of others, and their sounds count twice: the column duplicate_of of "
            f"{table} says which."
        )


def _count_copies(table: str) -> int:
    """Recordings with the same content as another, from the table's head alone; 0 where that does not tell."""
    import pyarrow.parquet as pq

    with open_binary(table) as file:
        head = pq.ParquetFile(file).metadata
    place = head.schema.names.index("duplicate_of")
    columns = [head.row_group(number).column(place) for number in range(head.num_row_groups)]
    return int(
        sum(column.num_values - column.statistics.null_count for column in columns if column.statistics)
    )


def _finished(out: str) -> list[tuple[int, float]]:
    """Number of every part that is done, and when it was, in seconds since 1970."""
    from pyarrow.fs import FileSelector, LocalFileSystem

    folder = join(out, STATUS)
    filesystem, key = remote(folder) if is_remote(folder) else (LocalFileSystem(), folder)
    found = filesystem.get_file_info(FileSelector(key, allow_not_found=True))
    numbered = [(part_number(info.base_name), info.mtime_ns) for info in found]
    return [(number, (when_ns or 0) / 1e9) for number, when_ns in numbered if number is not None]


def _pace_s(finished_s: list[float]) -> float | None:
    """Seconds from one finished part to the next, all workers together; None where too few tell."""
    gaps = np.sort(np.diff(np.sort(finished_s)))
    steady = gaps[: math.floor(len(gaps) * _STEADY)]
    return float(steady.mean()) if len(steady) else None


def _duration(seconds: float) -> str:
    """A length of time in words, no more exact than an estimate is."""
    for unit, length_s in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:,.0f} {unit}"
    return f"{seconds:,.0f} seconds"
