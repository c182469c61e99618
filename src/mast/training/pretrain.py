"""`mast pretrain`: train the masked autoencoder on a study's training and unlabelled audio (paper, pretraining table)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from pydantic import JsonValue
from torch import Tensor, nn

from mast.audio.spectrogram import chunk_frames
from mast.config import PATCH_SIZE, Pretrain, Study
from mast.datasets.loader import Batch, read_batch
from mast.datasets.sampler import evenly_spaced
from mast.datasets.split_table import require_artifact
from mast.datasets.study_datasets import detection_dataset, pretraining_dataset
from mast.errors import ConfigError
from mast.models.checkpoint import ModelInfo, read_model_id, save_model
from mast.models.conv_encoder import ConvEncoder
from mast.models.devices import select_attention_kernel
from mast.models.frontend import FrontEnd
from mast.models.loading import strip_prefix
from mast.models.mae import MaskedAutoencoder, denormalise_patches, reconstruction_loss, unpatchify
from mast.models.mae_decoder import DECODERS, WINDOW, Decoder
from mast.models.masking import Mask, noise, random_mask, structured_mask
from mast.normalisation import Normalisation
from mast.plotting.reconstruction import plot_reconstruction
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE
from mast.training.initialisation import ANY_STATISTICS, load_part, starting_encoder, starting_normalisation
from mast.training.loop import End, OnProgress, TrainingSet, run_training
from mast.training.optimiser import ParamGroup
from mast.training.run_dir import SPLITS, STARTED_FROM, TrainingRun, table_fingerprints

SETTINGS: Any = {
    "chunking": True,
    "spectrogram": True,
    "normalisation": True,
    "model": {"size"},
    "pretrain": True,
}
"""Settings that affect the trained weights."""

VALIDATION_CHUNKS, VALIDATION_BATCH = 512, 16
PLOTTED_CHUNKS = 3
VALIDATION_SEED = 1_000_000_007
"""Seed of the validation masks: they are the same in every epoch and differ from all training masks."""


class PretrainingModule(nn.Module):
    """Masked autoencoder with the front end: from audio to the reconstruction loss."""

    def __init__(self, frontend: FrontEnd, model: MaskedAutoencoder, settings: Pretrain) -> None:
        super().__init__()
        self.frontend, self.model, self.settings = frontend, model, settings

    def forward(self, audio: Tensor, valid_samples: Tensor, *mask: Tensor) -> dict[str, Tensor]:
        """Return the mean reconstruction loss over chunks with masked tokens. (B, N), (B,), mask → loss"""
        spec = self.frontend(audio, valid_samples)
        reconstruction = self.model(spec, Mask(*mask))
        loss = reconstruction_loss(
            reconstruction, spec, Mask(*mask), norm_pix_loss=self.settings.norm_pix_loss
        )
        return {"loss": loss.mean()}


class PretrainTask:
    """Training task of the masked autoencoder: data, masks, validation, and saving."""

    def __init__(self, study: Study, store: AudioStore, ranks: tuple[int, int] = (0, 1)) -> None:
        """Build model and data; `ranks` are the rank of this process and the number of processes."""
        self.study, self.store, self.settings = study, store, study.pretrain
        self.rank, self.world_size = ranks
        self.description, model = initial_model(study, store)
        normalisation = cast(Normalisation, self.description.normalisation)
        frontend = FrontEnd(study.chunking, study.spectrogram, normalisation)
        self.module = PretrainingModule(frontend, model, self.settings)
        self.training_set = TrainingSet(store, pretraining_dataset(study, store, self.settings.seed))
        self.validation_set = detection_dataset(study, store, "val").chunks
        self.plotted_examples = (
            self.validation_set if len(self.validation_set) else self.training_set.examples
        )
        shape = model.encoder.shape
        self.grid = (frontend.frames // PATCH_SIZE, shape.band_tokens)

    def param_groups(self) -> Sequence[ParamGroup]:
        """Return all parameters as one group."""
        return [ParamGroup(tuple(self.module.parameters()))]

    def prepare_batch(self, batch: Batch, step: int, device: torch.device) -> tuple[Any, ...]:
        """Return audio, valid samples and mask; the mask follows from seed, step and position in the batch."""
        size = len(batch.examples) * self.world_size
        mask = Mask(
            *(item[self.rank :: self.world_size] for item in self._mask(self.settings.seed, step, size))
        )
        return tuple(item.to(device) for item in (batch.audio, batch.valid_samples, *mask))

    def begin_epoch(self, epoch: int) -> None:
        """Select the attention kernel; there is nothing to freeze."""
        select_attention_kernel(self.module)

    def validate(self, model: nn.Module, device: torch.device) -> float | None:
        """Return the mean loss on validation chunks with fixed masks."""
        if not len(self.validation_set):
            return None
        rows = evenly_spaced(len(self.validation_set), VALIDATION_CHUNKS)
        total = 0.0
        for first in range(0, len(rows), VALIDATION_BATCH):
            batch = read_batch(self.store, self.plotted_examples, rows[first : first + VALIDATION_BATCH])
            mask = self._mask(VALIDATION_SEED, first, len(batch.audio))
            loss = model(*(item.to(device) for item in (batch.audio, batch.valid_samples, *mask)))["loss"]
            total += float(loss) * len(batch.audio)
        return total / len(rows)

    def end_epoch(self, model: nn.Module, epoch: int, run: TrainingRun) -> None:
        """Plot original, masked and reconstructed spectrograms, every `plot_every_epochs` epochs."""
        if (epoch + 1) % self.settings.plot_every_epochs and epoch + 1 != self.settings.epochs:
            return
        network = cast(PretrainingModule, model)
        device = next(network.parameters()).device
        batch = read_batch(
            self.store, self.plotted_examples, np.arange(min(PLOTTED_CHUNKS, len(self.plotted_examples)))
        )
        mask = Mask(*(item.to(device) for item in self._mask(VALIDATION_SEED, 0, len(batch.audio))))
        spec = network.frontend(batch.audio.to(device), batch.valid_samples.to(device))
        reconstruction = network.model(spec, mask).float()
        if self.settings.norm_pix_loss:
            reconstruction = denormalise_patches(reconstruction, spec)
        masked = mask.mask.view(-1, *self.grid).transpose(1, 2)  # (B, F/16, T/16)
        plot_reconstruction(
            spec.cpu(),
            masked.cpu(),
            unpatchify(reconstruction, self.grid[1]).cpu(),
            self.study,
            run.folder / f"reconstruction_{epoch + 1:04d}.png",
        )

    def save(self, model: nn.Module, run: TrainingRun) -> None:
        """Save encoder and decoder with their metadata."""
        loss = run.validation_loss(keep_best=self.settings.early_stopping_patience > 0)
        results: dict[str, JsonValue] = {**loss}
        weights = cast(PretrainingModule, model).model.state_dict()
        save_model(str(run.model), replace(self.description, results=results), weights)

    def _mask(self, seed: int, step: int, examples: int) -> Mask:
        """Return the masks of `examples` examples; they are the same on every device."""
        time_tokens, band_tokens = self.grid
        if self.settings.masking == "random":
            return random_mask(
                noise(seed, 2 * step, examples, time_tokens * band_tokens), self.settings.mask_ratio
            )
        return structured_mask(
            noise(seed, 2 * step, examples, time_tokens),
            noise(seed, 2 * step + 1, examples, band_tokens),
            self.settings.mask_ratio_time,
            self.settings.mask_ratio_freq,
        )


def initial_model(study: Study, store: AudioStore) -> tuple[ModelInfo, MaskedAutoencoder]:
    """Initialise the model of a study, with random weights or from a checkpoint, and describe it.

    The decoder is loaded only if the checkpoint has one of the same shape.
    """
    settings, size = study.pretrain, study.model.size
    frames = chunk_frames(study.chunking.chunk_s, study.spectrogram)
    _check_windows(study, frames)
    torch.manual_seed(settings.seed)
    encoder, start, tensors = starting_encoder(study, settings.init_from)
    if isinstance(encoder, ConvEncoder):
        raise ConfigError(
            f"mast pretrain masks the patches of a vision transformer, and model.encoder is {study.model.encoder}. Set "
            "model.encoder to vit, or train without pretraining."
        )
    shape = encoder.shape
    model = MaskedAutoencoder(encoder, Decoder(DECODERS[size][settings.decoder], shape, frames))
    if start and start.architecture.get("decoder") == asdict(model.decoder.shape):
        load_part(model.decoder, strip_prefix(tensors, "decoder."), shape.raster_tokens)
    return ModelInfo(
        kind="masked-autoencoder",
        architecture={"encoder": asdict(shape), "decoder": asdict(model.decoder.shape)},
        spectrogram=study.spectrogram,
        chunking=study.chunking,
        normalisation=starting_normalisation(study, start),
        licence=start.licence if start else ANY_STATISTICS,
        source=f"mast pretrain{f', started from {settings.init_from}' if settings.init_from else ''}",
        parent=start.identity if start else None,
        data=store.fingerprint,
    ), model


def _check_windows(study: Study, frames: int) -> None:
    """Raise ConfigError if the windows of the Swin decoder do not tile a chunk."""
    tokens = (frames // PATCH_SIZE, study.spectrogram.n_mels // PATCH_SIZE)
    if study.pretrain.decoder == "swin" and any(count % WINDOW for count in tokens):
        raise ConfigError(
            f"A chunk of this study has {tokens[0]} tokens in time and {tokens[1]} in frequency; pretrain.decoder swin "
            f"needs multiples of {WINDOW}. Set pretrain.decoder=plain, or chunking.chunk_s and spectrogram.n_mels to "
            f"multiples of {PATCH_SIZE * WINDOW} frames and bins."
        )


def pretrain_study(
    study: Study, run: TrainingRun, device: str = "auto", on_progress: OnProgress = lambda progress: None
) -> End:
    """Pretrain an encoder, or resume its pretraining."""
    store = AudioStore(require_artifact(study, STORE))
    settings = {
        "data": store.fingerprint,
        **table_fingerprints(study, [SPLITS]),
        STARTED_FROM: read_model_id(study.pretrain.init_from),
        **study.model_dump(mode="json", include=SETTINGS),
    }
    return run_training(
        partial(PretrainTask, study, store), study.pretrain, run, settings, device, on_progress
    )
