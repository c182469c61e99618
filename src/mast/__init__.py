"""MAST finds animal sounds in field recordings, each as a box in time and frequency, from few labels.

>>> import mast
>>> events = mast.detect("A1/20240510_053000.WAV", "work/runs/train/main/model")
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "detect"]  # `__getattr__` knows it


def __getattr__(name: str) -> Any:
    """`detect`, loaded when first asked for: torch takes seconds, and the stations above read the version from here."""
    if name != "detect":
        raise AttributeError(f"module 'mast' has no attribute {name!r}")
    from importlib import import_module

    return import_module("mast.detection.recording").detect
