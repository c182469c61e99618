"""Methods of the shift benchmark, the rows of its tables: their settings, initial weights and training data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from mast.config import Pretrain, Study
from mast.datasets.annotation_sampling import Span, Strategy, sample_spans
from mast.datasets.loader import FixedChunkDataset
from mast.datasets.study_datasets import TRAIN, detection_dataset
from mast.store.audio_store import AudioStore
from mast.training.training_data import TrainingData, epoch_size


@dataclass(frozen=True, slots=True)
class Budget:
    """A fraction of the annotated minutes, selected with a strategy of `mast sample`.

    The selected recordings are repeated until training takes `step_fraction` of the steps of all annotated minutes.
    """

    fraction: float
    strategy: Strategy
    step_fraction: float = 1.0


@dataclass(frozen=True, slots=True)
class Method:
    """A row of the tables: settings that differ from the paper's detector, and the model that training starts from.

    `pretraining` is the duration of the encoder's pretraining, as a fraction of the full duration.
    `starts_from_synthetic`: training starts from a detector that was trained on synthetic calls.
    `uses_labels`: the detector is trained on annotations; otherwise they only choose its threshold.
    `teacher` is the method whose model is the first teacher of self-training.
    `baseline` is the name of the detector that replaces MAST's.
    `from_checkpoint`: training starts from the checkpoint of `--start`.
    `removed_after` is the last commit that supports the method, which was removed because it did not help;
    `old_name` is its name at that commit.
    """

    overrides: tuple[str, ...] = ()
    pretraining: float = 0.0
    starts_from_synthetic: bool = False
    uses_labels: bool = True
    teacher: str | None = None
    baseline: str | None = None
    budget: Budget | None = None
    from_checkpoint: bool = False
    removed_after: str | None = None
    old_name: str | None = None

    @property
    def settings(self) -> tuple[str, ...]:
        """All settings of the method that differ from the preset `laptop`."""
        return (*PAPER, *self.overrides)


PAPER = (
    "normalisation=dataset",
    "pretrain.epoch_hours=null",
    "model.adapter=upsampling",
    "train.synthetic_fraction=0",
    "train.min_steps=0",
    "train.epochs=40",
    "train.warmup_epochs=2",
)
"""Settings that undo the preset `laptop`'s additions to the paper; each method states its own changes."""

BAND_MEDIAN = ("normalisation=band-median",)


def unfrozen(stage: str) -> tuple[str, ...]:
    """Return settings that train a complete pretrained encoder from epoch 0 at the full learning rate.

    Encoders with random weights are always trained so.
    """
    unfreezing = f"{stage}.unfreezing"
    return (
        f"{unfreezing}.start_epoch=0",
        f"{unfreezing}.blocks_per_step=12",
        f"{unfreezing}.lr_scale=1",
        f"{stage}.backbone_lr_scale=1",
    )


UNFROZEN = unfrozen("train")
HYBRID = ("model.adapter=hybrid",)
SYNTHETIC_FIRST = (*BAND_MEDIAN, *UNFROZEN, "train.lr=3e-4")
"""After training on synthetic calls, training on annotations uses the learning rate of self-training, a third of that
for random weights."""

JOINT_SYNTHETIC = ("train.synthetic_fraction=0.5", "train.epochs=30", "train.warmup_epochs=1.5")
"""Train on synthetic calls and annotations together from random weights, in 3/5 of the steps of training on one after
the other."""

SELFTRAIN_STAGES = ("pseudo_label_stage", "supervised_stage")

PAPER_SELFTRAINING = (
    "selftrain.rounds=1",
    "selftrain.unlabelled_hours=null",
    "selftrain.min_pseudo_label_precision=null",
    "selftrain.mask_uncertain_regions=false",
    "selftrain.synthetic_fraction=0",
    *(f"selftrain.{stage}.epochs=6" for stage in SELFTRAIN_STAGES),
    *(f"selftrain.{stage}.unfreezing.start_epoch=1" for stage in SELFTRAIN_STAGES),
    *(f"selftrain.{stage}.unfreezing.lr_scale=0.1" for stage in SELFTRAIN_STAGES),
    *(
        "selftrain.pseudo_label_stage.unfreezing.blocks_per_step=3",
        "selftrain.supervised_stage.unfreezing.blocks_per_step=6",
    ),
    *(
        "selftrain.pseudo_label_stage.backbone_lr_scale=0.1",
        "selftrain.supervised_stage.backbone_lr_scale=0.02",
    ),
)
"""Settings that undo the preset `laptop`'s additions to the paper's self-training: a fixed score threshold, and gradual
unfreezing of the encoder.

The paper uses one or two rounds; one takes half of the time.
"""

WITHOUT_ROLLBACK = ("selftrain.rollback.max_f1_drop=1", "selftrain.rollback.max_detection_rate_ratio=1e6")
"""A single stage's detector is evaluated even where the round would be rolled back."""

TWO_ROUNDS = ("selftrain.rounds=2",)
"""The first round's student is the teacher of a second round."""

SELFTRAINED = (
    *PAPER_SELFTRAINING,
    *TWO_ROUNDS,
    *BAND_MEDIAN,
    *unfrozen("selftrain.pseudo_label_stage"),
    *unfrozen("selftrain.supervised_stage"),
    "selftrain.min_pseudo_label_precision=0.6",
    "selftrain.mask_uncertain_regions=true",
)

PRESET = (*BAND_MEDIAN, *HYBRID, *JOINT_SYNTHETIC, "pretrain.epoch_hours=10", "train.min_steps=1000")
"""The preset `laptop`'s additions to the paper, except those to self-training."""

METHODS: Mapping[str, Method] = {
    "energy": Method(baseline="energy"),
    "faster_rcnn": Method(baseline="faster_rcnn"),
    "fcos": Method(baseline="fcos"),
    "fcos_band_median": Method(BAND_MEDIAN, baseline="fcos"),
    "detr": Method(baseline="detr"),
    "yolo": Method(baseline="yolo"),
    "transfer": Method(from_checkpoint=True),
    "transfer_hybrid": Method((*SYNTHETIC_FIRST, *HYBRID), from_checkpoint=True),
    "scratch": Method(BAND_MEDIAN),
    "mast_zscore": Method(pretraining=1),
    "mast": Method(BAND_MEDIAN, pretraining=1),
    "mast_pretrain_third": Method(BAND_MEDIAN, pretraining=1 / 3),
    "mast_equal_rates": Method((*BAND_MEDIAN, *UNFROZEN), pretraining=1),
    "mast_selftrain": Method((*PAPER_SELFTRAINING, *BAND_MEDIAN), teacher="mast"),
    "step_matched_control": Method(
        (*PAPER_SELFTRAINING, *BAND_MEDIAN, "selftrain.curriculum=step-matched-control"), teacher="mast"
    ),
    "no_contrastive": Method((*BAND_MEDIAN, "train.contrastive_weight=0")),
    "no_adapter": Method((*BAND_MEDIAN, "model.adapter=none")),
    "conv_adapter": Method((*BAND_MEDIAN, "model.adapter=conv")),
    "anisotropic_adapter": Method((*BAND_MEDIAN, "model.adapter=anisotropic")),
    "scratch_selftrain": Method((*PAPER_SELFTRAINING, *BAND_MEDIAN), teacher="scratch"),
    "scratch_step_matched_control": Method(
        (*PAPER_SELFTRAINING, *BAND_MEDIAN, "selftrain.curriculum=step-matched-control"), teacher="scratch"
    ),
    "scratch_stage_1": Method(
        (*PAPER_SELFTRAINING, *BAND_MEDIAN, *WITHOUT_ROLLBACK, "selftrain.curriculum=pseudo-only"),
        teacher="scratch",
    ),
    "scratch_stage_2": Method(
        (*PAPER_SELFTRAINING, *BAND_MEDIAN, *WITHOUT_ROLLBACK, "selftrain.curriculum=supervised-only"),
        teacher="scratch",
    ),
    "mean_teacher": Method(teacher="scratch", removed_after="d7a950c", old_name="scratch_stage_1_redrawn"),
    "mast_joint_selftrain": Method(
        (*PAPER_SELFTRAINING, *BAND_MEDIAN, *TWO_ROUNDS, "selftrain.curriculum=joint"), teacher="mast"
    ),
    "labels_25_random": Method(BAND_MEDIAN, baseline="fcos", budget=Budget(0.25, "random", 0.5)),
    "labels_25_sequential": Method(BAND_MEDIAN, baseline="fcos", budget=Budget(0.25, "sequential", 0.5)),
    "labels_25_time_balanced": Method(
        BAND_MEDIAN, baseline="fcos", budget=Budget(0.25, "time-balanced", 0.5)
    ),
    "labels_50_random": Method(BAND_MEDIAN, baseline="fcos", budget=Budget(0.5, "random", 0.5)),
    "labels_50_sequential": Method(BAND_MEDIAN, baseline="fcos", budget=Budget(0.5, "sequential", 0.5)),
    "labels_50_time_balanced": Method(BAND_MEDIAN, baseline="fcos", budget=Budget(0.5, "time-balanced", 0.5)),
    "synthetic_only": Method(BAND_MEDIAN, starts_from_synthetic=True, uses_labels=False),
    "synthetic_then_labels": Method(SYNTHETIC_FIRST, starts_from_synthetic=True),
    "scratch_hybrid": Method((*BAND_MEDIAN, *HYBRID)),
    "fcos_joint_synthetic": Method((*BAND_MEDIAN, *JOINT_SYNTHETIC), baseline="fcos"),
    "joint_synthetic": Method((*BAND_MEDIAN, *JOINT_SYNTHETIC)),
    "joint_synthetic_hybrid": Method(PRESET),
    "joint_synthetic_hybrid_pretrained": Method(
        (*PRESET, *UNFROZEN, "pretrain.epoch_hours=null"), pretraining=1
    ),
    "joint_synthetic_hybrid_tenth": Method(PRESET, budget=Budget(0.1, "random")),
    "joint_synthetic_hybrid_tenth_once": Method(PRESET, budget=Budget(0.1, "random", 0.1)),
    "joint_synthetic_hybrid_step_matched_control": Method(
        (*PRESET, "selftrain.curriculum=step-matched-control"), teacher="joint_synthetic_hybrid"
    ),
    "joint_synthetic_hybrid_selftrain": Method(PRESET, teacher="joint_synthetic_hybrid"),
    "synthetic_then_labels_step_matched_control": Method(
        (*SELFTRAINED, "selftrain.curriculum=step-matched-control"), teacher="synthetic_then_labels"
    ),
    "synthetic_then_labels_selftrain": Method(SELFTRAINED, teacher="synthetic_then_labels"),
}
"""Rows of the tables by name. Rows with band medians, synthetic calls or a step-matched control are not in the paper."""

RECOMMENDED = "joint_synthetic_hybrid"
"""The method that users are advised to use: the preset `laptop`."""


def apply_budget(study: Study, store: AudioStore, budget: Budget, seed: int) -> tuple[Study, TrainingData]:
    """Return a study with adjusted steps, and training data of a fraction of its annotated recordings.

    Background chunks come from these recordings only, because "this chunk has no call" is also an annotation. The
    validation split remains complete.
    """
    labelled = detection_dataset(study, store, TRAIN)
    names = labelled.table["recording_id"].to_numpy(zero_copy_only=False)
    hours = budget.fraction * labelled.table["audio_s"].to_numpy().sum() / 3600
    chosen = {
        span.recording_id for span in sample_spans(_spans(labelled.table), hours, budget.strategy, seed)
    }
    rows = np.flatnonzero([name in chosen for name in names])
    locations, boxes = labelled.chunks.locations(0, rows), labelled.chunks.boxes(rows)
    background = locations[[not len(chunk_boxes) for chunk_boxes in boxes]]
    steps_per_epoch = epoch_size(len(names), study.train) // study.train.batch_size
    steps = round(budget.step_fraction * study.train.epochs * steps_per_epoch)
    train = study.train.model_copy(update={"min_steps": steps})
    chunks = FixedChunkDataset(locations, boxes)
    return study.model_copy(update={"train": train}), TrainingData(chunks, background)


def _spans(table: pa.Table) -> list[Span]:
    """Return the span of each recording in a table of chunks."""
    columns = [
        table[name].to_pylist() for name in ("recording_id", "start_s", "audio_s", "site", "start_local")
    ]
    spans: dict[str, Span] = {}
    for name, start_s, audio_s, site, start_local in zip(*columns, strict=True):
        first = spans.setdefault(name, Span(name, start_s, start_s, site, start_local))
        spans[name] = replace(first, end_s=start_s + audio_s)
    return list(spans.values())


def shorten_pretraining(settings: Pretrain, fraction: float) -> Pretrain:
    """Return settings of a fraction of the epochs; the learning rate still falls to its minimum."""
    epochs = max(1, round(settings.epochs * fraction))
    return settings.model_copy(update={"epochs": epochs, "warmup_epochs": settings.warmup_epochs * fraction})
