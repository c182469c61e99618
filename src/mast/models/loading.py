"""Load a saved model for inference: its network and its front end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from torch import Tensor, nn

from mast.audio.spectrogram import chunk_frames
from mast.errors import ModelError
from mast.models.adapter import ADAPTERS, TopDownAdapter
from mast.models.checkpoint import ModelInfo, load_model
from mast.models.conv_encoder import ConvEncoder, ConvEncoderShape
from mast.models.detector import Detector
from mast.models.encoder import Encoder, EncoderShape
from mast.models.fpn import Pyramid
from mast.models.frontend import FrontEnd
from mast.models.head import Head
from mast.store.audio_store import AudioStore, StoreLayout

Network = TypeVar("Network", bound=nn.Module)
Network_co = TypeVar("Network_co", bound=nn.Module, covariant=True)
AnyEncoder: TypeAlias = Encoder | ConvEncoder


@dataclass(frozen=True, slots=True)
class LoadedModel(Generic[Network_co]):
    """A network in evaluation mode, its front end and its metadata."""

    description: ModelInfo
    network: Network_co
    frontend: FrontEnd


def load_encoder(location: str, store: AudioStore | None = None) -> LoadedModel[AnyEncoder]:
    """Load the encoder of any model from a folder, s3://… or hf://owner/name.

    Raise ModelError if its chunks do not match those of `store`.
    """
    description, tensors = load_model(location)
    if store:
        check_store(location, description, store)
    frontend = _frontend(location, description)
    return LoadedModel(
        description,
        _load_tensors(location, build_encoder(description), strip_prefix(tensors, "encoder.")),
        frontend,
    )


def load_detector(location: str, store: AudioStore | None = None) -> LoadedModel[Detector]:
    """Load a trained detector from a folder, s3://… or hf://owner/name.

    Raise ModelError if its chunks do not match those of `store`.
    """
    description, tensors = load_model(location)
    if description.kind != "detector":
        raise ModelError(
            f"{location} is a model of kind {description.kind}, which cannot predict boxes. "
            "Train a detector from it: mast train STUDY --set train.init_from=…"
        )
    if store:
        check_store(location, description, store)
    frontend = _frontend(location, description)
    detector = build_detector(description.architecture, build_encoder(description))
    return LoadedModel(description, _load_tensors(location, detector, tensors), frontend)


def check_store(location: str, description: ModelInfo, store: AudioStore) -> None:
    """Raise ModelError if a model's chunks differ from those of the prepared audio."""
    chunking, (rate_hz, samples) = (
        description.chunking,
        (store.layout.sample_rate_hz, store.layout.block_samples),
    )
    if StoreLayout.of(chunking) != store.layout:
        raise ModelError(
            f"{location} reads chunks of {chunking.chunk_s:g} s at {chunking.sample_rate_hz} Hz; {store.location} holds "
            f"chunks of {samples / rate_hz:g} s at {rate_hz} Hz. Use a model of this study, or set "
            f"chunking.sample_rate_hz to {chunking.sample_rate_hz} and chunking.chunk_s to {chunking.chunk_s:g}, and run "
            "mast split and mast prepare again."
        )


def build_encoder(description: ModelInfo) -> AnyEncoder:
    """Build an encoder with a model's architecture and random weights."""
    frames = chunk_frames(description.chunking.chunk_s, description.spectrogram)
    try:
        shape = encoder_shape(description.architecture["encoder"])
    except (KeyError, TypeError):
        raise ModelError(
            f"model.json of this {description.kind} has no encoder architecture. Create or import the model again."
        ) from None
    return ConvEncoder(shape) if isinstance(shape, ConvEncoderShape) else Encoder(shape, frames)


def encoder_shape(values: Any) -> EncoderShape | ConvEncoderShape:
    """Return the shape of an encoder from the plain values in a model's architecture."""
    return ConvEncoderShape(**values) if "network" in values else EncoderShape(**values)


def build_detector(architecture: Mapping[str, Any], encoder: AnyEncoder) -> Detector:
    """Build a detector with an encoder; adapter, pyramid and head have random weights."""
    levels, channels = architecture["levels"], architecture["channels"]
    width = architecture["head_width"]
    if isinstance(encoder, ConvEncoder):
        return Detector(
            encoder,
            TopDownAdapter(encoder.shape.channels, channels),
            Pyramid(levels, channels),
            Head(levels, width, channels, architecture["head_layers"], separable=True),
        )
    return Detector(
        encoder,
        ADAPTERS[architecture["adapter"]](encoder.shape.width, channels),
        Pyramid(levels, channels),
        Head(levels, width, channels),
    )


def _load_tensors(location: str, network: Network, tensors: Mapping[str, Tensor]) -> Network:
    """Load the weights of a network and set it to evaluation mode."""
    try:
        network.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise ModelError(
            f"{location}: the weights do not fit the architecture in model.json. Create the model again. {error}"
        ) from None
    return network.eval()


def strip_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with a prefix, with the prefix removed."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _frontend(location: str, description: ModelInfo) -> FrontEnd:
    if description.normalisation is None:
        raise ModelError(
            f"{location} does not state how spectrograms are normalised. Create or import the model again."
        )
    return FrontEnd(description.chunking, description.spectrogram, description.normalisation)
