"""MAST detects animal sounds in field recordings, each as a box in time and frequency, from few labels.

>>> import mast
>>> model = mast.load_model("model")
>>> detections = model.detect("card/A1/20240510_053000.WAV")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mast.version import __version__

if TYPE_CHECKING:
    from mast.api import (
        Model,
        detect,
        evaluate,
        load_audio,
        load_model,
        load_study,
        plot_spectrogram,
        pretrain,
        read_annotations,
        search,
        train,
        write_annotations,
    )
    from mast.audio.spectrogram import LogMel
    from mast.detection.detections import Detections
    from mast.records import Event, Recording

__all__ = [
    "Detections",
    "Event",
    "LogMel",
    "Model",
    "Recording",
    "__version__",
    "detect",
    "evaluate",
    "load_audio",
    "load_model",
    "load_study",
    "plot_spectrogram",
    "pretrain",
    "read_annotations",
    "search",
    "train",
    "write_annotations",
]

_MODULES = {
    "Detections": "mast.detection.detections",
    "Event": "mast.records",
    "LogMel": "mast.audio.spectrogram",
    "Recording": "mast.records",
}
"""Modules of the public names that are not in `mast.api`."""


def __getattr__(name: str) -> Any:
    """Import a public name on first use: torch takes seconds to import."""
    if name not in __all__:
        raise AttributeError(f"module 'mast' has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "mast.api")), name)


def __dir__() -> list[str]:
    """Return the public names, also those that are not imported yet."""
    return [*globals(), *__all__]
