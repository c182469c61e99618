"""Load study files: defaults < preset < YAML < `--set a.b=c`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from mast.config.base import validate
from mast.config.study import Study
from mast.errors import ConfigError
from mast.version import INCLUDED_MODELS

PRESETS = Path(__file__).parent / "presets"
"""Folder of preset files, each named after its preset."""


def load_study(path: Path | None = None, overrides: Sequence[str] = ()) -> Study:
    """Load a study file, apply `a.b=c` overrides, and validate all values; paths are relative to the file's folder."""
    values = _read_yaml(path) if path else {}
    for override in overrides:
        _apply(values, override)
    if values.get("preset") is not None:
        values = _merged(_preset(values["preset"], str(path or "settings")), values)
    return _anchor(validate(Study, values, str(path or "settings")), path.parent if path else Path())


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings as a flat dict with dotted names, as in `--set`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= (
            flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
        )
    return flat


def dump_study(study: Study) -> str:
    """Return a study as YAML with all settings."""
    return yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _preset(name: Any, source: str) -> dict[str, Any]:
    """Return the values of a preset."""
    presets = sorted(path.stem for path in PRESETS.glob("*.yaml"))
    if name not in presets:
        raise ConfigError(f"{source}: preset: there is no preset {name!r}. Available: {', '.join(presets)}.")
    return _read_yaml(PRESETS / f"{name}.yaml")


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested values; those of `over` take precedence over those of `under`."""
    merged = {**under, **over}
    for name in under.keys() & over.keys():
        if isinstance(under[name], dict) and isinstance(over[name], dict):
            merged[name] = _merged(under[name], over[name])
    return merged


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such study file.") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; a study is a YAML file such as study.yaml.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path}: a study file consists of 'name: value' lines, not a {type(values).__name__}."
        )
    return values


def _apply(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {override}: use the form a.b=value, such as --set spectrogram.high_hz=4000")
    *parents, last = key.strip().split(".")
    node: Any = values
    for parent in parents:
        node = node[_index(node, parent, override)] if isinstance(node, list) else node.setdefault(parent, {})
        if not isinstance(node, dict | list):
            raise ConfigError(f"--set {override}: {parent} is a single value and has no setting {last}.")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {override}: {text!r} is not a YAML value: {error}") from None
    if isinstance(node, list):
        node[_index(node, last, override)] = value
    else:
        node[last] = value


def _index(items: list[Any], text: str, override: str) -> int:
    if text.isdigit() and int(text) < len(items):
        return int(text)
    raise ConfigError(f"--set {override}: {text!r} must be a number from 0 to {len(items) - 1}.")


def _anchor(study: Study, folder: Path) -> Study:
    """Make all paths of a study absolute, relative to the study file's folder."""

    def anchored(path: str) -> str:
        return path if "://" in path or path in INCLUDED_MODELS else str((folder / path).absolute())

    return study.model_copy(
        update={
            "work_dir": anchored(study.work_dir),
            "collections": {
                name: collection.model_copy(update={"root": anchored(collection.root)})
                for name, collection in study.collections.items()
            },
            "annotations": tuple(
                source.model_copy(update={"path": anchored(source.path)}) for source in study.annotations
            ),
            **{
                name: stage.model_copy(update={field: anchored(value)})
                for name, stage in study
                for field in ("init_from", "teacher")
                if (value := getattr(stage, field, None))
            },
        }
    )
