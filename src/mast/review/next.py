"""What a study that has all its products needs next: a detector, its sounds, a review, its labels, and so on round."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mast.config import Study
from mast.detection.folder import RUN
from mast.models.checkpoint import DESCRIPTION
from mast.review.labels import table_of
from mast.review.reading import read_verdicts, verdicts_at
from mast.storage import is_remote
from mast.study.products import made_at


def next_in_round(study: Study, study_file: str) -> str | None:
    """The command to run next: review → take labels → train → detect → review; None where the work is not on a disk.

    Runs of `mast train` and events below the work folder are looked at, the newest of each.
    """
    if is_remote(study.work):
        return None
    work = Path(study.work)
    models = _newest(work.glob(f"runs/train/*/model/{DESCRIPTION}"))
    events = _newest(work.glob(f"*/{RUN}"))
    if events and _has_news(study, events[0].parent):
        return f"mast labels {study_file} {events[0].parent}"
    if not models:
        return f"mast train {study_file}"
    labelled = made_at(study, "annotations.parquet")
    if labelled and labelled > _changed(models[0]):
        return f"mast train {study_file} --name round-{len(models) + 1}"
    if not events or _changed(events[0]) < _changed(models[0]):
        name = "events" if not events else f"events-{models[0].parent.parent.name}"
        return f"mast detect {study_file} --model {models[0].parent} --out {work / name}"
    return f"mast review {events[0].parent}"


def _has_news(study: Study, events: Path) -> bool:
    """Whether anything was decided about a run since its labels were taken."""
    if not Path(verdicts_at(str(events))).exists():
        return False
    run: dict[str, Any] = json.loads((events / RUN).read_text("utf-8"))
    verdicts = read_verdicts(verdicts_at(str(events)))
    table = Path(table_of(study, run["fingerprint"], verdicts))
    last = max((item.at_utc for item in verdicts), default=None)
    return last is not None and (not table.exists() or last > _changed(table))


def _newest(paths: Any) -> list[Path]:
    return sorted(paths, key=_changed, reverse=True)


def _changed(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
