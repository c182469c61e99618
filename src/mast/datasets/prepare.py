"""Run `mast prepare`: write the audio store, then measure the study's normalisation on training audio."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from mast.config import Study
from mast.datasets.split_table import SPLITS_TABLE, check_chunking, require_artifact, write_splits
from mast.datasets.study_datasets import statistics_spans
from mast.errors import ConfigError
from mast.normalisation import Normalisation, measure_statistics
from mast.recordings.clocks import format_duration
from mast.storage import atomic_write, exists, join, open_binary
from mast.store.audio_store import AudioStore
from mast.store.prepare import PrepareResult, prepare
from mast.study.artifacts import STORE, inputs_of, record_inputs
from mast.types import OnStage

NORMALISATION = "normalisation.json"


def prepare_study(study: Study, on_progress: OnStage = lambda stage, done_s, total_s: None) -> str:
    """Prepare a study's audio and measure its statistics; return the report to print.

    The statistics exclude validation and test audio, so missing splits are made first.
    """
    table, location = require_artifact(study, "recordings.parquet"), join(study.work_dir, STORE)
    has_splits = exists(join(study.work_dir, SPLITS_TABLE))
    if has_splits:
        check_chunking(study)  # before hours of work
    inputs = inputs_of(study, STORE)
    result = prepare(table, study.collections, location, study.chunking, partial(on_progress, "preparing"))
    record_inputs(study, STORE, inputs)
    if not has_splits:
        write_splits(study)
        record_inputs(study, SPLITS_TABLE)
    inputs, store = inputs_of(study, NORMALISATION), AudioStore(location)
    normalisation = fit_normalisation(study, store, partial(on_progress, "measuring"))
    with atomic_write(join(study.work_dir, NORMALISATION)) as file:
        file.write(normalisation.to_json().encode())
    record_inputs(study, NORMALISATION, inputs)
    return _describe_result(result, normalisation)


def fit_normalisation(
    study: Study, store: AudioStore, on_progress: Callable[[float, float], None]
) -> Normalisation:
    """Return the study's normalisation, with statistics of its training and unlabelled audio."""
    if study.normalisation == "audiomae":
        return Normalisation.from_statistics("audiomae")
    spans = statistics_spans(study, store)
    statistics = measure_statistics(
        store, spans, store.layout.block_samples, study.spectrogram, on_progress=on_progress
    )
    return Normalisation.from_statistics(study.normalisation, statistics)


def read_normalisation(study: Study) -> Normalisation:
    """Return the study's kind of normalisation, with the statistics that `mast prepare` wrote."""
    location = require_artifact(study, NORMALISATION)
    with open_binary(location) as file:
        stored = Normalisation.from_json(file.read().decode())
    if study.normalisation == "audiomae":
        return Normalisation.from_statistics("audiomae")
    if stored.provenance is None:
        raise ConfigError(
            f"{location} was written for normalisation {stored.kind} and has no statistics of this study, which "
            f"normalisation {study.normalisation} needs. Run mast prepare again."
        )
    previous, current = stored.provenance.spectrogram, study.spectrogram.model_dump(mode="json")
    if previous is not None and previous != current:
        changed = [
            f"{name} was {previous.get(name)}, is now {current[name]}"
            for name in current
            if previous.get(name) != current[name]
        ]
        raise ConfigError(
            f"{location} was measured with other spectrogram settings ({'; '.join(changed)}). Run mast prepare again."
        )
    return replace(stored, kind=study.normalisation)


def _describe_result(result: PrepareResult, normalisation: Normalisation) -> str:
    lines = [
        f"Prepared: {result.recordings:,} recordings, {format_duration(result.seconds)} → {result.location}"
    ]
    for count, outcome in (
        (result.failed, "could not be read to the end: see prepared.parquet beside the store"),
        (result.quarantined, "quarantined by the scan: excluded"),
        (result.duplicates, "duplicates: excluded"),
    ):
        if count:
            lines.append(f"  {count:,} {outcome}")
    if normalisation.provenance:
        lines.append(
            f"Normalisation {normalisation.kind}: mean {normalisation.mean:.2f}, deviation {normalisation.std:.2f}, "
            f"around band medians {normalisation.band_deviation:.2f}, "
            f"over {format_duration(normalisation.provenance.seconds)} of training and unlabelled audio"
        )
    return "\n".join(lines)
