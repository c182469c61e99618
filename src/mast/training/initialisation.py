"""Initialise the detector: random weights, a pretrained encoder, or all weights of another detector."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from mast.audio.spectrogram import chunk_frames
from mast.config import Study
from mast.datasets.prepare import read_normalisation
from mast.errors import ModelError
from mast.models.checkpoint import ModelInfo, load_model
from mast.models.conv_encoder import ConvEncoder, ConvEncoderShape
from mast.models.detector import Detector
from mast.models.encoder import SIZES, Encoder, EncoderShape, extend_position_embedding
from mast.models.loading import AnyEncoder, build_detector, encoder_shape, strip_prefix
from mast.models.mae_decoder import Decoder
from mast.normalisation import Normalisation
from mast.store.audio_store import AudioStore

WIDTHS = {
    "tiny": {"channels": 128, "head_width": 64},
    "small": {"channels": 256, "head_width": 128},
    "base": {"channels": 256, "head_width": 256},
}
"""Channels of the maps and of the head's towers, by encoder size.

The paper gives those of the base encoder; with a smaller encoder they would cost several times as much as the encoder.
"""

LEAN_WIDTHS = {"channels": 64, "head_width": 64, "head_layers": 3}
"""Channels of the maps and layers of the towers beside a convolutional encoder; the towers are separable."""

ANY_STATISTICS = "as its training audio allows"
"""Licence of a model that was initialised with random weights."""


def initial_detector(study: Study, store: AudioStore, command: str) -> tuple[ModelInfo, Detector]:
    """Initialise the detector of a study for training by `command`, and describe it.

    Weights are random, those of a pretrained encoder, or those of another detector, depending on `train.init_from`.
    """
    settings = study.train
    torch.manual_seed(settings.seed)
    encoder, start, tensors = starting_encoder(study, settings.init_from)
    architecture = detector_architecture(study, encoder)
    detector = build_detector(architecture, encoder)
    if settings.init_from and start and start.kind == "detector":
        check_normalisation(settings.init_from, start, study)
        _load_remaining_parts(settings.init_from, start.architecture, architecture, detector, tensors)
    return ModelInfo(
        kind="detector",
        architecture=architecture,
        spectrogram=study.spectrogram,
        chunking=study.chunking,
        normalisation=starting_normalisation(study, start),
        licence=start.licence if start else ANY_STATISTICS,
        source=f"mast {command}, started from {settings.init_from or 'random weights'}",
        parent=start.identity if start else None,
        data=store.fingerprint,
    ), detector


def detector_architecture(study: Study, encoder: AnyEncoder) -> dict[str, Any]:
    """Return the plain values that describe a study's detector."""
    shared = {"encoder": asdict(encoder.shape), "levels": study.model.pyramid_levels}
    if isinstance(encoder, ConvEncoder):
        return {**shared, **LEAN_WIDTHS}
    return {**shared, "adapter": study.model.adapter, **WIDTHS[study.model.size]}


def starting_encoder(
    study: Study, location: str | None
) -> tuple[AnyEncoder, ModelInfo | None, dict[str, Tensor]]:
    """Return an encoder and, if it was loaded from the model at `location`, that model's description and weights.

    Without a location the weights are random. The model must have the sample rate and the spectrogram settings of the
    study. Position embeddings have the model's layout; for longer chunks than the model's they are extended.
    """
    bins, frames = study.spectrogram.n_mels, chunk_frames(study.chunking.chunk_s, study.spectrogram)
    shape: EncoderShape | ConvEncoderShape
    if study.model.encoder == "vit":
        shape = replace(SIZES[study.model.size], bins=bins)
    else:
        shape = ConvEncoderShape(study.model.encoder, bins)
    if location is None:
        return _random_encoder(shape, frames), None, {}
    description, tensors = load_model(location)
    loaded = encoder_shape(description.architecture["encoder"])
    if isinstance(shape, EncoderShape) and isinstance(loaded, EncoderShape):
        shape = replace(shape, raster_tokens=loaded.raster_tokens)
    if loaded != shape:
        raise ModelError(
            f"{location} has an encoder with {asdict(loaded)}, this study needs {asdict(shape)}. "
            "Set model.encoder and model.size to those of that model, or start from another model."
        )
    if (description.spectrogram, description.chunking.sample_rate_hz) != (
        study.spectrogram,
        study.chunking.sample_rate_hz,
    ):
        raise ModelError(
            f"{location} was trained on {description.chunking.sample_rate_hz} Hz audio with {description.spectrogram}; "
            f"this study has {study.chunking.sample_rate_hz} Hz and {study.spectrogram}. Set the same values, or start "
            "from another model."
        )
    encoder, weights = _random_encoder(shape, frames), strip_prefix(tensors, "encoder.")
    if isinstance(encoder, ConvEncoder):
        encoder.load_state_dict(weights)
    else:
        load_part(encoder, weights, encoder.shape.raster_tokens)
    return encoder, description, tensors


def _random_encoder(shape: EncoderShape | ConvEncoderShape, frames: int) -> AnyEncoder:
    return ConvEncoder(shape) if isinstance(shape, ConvEncoderShape) else Encoder(shape, frames)


def starting_normalisation(study: Study, start: ModelInfo | None) -> Normalisation:
    """Return the study's normalisation, or that of the initial model of the same kind if its weights depend on it.

    The weights of a detector fit its own scale. AudioMAE's are kept because models such as Bird-MAE have others.
    """
    normalisation, initial = read_normalisation(study), start and start.normalisation
    if start is None or initial is None or initial.kind != normalisation.kind:
        return normalisation
    return initial if start.kind == "detector" or initial.kind == "audiomae" else normalisation


def load_part(part: Encoder | Decoder, weights: dict[str, Tensor], raster_tokens: int) -> None:
    """Load weights into an encoder or decoder, with the position embeddings extended to its number of tokens."""
    tokens = part.pos_embed.shape[1] - 1
    part.load_state_dict(
        {**weights, "pos_embed": extend_position_embedding(weights["pos_embed"], tokens, raster_tokens)}
    )


def check_normalisation(location: str, start: ModelInfo, study: Study) -> None:
    """Raise ModelError if a detector was trained with another kind of normalisation: its weights would not fit."""
    kind = start.normalisation and start.normalisation.kind
    if kind != study.normalisation:
        raise ModelError(
            f"{location} is a detector trained with normalisation {kind}; this study has normalisation "
            f"{study.normalisation}. Set normalisation={kind}, or start from another model."
        )


def _load_remaining_parts(
    location: str,
    loaded: dict[str, Any],
    expected: dict[str, Any],
    detector: Detector,
    tensors: dict[str, Tensor],
) -> None:
    """Load adapter, pyramid and head; raise ModelError if any part of the architecture differs."""
    differences = [
        f"{name} {loaded[name]}, not {expected[name]}" for name in expected if loaded[name] != expected[name]
    ]
    if differences:
        raise ModelError(
            f"{location} is a detector with {'; '.join(differences)}. Set model.adapter and model.pyramid_levels to "
            "these values, or start from another model."
        )
    for name in ("adapter", "pyramid", "head"):
        detector.get_submodule(name).load_state_dict(strip_prefix(tensors, f"{name}."))
