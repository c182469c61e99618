"""A model at rest: a folder with `weights.safetensors` and `model.json`, on disk, on s3:// or on the Hugging Face Hub.

`model.json` is written last, so its existence means that the model is whole, and it knows the fingerprint of its
weights, so that the two files never belong to different models unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from typing import Any, ClassVar, Literal

import torch
from pydantic import ConfigDict, JsonValue, TypeAdapter, ValidationError
from torch import Tensor

import mast
from mast.config import Chunking, Spectrogram
from mast.errors import ConfigError, MissingExtraError, StorageError
from mast.normalisation import Normalisation
from mast.storage import exists, is_folder, join, open_binary, written_whole

Kind = Literal["encoder", "masked-autoencoder", "detector"]

WEIGHTS, DESCRIPTION = "weights.safetensors", "model.json"
FORMAT = 1
"""Changes whenever an older MAST could misread what a newer one writes."""

HUB = "hf://"
_HUB_ADDRESS = re.compile(r"hf://(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^@\s]+))?/?")
_BLOCK_BYTES = 1 << 24  # a request to an object store; one read of everything would be many small ones


def installed_versions() -> dict[str, str]:
    """What a model is made with."""
    return {"mast": mast.__version__, "torch": torch.__version__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """All about a model but its weights: what it is built like, how it hears, and where it comes from.

    `architecture` holds plain values to build the network from; `data` is the fingerprint of the prepared audio it
    learned from; `parent` is the identity of the model it started from; `weights` is the fingerprint of its weights,
    known once it is saved.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    kind: Kind
    architecture: dict[str, JsonValue]
    spectrogram: Spectrogram
    chunking: Chunking
    normalisation: Normalisation | None
    licence: str
    source: str
    parent: str | None = None
    data: str | None = None
    thresholds: dict[str, float] = field(default_factory=dict)
    results: dict[str, JsonValue] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=installed_versions)
    weights: str | None = None
    format_version: int = FORMAT

    @property
    def identity(self) -> str:
        """A short name for all that decides what the model makes of a sound: weights, architecture, scaling, grid.

        Where the numbers of the scaling come from, and how far chunks are apart, do not count.
        """
        if self.weights is None:
            raise ValueError("a model has an identity once it is saved")
        scaling = asdict(self.normalisation) if self.normalisation else {}
        scaling.pop("provenance", None)
        grid = [self.spectrogram.model_dump(), self.chunking.sample_rate_hz, self.chunking.chunk_s]
        parts = [self.weights, self.architecture, scaling, grid]
        return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=8).hexdigest()


def save_model(location: str, description: Description, tensors: Mapping[str, Tensor]) -> Description:
    """Write a model to a folder or s3://, replacing one that is there; returns the description with its fingerprint.

    Tensors of any device and layout are written as they read, contiguous and each for itself.
    """
    from safetensors.torch import save

    if location.startswith(HUB):
        raise ConfigError(
            f"{location}: models are written to a folder or to s3://. Publish one with: hf upload owner/name FOLDER"
        )
    plain = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    data = save(plain)
    written = replace(description, weights=_fingerprint(data), format_version=FORMAT)
    try:
        with written_whole(join(location, WEIGHTS)) as file:
            file.write(data)
        with written_whole(join(location, DESCRIPTION)) as file:
            file.write(_adapter().dump_json(written, indent=2) + b"\n")
    except OSError as error:
        raise StorageError(f"{location}: the model cannot be written: {error}") from error
    return written


def load_model(location: str) -> tuple[Description, dict[str, Tensor]]:
    """A model from a folder, s3://bucket/prefix, hf://owner/name or hf://owner/name@revision, checked to be whole."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    folder = _folder(location)
    description = _description(location, folder)
    data = _read(location, folder, WEIGHTS)
    try:
        tensors = load(data)
    except SafetensorError as error:
        raise StorageError(
            f"{location}: {WEIGHTS} is damaged or cut short ({error}). Copy or download the model again."
        ) from None
    if _fingerprint(data) != description.weights:
        raise StorageError(
            f"{location}: {WEIGHTS} is not the file that {DESCRIPTION} describes: it is damaged, it was taken from "
            "another model, or replacing the model was interrupted. Copy both files again, or make the model anew."
        )
    return description, tensors


def copy_model(location: str, target: str) -> None:
    """Write a model once more, file by file as it is, to a folder or s3://; its description comes last, as ever."""
    folder = _folder(location)
    for name in (WEIGHTS, DESCRIPTION):
        data = _read(location, folder, name)
        with written_whole(join(target, name)) as file:
            file.write(data)


def known_identity(location: str | None) -> str | None:
    """Identity of the model at a location; None where none can be read."""
    try:
        return _description(location, _folder(location)).identity if location else None
    except (ConfigError, StorageError):
        return None


def _folder(location: str) -> str:
    return _fetched(location) if location.startswith(HUB) else location


def _description(location: str, folder: str) -> Description:
    return _parsed(_read(location, folder, DESCRIPTION), f"{location}: {DESCRIPTION}")


def _fingerprint(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@cache
def _adapter() -> TypeAdapter[Description]:
    return TypeAdapter(Description)


def _parsed(text: bytes, source: str) -> Description:
    """A description from JSON; every mistake is told with its place in `source`."""
    try:
        values: Any = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{source} is not valid JSON: {error}") from None
    version = values.get("format_version") if isinstance(values, dict) else None
    if not isinstance(version, int):
        raise ConfigError(f"{source} does not describe a MAST model: it has no format_version.")
    if version > FORMAT:
        raise ConfigError(
            f"{source} is of format {version}, from a newer MAST; this one reads format {FORMAT}. "
            "Get the newer one: pip install --upgrade mast-bioacoustics"
        )
    # Defaults are for new models: one that was written says everything itself.
    mistakes = [f"{item.name} is missing" for item in fields(Description) if item.name not in values]
    if not mistakes:
        try:
            return _adapter().validate_python(values)
        except ValidationError as error:
            mistakes = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
    raise ConfigError("\n".join(f"{source}: {mistake}." for mistake in mistakes))


def _read(location: str, folder: str, name: str) -> bytes:
    """Content of one of a model's files, or why there is none; messages speak of `location`."""
    try:
        with open_binary(join(folder, name)) as file:
            return b"".join(iter(lambda: file.read(_BLOCK_BYTES), b""))
    except (FileNotFoundError, NotADirectoryError):
        raise StorageError(f"{location}: {_why_not(location, folder)}") from None
    except OSError as error:
        raise StorageError(f"{location}: {name} cannot be read: {error}") from error


def _why_not(location: str, folder: str) -> str:
    """What is wrong with a folder that misses a file of its model; of the Hub, it is not even made when empty."""
    has_weights, has_description = (exists(join(folder, name)) for name in (WEIGHTS, DESCRIPTION))
    if has_weights:
        return (
            f"this model was not written to its end: {WEIGHTS} is there, {DESCRIPTION} is not. "
            "Copy both files, or make the model anew."
        )
    if has_description:
        return f"{DESCRIPTION} is there, {WEIGHTS} is not. Copy both files."
    if is_folder(folder) or location.startswith(HUB):
        return (
            f"no model in here: there is no {DESCRIPTION} and no {WEIGHTS}. "
            "A checkpoint of another project is brought over with mast import."
        )
    if exists(folder):
        return (
            f"a model is a folder with {DESCRIPTION} and {WEIGHTS}, and this is a file. "
            "A checkpoint of another project is brought over with mast import."
        )
    return "there is no such folder."


def _fetched(location: str) -> str:
    """Folder of a model of the Hugging Face Hub, downloaded where it is not yet; nothing but its two files."""
    address = _HUB_ADDRESS.fullmatch(location)
    if not address:
        raise ConfigError(f"{location}: write it as hf://owner/name or hf://owner/name@revision.")
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import (
            GatedRepoError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
    except ImportError:
        raise MissingExtraError("A model of the Hugging Face Hub", "train") from None
    try:
        return str(
            snapshot_download(
                address["repository"],
                revision=address["revision"],
                allow_patterns=[DESCRIPTION, WEIGHTS],
                library_name="mast",
                library_version=mast.__version__,
            )
        )
    except GatedRepoError:
        why = "its owner gives access on request. Ask for it on its page, then log in: hf auth login"
    except RepositoryNotFoundError:
        why = "the Hub has no such model, or it is private. Check the name, or log in: hf auth login"
    except RevisionNotFoundError:
        why = f"the Hub has this model, but no revision {address['revision']} of it."
    except LocalEntryNotFoundError as error:
        reason = str(error.__cause__ or error).splitlines()[0].rstrip(".:")
        why = (
            f"it was not downloaded before, and the Hugging Face Hub cannot be reached ({reason}). "
            "Connect to the network, or copy the model here and give its folder."
        )
    except Exception as error:  # of the HTTP library, which differs between releases of huggingface_hub
        why = f"cannot be downloaded: {error}"
    raise StorageError(f"{location}: {why}")
