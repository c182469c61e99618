"""What a run is made with, kept in its `run.json`: whoever goes on with it has to come with the same."""

from __future__ import annotations

import json
from typing import Any

from mast import __version__
from mast.config import Detection, dotted
from mast.detection.folder import RUN
from mast.detection.inputs import Given
from mast.detection.part_tables import Orders
from mast.detection.plan import Plan
from mast.detection.recording import HOP
from mast.errors import ConfigError, StorageError
from mast.models.checkpoint import Description
from mast.models.detector import Detector
from mast.models.loading import Loaded
from mast.storage import exists, join, open_binary, written_whole

FORMAT = 3
"""Changes whenever the same recordings and settings would give other parts or other rows."""


def settings_of(loaded: Loaded[Detector], given: Given, min_score: float | None) -> dict[str, Any]:
    """Everything that changes results."""
    description = loaded.description
    detection = _detection(given.detection, description, min_score)
    threshold = description.thresholds.get("score", detection.min_score) if min_score is None else min_score
    if not 0 <= threshold <= 1:
        raise ConfigError(f"--min-score {threshold:g}: give a number from 0 to 1.")
    hop_frames = round(HOP * loaded.frontend.frames)  # whole frames: neighbours see the same ones
    return {
        "format": FORMAT,
        "model": description.identity,
        "threshold": threshold,
        "hop_s": hop_frames * description.spectrogram.shift_s,
        "detection": detection.model_dump(),
        **given.story(),
    }


def _detection(chosen: Detection, description: Description, min_score: float | None) -> Detection:
    """How predictions become boxes: as in the study, or else as the model was saved; with all that is asked for."""
    changed: dict[str, float] = {}
    if "nms_iou" in description.thresholds and "nms_iou" not in chosen.model_fields_set:
        changed["nms_iou"] = description.thresholds["nms_iou"]
    if min_score is not None:
        changed["min_score"] = min(min_score, chosen.min_score)
    return chosen.model_copy(update=changed)


def story_of(
    given: Given, settings: dict[str, Any], orders: Orders, loaded: Loaded[Detector], plan: Plan
) -> dict[str, Any]:
    """What `run.json` says."""
    told = ("source", "licence", "parent", "data", "thresholds", "versions")
    return {
        "mast_version": __version__,
        "fingerprint": orders.fingerprint,
        "settings": settings,
        "model": {name: getattr(loaded.description, name) for name in told},
        "collections": {name: item.model_dump() for name, item in given.collections.items()},
        "recordings": plan.recordings,
        "parts": len(plan),
        "part_s": plan.part_s,
        "hours": round(float(plan.seconds.sum()) / 3600, 3),
    }


def write_story(out: str, story: dict[str, Any]) -> None:
    """Begin a run: from now on it is one."""
    with written_whole(join(out, RUN)) as file:
        file.write(
            json.dumps(story, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        )


def read_story(out: str) -> dict[str, Any] | None:
    """What `run.json` says, or None where no run has begun."""
    location = join(out, RUN)
    if not exists(location):
        return None
    try:
        with open_binary(location) as file:
            run: dict[str, Any] = json.loads(file.read())
        run["settings"]["collections"], run["fingerprint"]
    except (ValueError, KeyError, TypeError):
        raise StorageError(
            f"{location} is no run that MAST has written. Give another folder with --out."
        ) from None
    return run


def check_same(out: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to mix what was made differently."""
    old, new = dotted(before), dotted(now)
    changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if not changed:
        return
    told = "; ".join(f"{name} was {old.get(name)}, is now {new.get(name)}" for name in changed[:3])
    if before["collections"].keys() != now["collections"].keys():
        told = f"it is about {', '.join(before['collections'])}, not {', '.join(now['collections'])}"
    raise ConfigError(
        f"{out} holds the events of another run, and the two must not mix: {told}. "
        "Give another folder with --out, or the same model, settings and recordings as before."
    )
