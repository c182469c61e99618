"""Embeddings of events: vectors pooled from encoder features, in which similar sounds lie close together.

>>> from mast.embeddings import search
>>> similar = search("found", query_event="5d0f32c9b1e84a07c6f2")
"""

from __future__ import annotations

from typing import Any

__all__ = ["Neighbour", "SearchFilter", "search"]  # `__getattr__` imports them


def __getattr__(name: str) -> Any:
    """Import a public name on first access, because importing torch takes seconds."""
    if name not in __all__:
        raise AttributeError(f"module 'mast.embeddings' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("mast.embeddings.vector_search"), name)
