"""Read result files, and format numbers for tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from experiments.markdown import grid

from tools.doc_tables import ROOT

Format: TypeAlias = Callable[[float], str]

A100_BF16 = 312e12
A100_UTILISATION = 0.35
"""Fraction of an A100's peak that ViTs usually reach: an assumption, stated beside the table."""

CHUNKS_PER_HOUR = 3600 / 10.24


def result(path: str) -> dict[str, Any]:
    """Read a result file."""
    values: dict[str, Any] = json.loads((ROOT / path).read_text("utf-8"))
    return values


def a100_hours(chunks: float, operations: float) -> float:
    """Return the hours of an A100 for chunks with `operations` floating-point operations each."""
    return chunks * operations / (A100_BF16 * A100_UTILISATION) / 3600


def percent(fraction: float) -> str:
    """Return a fraction in per cent."""
    return f"{fraction:.0%}".replace("%", " %")


def rounded(number: float) -> str:
    """Return a count rounded to two digits."""
    if number < 10:
        return f"{number:.1f}"
    digits = len(f"{number:.0f}") - 2
    return f"{round(number, -digits):,.0f}"


def size_of(count: float) -> str:
    """Return a number of bytes in a suitable unit."""
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"


def multiples(sizes: Mapping[str, float], rows: Sequence[tuple[str, float, Format]]) -> str:
    """Return a table of costs: rows are (name, cost per unit, format function), columns are numbers of units."""
    lines = [
        [name, *(format_cost(size * unit) for size in sizes.values())] for name, unit, format_cost in rows
    ]
    return grid(["", *sizes], lines)
