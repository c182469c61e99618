"""What a study that has all its products needs next: a detector, its sounds, a review, its labels, and so on round."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from mast.annotations.study import label_tables
from mast.config import Study
from mast.datasets.split_table import SPLITS_TABLE, existing
from mast.detection.folder import RUN
from mast.detection.found import open_found
from mast.events import read_column
from mast.models.checkpoint import DESCRIPTION, known_identity
from mast.review.labels import table_of
from mast.review.reading import read_verdicts, verdicts_at
from mast.storage import is_remote
from mast.study.commands import mast_command
from mast.study.products import content_of
from mast.training.run import ANNOTATIONS, Run, run_folder

FIRST_HOUR = ("--hours", 1, "--out", "to-label")
"""What to ask of `mast budget` before anything is labelled."""


def next_in_round(study: Study, study_file: str) -> str | None:
    """The command to run next: review → take labels → train → detect → review; None where the work is not on a disk.

    A study without labels begins with what to label. Runs of `mast train` and events below the work folder are looked at,
    the newest of each.
    """
    if is_remote(study.work):
        return None
    work = Path(study.work)
    models = _newest(work.glob(f"runs/train/*/model/{DESCRIPTION}"))
    events = _newest(work.glob(f"*/{RUN}"))
    for reviewed in (*(run.parent for run in events[:1]), None):
        if _has_news(study, reviewed):
            return mast_command("labels", study_file, *([reviewed] if reviewed else []))
    if not models:
        is_labelled = "train" in read_column(existing(study, SPLITS_TABLE), "split")
        return (
            mast_command("train", study_file)
            if is_labelled
            else mast_command("budget", study_file, *FIRST_HOUR)
        )
    if _is_behind(study, Run(models[0].parent.parent)):
        return mast_command("train", study_file, "--name", _free_name(study, len(models) + 1))
    if not events or _changed(events[0]) < _changed(models[0]):
        name = "events" if not events else f"events-{models[0].parent.parent.name}"
        return mast_command("detect", study_file, "--model", models[0].parent, "--out", work / name)
    is_stopped = open_found(str(events[0].parent)).unfinished
    return (
        mast_command("detect", study_file, *_as_before(work, events[0], models[0].parent))
        if is_stopped
        else mast_command("review", events[0].parent)
    )


def _as_before(work: Path, run: Path, newest: Path) -> list[object]:
    """Words that go on with a detection which was stopped: the same model, folder and least score."""
    told: dict[str, Any] = json.loads(run.read_text("utf-8"))
    model, threshold = told["settings"]["model"], told["settings"]["threshold"]
    places = (path.parent for path in work.glob(f"runs/*/*/model/{DESCRIPTION}"))
    place = next((place for place in places if known_identity(str(place)) == model), newest)
    is_usual = threshold == told["model"]["thresholds"].get("score")
    return ["--model", place, "--out", run.parent, *([] if is_usual else ["--min-score", threshold])]


def _is_behind(study: Study, run: Run) -> bool:
    """Whether there are labels that a training has not seen: other boxes, or a review that was taken since it began."""
    if _labels_of(run) != content_of(study, ANNOTATIONS):
        return True
    return run.config.exists() and any(
        _changed(Path(table)) > _changed(run.config) for table in label_tables(study)
    )


def _free_name(study: Study, first: int) -> str:
    """A name for a round that no training has, or one that was stopped and goes on with the labels of now."""
    runs = (run_folder(study.work, "train", f"round-{number}") for number in count(first))
    same = (None, content_of(study, ANNOTATIONS))
    return next(run.folder.name for run in runs if not run.is_finished and _labels_of(run) in same)


def _labels_of(run: Run) -> str | None:
    """Fingerprint of the boxes that a training learned from, where it is known."""
    told = yaml.safe_load(run.config.read_text("utf-8")) if run.config.exists() else {}
    labels: str | None = told.get(ANNOTATIONS)
    return labels


def _has_news(study: Study, events: Path | None) -> bool:
    """Whether anything was decided about a run, or else about the study itself, since its labels were taken.

    The study's own also tell what others have of the same recordings, and are behind when these are newer.
    """
    place = Path(verdicts_at(study.work if events is None else str(events)))
    if not place.exists():
        return False
    verdicts = read_verdicts(str(place))
    if not verdicts:
        return False
    run: dict[str, Any] = json.loads((events / RUN).read_text("utf-8")) if events else {}
    table = Path(table_of(study, run.get("fingerprint"), verdicts))
    news = [max(item.at_utc for item in verdicts)]
    if events is None:
        news += [_changed(Path(other)) for other in label_tables(study)]
    return not table.exists() or max(news) > _changed(table)


def _newest(paths: Any) -> list[Path]:
    return sorted(paths, key=_changed, reverse=True)


def _changed(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
