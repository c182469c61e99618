"""Read and write `run.json`, the manifest of a run; resuming requires the same model, settings and recordings."""

from __future__ import annotations

import json
from typing import Any

from mast.config import flatten
from mast.detection.detect import CHUNK_HOP_FRACTION, detection_settings
from mast.errors import ConfigError, StorageError
from mast.models.detector import Detector
from mast.models.loading import LoadedModel
from mast.runs.inputs import InputSpec
from mast.runs.layout import RUN
from mast.runs.plan import PartPlan
from mast.runs.tables import RunConfig
from mast.storage import atomic_write, exists, join, open_binary
from mast.version import __version__

FORMAT = 3
"""Version of the run format: it changes whenever the same recordings and settings give different parts or rows."""


def settings_of(loaded: LoadedModel[Detector], inputs: InputSpec, min_score: float | None) -> dict[str, Any]:
    """Return every setting that affects results, except the engine; raise ConfigError unless 0 <= `min_score` <= 1."""
    description = loaded.description
    detection = detection_settings(description, min_score, inputs.detection)
    threshold = (
        description.thresholds.get("score", detection.score_threshold) if min_score is None else min_score
    )
    if not 0 <= threshold <= 1:
        raise ConfigError(f"--min-score {threshold:g}: specify a number from 0 to 1.")
    hop_frames = round(
        CHUNK_HOP_FRACTION * loaded.frontend.frames
    )  # a whole number: the frames of neighbouring chunks are aligned
    return {
        "format": FORMAT,
        "model": description.identity,
        "threshold": threshold,
        "hop_s": hop_frames * description.spectrogram.frame_shift_s,
        "detection": detection.model_dump(),
        **inputs.manifest(),
    }


def build_manifest(
    inputs: InputSpec,
    settings: dict[str, Any],
    config: RunConfig,
    loaded: LoadedModel[Detector],
    plan: PartPlan,
) -> dict[str, Any]:
    """Return the content of `run.json`."""
    model_fields = ("source", "licence", "parent", "data", "thresholds", "versions")
    return {
        "mast_version": __version__,
        "fingerprint": config.fingerprint,
        "settings": settings,
        "model": {name: getattr(loaded.description, name) for name in model_fields},
        "collections": {name: item.model_dump() for name, item in inputs.collections.items()},
        "recordings": plan.recordings,
        "parts": len(plan),
        "part_s": plan.part_s,
        "hours": round(float(plan.seconds.sum()) / 3600, 3),
    }


def write_manifest(out: str, manifest: dict[str, Any]) -> None:
    """Write `run.json`, which marks the folder as a run."""
    with atomic_write(join(out, RUN)) as file:
        file.write(
            json.dumps(manifest, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        )


def read_manifest(out: str) -> dict[str, Any] | None:
    """Read `run.json`; return None if no run has started in the folder."""
    location = join(out, RUN)
    if not exists(location):
        return None
    try:
        with open_binary(location) as file:
            run: dict[str, Any] = json.loads(file.read())
        run["settings"]["collections"], run["fingerprint"]
    except (ValueError, KeyError, TypeError):
        raise StorageError(
            f"{location} was not written by MAST. Specify another folder with --out."
        ) from None
    return run


def check_compatible(out: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise ConfigError if the settings `before` and `now` differ: a run must not mix results of different settings."""
    old, new = flatten(before), flatten(now)
    changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if not changed:
        return
    differences = "; ".join(f"{name} was {old.get(name)}, is now {new.get(name)}" for name in changed[:3])
    if before["collections"].keys() != now["collections"].keys():
        differences = f"it covers {', '.join(before['collections'])}, not {', '.join(now['collections'])}"
    raise ConfigError(
        f"{out} contains another run, and results of two runs must not be mixed: {differences}. "
        "Specify another folder with --out, or the same model, settings and recordings as before."
    )
