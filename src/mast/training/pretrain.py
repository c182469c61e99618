"""`mast pretrain`: the masked autoencoder on a study's training and unlabelled sound (paper, pretraining table)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, cast

import numpy as np
import torch
from pydantic import JsonValue
from torch import Tensor, nn

from mast.config import PATCH, Pretrain, Study
from mast.datasets.examples import detection_examples, pretraining_examples
from mast.datasets.loading import Batch, read_batch
from mast.datasets.order import spread
from mast.datasets.split_table import existing
from mast.errors import ConfigError
from mast.models.checkpoint import Description, known_identity, save_model
from mast.models.decoder import DECODERS, WINDOW, Decoder
from mast.models.devices import suit_attention
from mast.models.frontend import FrontEnd
from mast.models.loading import below
from mast.models.mae import MaskedAutoencoder, reconstruction_loss, restored, unpatched
from mast.models.masking import Mask, hide_any, hide_moments_and_bands, noise
from mast.normalisation import Normalisation
from mast.pictures.reconstruction import draw_reconstruction
from mast.recordings.store import AudioStore
from mast.spectrogram import frames_of
from mast.study.products import STORE
from mast.training.devices import start_fabric
from mast.training.loop import End, OnProgress, Sound, train
from mast.training.optimiser import Group
from mast.training.run import SPLITS, STARTED_FROM, Run, tables_of
from mast.training.starting import UNBOUND, starting_encoder, starting_normalisation, take_part

SETTINGS: Any = {
    "chunking": True,
    "spectrogram": True,
    "normalisation": True,
    "model": {"size"},
    "pretrain": True,
}
"""Settings that decide what is learned."""

VALIDATION_CHUNKS, VALIDATION_BATCH = 512, 16
PICTURED_CHUNKS = 3
VALIDATION_SEED = 1_000_000_007
"""Masks of validation are the same in every epoch and unlike any of training."""


class Pretraining(nn.Module):
    """Sound in, reconstruction loss out."""

    def __init__(self, frontend: FrontEnd, model: MaskedAutoencoder, settings: Pretrain) -> None:
        super().__init__()
        self.frontend, self.model, self.settings = frontend, model, settings

    def forward(self, sound: Tensor, filled: Tensor, *mask: Tensor) -> dict[str, Tensor]:
        """Mean loss over chunks whose tokens `mask` hides. (B, N), (B,), mask → loss"""
        spec = self.frontend(sound, filled)
        guess = self.model(spec, Mask(*mask))
        loss = reconstruction_loss(
            guess, spec, Mask(*mask), normalised_patches=self.settings.normalised_patches
        )
        return {"loss": loss.mean()}


class PretrainRecipe:
    """What pretraining adds to the loop."""

    def __init__(self, study: Study, store: AudioStore, ranks: tuple[int, int] = (0, 1)) -> None:
        """`ranks`: this process's rank, and how many there are."""
        self.study, self.store, self.settings = study, store, study.pretrain
        self.rank, self.ranks = ranks
        self.description, model = starting_model(study, store)
        normalisation = cast(Normalisation, self.description.normalisation)
        frontend = FrontEnd(study.chunking, study.spectrogram, normalisation)
        self.module = Pretraining(frontend, model, self.settings)
        self.sound = Sound(store, pretraining_examples(study, store, self.settings.seed))
        self.held = detection_examples(study, store, "val").chunks
        self.shown = self.held if len(self.held) else self.sound.examples
        shape = model.encoder.shape
        self.grid = (frontend.frames // PATCH, shape.band_tokens)

    def groups(self) -> Sequence[Group]:
        """All parameters alike."""
        return [Group(tuple(self.module.parameters()))]

    def inputs(self, batch: Batch, step: int, device: torch.device) -> tuple[Any, ...]:
        """Sound, how much of it is filled, and the mask, which follows from the seed, the step and the place."""
        size = len(batch.examples) * self.ranks
        mask = Mask(*(item[self.rank :: self.ranks] for item in self._mask(self.settings.seed, step, size)))
        return tuple(item.to(device) for item in (batch.sound, batch.filled, *mask))

    def begin_epoch(self, epoch: int) -> None:
        """Nothing to freeze."""
        suit_attention(self.module)

    def validate(self, model: nn.Module, device: torch.device) -> float | None:
        """Mean loss on validation chunks under fixed masks."""
        if not len(self.held):
            return None
        chosen = spread(len(self.held), VALIDATION_CHUNKS)
        total = 0.0
        for first in range(0, len(chosen), VALIDATION_BATCH):
            batch = read_batch(self.store, self.shown, chosen[first : first + VALIDATION_BATCH])
            mask = self._mask(VALIDATION_SEED, first, len(batch.sound))
            loss = model(*(item.to(device) for item in (batch.sound, batch.filled, *mask)))["loss"]
            total += float(loss) * len(batch.sound)
        return total / len(chosen)

    def end_epoch(self, model: nn.Module, epoch: int, run: Run) -> None:
        """Every few epochs, a picture of sound as it is, as the encoder sees it, and as it is guessed."""
        if (epoch + 1) % self.settings.picture_epochs and epoch + 1 != self.settings.epochs:
            return
        network = cast(Pretraining, model)
        device = next(network.parameters()).device
        batch = read_batch(self.store, self.shown, np.arange(min(PICTURED_CHUNKS, len(self.shown))))
        mask = Mask(*(item.to(device) for item in self._mask(VALIDATION_SEED, 0, len(batch.sound))))
        spec = network.frontend(batch.sound.to(device), batch.filled.to(device))
        guess = network.model(spec, mask).float()
        if self.settings.normalised_patches:
            guess = restored(guess, spec)
        hidden = mask.hidden.view(-1, *self.grid).transpose(1, 2)  # (B, F/16, T/16)
        draw_reconstruction(
            spec.cpu(),
            hidden.cpu(),
            unpatched(guess, self.grid[1]).cpu(),
            self.study,
            run.folder / f"reconstruction_{epoch + 1:04d}.png",
        )

    def save(self, model: nn.Module, run: Run) -> None:
        """Encoder and decoder, with all that is needed to use them."""
        loss = run.validation_loss(is_best_kept=self.settings.patience_epochs > 0)
        results: dict[str, JsonValue] = {**loss}
        weights = cast(Pretraining, model).model.state_dict()
        save_model(str(run.model), replace(self.description, results=results), weights)

    def _mask(self, seed: int, step: int, examples: int) -> Mask:
        """Masks for so many examples; the same numbers on every device."""
        moments, bands = self.grid
        if self.settings.masking == "random":
            return hide_any(noise(seed, 2 * step, examples, moments * bands), self.settings.hidden)
        return hide_moments_and_bands(
            noise(seed, 2 * step, examples, moments),
            noise(seed, 2 * step + 1, examples, bands),
            self.settings.hidden_moments,
            self.settings.hidden_bands,
        )


def starting_model(study: Study, store: AudioStore) -> tuple[Description, MaskedAutoencoder]:
    """The model of a study before its first step: random, or from a checkpoint with whatever decoder that has."""
    settings, size = study.pretrain, study.model.size
    frames = frames_of(study.chunking.chunk_s, study.spectrogram)
    _check_windows(study, frames)
    torch.manual_seed(settings.seed)
    encoder, start, tensors = starting_encoder(study, settings.start)
    shape = encoder.shape
    model = MaskedAutoencoder(encoder, Decoder(DECODERS[size][settings.decoder], shape, frames))
    if start and start.architecture.get("decoder") == asdict(model.decoder.shape):
        take_part(model.decoder, below(tensors, "decoder."), shape.raster_tokens)
    return Description(
        kind="masked-autoencoder",
        architecture={"encoder": asdict(shape), "decoder": asdict(model.decoder.shape)},
        spectrogram=study.spectrogram,
        chunking=study.chunking,
        normalisation=starting_normalisation(study, start),
        licence=start.licence if start else UNBOUND,
        source=f"mast pretrain{f', started from {settings.start}' if settings.start else ''}",
        parent=start.identity if start else None,
        data=store.fingerprint,
    ), model


def _check_windows(study: Study, frames: int) -> None:
    """Refuse chunks that the windows of the Swin decoder do not cover evenly."""
    tokens = (frames // PATCH, study.spectrogram.bins // PATCH)
    if study.pretrain.decoder == "swin" and any(count % WINDOW for count in tokens):
        raise ConfigError(
            f"A chunk of this study has {tokens[0]} tokens in time and {tokens[1]} in frequency; pretrain.decoder swin "
            f"takes them {WINDOW} at a time. Set pretrain.decoder=plain, or chunking.chunk_s and spectrogram.bins to "
            f"multiples of {PATCH * WINDOW} frames and bins."
        )


def pretrain_study(
    study: Study, run: Run, device: str = "auto", on_progress: OnProgress = lambda progress: None
) -> End:
    """Pretrain, or go on with it."""
    store = AudioStore(existing(study, STORE))
    settings = {
        "data": store.fingerprint,
        **tables_of(study, [SPLITS]),
        STARTED_FROM: known_identity(study.pretrain.start),
        **study.model_dump(mode="json", include=SETTINGS),
    }
    run.check(settings)
    if run.is_finished:
        return "finished"
    fabric = start_fabric(study.pretrain.precision, run, device)
    recipe = PretrainRecipe(study, store, (fabric.global_rank, fabric.world_size))
    run.open(settings)
    return train(recipe, recipe.sound, study.pretrain, run, fabric, on_progress)
