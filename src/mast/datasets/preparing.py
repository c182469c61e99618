"""`mast prepare`: the store, then the statistics of the sound that is for training, as the study's normalisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from mast.config import Study
from mast.datasets.examples import statistics_spans
from mast.datasets.split_table import SPLITS_TABLE, check_cut, existing, write_splits
from mast.errors import ConfigError
from mast.normalisation import Normalisation, measure_statistics
from mast.recordings.clocks import length
from mast.recordings.prepare import PrepareResult, prepare
from mast.recordings.store import AudioStore
from mast.storage import exists, join, open_binary, written_whole
from mast.study.products import STORE, inputs_of, remember

NORMALISATION = "normalisation.json"
OnProgress = Callable[[str, float, float | None], None]
"""`on_progress(stage, done_s, total_s)`, in seconds of audio."""


def prepare_study(study: Study, on_progress: OnProgress = lambda stage, done_s, total_s: None) -> str:
    """Prepare a study's sound and measure it; returns the account for a person to read.

    Statistics need to know what is for testing: splits that are not there yet are made.
    """
    table, location = existing(study, "recordings.parquet"), join(study.work, STORE)
    has_splits = exists(join(study.work, SPLITS_TABLE))
    if has_splits:
        check_cut(study)  # before hours of work
    inputs = inputs_of(study, STORE)
    result = prepare(table, study.collections, location, study.chunking, partial(on_progress, "preparing"))
    remember(study, STORE, inputs)
    if not has_splits:
        write_splits(study)
        remember(study, SPLITS_TABLE)
    inputs, store = inputs_of(study, NORMALISATION), AudioStore(location)
    normalisation = measured(study, store, partial(on_progress, "measuring"))
    with written_whole(join(study.work, NORMALISATION)) as file:
        file.write(normalisation.to_json().encode())
    remember(study, NORMALISATION, inputs)
    return _account(result, normalisation)


def measured(study: Study, store: AudioStore, on_progress: Callable[[float, float], None]) -> Normalisation:
    """The study's normalisation, with statistics of its training and unlabelled sound."""
    if study.normalisation == "audiomae":
        return Normalisation.of("audiomae")
    spans = statistics_spans(study, store)
    statistics = measure_statistics(
        store, spans, store.layout.step_samples, study.spectrogram, on_progress=on_progress
    )
    return Normalisation.of(study.normalisation, statistics)


def read_normalisation(study: Study) -> Normalisation:
    """The study's kind of normalisation, with the statistics that `mast prepare` wrote."""
    location = existing(study, NORMALISATION)
    with open_binary(location) as file:
        kept = Normalisation.from_json(file.read().decode())
    if study.normalisation == "audiomae":
        return Normalisation.of("audiomae")
    if kept.provenance is None:
        raise ConfigError(
            f"{location} was written for {kept.kind} and holds no statistics of this study, which normalisation "
            f"{study.normalisation} needs. Run mast prepare again."
        )
    then, now = kept.provenance.spectrogram, study.spectrogram.model_dump(mode="json")
    if then is not None and then != now:
        changed = [
            f"{name} was {then.get(name)}, is now {now[name]}" for name in now if then.get(name) != now[name]
        ]
        raise ConfigError(
            f"{location} was measured on another spectrogram ({'; '.join(changed)}). Run mast prepare again."
        )
    return replace(kept, kind=study.normalisation)


def _account(result: PrepareResult, normalisation: Normalisation) -> str:
    lines = [f"Prepared: {result.recordings:,} recordings, {length(result.seconds)} → {result.location}"]
    for count, what in (
        (result.failed, "broke off while reading: see prepared.parquet beside the store"),
        (result.quarantined, "quarantined by the scan: left out"),
        (result.duplicates, "duplicates: left out"),
    ):
        if count:
            lines.append(f"  {count:,} {what}")
    if normalisation.provenance:
        lines.append(
            f"Normalisation {normalisation.kind}: mean {normalisation.mean:.2f}, deviation {normalisation.std:.2f}, "
            f"around band medians {normalisation.band_deviation:.2f}, "
            f"over {length(normalisation.provenance.seconds)} of training and unlabelled sound"
        )
    return "\n".join(lines)
