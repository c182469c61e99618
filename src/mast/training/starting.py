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
from mast.models.encoder import SIZES, Encoder, EncoderShape, extended
from mast.models.loading import below, detector_of
from mast.normalisation import Normalisation
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
    settings = study.train
    torch.manual_seed(settings.seed)
    encoder, start, tensors = starting_encoder(study, settings.start)
    architecture: dict[str, Any] = {
        "encoder": asdict(encoder.shape),
        "adapter": study.model.adapter,
        "levels": study.model.levels,
        **WIDTHS[study.model.size],
    }
    detector = detector_of(architecture, encoder)
    if settings.start and start and start.kind == "detector":
        check_normalisation(settings.start, start, study)
        _load_rest(settings.start, start.architecture, architecture, detector, tensors)
    return Description(
        kind="detector",
        architecture=architecture,
        spectrogram=study.spectrogram,
        chunking=study.chunking,
        normalisation=starting_normalisation(study, start),
        licence=start.licence if start else UNBOUND,
        source=f"mast {verb}, started from {settings.start or 'random weights'}",
        parent=start.identity if start else None,
        data=store.fingerprint,
    ), detector


def starting_encoder(
    study: Study, location: str | None
) -> tuple[Encoder, Description | None, dict[str, Tensor]]:
    """An encoder with random weights, or with those of a model that hears as the study does, its description and weights.

    Positions are laid out as the model's; for longer chunks than it was made for they go on as they began.
    """
    shape = replace(SIZES[study.model.size], bins=study.spectrogram.bins)
    frames = frames_of(study.chunking.chunk_s, study.spectrogram)
    if location is None:
        return Encoder(shape, frames), None, {}
    description, tensors = load_model(location)
    found = EncoderShape(**cast(dict[str, Any], description.architecture["encoder"]))
    shape = replace(shape, raster_tokens=found.raster_tokens)
    if found != shape:
        raise ModelError(
            f"{location} has an encoder of {asdict(found)}, this study wants {asdict(shape)}. "
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
    encoder = Encoder(shape, frames)
    take_part(encoder, below(tensors, "encoder."), shape.raster_tokens)
    return encoder, description, tensors


def starting_normalisation(study: Study, start: Description | None) -> Normalisation:
    """The study's; where that is AudioMAE's kind, with the numbers of the model it starts from, such as Bird-MAE's."""
    own, before = read_normalisation(study), start and start.normalisation
    return before if before and before.kind == own.kind == "audiomae" else own


def take_part(part: Encoder | Decoder, weights: dict[str, Tensor], raster_tokens: int) -> None:
    """Give an encoder or decoder its weights, with positions for as many tokens as it has."""
    tokens = part.pos_embed.shape[1] - 1
    part.load_state_dict({**weights, "pos_embed": extended(weights["pos_embed"], tokens, raster_tokens)})


def check_normalisation(location: str, start: Description, study: Study) -> None:
    """Refuse a detector that hears through another kind of normalisation: what it has learned would not fit."""
    kind = start.normalisation and start.normalisation.kind
    if kind != study.normalisation:
        raise ModelError(
            f"{location} is a detector that hears with normalisation {kind}; this study has normalisation "
            f"{study.normalisation}. Set normalisation={kind}, or start from another one."
        )


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
