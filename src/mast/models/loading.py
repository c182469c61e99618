"""From a model at rest to one that can be asked: its network and the front end that it hears through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import Tensor, nn

from mast.errors import ModelError
from mast.models.adapter import ADAPTERS
from mast.models.checkpoint import Description, load_model
from mast.models.detector import Detector
from mast.models.encoder import Encoder, EncoderShape
from mast.models.frontend import FrontEnd
from mast.models.head import Head
from mast.models.pyramid import Pyramid
from mast.recordings.store import AudioStore, Layout
from mast.spectrogram import frames_of

Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[Network]):
    """A network in evaluation mode, its front end, and all that is known about it."""

    description: Description
    network: Network
    frontend: FrontEnd


def load_encoder(location: str, store: AudioStore | None = None) -> Loaded[Encoder]:
    """The encoder of any model: a folder, s3://… or hf://owner/name; refused if it cannot hear the sound of a store."""
    description, tensors = load_model(location)
    if store:
        check_store(location, description, store)
    frontend = _frontend(location, description)
    return Loaded(
        description, _filled(location, encoder_of(description), below(tensors, "encoder.")), frontend
    )


def load_detector(location: str, store: AudioStore | None = None) -> Loaded[Detector]:
    """A trained detector: a folder, s3://… or hf://owner/name; refused if it cannot hear the sound of a store."""
    description, tensors = load_model(location)
    if description.kind != "detector":
        raise ModelError(
            f"{location} is a model of kind {description.kind}, which cannot find boxes. "
            "Train one from it: mast train STUDY --set train.start=…"
        )
    if store:
        check_store(location, description, store)
    frontend = _frontend(location, description)
    detector = detector_of(description.architecture, encoder_of(description))
    return Loaded(description, _filled(location, detector, tensors), frontend)


def check_store(location: str, description: Description, store: AudioStore) -> None:
    """Refuse a model that hears other chunks than a study's prepared sound has."""
    wanted, (rate_hz, samples) = (
        description.chunking,
        (store.layout.sample_rate_hz, store.layout.step_samples),
    )
    if Layout.of(wanted) != store.layout:
        raise ModelError(
            f"{location} hears chunks of {wanted.chunk_s:g} s at {wanted.sample_rate_hz} Hz; {store.location} holds "
            f"chunks of {samples / rate_hz:g} s at {rate_hz} Hz. Use a model of this study, or set "
            f"chunking.sample_rate_hz to {wanted.sample_rate_hz} and chunking.chunk_s to {wanted.chunk_s:g}, and run "
            "mast splits and mast prepare again."
        )


def encoder_of(description: Description) -> Encoder:
    """An encoder of a model's shape, with random weights."""
    shape: Any = description.architecture.get("encoder")
    if not isinstance(shape, Mapping):
        raise ModelError(
            f"A {description.kind} without an encoder's shape in model.json. Make or import the model again."
        )
    return Encoder(EncoderShape(**shape), frames_of(description.chunking.chunk_s, description.spectrogram))


def detector_of(architecture: Mapping[str, Any], encoder: Encoder) -> Detector:
    """A detector of a model's shape around an encoder; adapter, pyramid and head have random weights."""
    levels, channels = architecture["levels"], architecture["channels"]
    return Detector(
        encoder,
        ADAPTERS[architecture["adapter"]](encoder.shape.width, channels),
        Pyramid(levels, channels),
        Head(levels, architecture["head_width"], channels),
    )


def _filled(location: str, network: Network, tensors: Mapping[str, Tensor]) -> Network:
    """A network with its weights, in evaluation mode."""
    try:
        network.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise ModelError(
            f"{location}: its weights are not those of the network it describes. Make the model anew. {error}"
        ) from None
    return network.eval()


def below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Tensors whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _frontend(location: str, description: Description) -> FrontEnd:
    if description.normalisation is None:
        raise ModelError(
            f"{location} does not say how spectrograms are scaled for it. Make or import the model again."
        )
    return FrontEnd(description.chunking, description.spectrogram, description.normalisation)
