"""Choose the next command for a prepared study: train, detect, review, apply the review, and train again."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from mast.annotations.study_annotations import label_tables
from mast.config import Study
from mast.datasets.split_table import SPLITS_TABLE, require_artifact
from mast.models.checkpoint import read_model_id
from mast.models.location import DESCRIPTION
from mast.records import read_column
from mast.review.read_verdicts import read_verdicts, verdicts_location
from mast.review.to_labels import labels_location
from mast.runs.layout import RUN
from mast.runs.results import open_results
from mast.storage import is_remote
from mast.study.artifacts import content_of
from mast.study.commands import mast_command
from mast.training.run_dir import ANNOTATIONS, TrainingRun, run_folder

FIRST_HOUR = ("--hours", 1, "--out", "to-label")
"""Arguments of `mast sample` before anything is annotated."""


def next_command(study: Study, study_file: str) -> str | None:
    """Return the next command: review → apply-review → train → detect → review; None if the work folder is remote.

    A study without labels starts with sampling recordings to annotate. Only the newest training run and the newest
    detection run in the work folder are checked.
    """
    if is_remote(study.work_dir):
        return None
    work = Path(study.work_dir)
    models = _newest(work.glob(f"runs/train/*/model/{DESCRIPTION}"))
    events = _newest(work.glob(f"*/{RUN}"))
    for folder in (*(run.parent for run in events[:1]), None):
        if _has_new_verdicts(study, folder):
            return mast_command("apply-review", study_file, *([folder] if folder else []))
    if not models:
        is_labelled = "train" in read_column(require_artifact(study, SPLITS_TABLE), "split")
        return (
            mast_command("train", study_file)
            if is_labelled
            else mast_command("sample", study_file, *FIRST_HOUR)
        )
    if _lacks_labels(study, TrainingRun(models[0].parent.parent)):
        return mast_command("train", study_file, "--run-name", _free_name(study, len(models) + 1))
    if not events or _modified_at(events[0]) < _modified_at(models[0]):
        name = "events" if not events else f"events-{models[0].parent.parent.name}"
        return mast_command("detect", study_file, "--model", models[0].parent, "--out", work / name)
    is_stopped = open_results(str(events[0].parent)).unfinished
    return (
        mast_command("detect", study_file, *_resume_options(work, events[0], models[0].parent))
        if is_stopped
        else mast_command("review", events[0].parent)
    )


def _resume_options(work: Path, run: Path, newest: Path) -> list[object]:
    """Return the options that resume a stopped detection: the same model, folder and score threshold."""
    record: dict[str, Any] = json.loads(run.read_text("utf-8"))
    model, threshold = record["settings"]["model"], record["settings"]["threshold"]
    folders = (path.parent for path in work.glob(f"runs/*/*/model/{DESCRIPTION}"))
    folder = next((folder for folder in folders if read_model_id(str(folder)) == model), newest)
    is_default = threshold == record["model"]["thresholds"].get("score")
    return ["--model", folder, "--out", run.parent, *([] if is_default else ["--min-score", threshold])]


def _lacks_labels(study: Study, run: TrainingRun) -> bool:
    """Return True if a training run lacks labels: other annotations, or a review applied since the run began."""
    if _annotations_fingerprint(run) != content_of(study, ANNOTATIONS):
        return True
    return run.config.exists() and any(
        _modified_at(Path(table)) > _modified_at(run.config) for table in label_tables(study)
    )


def _free_name(study: Study, first: int) -> str:
    """Return an unused run name, or the name of a stopped run that resumes with the current labels."""
    runs = (run_folder(study.work_dir, "train", f"round-{number}") for number in count(first))
    same = (None, content_of(study, ANNOTATIONS))
    return next(
        run.folder.name for run in runs if not run.is_finished and _annotations_fingerprint(run) in same
    )


def _annotations_fingerprint(run: TrainingRun) -> str | None:
    """Return the fingerprint of the annotations that a run was trained on, if it is recorded."""
    record = yaml.safe_load(run.config.read_text("utf-8")) if run.config.exists() else {}
    recorded: str | None = record.get(ANNOTATIONS)
    return recorded


def _has_new_verdicts(study: Study, events: Path | None) -> bool:
    """Return True if a run (or the study, if None) has verdicts that are newer than its table of labels.

    The table of the study's own review also has the labels of other tables for the same recordings, so it is out of
    date if these are newer.
    """
    location = Path(verdicts_location(study.work_dir if events is None else str(events)))
    if not location.exists():
        return False
    verdicts = read_verdicts(str(location))
    if not verdicts:
        return False
    run: dict[str, Any] = json.loads((events / RUN).read_text("utf-8")) if events else {}
    table = Path(labels_location(study, run.get("fingerprint"), verdicts))
    changes = [max(item.created_at for item in verdicts)]
    if events is None:
        changes += [_modified_at(Path(other)) for other in label_tables(study)]
    return not table.exists() or max(changes) > _modified_at(table)


def _newest(paths: Any) -> list[Path]:
    return sorted(paths, key=_modified_at, reverse=True)


def _modified_at(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
