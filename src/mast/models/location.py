"""Names of a model's files, and the reason if they are missing; imports no torch."""

from __future__ import annotations

from pathlib import Path

from mast.errors import StorageError
from mast.storage import exists, is_folder, is_remote, join
from mast.version import INCLUDED_MODELS

WEIGHTS, DESCRIPTION = "weights.safetensors", "model.json"

HUB = "hf://"

INCLUDED = Path(__file__).parent / "included"
"""Folder with the models that are installed with MAST, each in a folder of its name."""


def model_folder(location: str) -> str:
    """Return the folder of a model that is installed with MAST, and any other location unchanged."""
    return str(INCLUDED / location) if location in INCLUDED_MODELS else location


def absolute_location(location: str) -> str:
    """Return a location that means the same model in every folder."""
    is_path = "://" not in location and location not in INCLUDED_MODELS
    return str(Path(location).absolute()) if is_path else location


def require_model(location: str) -> None:
    """Raise StorageError if a local folder contains no model; other locations are checked when they are opened."""
    if is_remote(location) or location.startswith(HUB):
        return
    folder = model_folder(location)
    if not all(exists(join(folder, name)) for name in (WEIGHTS, DESCRIPTION)):
        raise StorageError(f"{location}: {missing_reason(location, folder)}")


def missing_reason(location: str, folder: str) -> str:
    """Describe why a model file is missing; for the Hub, the folder does not exist if no file matched."""
    has_weights, has_description = (exists(join(folder, name)) for name in (WEIGHTS, DESCRIPTION))
    if has_weights:
        return (
            f"this model was not written completely: {WEIGHTS} exists, {DESCRIPTION} does not. "
            "Copy both files, or create the model again."
        )
    if has_description:
        return f"{DESCRIPTION} exists, {WEIGHTS} does not. Copy both files."
    if is_folder(folder) or location.startswith(HUB):
        return (
            f"this folder contains no model: it has no {DESCRIPTION} and no {WEIGHTS}. "
            "Import a checkpoint of another project with mast import-checkpoint."
        )
    if exists(folder):
        return (
            f"a model is a folder with {DESCRIPTION} and {WEIGHTS}, and this is a file. "
            "Import a checkpoint of another project with mast import-checkpoint."
        )
    return "there is no such folder."
