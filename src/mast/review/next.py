"""What a study that has all its products needs next: a detector, its sounds, a review, its labels, and so on round."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mast.annotations.study import label_tables
from mast.config import Study
from mast.datasets.split_table import SPLITS_TABLE, existing
from mast.detection.folder import RUN
from mast.events import read_column
from mast.models.checkpoint import DESCRIPTION
from mast.review.labels import table_of
from mast.review.reading import read_verdicts, verdicts_at
from mast.storage import is_remote
from mast.study.commands import mast_command
from mast.study.products import made_at

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
    labelled = made_at(study, "annotations.parquet")
    if labelled and labelled > _changed(models[0]):
        return mast_command("train", study_file, "--name", f"round-{len(models) + 1}")
    if not events or _changed(events[0]) < _changed(models[0]):
        name = "events" if not events else f"events-{models[0].parent.parent.name}"
        return mast_command("detect", study_file, "--model", models[0].parent, "--out", work / name)
    return mast_command("review", events[0].parent)


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
