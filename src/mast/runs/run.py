"""Start, plan and resume a run of detection over an archive: its folder, its configuration and its missing parts.

The folder contains `run.json`, the table of recordings from the start of the run, and for every part a file of events
and a file of status. These files are the whole state of a run: any process on any machine can resume it.
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

from mast.errors import ConfigError, StorageError
from mast.models.detector import Detector
from mast.models.inference_engines import QUANTISED, EngineName, best_engine, choose_engine, prepare_engine
from mast.models.loading import LoadedModel, load_detector
from mast.models.location import absolute_location
from mast.recordings.clocks import format_duration
from mast.recordings.scan import OnProgress
from mast.runs.inputs import InputSpec, count_recordings, table_of
from mast.runs.layout import EVENTS, RECORDINGS, RUN, STATUS, VECTORS, part_number
from mast.runs.manifest import build_manifest, check_compatible, read_manifest, settings_of, write_manifest
from mast.runs.plan import PartPlan, plan_parts
from mast.runs.quantisation import calibration_chunks, write_program
from mast.runs.tables import RunConfig
from mast.storage import atomic_write, exists, is_remote, join, open_binary, resolve_remote
from mast.study.artifacts import fingerprint
from mast.wording import counted

_COPY_BYTES = 1 << 20
_STEADY_FRACTION = 0.95  # fraction of the gaps between finished parts; the longest gaps are pauses of the run


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard `number` (from 1) of `count`: it processes every `count`-th part of an archive."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse a shard such as 3/10."""
        match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
        shard = cls(*map(int, match.groups())) if match else None
        if shard is None or not 1 <= shard.number <= shard.count:
            raise ConfigError(f"--shard {text}: write it as 3/10, the third of ten; the first is 1/10.")
        return shard

    def parts(self, plan: PartPlan) -> NDArray[np.int64]:
        """Return the numbers of the shard's parts."""
        return np.arange(self.number - 1, len(plan), self.count)


ALL_SHARDS = Shard()

LONG_S = 24 * 3600.0
"""Minimum seconds of audio for which the fastest engine is worth its preparation, which takes about a minute."""


@dataclass(frozen=True, slots=True)
class PrecisionRequest:
    """Requested precision, on `cpu` or `cuda`; `auto` keeps the precision of a run that has started.

    With `embeds`, an engine that does not expose the encoder's features is not chosen.
    """

    precision: str = "auto"
    kind: str = "cpu"
    embeds: bool = False

    def engine(self, audio_s: float = 0.0) -> EngineName:
        """Choose the engine of a new run over `audio_s` seconds; a long run justifies preparing the fastest engine."""
        is_long = self.precision == "auto" and audio_s >= LONG_S
        engine = choose_engine("fastest" if is_long else self.precision, self.kind)
        return best_engine(self.kind) if self.embeds and engine == "int8" else engine


AUTO = PrecisionRequest()


@dataclass(frozen=True)
class DetectionRun:
    """Planned run with its folder; `notes` are messages for the user before it starts."""

    config: RunConfig
    plan: PartPlan
    notes: tuple[str, ...] = ()

    @property
    def out(self) -> str:
        """Folder of the run."""
        return self.config.out

    def done(self) -> NDArray[np.bool_]:
        """Return True for each part that is done. → (P,)"""
        done = np.zeros(len(self.plan), np.bool_)
        numbers = [number for number, _ in _finished_parts(self.out)]
        done[[number for number in numbers if number < len(done)]] = True
        return done

    def missing(self, shard: Shard = ALL_SHARDS) -> NDArray[np.int64]:
        """Return the numbers of a shard's parts that are not done."""
        numbers = shard.parts(self.plan)
        return numbers[~self.done()[numbers]]

    def summary(self, shard: Shard = ALL_SHARDS) -> str:
        """Return a text summary for the user: the work to do, and an estimate of its duration."""
        plan, done = self.plan, self.done()
        numbers = shard.parts(plan)
        missing = numbers[~done[numbers]]
        lines = [
            f"{counted(plan.recordings, 'recording')}, "
            f"{format_duration(plan.seconds.sum())} of audio, in {counted(len(plan), 'part')} of "
            f"about {format_duration(plan.part_s)} → {self.out}",
            f"Model {self.config.identity}, score threshold {self.config.threshold:.3g}",
        ]
        if shard.count > 1:
            lines.append(f"Shard {shard.number} of {shard.count}: {counted(len(numbers), 'part')}")
        remaining = format_duration(plan.seconds[missing].sum())
        lines.append(
            f"Parts: {len(numbers) - len(missing):,} done, {len(missing):,} to do ({remaining} of audio)"
        )
        pace_s = _pace_s([finished_s for _, finished_s in _finished_parts(self.out)])
        if pace_s is not None and len(missing):
            lines.append(f"Estimated time at the current pace: {_duration(pace_s * int((~done).sum()))}")
        return "\n".join(lines)

    def clean_up(self) -> None:
        """Delete partial files of killed processes, once all parts are done."""
        if is_remote(self.out) or not self.done().all():
            return
        for folder in (Path(self.out), *(Path(self.out, name) for name in (EVENTS, VECTORS, STATUS))):
            for path in folder.glob(".*.partial"):
                with suppress(OSError):
                    path.unlink()


def open_run(
    inputs: InputSpec,
    model: str,
    out: str,
    min_score: float | None = None,
    on_progress: OnProgress = lambda stage, done, total: None,
    request: PrecisionRequest = AUTO,
) -> DetectionRun:
    """Start or resume a run in the folder `out`; raise ConfigError if its model or settings differ.

    `request.embeds` may differ when a run resumes: it does not affect the detections.
    """
    loaded = load_detector(model)
    settings = settings_of(loaded, inputs, min_score)
    if not (has_started := read_manifest(out) is not None):
        _start(inputs, model, out, settings, loaded, request, on_progress)
    run, table = read_manifest(out) or {}, join(out, RECORDINGS)
    settings["engine"] = request.engine() if request.precision != "auto" else run["settings"].get("engine")
    check_compatible(out, run["settings"], settings)
    if not exists(table):
        raise StorageError(f"{table} is missing, and the run cannot resume without it. Restore the file.")
    plan = _plan(table, inputs)
    config = _run_config(inputs, model, out, settings, loaded, plan)
    if config.fingerprint != run["fingerprint"]:
        raise StorageError(
            f"{table} was changed since this run started. Restore it, or specify another folder with --out."
        )
    existing = count_recordings(inputs, on_progress) if has_started else plan.recordings
    return DetectionRun(replace(config, embeds=request.embeds), plan, tuple(_notes(table, plan, existing)))


@contextmanager
def plan_run(
    inputs: InputSpec,
    model: str,
    out: str,
    min_score: float | None = None,
    on_progress: OnProgress = lambda stage, done, total: None,
    request: PrecisionRequest = AUTO,
) -> Iterator[DetectionRun]:
    """Yield the run that `open_run` would start, or the current state of a started run, without writing to its folder."""
    if read_manifest(out) is not None:
        yield open_run(inputs, model, out, min_score, on_progress, request)
        return
    loaded = load_detector(model)
    settings = settings_of(loaded, inputs, min_score)
    with table_of(inputs, on_progress) as table:
        plan = _plan(table, inputs)
        settings["engine"] = request.engine(float(plan.seconds.sum()))
        yield DetectionRun(_run_config(inputs, model, out, settings, loaded, plan), plan)


def _start(
    inputs: InputSpec,
    model: str,
    out: str,
    settings: dict[str, Any],
    loaded: LoadedModel[Detector],
    request: PrecisionRequest,
    on_progress: OnProgress,
) -> None:
    """Write the table of recordings and then `run.json`, unless another shard was faster: all shards use its table."""
    with table_of(inputs, on_progress) as table:
        plan = _plan(table, inputs)
        settings["engine"] = request.engine(float(plan.seconds.sum()))
        config = _run_config(inputs, model, out, settings, loaded, plan)
        manifest = build_manifest(inputs, settings, config, loaded, plan)
        if exists(join(out, RUN)):
            return
        if config.engine in QUANTISED:
            chunking = loaded.description.chunking
            chunks = calibration_chunks(table, plan.recordings, config.roots, config.expansions, chunking)
            program = prepare_engine(config.engine, loaded, *chunks)
            if exists(join(out, RUN)):  # another shard may have started the run during the preparation
                return
            write_program(out, program)
        with open_binary(table) as source, atomic_write(join(out, RECORDINGS)) as target:
            shutil.copyfileobj(source, target, _COPY_BYTES)
    write_manifest(out, manifest)


def _run_config(
    inputs: InputSpec,
    model: str,
    out: str,
    settings: dict[str, Any],
    loaded: LoadedModel[Detector],
    plan: PartPlan,
) -> RunConfig:
    location = absolute_location(model)
    folder = out if is_remote(out) else str(Path(out).absolute())
    return RunConfig(
        out=folder,
        model=location,
        identity=loaded.description.identity,
        fingerprint=fingerprint([json.dumps(settings, sort_keys=True).encode(), plan.identity.encode()]),
        roots={name: item.root for name, item in inputs.collections.items()},
        expansions=_expansions(inputs),
        detection=settings["detection"],
        threshold=settings["threshold"],
        hop_s=settings["hop_s"],
        engine=settings["engine"],
    )


def _expansions(inputs: InputSpec) -> dict[str, float]:
    return {name: item.time_expansion for name, item in inputs.collections.items()}


def _plan(table: str, inputs: InputSpec) -> PartPlan:
    return plan_parts(table, _expansions(inputs))


def _notes(table: str, plan: PartPlan, existing: int) -> Iterator[str]:
    """Yield messages for the user about the recordings, of which `existing` exist now."""
    if existing != plan.recordings:
        yield (
            f"This run covers the {counted(plan.recordings, 'recording')} that existed when "
            f"it started; now there are {existing:,}. To process the others, specify them and another --out."
        )
    if copies := _count_copies(table):
        yield (
            f"{counted(copies, 'recording is a copy', 'recordings are copies')} of another, and events in them count "
            f"twice: see the column duplicate_of of {table}."
        )


def _count_copies(table: str) -> int:
    """Return the number of recordings that are copies of others, from the table's statistics; 0 if it has none."""
    import pyarrow.parquet as pq

    with open_binary(table) as file:
        metadata = pq.ParquetFile(file).metadata
    index = metadata.schema.names.index("duplicate_of")
    columns = [metadata.row_group(number).column(index) for number in range(metadata.num_row_groups)]
    return int(
        sum(column.num_values - column.statistics.null_count for column in columns if column.statistics)
    )


def _finished_parts(out: str) -> list[tuple[int, float]]:
    """Return the number of every finished part, and the time at which it finished, in seconds since 1970."""
    from pyarrow.fs import FileSelector, LocalFileSystem

    folder = join(out, STATUS)
    filesystem, key = resolve_remote(folder) if is_remote(folder) else (LocalFileSystem(), folder)
    files = filesystem.get_file_info(FileSelector(key, allow_not_found=True))
    numbered = [(part_number(info.base_name), info.mtime_ns) for info in files]
    return [(number, (finished_ns or 0) / 1e9) for number, finished_ns in numbered if number is not None]


def _pace_s(finished_s: list[float]) -> float | None:
    """Return the mean seconds between finished parts of all workers together, or None if there are too few parts."""
    gaps = np.sort(np.diff(np.sort(finished_s)))
    steady = gaps[: math.floor(len(gaps) * _STEADY_FRACTION)]
    return float(steady.mean()) if len(steady) else None


def _duration(seconds: float) -> str:
    """Return a duration as text, rounded as suits an estimate."""
    for unit, length_s in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:,.0f} {unit}"
    return f"{seconds:,.0f} seconds"
