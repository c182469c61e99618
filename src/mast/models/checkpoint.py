"""Save and load models: a folder with `weights.safetensors` and `model.json`, on disk, s3:// or the Hugging Face Hub.

`model.json` is written last, so its existence means that the model is complete. It contains the fingerprint of the
weights, so a mismatch between the two files is detected.
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

from mast.config import Chunking, Spectrogram
from mast.errors import ConfigError, MissingExtraError, StorageError
from mast.models.location import DESCRIPTION, HUB, WEIGHTS, missing_reason, model_folder
from mast.normalisation import Normalisation
from mast.storage import atomic_write, join, open_binary
from mast.version import __version__

Kind = Literal["encoder", "masked-autoencoder", "detector"]

FORMAT = 1
"""Version of the format; increase it when an older MAST could misread a newer model."""

_HUB_ADDRESS = re.compile(r"hf://(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^@\s]+))?/?")
_BLOCK_BYTES = 1 << 24  # one request to an object store; reading all at once would send many small requests


def installed_versions() -> dict[str, str]:
    """Return the versions of MAST and torch."""
    return {"mast": __version__, "torch": torch.__version__}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Metadata of a model: architecture, input format and provenance.

    `architecture` holds plain values to build the network from; `data` is the fingerprint of the prepared training audio;
    `parent` is the identity of the model that training started from; `weights` is the fingerprint of the weights, None
    until the model is saved.
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
        """Short hash of everything that determines predictions: weights, architecture, normalisation, input grid.

        The provenance of the normalisation and the hop between chunks are not included.
        """
        if self.weights is None:
            raise ValueError("A model has no identity before it is saved: call save_model first.")
        scaling = asdict(self.normalisation) if self.normalisation else {}
        scaling.pop("provenance", None)
        grid = [self.spectrogram.model_dump(), self.chunking.sample_rate_hz, self.chunking.chunk_s]
        parts = [self.weights, self.architecture, scaling, grid]
        return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=8).hexdigest()


def save_model(location: str, description: ModelInfo, tensors: Mapping[str, Tensor]) -> ModelInfo:
    """Write a model to a folder or s3://, replacing an existing one; return its metadata with the fingerprint.

    Tensors of any device and memory layout are written as separate contiguous tensors.
    """
    from safetensors.torch import save

    if location.startswith(HUB):
        raise ConfigError(
            f"{location}: models are written to a folder or to s3://. Publish a folder with: hf upload owner/name FOLDER"
        )
    contiguous = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    data = save(contiguous)
    written = replace(description, weights=_fingerprint(data), format_version=FORMAT)
    try:
        with atomic_write(join(location, WEIGHTS)) as file:
            file.write(data)
        with atomic_write(join(location, DESCRIPTION)) as file:
            file.write(_adapter().dump_json(written, indent=2) + b"\n")
    except OSError as error:
        raise StorageError(f"{location}: the model cannot be written: {error}") from error
    return written


def read_model_info(location: str) -> ModelInfo:
    """Read the metadata of a model without its weights."""
    return _description(location, _folder(location))


def load_model(location: str) -> tuple[ModelInfo, dict[str, Tensor]]:
    """Load and verify a model from a folder, s3://bucket/prefix, hf://owner/name or hf://owner/name@revision."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    folder = _folder(location)
    description = _description(location, folder)
    data = _read(location, folder, WEIGHTS)
    try:
        tensors = load(data)
    except SafetensorError as error:
        raise StorageError(
            f"{location}: {WEIGHTS} is damaged or truncated ({error}). Copy or download the model again."
        ) from None
    if _fingerprint(data) != description.weights:
        raise StorageError(
            f"{location}: {WEIGHTS} is not the file that {DESCRIPTION} describes: it is damaged, it belongs to "
            "another model, or replacing the model was interrupted. Copy both files again, or create the model again."
        )
    return description, tensors


def copy_model(location: str, target: str) -> None:
    """Copy the files of a model to a folder or s3://; `model.json` is written last."""
    folder = _folder(location)
    for name in (WEIGHTS, DESCRIPTION):
        data = _read(location, folder, name)
        with atomic_write(join(target, name)) as file:
            file.write(data)


def read_model_id(location: str | None) -> str | None:
    """Return the identity of the model at a location, None if no model can be read there."""
    try:
        return _description(location, _folder(location)).identity if location else None
    except (ConfigError, StorageError):
        return None


def _folder(location: str) -> str:
    return _download(location) if location.startswith(HUB) else model_folder(location)


def _description(location: str, folder: str) -> ModelInfo:
    return _parse(_read(location, folder, DESCRIPTION), f"{location}: {DESCRIPTION}")


def _fingerprint(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@cache
def _adapter() -> TypeAdapter[ModelInfo]:
    return TypeAdapter(ModelInfo)


def _parse(text: bytes, source: str) -> ModelInfo:
    """Parse metadata from JSON; raise ConfigError with every mistake and its field in `source`."""
    try:
        values: Any = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{source} is not valid JSON: {error}") from None
    version = values.get("format_version") if isinstance(values, dict) else None
    if not isinstance(version, int):
        raise ConfigError(f"{source} does not describe a MAST model: it has no format_version.")
    if version > FORMAT:
        raise ConfigError(
            f"{source} has format {version}, from a newer MAST; this version reads format {FORMAT}. "
            "Upgrade: pip install --upgrade mast-bioacoustics"
        )
    # Defaults are for new models; a written model contains every field.
    mistakes = [f"{entry.name} is missing" for entry in fields(ModelInfo) if entry.name not in values]
    if not mistakes:
        try:
            return _adapter().validate_python(values)
        except ValidationError as error:
            mistakes = [f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}" for entry in error.errors()]
    raise ConfigError("\n".join(f"{source}: {mistake}." for mistake in mistakes))


def _read(location: str, folder: str, name: str) -> bytes:
    """Read a file of a model; raise StorageError with the reason, naming `location`, if it cannot be read."""
    try:
        with open_binary(join(folder, name)) as file:
            return b"".join(iter(lambda: file.read(_BLOCK_BYTES), b""))
    except (FileNotFoundError, NotADirectoryError):
        raise StorageError(f"{location}: {missing_reason(location, folder)}") from None
    except OSError as error:
        raise StorageError(f"{location}: {name} cannot be read: {error}") from error


def _download(location: str) -> str:
    """Download the two files of a model from the Hugging Face Hub unless they are cached; return their folder."""
    address = _HUB_ADDRESS.fullmatch(location)
    if not address:
        raise ConfigError(f"{location}: the address must be hf://owner/name or hf://owner/name@revision.")
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
                library_version=__version__,
            )
        )
    except GatedRepoError:
        reason = "its owner grants access on request. Request access on its page, then log in: hf auth login"
    except RepositoryNotFoundError:
        reason = "the Hub has no such model, or it is private. Check the name, or log in: hf auth login"
    except RevisionNotFoundError:
        reason = f"the Hub has this model, but no revision {address['revision']}."
    except LocalEntryNotFoundError as error:
        cause = str(error.__cause__ or error).splitlines()[0].rstrip(".:")
        reason = (
            f"it was not downloaded before, and the Hugging Face Hub cannot be reached ({cause}). "
            "Connect to the network, or copy the model to this computer and use its folder."
        )
    except Exception as error:  # from the HTTP library, which depends on the version of huggingface_hub
        reason = f"cannot be downloaded: {error}"
    raise StorageError(f"{location}: {reason}")
