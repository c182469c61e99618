"""Compare several models on the same test sets, with bootstrap intervals of their differences (`mast compare`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mast.errors import ConfigError, StorageError
from mast.evaluation.bootstrap import RESAMPLES, Interval, confidence_interval, difference_interval
from mast.evaluation.metrics import METRICS, RankedPredictions
from mast.evaluation.report import title_of
from mast.evaluation.results import CHUNKS, FORMAT, GROUND_TRUTH, PREDICTIONS, RESULTS
from mast.evaluation.set_metrics import OVER_ALL, SEED
from mast.plotting.html import render_page
from mast.storage import atomic_write, exists, join, open_binary
from mast.types import Integers

COMPARED = {"f1": "F1", "precision": "Precision", "recall": "Recall", "average_precision_coco": "AP"}


@dataclass(frozen=True, slots=True)
class ComparedModel:
    """Model in a comparison: display name, folder of its evaluation, identity, location and score threshold."""

    name: str
    folder: str
    identity: str
    location: str
    threshold: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Metrics of every model by test set and metric, and their differences to the first model.

    `metrics` has an entry for each model, `differences` one for each but the first. `sets` is the number of recordings
    in each test set.
    """

    models: list[ComparedModel]
    sets: dict[str, int]
    metrics: dict[str, dict[str, list[Interval]]]
    differences: dict[str, dict[str, list[Interval]]]

    def summary(self) -> str:
        """Return a line for each model, test set and F1 or AP."""
        lines = []
        for name, metrics in self.differences.items():
            for metric in ("f1", "average_precision_coco"):
                for model, difference in zip(self.models[1:], metrics[metric], strict=True):
                    bounds = (
                        f" ({difference.low:+.3f} to {difference.high:+.3f})" if difference.is_bounded else ""
                    )
                    lines.append(
                        f"{name}: {COMPARED[metric]} of {model.name} {difference.value:+.3f}{bounds} "
                        f"against {self.models[0].name}: {verdict(difference)}"
                    )
        return "\n".join(lines)


def compare(folders: Sequence[str], resamples: int = RESAMPLES) -> Comparison:
    """Compare evaluations of the same test sets with the first of them, in a paired bootstrap over recordings.

    Args:
        folders: Folders that `mast evaluate` wrote, at least two.
        resamples: Number of bootstrap resamples.

    Returns:
        Metrics of every model and differences to the first.

    Raises:
        ConfigError: If there are fewer than two folders, or their ground truth differs.
        StorageError: If a folder is not a complete evaluation.
    """
    if len(folders) < 2:
        raise ConfigError(
            "A comparison needs at least two evaluations. Specify two or more folders that mast evaluate wrote."
        )
    results = [_results(folder) for folder in folders]
    _check_same_ground_truth(folders, results)
    names = [item["name"] for item in results[0]["sets"]]
    models = [
        _model(name, folder, item)
        for name, folder, item in zip(_short(folders), folders, results, strict=True)
    ]
    metrics: dict[str, dict[str, list[Interval]]] = {name: {} for name in names}
    differences: dict[str, dict[str, list[Interval]]] = {name: {} for name in names}
    sets = {}
    for name in names:
        rankings = [ranking_of(model.folder, name) for model in models]
        sets[name] = len(rankings[0].ground_truth)
        for metric in COMPARED:
            first, *others = rankings_at_threshold = [
                ranking if metric in OVER_ALL else ranking.with_min_score(model.threshold)
                for ranking, model in zip(rankings, models, strict=True)
            ]
            metrics[name][metric] = [
                confidence_interval(METRICS[metric], item, np.random.default_rng(SEED), resamples)
                for item in rankings_at_threshold
            ]
            differences[name][metric] = [
                difference_interval(METRICS[metric], item, first, np.random.default_rng(SEED), resamples)
                for item in others
            ]
    return Comparison(models, sets, metrics, differences)


def write_comparison(comparison: Comparison, location: str) -> None:
    """Write a comparison as one HTML page."""
    values = {"comparison": comparison, "metrics": COMPARED, "title_of": title_of, "verdict": verdict}
    with atomic_write(location) as file:
        file.write(render_page("compare.html", values).encode())


def verdict(difference: Interval) -> str:
    """Describe the significance of a difference in a few words."""
    if not difference.is_bounded:
        return "not testable"
    if difference.low > 0:
        return "better"
    return "worse" if difference.high < 0 else "not significant"


def _results(folder: str) -> dict[str, Any]:
    location = join(folder, RESULTS)
    if not exists(location):
        raise StorageError(
            f"{folder} has no {RESULTS}. Create it with mast evaluate study.yaml --model FOLDER."
        )
    try:
        with open_binary(location) as file:
            values: Any = json.loads(file.read())
    except ValueError:
        values = None
    if not isinstance(values, dict) or values.get("format_version") != FORMAT:
        raise StorageError(
            f"{location} was not written by this version of mast evaluate. Evaluate the model again."
        )
    return values


def _check_same_ground_truth(folders: Sequence[str], read: Sequence[dict[str, Any]]) -> None:
    for (first, one), (second, other) in pairwise(zip(folders, read, strict=True)):
        if one["ground_truth"] != other["ground_truth"]:
            raise ConfigError(
                f"{first} and {second} have different ground truth: test sets, chunks or annotations differ. "
                "Evaluate both models on the study as it is now."
            )


def _short(folders: Sequence[str]) -> list[str]:
    """Return the last part of each folder's path if these are unique, or else the paths."""
    names = [folder.rstrip("/").rpartition("/")[2] for folder in folders]
    return names if len(set(names)) == len(names) else list(folders)


def _model(name: str, folder: str, results: dict[str, Any]) -> ComparedModel:
    threshold = results["threshold"]
    return ComparedModel(
        name=name,
        folder=folder,
        identity=results["model"]["identity"],
        location=results["model"]["location"],
        threshold=np.inf if threshold is None else threshold,
    )


def ranking_of(folder: str, name: str) -> RankedPredictions:
    """Read the predictions of one test set and rank them, with its recordings as units."""
    recordings = _rows(folder, CHUNKS, name, [])["recording_id"].combine_chunks().unique()
    predictions = _rows(folder, PREDICTIONS, name, ["score", "overlap"])
    ground_truth = _rows(folder, GROUND_TRUTH, name, [])
    return RankedPredictions.of(
        predictions["score"].to_numpy(),
        predictions["overlap"].to_numpy(),
        _positions(predictions, recordings),
        _positions(ground_truth, recordings),
        len(recordings),
    )


def _rows(folder: str, table: str, name: str, columns: Sequence[str]) -> pa.Table:
    location = join(folder, table)
    try:
        with open_binary(location) as file:
            return pq.read_table(file, columns=["recording_id", *columns], filters=pc.field("set") == name)
    except FileNotFoundError:
        raise StorageError(f"{location} does not exist. Evaluate the model again.") from None


def _positions(table: pa.Table, recordings: pa.Array) -> Integers:
    """Return the index of each row's recording. (N,)"""
    positions: Integers = pc.index_in(table["recording_id"], recordings).to_numpy().astype(np.int64)
    return positions
