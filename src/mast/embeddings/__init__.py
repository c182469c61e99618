"""What a model hears, as vectors: sounds that are alike lie close together.

>>> from mast.embeddings import search
>>> alike = search("found", like_event="5d0f32c9b1e84a07c6f2")
"""

from __future__ import annotations

from typing import Any

__all__ = ["Neighbour", "Wanted", "search"]  # `__getattr__` knows them


def __getattr__(name: str) -> Any:
    """What searching takes, loaded when first asked for: torch takes seconds."""
    if name not in __all__:
        raise AttributeError(f"module 'mast.embeddings' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("mast.embeddings.neighbours"), name)
