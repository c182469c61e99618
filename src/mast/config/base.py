"""Base class of settings groups, and their validation."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from mast.errors import ConfigError


class Settings(BaseModel):
    """A frozen group of settings that rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


SettingsGroup = TypeVar("SettingsGroup", bound=Settings)


def validate(group: type[SettingsGroup], values: Mapping[str, Any], source: str) -> SettingsGroup:
    """Create a settings group from plain values; raise ConfigError with every mistake, its key and a fix."""
    try:
        return group.model_validate(values)
    except ValidationError as error:
        raise ConfigError(
            "\n".join(f"{source}: {_explain(group, mistake)}" for mistake in error.errors())
        ) from None


def _explain(group: type[Settings], mistake: Mapping[str, Any]) -> str:
    """Describe a pydantic error in a sentence with its key and, for an unknown key, the most similar valid one."""
    parts = [str(part) for part in mistake["loc"]]
    key = ".".join(parts)
    if mistake["type"] == "extra_forbidden":
        fields = _fields_at(group, parts[:-1])
        near = difflib.get_close_matches(parts[-1], fields, n=1, cutoff=0.5)
        nearest = ".".join([*parts[:-1], near[0]]) if near else ""
        hint = f"Did you mean {nearest}?" if nearest else f"Valid settings: {', '.join(fields)}."
        return f"{key} is not a setting. {hint}"
    if mistake["type"] == "missing":
        return f"{key} is missing."
    message = mistake["msg"].removeprefix("Value error, ")
    prefix = f"{key}: " if key else ""
    value = "" if isinstance(mistake["input"], Settings | dict) else f" (given: {mistake['input']!r})"
    return f"{prefix}{message}{value}"


def _fields_at(group: type[Settings], parts: Sequence[str]) -> list[str]:
    """Return the names of the settings below a dotted path, including paths through dicts and tuples of groups."""
    current: Any = group
    for part in parts:
        if isinstance(current, type) and issubclass(current, Settings):
            current = current.model_fields[part].annotation
        else:
            current = get_args(current)[1 if get_origin(current) is dict else 0]
    return list(current.model_fields)
