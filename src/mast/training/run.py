"""A run's folder: its settings, what it measured, its last state to go on from, and in the end its model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mast.config import Study, dotted
from mast.errors import ConfigError, TrainingError
from mast.models.checkpoint import DESCRIPTION
from mast.storage import exists, is_remote, join, written_whole
from mast.study.products import fingerprint_file

FREE = {"checkpoint_minutes", "picture_epochs", "device_batch", "precision"}
"""Settings that a run may change half-way: they do not name what is learned."""

STARTED_FROM = "started_from"
"""Identity of the model that a run started from, which another may have replaced since; told where it is known."""

ANNOTATIONS, SPLITS = "annotations.parquet", "splits.parquet"
"""Tables of the study, by whose content it is known what a run learned from."""

IF_KNOWN = {STARTED_FROM, ANNOTATIONS, SPLITS}
"""What is compared where both then and now tell it: older runs do not, and a model or table may be gone."""


@dataclass(frozen=True, slots=True)
class Run:
    """Where a run keeps everything."""

    folder: Path

    @property
    def last(self) -> Path:
        """State to go on from."""
        return self.folder / "last.ckpt"

    @property
    def metrics(self) -> Path:
        """A line of JSON for every report."""
        return self.folder / "metrics.jsonl"

    @property
    def model(self) -> Path:
        """The model, once the run is finished."""
        return self.folder / "model"

    @property
    def is_finished(self) -> bool:
        """Whether the run has reached its end."""
        return (self.model / DESCRIPTION).exists()

    @property
    def config(self) -> Path:
        """The settings it is learned under."""
        return self.folder / "config.yaml"

    def open(self, settings: Mapping[str, Any]) -> None:
        """Make the folder, or check what it holds; once all is there to learn from, so that a folder means a run."""
        self.check(settings)
        if not self.config.exists():
            with written_whole(str(self.config)) as file:
                file.write(yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True).encode())

    def check(self, settings: Mapping[str, Any]) -> None:
        """Refuse a folder whose run was learned from other labels or under other settings.

        A setting that is newer than what the folder holds had its default then: a default is what MAST did before there
        was a choice.
        """
        if not self.config.exists():
            return
        now = dotted(yaml.safe_load(yaml.safe_dump(dict(settings))))
        defaults = dotted(Study().model_dump(mode="json"))
        then = dotted(yaml.safe_load(self.config.read_text(encoding="utf-8")))
        then |= {name: value for name, value in defaults.items() if name in now and name not in then}
        free = {name for name in IF_KNOWN if None in (then.get(name), now.get(name))}
        changed = [
            f"{name} was {then.get(name)}, is now {now.get(name)}"
            for name in {**then, **now}
            if then.get(name) != now.get(name) and name not in free and name.rpartition(".")[2] not in FREE
        ]
        if changed:
            raise TrainingError(
                f"{self.folder} holds a run with other labels or settings: {'; '.join(changed)}. "
                "Give this one a name of its own with --name, or delete that folder."
            )

    def write(self, record: Mapping[str, Any]) -> None:
        """Add a line to the metrics."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def forget_after(self, step: int) -> None:
        """Drop what was measured after a step that is about to be taken again."""
        if not self.metrics.exists():
            return
        lines = self.metrics.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
        with written_whole(str(self.metrics)) as file:
            file.write("".join(kept).encode())

    def validation_loss(self, *, is_best_kept: bool) -> dict[str, float]:
        """That of the model that is kept, the best epoch's or the last one's, by its name; empty without validation."""
        losses = [item["validation_loss"] for item in self.read() if "validation_loss" in item]
        return {"validation_loss": min(losses) if is_best_kept else losses[-1]} if losses else {}

    def read(self) -> list[dict[str, Any]]:
        """What was measured so far."""
        if not self.metrics.exists():
            return []
        return [json.loads(line) for line in self.metrics.read_text(encoding="utf-8").splitlines()]


def tables_of(study: Study, names: Iterable[str]) -> dict[str, str | None]:
    """Fingerprints of tables of a study, None where there is no such table."""
    places = {name: join(study.work, name) for name in names}
    return {name: fingerprint_file(place) if exists(place) else None for name, place in places.items()}


def run_folder(work: str, stage: str, name: str, out: Path | None = None) -> Run:
    """Folder of a stage's run below the study's work folder, or below `out`."""
    if not name or name.startswith(".") or any(mark in name for mark in (os.sep, "/", "\\")):
        raise ConfigError(f"--name {name}: use letters, digits, - and _.")
    if out is None and is_remote(work):
        raise ConfigError(
            f"A run is kept on a disk, and this study's work is on {work}. Give a folder with --out."
        )
    return Run((out or Path(work) / "runs") / stage / name)
