"""Results as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def grid(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table."""
    rows = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def interval(numbers: Sequence[float | None]) -> str:
    """A figure and, if they are known, its bounds."""
    value, *bounds = map(share, numbers)
    return f"{value} ({bounds[0]} to {bounds[1]})" if bounds else value


def figure_of(own: Mapping[str, Any], name: str) -> str:
    """A figure by its name, with its interval if it has one."""
    return interval([own[name], *(own[f"{name}_interval"] or [])])


def share(number: float | None) -> str:
    """A figure between 0 and 1, or that there is none."""
    return "–" if number is None else f"{number:.2f}"


def paragraphs(*parts: str) -> str:
    """Tables and text, one below the other."""
    return "\n".join(part if part.endswith("\n") else f"{part}\n" for part in parts)
