"""What several tables need: result files, and numbers as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from experiments.markdown import grid

from figure_tables import ROOT

Told: TypeAlias = Callable[[float], str]

A100_BF16 = 312e12
A100_SHARE = 0.35
"""Share of an A100's peak that ViTs usually reach: an assumption, and stated beside the figure."""

CHUNKS_AN_HOUR = 3600 / 10.24


def result(path: str) -> dict[str, Any]:
    """A result file."""
    values: dict[str, Any] = json.loads((ROOT / path).read_text("utf-8"))
    return values


def a100_hours(chunks: float, operations: float) -> float:
    """Hours of an A100 for chunks of so many operations each."""
    return chunks * operations / (A100_BF16 * A100_SHARE) / 3600


def percent(share: float) -> str:
    """A share in per cent."""
    return f"{share:.0%}".replace("%", " %")


def rounded(number: float) -> str:
    """A count to two digits."""
    if number < 10:
        return f"{number:.1f}"
    digits = len(f"{number:.0f}") - 2
    return f"{round(number, -digits):,.0f}"


def size_of(count: float) -> str:
    """Bytes, in the unit that suits them."""
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"


def multiples(sizes: Mapping[str, float], rows: Sequence[tuple[str, float, Told]]) -> str:
    """A table of what costs so much a unit, for so many units, each as its own function tells it."""
    lines = [[name, *(told(size * unit) for size in sizes.values())] for name, unit, told in rows]
    return grid(["", *sizes], lines)
