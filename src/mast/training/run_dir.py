"""Folder of a training run: its settings, metrics, last checkpoint, and finally its model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mast.config import Study, flatten
from mast.errors import ConfigError, TrainingError
from mast.models.location import DESCRIPTION
from mast.storage import atomic_write, exists, is_remote, join
from mast.study.artifacts import fingerprint_file

NON_BREAKING_SETTINGS = {"checkpoint_minutes", "plot_every_epochs", "micro_batch_size", "precision"}
"""Settings that may change within a run: they do not affect the trained model."""

STARTED_FROM = "started_from"
"""Key of the identity of the model that a run started from, if known. The model may have been replaced since."""

ANNOTATIONS, SPLITS = "annotations.parquet", "splits.parquet"
"""Tables of the study whose content determines the training data of a run."""

OPTIONAL_SETTINGS = {STARTED_FROM, ANNOTATIONS, SPLITS}
"""Keys that are compared only if both values are known: older runs lack them, and a model or table may be deleted."""


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """Paths of a training run, and its settings and metrics."""

    folder: Path

    @property
    def last(self) -> Path:
        """Last checkpoint, from which the run resumes."""
        return self.folder / "last.ckpt"

    @property
    def metrics(self) -> Path:
        """Metrics, one line of JSON for each report."""
        return self.folder / "metrics.jsonl"

    @property
    def model(self) -> Path:
        """Model of the finished run."""
        return self.folder / "model"

    @property
    def is_finished(self) -> bool:
        """True if the run has saved its model."""
        return (self.model / DESCRIPTION).exists()

    @property
    def config(self) -> Path:
        """Settings of the run."""
        return self.folder / "config.yaml"

    def open(self, settings: Mapping[str, Any]) -> None:
        """Create the folder and save the settings, or check them against the saved ones.

        Call this once all training data are loaded, so that no folder exists without a run.
        """
        self.check(settings)
        if not self.config.exists():
            with atomic_write(str(self.config)) as file:
                file.write(yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True).encode())

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise TrainingError if the folder has a run with other training data or settings.

        A setting that is newer than the saved run counts as its default, because the default is the behaviour from before
        the setting existed.
        """
        if not self.config.exists():
            return
        now = flatten(yaml.safe_load(yaml.safe_dump(dict(settings))))
        defaults = flatten(Study().model_dump(mode="json"))
        then = flatten(yaml.safe_load(self.config.read_text(encoding="utf-8")))
        then |= {name: value for name, value in defaults.items() if name in now and name not in then}
        optional = {name for name in OPTIONAL_SETTINGS if None in (then.get(name), now.get(name))}
        changed = [
            f"{name} was {then.get(name)}, is now {now.get(name)}"
            for name in {**then, **now}
            if then.get(name) != now.get(name)
            and name not in optional
            and name.rpartition(".")[2] not in NON_BREAKING_SETTINGS
        ]
        if changed:
            raise TrainingError(
                f"{self.folder} has a run with other training data or settings: {'; '.join(changed)}. "
                "Give this run another name with --run-name, or delete that folder."
            )

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a line to the metrics."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def truncate_after(self, step: int) -> None:
        """Delete the metrics of steps after `step`, which will run again, and an incomplete last line."""
        if not self.metrics.exists():
            return
        lines = self.metrics.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
        with atomic_write(str(self.metrics)) as file:
            file.write("".join(kept).encode())

    def validation_loss(self, *, keep_best: bool) -> dict[str, float]:
        """Return the validation loss of the saved model, of the best or the last epoch; empty without validation."""
        losses = [item["validation_loss"] for item in self.read() if "validation_loss" in item]
        return {"validation_loss": min(losses) if keep_best else losses[-1]} if losses else {}

    def read(self) -> list[dict[str, Any]]:
        """Return all metrics so far."""
        if not self.metrics.exists():
            return []
        return [json.loads(line) for line in self.metrics.read_text(encoding="utf-8").splitlines()]


def table_fingerprints(study: Study, names: Iterable[str]) -> dict[str, str | None]:
    """Return the fingerprints of tables of a study, None for a table that does not exist."""
    paths = {name: join(study.work_dir, name) for name in names}
    return {name: fingerprint_file(path) if exists(path) else None for name, path in paths.items()}


def run_folder(work_dir: str, stage: str, name: str, out: Path | None = None) -> TrainingRun:
    """Return the run of a stage in the study's work folder, or in `out`."""
    if not name or name.startswith(".") or any(mark in name for mark in (os.sep, "/", "\\")):
        raise ConfigError(f"--run-name {name}: use letters, digits, - and _.")
    if out is None and is_remote(work_dir):
        raise ConfigError(
            f"Training runs need a local disk, and this study's work folder is {work_dir}. Specify a folder with --out."
        )
    return TrainingRun((out or Path(work_dir) / "runs") / stage / name)
