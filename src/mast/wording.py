"""Counts with nouns that agree with them."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun, such as "1 event" or "1,200 events"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
