"""`mast compare`: several models on the same test sets, and whether their differences are more than chance."""

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
from mast.evaluation.figures import OVER_ALL, SEED
from mast.evaluation.intervals import RESAMPLES, Interval, confidence_interval, difference_interval
from mast.evaluation.matching import Integers
from mast.evaluation.metrics import METRICS, Ranking
from mast.evaluation.report import title_of
from mast.evaluation.results import CHUNKS, FORMAT, PREDICTIONS, RESULTS, TRUTHS
from mast.pictures.html import render_page
from mast.storage import exists, join, open_binary, written_whole

COMPARED = {"f1": "F1", "precision": "Precision", "recall": "Recall", "ap_101_points": "AP"}


@dataclass(frozen=True, slots=True)
class Model:
    """A model in a comparison: what to call it, where its evaluation is, and the threshold it is held to."""

    name: str
    folder: str
    identity: str
    location: str
    threshold: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Numbers of every model by test set and metric, and how much higher each is than the first model's.

    `numbers` have an entry for each model, `differences` one for each but the first.
    """

    models: list[Model]
    sets: dict[str, int]
    numbers: dict[str, dict[str, list[Interval]]]
    differences: dict[str, dict[str, list[Interval]]]

    def summary(self) -> str:
        """A line for each model, test set and F1 or AP."""
        lines = []
        for name, metrics in self.differences.items():
            for metric in ("f1", "ap_101_points"):
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
    """Compare evaluations of the same test sets with the first of them, recordings drawn for all models alike."""
    if len(folders) < 2:
        raise ConfigError(
            "One evaluation cannot be compared. Give two folders or more that mast evaluate wrote."
        )
    read = [_results(folder) for folder in folders]
    _check_same_truths(folders, read)
    names = [item["name"] for item in read[0]["sets"]]
    models = [
        _model(name, folder, item) for name, folder, item in zip(_short(folders), folders, read, strict=True)
    ]
    numbers: dict[str, dict[str, list[Interval]]] = {name: {} for name in names}
    differences: dict[str, dict[str, list[Interval]]] = {name: {} for name in names}
    sets = {}
    for name in names:
        rankings = [ranking_of(model.folder, name) for model in models]
        sets[name] = len(rankings[0].truths)
        for metric in COMPARED:
            first, *others = held = [
                ranking if metric in OVER_ALL else ranking.above(model.threshold)
                for ranking, model in zip(rankings, models, strict=True)
            ]
            numbers[name][metric] = [
                confidence_interval(METRICS[metric], item, np.random.default_rng(SEED), resamples)
                for item in held
            ]
            differences[name][metric] = [
                difference_interval(METRICS[metric], item, first, np.random.default_rng(SEED), resamples)
                for item in others
            ]
    return Comparison(models, sets, numbers, differences)


def write_comparison(comparison: Comparison, location: str) -> None:
    """Write a comparison as one page."""
    values = {"comparison": comparison, "metrics": COMPARED, "title_of": title_of, "verdict": verdict}
    with written_whole(location) as file:
        file.write(render_page("compare.html", values).encode())


def verdict(difference: Interval) -> str:
    """What an interval of differences says, in a word or two."""
    if not difference.is_bounded:
        return "cannot be told"
    if difference.low > 0:
        return "better"
    return "worse" if difference.high < 0 else "could be chance"


def _results(folder: str) -> dict[str, Any]:
    location = join(folder, RESULTS)
    if not exists(location):
        raise StorageError(
            f"{folder}: no {RESULTS} in here. Make it with mast evaluate study.yaml --model FOLDER."
        )
    try:
        with open_binary(location) as file:
            values: Any = json.loads(file.read())
    except ValueError:
        values = None
    if not isinstance(values, dict) or values.get("format_version") != FORMAT:
        raise StorageError(f"{location} is not what this MAST's evaluate writes. Evaluate the model again.")
    return values


def _check_same_truths(folders: Sequence[str], read: Sequence[dict[str, Any]]) -> None:
    for (first, one), (second, other) in pairwise(zip(folders, read, strict=True)):
        if one["truths"] != other["truths"]:
            raise ConfigError(
                f"{first} and {second} were not asked for the same boxes: test sets, chunks or experts' tables differ. "
                "Evaluate both models on the study as it is now."
            )


def _short(folders: Sequence[str]) -> list[str]:
    """The last part of each folder's name, where that tells them apart."""
    names = [folder.rstrip("/").rpartition("/")[2] for folder in folders]
    return names if len(set(names)) == len(names) else list(folders)


def _model(name: str, folder: str, results: dict[str, Any]) -> Model:
    threshold = results["threshold"]
    return Model(
        name=name,
        folder=folder,
        identity=results["model"]["identity"],
        location=results["model"]["location"],
        threshold=np.inf if threshold is None else threshold,
    )


def ranking_of(folder: str, name: str) -> Ranking:
    """The predictions of one test set, ranked, with its recordings as units."""
    recordings = _rows(folder, CHUNKS, name, [])["recording_id"].combine_chunks().unique()
    found = _rows(folder, PREDICTIONS, name, ["score", "overlap"])
    truths = _rows(folder, TRUTHS, name, [])
    return Ranking.of(
        found["score"].to_numpy(),
        found["overlap"].to_numpy(),
        _places(found, recordings),
        _places(truths, recordings),
        len(recordings),
    )


def _rows(folder: str, table: str, name: str, columns: Sequence[str]) -> pa.Table:
    location = join(folder, table)
    try:
        with open_binary(location) as file:
            return pq.read_table(file, columns=["recording_id", *columns], filters=pc.field("set") == name)
    except FileNotFoundError:
        raise StorageError(f"{location}: there is no such table. Evaluate the model again.") from None


def _places(table: pa.Table, recordings: pa.Array) -> Integers:
    """Number of each row's recording. (N,)"""
    places: Integers = pc.index_in(table["recording_id"], recordings).to_numpy().astype(np.int64)
    return places
