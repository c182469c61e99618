"""What every group of settings is, and how mistakes in one are told."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from mast.errors import ConfigError


class Settings(BaseModel):
    """A frozen group of settings that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


SettingsGroup = TypeVar("SettingsGroup", bound=Settings)


def checked(group: type[SettingsGroup], values: Mapping[str, Any], source: str) -> SettingsGroup:
    """A group of settings from plain values; every mistake is told, with its place in `source` and the remedy."""
    try:
        return group.model_validate(values)
    except ValidationError as error:
        raise ConfigError(
            "\n".join(f"{source}: {_explain(group, item)}" for item in error.errors())
        ) from None


def _explain(group: type[Settings], item: Mapping[str, Any]) -> str:
    """One pydantic error as a sentence that names the key and, for an unknown key, the nearest right one."""
    parts = [str(part) for part in item["loc"]]
    key = ".".join(parts)
    if item["type"] == "extra_forbidden":
        known = _fields_at(group, parts[:-1])
        near = difflib.get_close_matches(parts[-1], known, n=1, cutoff=0.5)
        nearest = ".".join([*parts[:-1], near[0]]) if near else ""
        hint = f"Did you mean {nearest}?" if nearest else f"Known here: {', '.join(known)}."
        return f"{key} is not a setting. {hint}"
    if item["type"] == "missing":
        return f"{key} is missing."
    message = item["msg"].removeprefix("Value error, ")
    where = f"{key}: " if key else ""
    given = "" if isinstance(item["input"], Settings | dict) else f" (given: {item['input']!r})"
    return f"{where}{message}{given}"


def _fields_at(group: type[Settings], parts: Sequence[str]) -> list[str]:
    """Names of the settings below a dotted path, walking through dicts and tuples of groups."""
    here: Any = group
    for part in parts:
        if isinstance(here, type) and issubclass(here, Settings):
            here = here.model_fields[part].annotation
        else:
            here = get_args(here)[1 if get_origin(here) is dict else 0]
    return list(here.model_fields)
