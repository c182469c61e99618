"""The detector before its first step: random, around a pretrained encoder, or as another run left it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, cast

import torch
from torch import Tensor

from mast.config import Study
from mast.datasets.preparing import read_normalisation
from mast.errors import ModelError
from mast.models.checkpoint import Description, load_model
from mast.models.decoder import Decoder
from mast.models.detector import Detector
from mast.models.encoder import SIZES, Encoder, extended
from mast.models.loading import below, detector_of
from mast.recordings.store import AudioStore
from mast.spectrogram import frames_of

WIDTHS = {
    "tiny": {"channels": 128, "head_width": 64},
    "small": {"channels": 256, "head_width": 128},
    "base": {"channels": 256, "head_width": 256},
}
"""Channels of the maps and of the head's towers. The paper gives the base encoder's; beside a smaller encoder they would
cost several times what it does itself."""

UNBOUND = "as its training sound allows"
"""Licence of a model that started from random weights."""


def starting_detector(study: Study, store: AudioStore, verb: str) -> tuple[Description, Detector]:
    """The detector of a study before the first step of a `verb`: random, around a pretrained encoder, or as it was."""
    settings, frames = study.train, frames_of(study.chunking.chunk_s, study.spectrogram)
    torch.manual_seed(settings.seed)
    shape = replace(SIZES[study.model.size], bins=study.spectrogram.bins)
    architecture: dict[str, Any] = {
        "encoder": asdict(shape),
        "adapter": study.model.adapter,
        "levels": study.model.levels,
        **WIDTHS[study.model.size],
    }
    detector = detector_of(architecture, Encoder(shape, frames))
    parent, licence = None, UNBOUND
    if settings.start is not None:
        start, tensors = take_encoder(settings.start, study, cast(Encoder, detector.encoder))
        parent, licence = start.identity, start.licence
        if start.kind == "detector":
            _load_rest(settings.start, start.architecture, architecture, detector, tensors)
    return Description(
        kind="detector",
        architecture=architecture,
        spectrogram=study.spectrogram,
        chunking=study.chunking,
        normalisation=read_normalisation(study),
        licence=licence,
        source=f"mast {verb}, started from {settings.start or 'random weights'}",
        parent=parent,
        data=store.fingerprint,
    ), detector


def take_encoder(location: str, study: Study, encoder: Encoder) -> tuple[Description, dict[str, Tensor]]:
    """Give an encoder the weights of a model that hears as the study does. → the model's description and all its weights

    Positions are those of the model; for longer chunks than it was made for they go on as they began.
    """
    description, tensors = load_model(location)
    found, wanted = description.architecture["encoder"], asdict(encoder.shape)
    if found != wanted:
        raise ModelError(
            f"{location} has an encoder of {found}, this study wants {wanted}. "
            "Set model.size to that of the model, or start from another one."
        )
    if (description.spectrogram, description.chunking.sample_rate_hz) != (
        study.spectrogram,
        study.chunking.sample_rate_hz,
    ):
        raise ModelError(
            f"{location} hears {description.chunking.sample_rate_hz} Hz sound with {description.spectrogram}; this study "
            f"has {study.chunking.sample_rate_hz} Hz and {study.spectrogram}. Make them equal, or start from another one."
        )
    take_part(encoder, below(tensors, "encoder."), encoder.shape.raster_tokens)
    return description, tensors


def take_part(part: Encoder | Decoder, weights: dict[str, Tensor], raster_tokens: int) -> None:
    """Give an encoder or decoder its weights, with positions for as many tokens as it has."""
    tokens = part.pos_embed.shape[1] - 1
    part.load_state_dict({**weights, "pos_embed": extended(weights["pos_embed"], tokens, raster_tokens)})


def _load_rest(
    location: str,
    found: dict[str, Any],
    wanted: dict[str, Any],
    detector: Detector,
    tensors: dict[str, Tensor],
) -> None:
    """Adapter, pyramid and head of a detector; one that is built otherwise is refused rather than half taken over."""
    differs = [f"{name} {found[name]}, not {wanted[name]}" for name in wanted if found[name] != wanted[name]]
    if differs:
        raise ModelError(
            f"{location} is a detector with {'; '.join(differs)}. Set model.adapter and model.levels to its own."
        )
    for name in ("adapter", "pyramid", "head"):
        detector.get_submodule(name).load_state_dict(below(tensors, f"{name}."))
