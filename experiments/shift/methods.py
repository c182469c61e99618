"""The rows of the benchmark's tables: what each method changes about the study, and what it learns from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from mast.config import Pretrain, Study
from mast.datasets.budget import Span, Strategy, propose
from mast.datasets.examples import TRAIN, detection_examples
from mast.datasets.loading import FixedChunks
from mast.recordings.store import AudioStore
from mast.training.lessons import Lesson, with_made_up


@dataclass(frozen=True, slots=True)
class Budget:
    """A share of the labelled minutes, chosen as `mast budget` would have.

    They come as often as it takes for a share of the `steps` that all of them would have had.
    """

    share: float
    strategy: Strategy
    steps: float = 1.0


@dataclass(frozen=True, slots=True)
class Method:
    """A row: settings changed of the paper's detector, and how its own comes about.

    `pretraining` is how long its encoder is pretrained, as a share of the full length; `is_rehearsed` says that it starts
    from a detector that has rehearsed on made-up calls, and `is_taught` that it then learns from labels; `teacher` is the
    method that it goes on from by self-training; `baseline` the detector that stands in MAST's place; `is_given` says
    that it starts from the checkpoint of `--start`; `until` is the last commit that can make it, where what it changed
    did not help and is gone.
    """

    sets: tuple[str, ...] = ()
    pretraining: float = 0.0
    is_rehearsed: bool = False
    is_taught: bool = True
    teacher: str | None = None
    baseline: str | None = None
    budget: Budget | None = None
    is_given: bool = False
    until: str | None = None

    @property
    def settings(self) -> tuple[str, ...]:
        """All that is set for it, over the laptop's preset."""
        return (*PAPER, *self.sets)


PAPER = (
    "normalisation=dataset",
    "pretrain.epoch_hours=null",
    "model.adapter=upsampling",
    "train.rehearsed_share=0",
    "train.min_steps=0",
    "train.epochs=40",
    "train.warmup_epochs=2",
)
"""Where the laptop's preset goes beyond the paper, back to it: rows say themselves what they change."""

ROBUST = ("normalisation=band-median",)


def opened(stage: str) -> tuple[str, ...]:
    """All of an encoder that is not random learns from the start at the full rate, as a random one does."""
    blocks = f"{stage}.unfreezing"
    return (
        f"{blocks}.first_epoch=0",
        f"{blocks}.blocks=12",
        f"{blocks}.multiple=1",
        f"{stage}.backbone_multiple=1",
    )


OPEN = opened("train")
DETAIL = ("model.adapter=detail",)
REHEARSED = (*ROBUST, *OPEN, "train.lr=3e-4")
"""What has rehearsed learns from labels at the rate of self-training, a third of that for random weights."""

AT_ONCE = ("train.rehearsed_share=0.5", "train.epochs=30", "train.warmup_epochs=1.5")
"""Rehearsal and labels learned together from random weights, in three fifths of the steps of one after the other."""

ROUNDS = (
    "selftrain.rounds=1",
    "selftrain.pool_hours=null",
    "selftrain.min_precision=null",
    "selftrain.silence_unsure=false",
    "selftrain.rehearsed_share=0",
    *(f"selftrain.{stage}.epochs=6" for stage in ("pseudo", "expert")),
    *(f"selftrain.{stage}.unfreezing.first_epoch=1" for stage in ("pseudo", "expert")),
    *(f"selftrain.{stage}.unfreezing.multiple=0.1" for stage in ("pseudo", "expert")),
    *("selftrain.pseudo.unfreezing.blocks=3", "selftrain.expert.unfreezing.blocks=6"),
    *("selftrain.pseudo.backbone_multiple=0.1", "selftrain.expert.backbone_multiple=0.02"),
)
"""Where the laptop's round goes beyond the paper, back to it: its least score, and an encoder that is opened in turn.

The paper takes one round or two; one is half of the work.
"""

UNGUARDED = ("selftrain.guard.max_f1_loss=1", "selftrain.guard.max_rate_ratio=1e6")
"""What a stage alone makes of a detector is told as it is, also where the guard would take it back."""

TWICE = ("selftrain.rounds=2",)
"""A second round, taught by the student of the first."""

TAUGHT = (
    *ROUNDS,
    *TWICE,
    *ROBUST,
    *opened("selftrain.pseudo"),
    *opened("selftrain.expert"),
    "selftrain.min_precision=0.6",
    "selftrain.silence_unsure=true",
)

PRESET = (*ROBUST, *DETAIL, *AT_ONCE, "pretrain.epoch_hours=10", "train.min_steps=1000")
"""All that the laptop's preset has beyond the paper, up to its rounds of self-training."""

METHODS: Mapping[str, Method] = {
    "energy": Method(baseline="energy"),
    "faster_rcnn": Method(baseline="faster_rcnn"),
    "fcos": Method(baseline="fcos"),
    "fcos_band_median": Method(ROBUST, baseline="fcos"),
    "detr": Method(baseline="detr"),
    "yolo": Method(baseline="yolo"),
    "transfer": Method(is_given=True),
    "transfer_detail": Method((*REHEARSED, *DETAIL), is_given=True),
    "scratch": Method(ROBUST),
    "mast_zscore": Method(pretraining=1),
    "mast": Method(ROBUST, pretraining=1),
    "mast_pretrain_third": Method(ROBUST, pretraining=1 / 3),
    "mast_equal_rates": Method((*ROBUST, *OPEN), pretraining=1),
    "mast_st": Method((*ROUNDS, *ROBUST), teacher="mast"),
    "control": Method((*ROUNDS, *ROBUST, "selftrain.curriculum=control"), teacher="mast"),
    "no_contrastive": Method((*ROBUST, "train.contrastive_weight=0")),
    "no_adapter": Method((*ROBUST, "model.adapter=none")),
    "conv_adapter": Method((*ROBUST, "model.adapter=conv")),
    "anisotropic_adapter": Method((*ROBUST, "model.adapter=anisotropic")),
    "scratch_st": Method((*ROUNDS, *ROBUST), teacher="scratch"),
    "scratch_control": Method((*ROUNDS, *ROBUST, "selftrain.curriculum=control"), teacher="scratch"),
    "scratch_stage_1": Method(
        (*ROUNDS, *ROBUST, *UNGUARDED, "selftrain.curriculum=pseudo"), teacher="scratch"
    ),
    "scratch_stage_2": Method(
        (*ROUNDS, *ROBUST, *UNGUARDED, "selftrain.curriculum=expert"), teacher="scratch"
    ),
    "scratch_stage_1_redrawn": Method(teacher="scratch", until="d7a950c"),
    "st_union": Method((*ROUNDS, *ROBUST, *TWICE, "selftrain.curriculum=union"), teacher="mast"),
    "labels_25_random": Method(ROBUST, baseline="fcos", budget=Budget(0.25, "random", 0.5)),
    "labels_25_sequential": Method(ROBUST, baseline="fcos", budget=Budget(0.25, "sequential", 0.5)),
    "labels_25_time_balanced": Method(ROBUST, baseline="fcos", budget=Budget(0.25, "time-balanced", 0.5)),
    "labels_50_random": Method(ROBUST, baseline="fcos", budget=Budget(0.5, "random", 0.5)),
    "labels_50_sequential": Method(ROBUST, baseline="fcos", budget=Budget(0.5, "sequential", 0.5)),
    "labels_50_time_balanced": Method(ROBUST, baseline="fcos", budget=Budget(0.5, "time-balanced", 0.5)),
    "rehearsed_only": Method(ROBUST, is_rehearsed=True, is_taught=False),
    "rehearsed": Method(REHEARSED, is_rehearsed=True),
    "scratch_detail": Method((*ROBUST, *DETAIL)),
    "fcos_at_once": Method((*ROBUST, *AT_ONCE), baseline="fcos"),
    "at_once": Method((*ROBUST, *AT_ONCE)),
    "at_once_detail": Method(PRESET),
    "at_once_detail_pretrained": Method((*PRESET, *OPEN, "pretrain.epoch_hours=null"), pretraining=1),
    "at_once_detail_tenth": Method(PRESET, budget=Budget(0.1, "random")),
    "at_once_detail_tenth_once": Method(PRESET, budget=Budget(0.1, "random", 0.1)),
    "at_once_detail_control": Method((*PRESET, "selftrain.curriculum=control"), teacher="at_once_detail"),
    "at_once_detail_st": Method(PRESET, teacher="at_once_detail"),
    "rehearsed_control": Method((*TAUGHT, "selftrain.curriculum=control"), teacher="rehearsed"),
    "rehearsed_st": Method(TAUGHT, teacher="rehearsed"),
}
"""Rows of the tables. Those with band medians, rehearsal or a control are not the paper's."""

RECOMMENDED = "at_once_detail"
"""What users are advised to do: the laptop's preset."""


def budgeted(study: Study, store: AudioStore, budget: Budget, seed: int) -> tuple[Study, Lesson]:
    """A study that learns from a share of its labelled recordings alone, and what is in these.

    Backgrounds come from these recordings too: that a chunk is quiet is also a label. Validation stays whole.
    """
    labelled = detection_examples(study, store, TRAIN)
    names = labelled.table["recording_id"].to_numpy(zero_copy_only=False)
    hours = budget.share * labelled.table["filled_s"].to_numpy().sum() / 3600
    chosen = {span.recording_id for span in propose(_spans(labelled.table), hours, budget.strategy, seed)}
    rows = np.flatnonzero([name in chosen for name in names])
    places, boxes = labelled.chunks.places(0, rows), labelled.chunks.boxes(rows)
    quiet = places[[not len(own) for own in boxes]]
    an_epoch = with_made_up(len(names), study.train) // study.train.batch
    steps = round(budget.steps * study.train.epochs * an_epoch)
    train = study.train.model_copy(update={"min_steps": steps})
    return study.model_copy(update={"train": train}), Lesson(FixedChunks(places, boxes), quiet)


def _spans(table: pa.Table) -> list[Span]:
    """A span for each recording of a table of chunks."""
    columns = [
        table[name].to_pylist() for name in ("recording_id", "start_s", "filled_s", "site", "start_local")
    ]
    spans: dict[str, Span] = {}
    for name, start_s, filled_s, site, start_local in zip(*columns, strict=True):
        first = spans.setdefault(name, Span(name, start_s, start_s, site, start_local))
        spans[name] = replace(first, end_s=start_s + filled_s)
    return list(spans.values())


def shortened(settings: Pretrain, share: float) -> Pretrain:
    """Pretraining of a share of its length; its learning rate falls as far."""
    epochs = max(1, round(settings.epochs * share))
    return settings.model_copy(update={"epochs": epochs, "warmup_epochs": settings.warmup_epochs * share})
