"""`mast train`: the detector on a study's labelled chunks (paper, Detector Design and detector table)."""

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

from mast.config import Augmentation, Study, Train
from mast.datasets.augmentation import augment
from mast.datasets.examples import detection_examples, noise_bank
from mast.datasets.loading import Batch, Examples, read_batch
from mast.datasets.made_up import MadeUpCalls
from mast.datasets.order import spread
from mast.datasets.split_table import existing
from mast.datasets.transforms import up_to_the_sound
from mast.detection.chunks import BoxFinder, ChunkFinder, predict_chunks
from mast.models.checkpoint import known_identity, save_model
from mast.models.detector import Detector
from mast.models.devices import suit_attention
from mast.models.encoder import Encoder
from mast.models.frontend import FrontEnd
from mast.models.loading import Loaded
from mast.models.locations import Locations, lattice
from mast.normalisation import Normalisation
from mast.pictures.predictions import draw_predictions
from mast.recordings.store import AudioStore
from mast.spectrogram import pad_frames
from mast.study.products import STORE
from mast.training.assignment import Targets, assign
from mast.training.contrastive import Projection, Regions, contrastive_loss, draw_regions
from mast.training.devices import start_fabric
from mast.training.hearing import hear_validation
from mast.training.lessons import EXPERTS, Lesson, background_places, whole_lesson
from mast.training.loop import End, OnProgress, Sound, train
from mast.training.losses import detection_loss, normalisers
from mast.training.optimiser import Group
from mast.training.pseudo_labels import silenced
from mast.training.run import ANNOTATIONS, SPLITS, STARTED_FROM, Run, tables_of
from mast.training.starting import starting_detector
from mast.training.thresholds import choose_threshold
from mast.training.unfreezing import encoder_groups, keeps_encoder, open_blocks, thaw

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
"""Groups of settings that decide what is learned."""

NOISE_CHUNKS = 128
"""Backgrounds kept in memory to mix in: 67 MB."""

VALIDATION_CHUNKS, VALIDATION_BATCH = 512, 16
PICTURED_CHUNKS = 4
VALIDATION_STEP = -1
"""What is random in validation is the same in every epoch and unlike any step of training."""

Losses = dict[str, Tensor]


class Finetuning(nn.Module):
    """Chunks with their targets in, losses out; what learns, and the front end that it hears through."""

    def __init__(self, frontend: FrontEnd, detector: Detector, settings: Train) -> None:
        super().__init__()
        self.frontend, self.detector, self.settings = frontend, detector, settings
        self.projection = Projection(detector.pyramid.channels)
        self.frozen: list[nn.Module] = []

    def forward(
        self, spec: Tensor, targets: Targets, regions: Regions, weights: Tensor, divisors: Tensor
    ) -> Losses:
        """Losses of normalised chunks (B, F, T) that count `weights` (B,).

        `divisors` (B, 3) are each example's share of what the whole batch's losses are divided by: positive locations,
        the sum of their centerness, and events. Portions of a batch, and ranks, so add up to one large batch.
        """
        features = self.detector.features(spec)
        output = self.detector.predict(features)
        positives, centerness, events = divisors.sum(dim=0)
        terms = detection_loss(
            output, targets, weights, self.settings.classification, torch.stack([positives, centerness])
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
        likeness = contrastive_loss(
            features, regions, stride, self.projection, self.settings.temperature, events
        )
        loss = detection + self.settings.contrastive_weight * likeness
        return {"loss": loss, "detection": detection, **terms, "contrastive": likeness}

    def train(self, mode: bool = True) -> Finetuning:  # noqa: FBT001, FBT002  # torch's own signature
        """Learn, but for what is frozen: that behaves as it will afterwards."""
        super().train(mode)
        for part in self.frozen:
            part.eval()
        return self


class FinetuneRecipe:
    """What supervised training adds to the loop."""

    def __init__(
        self,
        study: Study,
        store: AudioStore,
        ranks: tuple[int, int] = (0, 1),
        lesson: Lesson = EXPERTS,
    ) -> None:
        """`ranks`: this process's rank, and how many there are."""
        self.study, self.store, self.settings = study, store, study.train
        self.ranks = ranks[1]
        self.description, detector = starting_detector(study, store, lesson.verb)
        normalisation = cast(Normalisation, self.description.normalisation)
        frontend = FrontEnd(study.chunking, study.spectrogram, normalisation)
        detector.to(memory_format=torch.channels_last)  # convolutions learn almost twice as fast
        self.module = Finetuning(frontend, detector, self.settings)
        self.encoder = cast(Encoder, detector.encoder)
        lesson = whole_lesson(study, store, lesson)
        self.sound = Sound(store, cast(Examples, lesson.examples))
        self.held = detection_examples(study, store, "val").chunks
        self.bank = noise_bank(
            study, store, background_places(study, store, lesson), NOISE_CHUNKS, self.settings.seed
        )
        self.whole_frames = frontend.logmel.frames_in(store.layout.step_samples)
        self.unsure, self.made_up_from = lesson.unsure, lesson.made_up_from
        self.calls = MadeUpCalls(study.spectrogram, store.layout.sample_rate_hz, frontend.frames)

    def groups(self) -> Sequence[Group]:
        """The head and all about it first, whose rate is the one that is shown; a random encoder learns at full rate."""
        detector, settings = self.module.detector, self.settings
        head = (detector.head, detector.pyramid, self.module.projection)
        groups = [
            Group(tuple(item for part in head for item in part.parameters()), settings.head_multiple),
            Group(tuple(detector.adapter.parameters()), settings.adapter_multiple),
        ]
        if settings.start is None:
            return [*groups, Group(tuple(self.encoder.parameters()))]
        return [*groups, *encoder_groups(self.encoder, settings.unfreezing, settings.backbone_multiple)]

    def inputs(self, batch: Batch, step: int, device: torch.device) -> tuple[Any, ...]:
        """Varied chunks with their targets; all that is random follows from the seed, the step and the example."""
        rngs = [generator(self.settings.seed, step, int(example)) for example in batch.examples]
        if self.made_up_from is not None:
            random = [np.random.default_rng(rng.initial_seed()) for rng in rngs]
            batch = self.calls.over(batch, random, batch.examples >= self.made_up_from)
        levels = self.module.frontend.levels(batch.sound.to(device), batch.filled.to(device))
        unsure = None if self.unsure is None else [self.unsure[example] for example in batch.examples]
        if unsure is not None:
            frames = self.module.frontend.sound_frames(batch.filled.to(device))
            levels = silenced(levels, frames, unsure, batch.boxes)
        spec, boxes = varied(
            levels[..., : self.whole_frames], batch.boxes, self.study.augmentation, rngs, self.bank
        )
        if self.module.frontend.normalisation.hides_padding:
            ends = torch.ceil(batch.filled / self.module.frontend.logmel.shift_samples).int().tolist()
            boxes = up_to_the_sound(boxes, ends, levels.shape[1], self.study.augmentation)
        padded = pad_frames(spec, levels.shape[-1])
        counts = self._counts(boxes, device)
        if self.ranks > 1:
            torch.distributed.all_reduce(counts)
        shares = (counts / self.ranks).clamp(min=1) / len(boxes)
        return self._targets(padded, batch.filled, boxes, batch.weights, rngs, shares)

    def begin_epoch(self, epoch: int) -> None:
        """Open the blocks whose turn it is; an encoder with random weights learns from the start."""
        suit_attention(self.module)
        if self.settings.start is not None:
            unfreezing = self.settings.unfreezing
            blocks = open_blocks(unfreezing, epoch, len(self.encoder.blocks))
            self.module.frozen = thaw(self.encoder, blocks, is_kept=keeps_encoder(unfreezing))

    def validate(self, model: nn.Module, device: torch.device) -> float | None:
        """Detection loss on validation chunks, as they are, divided by what all of them hold."""
        if not len(self.held):
            return None
        chosen = spread(len(self.held), VALIDATION_CHUNKS)
        parts = [chosen[at : at + VALIDATION_BATCH] for at in range(0, len(chosen), VALIDATION_BATCH)]
        counts = torch.stack([self._counts(self.held.boxes(part), device) for part in parts])
        shares = counts.sum(dim=0).clamp(min=1) / len(chosen)
        losses = [float(model(*self._untouched(part, device, shares))["detection"]) for part in parts]
        return sum(loss * len(part) for loss, part in zip(losses, parts, strict=True)) / len(chosen)

    def end_epoch(self, model: nn.Module, epoch: int, run: Run) -> None:
        """Every few epochs, a picture of validation chunks with the experts' boxes and the detector's best ones."""
        if (epoch + 1) % self.settings.picture_epochs and epoch + 1 != self.settings.epochs:
            return
        shown = np.flatnonzero([len(own) > 0 for own in self.held.boxes(np.arange(len(self.held)))])
        if not len(shown):
            return
        shown = shown[:: math.ceil(len(shown) / PICTURED_CHUNKS)]
        network = cast(Finetuning, model)
        device = next(network.parameters()).device
        spec = self._untouched(shown, device, torch.ones(3, device=device))[0].cpu()
        truths = self.held.boxes(shown)
        found = list(predict_chunks(self._finder(network), self.store, self.held.places(0, shown)))
        best = [item.boxes[: max(1, 2 * len(own))] for item, own in zip(found, truths, strict=True)]
        scores = [item.scores[: len(own)] for item, own in zip(found, best, strict=True)]
        path = run.folder / f"predictions_{epoch + 1:04d}.png"
        draw_predictions(spec, truths, best, scores, self.study, path)

    def save(self, model: nn.Module, run: Run) -> None:
        """The detector, with the score threshold that suits it best on validation and what it reaches there."""
        network = cast(Finetuning, model)
        real, made_up = hear_validation(
            self._finder(network),
            self.study,
            self.store,
            self.held,
            knows_made_up=self.made_up_from is not None,
        )
        chosen = choose_threshold(real, self.study.detection.min_score, made_up)
        loss = run.validation_loss(is_best_kept=self.settings.patience_epochs > 0)
        results: dict[str, JsonValue] = {**loss, "threshold": chosen.reason, **chosen.results}
        thresholds = {"score": chosen.score, "nms_iou": self.study.detection.nms_iou}
        description = replace(self.description, thresholds=thresholds, results=results)
        save_model(str(run.model), description, network.detector.state_dict())

    def _targets(
        self,
        levels: Tensor,
        filled: Tensor,
        boxes: Sequence[Tensor],
        weights: Tensor,
        rngs: Sequence[Generator],
        shares: Tensor,
    ) -> tuple[Any, ...]:
        """What the module takes of chunks with these boxes; `shares` (3,) of the divisors fall to each."""
        device = levels.device
        spec = self.module.frontend.normalised(levels, filled.to(device))
        targets = assign([own.to(device) for own in boxes], self.locations(device))
        extent = (levels.shape[2], levels.shape[1])
        regions = draw_regions(boxes, extent, rngs).to(device)
        return spec, targets, regions, weights.float().to(device), shares.expand(len(boxes), 3)

    def _counts(self, boxes: Sequence[Tensor], device: torch.device) -> Tensor:
        """What losses of chunks with these boxes are divided by: see `Finetuning.forward`. → (3,)"""
        targets = assign([own.to(device) for own in boxes], self.locations(device))
        events = torch.tensor([float(sum(len(own) for own in boxes))], device=device)
        return torch.cat([normalisers(targets).float(), events])

    def locations(self, device: torch.device) -> Locations:
        """Where the detector looks in this study's chunks."""
        detector, spectrogram = self.module.detector, self.study.spectrogram
        strides = detector.pyramid.strides(detector.adapter.stride)
        frames = self.module.frontend.frames
        sizes = [(math.ceil(frames / time), math.ceil(spectrogram.bins / band)) for time, band in strides]
        return lattice(sizes, strides, device)

    def _untouched(self, chosen: NDArray[np.int64], device: torch.device, shares: Tensor) -> tuple[Any, ...]:
        """What the module takes of some validation chunks."""
        batch = read_batch(self.store, self.held, chosen)
        levels = self.module.frontend.levels(batch.sound.to(device), batch.filled.to(device))
        rngs = [generator(0, VALIDATION_STEP, int(item)) for item in chosen]
        return self._targets(levels, batch.filled, batch.boxes, batch.weights, rngs, shares)

    def _finder(self, network: Finetuning) -> ChunkFinder:
        """What finds boxes with the network as it is."""
        loaded = Loaded(self.description, network.detector, network.frontend)
        return BoxFinder(loaded, self.study.detection, next(network.parameters()).device.type)


def generator(seed: int, step: int, example: int) -> Generator:
    """Random numbers of one example at one step, the same on every device and in every company."""
    state = np.random.SeedSequence((seed, step + 1, example)).generate_state(1, np.uint64)
    return Generator().manual_seed(int(state[0] >> np.uint64(1)))


def varied(
    levels: Tensor,
    boxes: Sequence[Tensor],
    settings: Augmentation,
    rngs: Sequence[Generator],
    bank: Tensor,
) -> tuple[Tensor, list[Tensor]]:
    """Each example varied by its own random numbers (paper, Augmentations). (B, F, T), B times (n, 4) → the same

    Mixup and CutMix take the example that follows in the batch.
    """
    mixes = settings.mixup or settings.max_cut_frames
    new_spec, new_boxes = torch.empty_like(levels), []
    for row, rng in enumerate(rngs):
        rows = [row, (row + 1) % len(rngs)] if mixes and len(rngs) > 1 else [row]
        result = augment(levels[rows], [boxes[item] for item in rows], settings, rng, bank)
        new_spec[row] = result.spec[0]
        new_boxes.append(result.boxes[0])
    return new_spec, new_boxes


def learned_under(study: Study, store: AudioStore, verb: str = "train") -> dict[str, Any]:
    """All that decides what a run of a verb learns; rehearsal sees no label, but which sound has none."""
    is_rehearsal, settings = verb == "rehearse", study.train
    hears_quiet = is_rehearsal or settings.rehearsed_share > 0
    return {
        "data": store.fingerprint,
        **tables_of(study, [SPLITS] if is_rehearsal else [ANNOTATIONS, SPLITS]),
        STARTED_FROM: known_identity(settings.start),
        **settings_of(study, SETTINGS, hears_quiet=hears_quiet),
    }


def settings_of(study: Study, groups: Iterable[str], *, hears_quiet: bool) -> dict[str, Any]:
    """Groups of settings, and for a run that hears quiet chunks also how many of all chunks these are."""
    quiet = {"rehearse": {"quiet_share"}} if hears_quiet else {}
    return study.model_dump(mode="json", include={**dict.fromkeys(groups, True), **quiet})


def train_study(
    study: Study,
    run: Run,
    device: str = "auto",
    on_progress: OnProgress = lambda progress: None,
    lesson: Lesson = EXPERTS,
) -> End:
    """Train a detector, or go on with it."""
    store = AudioStore(existing(study, STORE))
    settings = learned_under(study, store, lesson.verb)
    run.check(settings)
    if run.is_finished:
        return "finished"
    is_pretrained = study.train.start is not None
    fabric = start_fabric(study.train.precision, run, device, partly_frozen=is_pretrained)
    recipe = FinetuneRecipe(study, store, (fabric.global_rank, fabric.world_size), lesson)
    run.open(settings)
    return train(recipe, recipe.sound, study.train, run, fabric, on_progress)
