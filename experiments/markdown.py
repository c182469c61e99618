"""Format results as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def grid(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    rows = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def interval(numbers: Sequence[float | None]) -> str:
    """Return a metric with its bounds, if there are any."""
    value, *bounds = map(decimal, numbers)
    return f"{value} ({bounds[0]} to {bounds[1]})" if bounds else value


def format_metric(metrics: Mapping[str, Any], name: str) -> str:
    """Return a metric by its name, with its interval if it has one."""
    return interval([metrics[name], *(metrics[f"{name}_interval"] or [])])


def decimal(number: float | None) -> str:
    """Return a number between 0 and 1 with two decimals; a dash for None."""
    return "–" if number is None else f"{number:.2f}"


def paragraphs(*parts: str) -> str:
    """Return tables and text, one below the other."""
    return "\n".join(part if part.endswith("\n") else f"{part}\n" for part in parts)
