"""`mast train`: train the detector on a study's labelled chunks (paper, Detector Design and detector table)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import JsonValue
from torch import Generator, Tensor, nn

from mast.audio.spectrogram import pad_frames
from mast.config import Augmentation, Study, Train
from mast.datasets.augmentation import augment
from mast.datasets.loader import Batch, ChunkDataset, read_batch
from mast.datasets.sampler import evenly_spaced
from mast.datasets.split_table import require_artifact
from mast.datasets.study_datasets import background_bank, detection_dataset
from mast.datasets.synthetic_calls import SyntheticCallMixer
from mast.datasets.transforms import clip_to_audio_end
from mast.detection.chunk_detector import ChunkDetector, ModelChunkDetector, predict_chunks
from mast.models.anchor_points import AnchorPoints, make_anchor_points
from mast.models.checkpoint import read_model_id, save_model
from mast.models.conv_encoder import ConvEncoder
from mast.models.detector import Detector
from mast.models.devices import select_attention_kernel
from mast.models.encoder import Encoder
from mast.models.frontend import FrontEnd
from mast.models.loading import AnyEncoder, LoadedModel
from mast.normalisation import Normalisation
from mast.plotting.predictions import plot_predictions
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE
from mast.training.assignment import Targets, assign
from mast.training.contrastive import ProjectionHead, Regions, contrastive_loss, sample_regions
from mast.training.initialisation import initial_detector
from mast.training.loop import End, OnProgress, TrainingSet, run_training
from mast.training.losses import detection_loss, loss_normalisers
from mast.training.optimiser import ParamGroup
from mast.training.pseudo_labels import mask_uncertain_regions
from mast.training.run_dir import ANNOTATIONS, SPLITS, STARTED_FROM, TrainingRun, table_fingerprints
from mast.training.thresholds import choose_threshold
from mast.training.training_data import LABELLED_ONLY, TrainingData, background_locations, build_training_data
from mast.training.unfreezing import encoder_groups, is_encoder_frozen, num_trainable_blocks, unfreeze
from mast.training.validation import predict_validation

SETTINGS = {
    "chunking",
    "spectrogram",
    "normalisation",
    "labels",
    "splits",
    "augmentation",
    "model",
    "train",
    "detection",
}
"""Groups of settings that affect the trained weights."""

NOISE_CHUNKS = 128
"""Number of backgrounds kept in memory to mix in: 67 MB."""

VALIDATION_CHUNKS, VALIDATION_BATCH = 512, 16
PLOTTED_CHUNKS = 4
VALIDATION_STEP = -1
"""Step that seeds validation: its random numbers are the same in every epoch and differ from those of training."""

Losses = dict[str, Tensor]


class DetectorTrainingModule(nn.Module):
    """Detector and contrastive projection to train, with the front end: from chunks and targets to losses."""

    def __init__(self, frontend: FrontEnd, detector: Detector, settings: Train) -> None:
        super().__init__()
        self.frontend, self.detector, self.settings = frontend, detector, settings
        self.projection = ProjectionHead(detector.pyramid.channels)
        self.frozen: list[nn.Module] = []

    def forward(
        self, spec: Tensor, targets: Targets, regions: Regions, weights: Tensor, divisors: Tensor
    ) -> Losses:
        """Compute the losses of normalised chunks (B, F, T) with loss weights (B,).

        `divisors` (B, 3) are each example's fraction of the divisors of the whole batch: positive locations, the sum of
        their centerness, and events. So the losses of micro-batches and ranks add up to those of one large batch.
        """
        features = self.detector.features(spec)
        output = self.detector.predict(features)
        positives, centerness, events = divisors.sum(dim=0)
        terms = detection_loss(
            output, targets, weights, self.settings.classification_loss, torch.stack([positives, centerness])
        )
        factors = {
            "classification": self.settings.classification_weight,
            "giou": self.settings.giou_weight,
            "l1": self.settings.l1_weight,
            "centerness": self.settings.centerness_weight,
        }
        detection = torch.stack([factors[name] * term for name, term in terms.items()]).sum()
        if not self.settings.contrastive_weight:
            return {"loss": detection, "detection": detection, **terms}
        stride = self.detector.adapter.stride
        contrastive = contrastive_loss(
            features, regions, stride, self.projection, self.settings.contrastive_temperature, events
        )
        loss = detection + self.settings.contrastive_weight * contrastive
        return {"loss": loss, "detection": detection, **terms, "contrastive": contrastive}

    def train(self, mode: bool = True) -> DetectorTrainingModule:  # noqa: FBT001, FBT002  # torch's own signature
        """Set training mode, but keep frozen modules in evaluation mode."""
        super().train(mode)
        for part in self.frozen:
            part.eval()
        return self


class DetectorTask:
    """Training task of a detector: data, augmentation, losses, validation, and saving."""

    def __init__(
        self,
        study: Study,
        store: AudioStore,
        ranks: tuple[int, int] = (0, 1),
        training_data: TrainingData = LABELLED_ONLY,
    ) -> None:
        """Build model and data; `ranks` are the rank of this process and the number of processes."""
        self.study, self.store, self.settings = study, store, study.train
        self.world_size = ranks[1]
        self.description, detector = initial_detector(study, store, training_data.command)
        normalisation = cast(Normalisation, self.description.normalisation)
        frontend = FrontEnd(study.chunking, study.spectrogram, normalisation)
        detector.to(memory_format=torch.channels_last)  # makes training of convolutions almost twice as fast
        self.module = DetectorTrainingModule(frontend, detector, self.settings)
        self.encoder = cast(AnyEncoder, detector.encoder)
        training_data = build_training_data(study, store, training_data)
        self.training_set = TrainingSet(store, cast(ChunkDataset, training_data.examples))
        self.validation_set = detection_dataset(study, store, "val").chunks
        self.background_bank = background_bank(
            study, store, background_locations(study, store, training_data), NOISE_CHUNKS, self.settings.seed
        )
        self.chunk_frames = frontend.logmel.num_frames(store.layout.block_samples)
        self.uncertain, self.synthetic_start = training_data.uncertain, training_data.synthetic_start
        self.call_mixer = SyntheticCallMixer(study.spectrogram, store.layout.sample_rate_hz, frontend.frames)

    def param_groups(self) -> Sequence[ParamGroup]:
        """Return the parameter groups, with the head, pyramid and projection first: their rate is the one in the metrics.

        An encoder with random weights has the full learning rate.
        """
        detector, settings = self.module.detector, self.settings
        head = (detector.head, detector.pyramid, self.module.projection)
        groups = [
            ParamGroup(tuple(item for part in head for item in part.parameters()), settings.head_lr_scale),
            ParamGroup(tuple(detector.adapter.parameters()), settings.adapter_lr_scale),
        ]
        if settings.init_from is None:
            return [*groups, ParamGroup(tuple(self.encoder.parameters()))]
        if isinstance(self.encoder, ConvEncoder):
            return [*groups, ParamGroup(tuple(self.encoder.parameters()), settings.backbone_lr_scale)]
        return [*groups, *encoder_groups(self.encoder, settings.unfreezing, settings.backbone_lr_scale)]

    def prepare_batch(self, batch: Batch, step: int, device: torch.device) -> tuple[Any, ...]:
        """Return the module's inputs: augmented chunks with their targets.

        All random numbers follow from the seed, the step and the example.
        """
        rngs = [generator(self.settings.seed, step, int(example)) for example in batch.examples]
        if self.synthetic_start is not None:
            numpy_rngs = [np.random.default_rng(rng.initial_seed()) for rng in rngs]
            batch = self.call_mixer.mix_into(batch, numpy_rngs, batch.examples >= self.synthetic_start)
        logmel = self.module.frontend.log_mel(batch.audio.to(device), batch.valid_samples.to(device))
        uncertain = (
            None if self.uncertain is None else [self.uncertain[example] for example in batch.examples]
        )
        if uncertain is not None:
            frames = self.module.frontend.valid_frames(batch.valid_samples.to(device))
            logmel = mask_uncertain_regions(logmel, frames, uncertain, batch.boxes)
        spec, boxes = augment_examples(
            logmel[..., : self.chunk_frames], batch.boxes, self.study.augmentation, rngs, self.background_bank
        )
        if self.module.frontend.normalisation.masks_padding:
            ends = torch.ceil(batch.valid_samples / self.module.frontend.logmel.shift_samples).int().tolist()
            boxes = clip_to_audio_end(boxes, ends, logmel.shape[1], self.study.augmentation)
        padded = pad_frames(spec, logmel.shape[-1])
        divisors = self._divisors(boxes, device)
        if self.world_size > 1:
            torch.distributed.all_reduce(divisors)
        fractions = (divisors / self.world_size).clamp(min=1) / len(boxes)
        return self._module_inputs(padded, batch.valid_samples, boxes, batch.weights, rngs, fractions)

    def begin_epoch(self, epoch: int) -> None:
        """Unfreeze the encoder blocks of this epoch.

        An encoder with random weights, or a convolutional one, is trainable from the start.
        """
        select_attention_kernel(self.module)
        if self.settings.init_from is not None and isinstance(self.encoder, Encoder):
            unfreezing = self.settings.unfreezing
            blocks = num_trainable_blocks(unfreezing, epoch, len(self.encoder.blocks))
            self.module.frozen = unfreeze(self.encoder, blocks, is_frozen=is_encoder_frozen(unfreezing))

    def validate(self, model: nn.Module, device: torch.device) -> float | None:
        """Return the detection loss on validation chunks, without augmentation, with divisors over all of them."""
        if not len(self.validation_set):
            return None
        indices = evenly_spaced(len(self.validation_set), VALIDATION_CHUNKS)
        batches = [indices[at : at + VALIDATION_BATCH] for at in range(0, len(indices), VALIDATION_BATCH)]
        divisors = torch.stack(
            [self._divisors(self.validation_set.boxes(batch), device) for batch in batches]
        )
        fractions = divisors.sum(dim=0).clamp(min=1) / len(indices)
        losses = [
            float(model(*self._validation_batch(batch, device, fractions))["detection"]) for batch in batches
        ]
        return sum(loss * len(batch) for loss, batch in zip(losses, batches, strict=True)) / len(indices)

    def end_epoch(self, model: nn.Module, epoch: int, run: TrainingRun) -> None:
        """Plot a few validation chunks with annotations and the best detections, every `plot_every_epochs` epochs."""
        if (epoch + 1) % self.settings.plot_every_epochs and epoch + 1 != self.settings.epochs:
            return
        plotted = np.flatnonzero(
            [len(boxes) > 0 for boxes in self.validation_set.boxes(np.arange(len(self.validation_set)))]
        )
        if not len(plotted):
            return
        plotted = plotted[:: math.ceil(len(plotted) / PLOTTED_CHUNKS)]
        network = cast(DetectorTrainingModule, model)
        device = next(network.parameters()).device
        spec = self._validation_batch(plotted, device, torch.ones(3, device=device))[0].cpu()
        ground_truth = self.validation_set.boxes(plotted)
        predictions = list(
            predict_chunks(
                self._chunk_detector(network), self.store, self.validation_set.locations(0, plotted)
            )
        )
        best = [
            item.boxes[: max(1, 2 * len(boxes))]
            for item, boxes in zip(predictions, ground_truth, strict=True)
        ]
        scores = [item.scores[: len(boxes)] for item, boxes in zip(predictions, best, strict=True)]
        path = run.folder / f"predictions_{epoch + 1:04d}.png"
        plot_predictions(spec, ground_truth, best, scores, self.study, path)

    def save(self, model: nn.Module, run: TrainingRun) -> None:
        """Save the detector with the score threshold chosen on validation and its validation metrics."""
        network = cast(DetectorTrainingModule, model)
        real, synthetic = predict_validation(
            self._chunk_detector(network),
            self.study,
            self.store,
            self.validation_set,
            trained_on_synthetic=self.synthetic_start is not None,
        )
        threshold = choose_threshold(real, self.study.detection.score_threshold, synthetic)
        loss = run.validation_loss(keep_best=self.settings.early_stopping_patience > 0)
        results: dict[str, JsonValue] = {**loss, "threshold": threshold.reason, **threshold.results}
        thresholds = {"score": threshold.score, "nms_iou_threshold": self.study.detection.nms_iou_threshold}
        description = replace(self.description, thresholds=thresholds, results=results)
        save_model(str(run.model), description, network.detector.state_dict())

    def _module_inputs(
        self,
        logmel: Tensor,
        valid_samples: Tensor,
        boxes: Sequence[Tensor],
        weights: Tensor,
        rngs: Sequence[Generator],
        fractions: Tensor,
    ) -> tuple[Any, ...]:
        """Return the module's inputs for chunks with boxes; `fractions` (3,) are each example's part of the divisors."""
        device = logmel.device
        spec = self.module.frontend.normalise(logmel, valid_samples.to(device))
        targets = assign([item.to(device) for item in boxes], self.locations(device))
        extent = (logmel.shape[2], logmel.shape[1])
        regions = sample_regions(boxes, extent, rngs).to(device)
        return spec, targets, regions, weights.float().to(device), fractions.expand(len(boxes), 3)

    def _divisors(self, boxes: Sequence[Tensor], device: torch.device) -> Tensor:
        """Return the divisors of the losses of chunks with boxes: see `DetectorTrainingModule.forward`. → (3,)"""
        targets = assign([item.to(device) for item in boxes], self.locations(device))
        events = torch.tensor([float(sum(len(item) for item in boxes))], device=device)
        return torch.cat([loss_normalisers(targets).float(), events])

    def locations(self, device: torch.device) -> AnchorPoints:
        """Return the detector's locations in a chunk of this study."""
        detector, spectrogram = self.module.detector, self.study.spectrogram
        strides = detector.pyramid.strides(detector.adapter.stride)
        frames = self.module.frontend.frames
        sizes = [(math.ceil(frames / time), math.ceil(spectrogram.n_mels / band)) for time, band in strides]
        return make_anchor_points(sizes, strides, device)

    def _validation_batch(
        self, indices: NDArray[np.int64], device: torch.device, fractions: Tensor
    ) -> tuple[Any, ...]:
        """Return the module's inputs for validation chunks."""
        batch = read_batch(self.store, self.validation_set, indices)
        logmel = self.module.frontend.log_mel(batch.audio.to(device), batch.valid_samples.to(device))
        rngs = [generator(0, VALIDATION_STEP, int(item)) for item in indices]
        return self._module_inputs(logmel, batch.valid_samples, batch.boxes, batch.weights, rngs, fractions)

    def _chunk_detector(self, network: DetectorTrainingModule) -> ChunkDetector:
        """Create a chunk detector with the current weights of the network."""
        loaded = LoadedModel(self.description, network.detector, network.frontend)
        return ModelChunkDetector(loaded, self.study.detection, next(network.parameters()).device.type)


def generator(seed: int, step: int, example: int) -> Generator:
    """Create the generator of one example at one step; it does not depend on the device or the rest of the batch."""
    state = np.random.SeedSequence((seed, step + 1, example)).generate_state(1, np.uint64)
    return Generator().manual_seed(int(state[0] >> np.uint64(1)))


def augment_examples(
    logmel: Tensor,
    boxes: Sequence[Tensor],
    settings: Augmentation,
    rngs: Sequence[Generator],
    bank: Tensor,
) -> tuple[Tensor, list[Tensor]]:
    """Augment each example with its own generator (paper, Augmentations). (B, F, T), B times (n, 4) → the same shapes

    Mixup and CutMix use the next example of the batch.
    """
    mixes = settings.mixup or settings.cutmix_frames
    new_spec, new_boxes = torch.empty_like(logmel), []
    for row, rng in enumerate(rngs):
        rows = [row, (row + 1) % len(rngs)] if mixes and len(rngs) > 1 else [row]
        result = augment(logmel[rows], [boxes[item] for item in rows], settings, rng, bank)
        new_spec[row] = result.spec[0]
        new_boxes.append(result.boxes[0])
    return new_spec, new_boxes


def run_fingerprint(study: Study, store: AudioStore, command: str = "train") -> dict[str, Any]:
    """Return every input that affects the trained weights of a command's run.

    Synthetic training ignores annotations but depends on which chunks are unlabelled.
    """
    is_synthetic_only, settings = command == "train-synthetic", study.train
    uses_background = is_synthetic_only or settings.synthetic_fraction > 0
    return {
        "data": store.fingerprint,
        **table_fingerprints(study, [SPLITS] if is_synthetic_only else [ANNOTATIONS, SPLITS]),
        STARTED_FROM: read_model_id(settings.init_from),
        **select_settings(study, SETTINGS, uses_background=uses_background),
    }


def select_settings(study: Study, groups: Iterable[str], *, uses_background: bool) -> dict[str, Any]:
    """Return groups of settings and, for a run that uses background chunks, the setting of their fraction."""
    background_settings = {"train_synthetic": {"background_fraction"}} if uses_background else {}
    return study.model_dump(mode="json", include={**dict.fromkeys(groups, True), **background_settings})


def train_study(
    study: Study,
    run: TrainingRun,
    device: str = "auto",
    on_progress: OnProgress = lambda progress: None,
    training_data: TrainingData = LABELLED_ONLY,
) -> End:
    """Train a detector, or resume its training."""
    store = AudioStore(require_artifact(study, STORE))
    return run_training(
        lambda ranks: DetectorTask(study, store, ranks, training_data),
        study.train,
        run,
        run_fingerprint(study, store, training_data.command),
        device,
        on_progress,
        partly_frozen=study.train.init_from is not None,
    )
