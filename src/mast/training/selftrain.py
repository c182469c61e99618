"""`mast self-train`: train a detector on its own predictions in unlabelled recordings, in rounds (paper, Self-training).

In each round the teacher predicts boxes in the unlabelled pool. The student is initialised with the teacher's weights and
trained on these pseudo-labels in stage 1, and on annotations in stage 2. The round is rolled back if the student is worse
than the first teacher on validation, or if the rate of its detections differs too much; then the teacher is the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from mast.config import DetectorStage, PseudoLabelStage, Study, SupervisedStage, Train
from mast.datasets.loader import ConcatDataset, CycledDataset, FixedChunkDataset, read_batch
from mast.datasets.prepare import read_normalisation
from mast.datasets.sampler import evenly_spaced
from mast.datasets.split_table import require_artifact
from mast.datasets.study_datasets import TRAIN, detection_dataset
from mast.detection.chunk_detector import ModelChunkDetector
from mast.errors import TrainingError
from mast.evaluation.metrics import METRICS
from mast.models.checkpoint import copy_model, read_model_id
from mast.models.frontend import FrontEnd
from mast.models.loading import load_detector
from mast.plotting.predictions import plot_predictions
from mast.recordings.clocks import format_duration
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE
from mast.training.fabric import is_first_process
from mast.training.initialisation import check_normalisation
from mast.training.loop import End, Progress
from mast.training.pseudo_labels import (
    Pool,
    UncertainTeacherError,
    choose_score_threshold,
    detections_per_hour,
    predict_pool,
    read_labels,
    read_pool,
    select_pseudo_labels,
    statistics,
    uncertain_boxes,
    write_labels,
)
from mast.training.rounds import (
    REPORT,
    Round,
    RoundMetrics,
    read_round,
    rollback_reason,
    write_round,
    write_rounds,
)
from mast.training.run_dir import ANNOTATIONS, SPLITS, STARTED_FROM, TrainingRun, table_fingerprints
from mast.training.supervised import SETTINGS, select_settings, train_study
from mast.training.training_data import TrainingData
from mast.training.validation import ValidationPredictions, predict_validation

FIGURE, PLOTTED_CHUNKS = "pseudo_labels.png", 4

RATE_CHUNKS = 400
"""Number of unlabelled chunks on which detection rates are compared: a few per hour of the day and site."""

CURRICULA = {
    "two-stage": ("pseudo-labels", "supervised"),
    "pseudo-only": ("pseudo-labels",),
    "supervised-only": ("supervised",),
    "joint": ("joint",),
    "step-matched-control": ("step-matched-control", "supervised"),
}
"""Training stages of a round, in order (paper, self-training ablation; `step-matched-control` is not in the paper)."""

ROUND_METRICS = ("precision", "recall", "f1")

OnStage = Callable[[str, int, int], None]
"""`on_stage(description, done, total)`."""


@dataclass(frozen=True, slots=True)
class SelfTrainingResult:
    """Outcome of self-training: its finished rounds, and the reason if a teacher without pseudo-labels ended it early."""

    end: End
    rounds: tuple[Round, ...]
    stop_reason: str | None = None


def selftrain_study(
    study: Study,
    run: TrainingRun,
    teacher: str,
    device: str = "auto",
    on_stage: OnStage = lambda description, done, total: None,
) -> SelfTrainingResult:
    """Self-train a detector on a study's unlabelled recordings, or resume. The model is that of the last round kept."""
    store = AudioStore(require_artifact(study, STORE))
    groups = SETTINGS - {"train"} | {"selftrain"}
    settings = select_settings(study, groups, uses_background=study.selftrain.synthetic_fraction > 0)
    fingerprint = {
        "data": store.fingerprint,
        **table_fingerprints(study, [ANNOTATIONS, SPLITS]),
        "teacher": teacher,
        STARTED_FROM: read_model_id(teacher),
        **settings,
    }
    run.check(fingerprint)
    pool = read_pool(study, store)
    _check_labelled(study, store)
    check_normalisation(teacher, load_detector(teacher).description, study)
    run.open(fingerprint)
    stop_reason = None
    rounds: list[Round] = []
    for number in range(1, study.selftrain.rounds + 1):
        folder = run.folder / f"round_{number}"
        current = _Round(study, store, pool, folder, device, on_stage, number)
        try:
            end, finished = current.run(teacher, rounds[0].before if rounds else None)
        except UncertainTeacherError as error:
            if not rounds:
                raise
            stop_reason = f"Self-training ended before round {number}: {error}"
            break
        if finished is None:
            return SelfTrainingResult(end, tuple(rounds))
        rounds.append(finished)
        write_rounds(rounds, str(run.folder / REPORT))
        if finished.rollback_reason:
            break
        teacher = str(current.student)
    _save_model(teacher, run)
    return SelfTrainingResult("finished", tuple(rounds), stop_reason)


def _check_labelled(study: Study, store: AudioStore) -> None:
    """Raise TrainingError, before training starts, if the curriculum needs annotations and the study has none."""
    curriculum = study.selftrain.curriculum
    if curriculum != "pseudo-only" and not len(detection_dataset(study, store, TRAIN).chunks):
        raise TrainingError(
            f"This study has no annotated chunks in the training split, and selftrain.curriculum={curriculum} needs "
            "them. To train on pseudo-labels only: --set selftrain.curriculum=pseudo-only. mast sample selects "
            "recordings to annotate."
        )


@dataclass(frozen=True)
class _Round:
    """One round of self-training."""

    study: Study
    store: AudioStore
    pool: Pool
    folder: Path
    device: str
    on_stage: OnStage
    number: int

    @property
    def stages(self) -> tuple[str, ...]:
        return CURRICULA[self.study.selftrain.curriculum]

    @property
    def student(self) -> Path:
        """Folder of the round's final model."""
        return TrainingRun(self.folder / self.stages[-1]).model

    def run(self, teacher: str, first: RoundMetrics | None) -> tuple[End, Round | None]:
        """Predict pseudo-labels, train the student, and compare it with the first teacher; skip parts that are finished.

        `first` are the metrics of the first teacher, None in the first round.
        """
        path = self.folder / "round.json"
        if path.exists():
            return "finished", read_round(path)
        predictions, settings = self._labels(teacher), self.study.selftrain
        real, synthetic = self._validate_teacher(teacher)
        ranking = (real + synthetic).ranking()
        q = choose_score_threshold(settings, ranking)
        precision = (
            METRICS["precision"](ranking.with_min_score(q), None) if ranking.ground_truth.any() else math.nan
        )
        selected = select_pseudo_labels(predictions, self.pool, q, settings)
        if not len(selected):
            raise UncertainTeacherError(
                f"{teacher} has no detections with a score of at least {q:.2f} in the unlabelled recordings. Lower "
                "selftrain.pseudo_label_threshold, or train a better teacher first."
            )
        self._plot(selected)
        start = teacher
        uncertain = uncertain_boxes(predictions, q, settings) if settings.mask_uncertain_regions else None
        pseudo_labels = TrainingData(selected, uncertain=uncertain, command="self-train")
        for name in self.stages:
            end = self._train_stage(
                name, start, pseudo_labels, _describe_precision(precision, synthetic.boxes)
            )
            if end != "finished":
                return end, None
            start = str(TrainingRun(self.folder / name).model)
        before = first or self._round_metrics(teacher, real)
        after = self._round_metrics(start, self._predict_validation(start)[0])
        finished = Round(
            number=self.number,
            teacher=teacher,
            pseudo_labels={
                **statistics(predictions, self.pool, q, settings),
                "right_on_validation": precision if math.isfinite(precision) else None,
                "synthetic_calls": synthetic.boxes,
            },
            before=before,
            after=after,
            rollback_reason=rollback_reason(before, after, settings.rollback),
        )
        write_round(finished, path)
        return "finished", finished

    def _labels(self, teacher: str) -> Any:
        """Return the teacher's predictions in the pool, from the round's table if it exists."""
        location = self.folder / "pseudo.parquet"
        if not location.exists():
            duration = format_duration(3600 * len(self.pool.locations) * self.pool.chunk_hours)
            message = f"Round {self.number}: predicting pseudo-labels in {duration} of audio"
            predictions = predict_pool(
                self.study,
                self.store,
                teacher,
                self.pool,
                self.device,
                partial(self.on_stage, message),
            )
            self.folder.mkdir(parents=True, exist_ok=True)
            write_labels(predictions, str(location))
        predictions, chunks = read_labels(str(location)), len(self.pool.locations)
        if len(predictions) != chunks:
            raise TrainingError(
                f"{location} has boxes for {len(predictions):,} chunks, and there are {chunks:,} unlabelled chunks now. "
                "Give this run another name with --run-name, or delete its folder."
            )
        return predictions

    def _train_stage(self, name: str, start: str, pseudo_labels: TrainingData, precision: str) -> End:
        """Train one stage of the round; `precision` describes that of the pseudo-labels in the progress message."""
        settings, selected = self.study.selftrain, cast(FixedChunkDataset, pseudo_labels.examples)
        annotated = detection_dataset(self.study, self.store, TRAIN).chunks
        supervised = replace(pseudo_labels, examples=annotated, uncertain=None)
        uncertain = (
            None
            if pseudo_labels.uncertain is None
            else [*pseudo_labels.uncertain, *[torch.zeros(0, 4)] * len(annotated)]
        )
        joint = replace(pseudo_labels, examples=ConcatDataset(selected, annotated), uncertain=uncertain)
        control = replace(supervised, examples=CycledDataset(annotated, len(selected)))
        training_data = {
            "pseudo-labels": pseudo_labels,
            "supervised": supervised,
            "joint": joint,
            "step-matched-control": control,
        }[name]
        stage: PseudoLabelStage | SupervisedStage = (
            settings.supervised_stage if name == "supervised" else settings.pseudo_label_stage
        )
        message = f"Round {self.number}: training on {STAGE_LABELS[name].format(precision=precision)}"

        def on_progress(progress: Progress) -> None:
            self.on_stage(message, progress.step, progress.steps)

        return train_study(
            stage_study(self.study, stage, start),
            TrainingRun(self.folder / name),
            self.device,
            on_progress,
            training_data,
        )

    def _plot(self, pseudo_labels: FixedChunkDataset) -> None:
        """Plot spectrograms of a few chunks with their pseudo-labels, before the student is trained."""
        figure = self.folder / FIGURE
        if figure.exists():
            return
        batch = read_batch(self.store, pseudo_labels, evenly_spaced(len(pseudo_labels), PLOTTED_CHUNKS))
        frontend = FrontEnd(self.study.chunking, self.study.spectrogram, read_normalisation(self.study))
        no_boxes = [torch.zeros(0, 4)] * len(batch.boxes)
        scores = [weight.expand(len(boxes)) for weight, boxes in zip(batch.weights, batch.boxes, strict=True)]
        plot_predictions(
            frontend(batch.audio, batch.valid_samples), no_boxes, batch.boxes, scores, self.study, figure
        )

    def _validate_teacher(self, teacher: str) -> tuple[ValidationPredictions, ValidationPredictions]:
        """Predict with the teacher on validation and, if the student is trained on synthetic calls, on these."""
        settings, message = self.study.selftrain, f"Round {self.number}: measuring the teacher's precision"
        self.on_stage(message, 0, 1)
        trained_on_synthetic = (
            settings.min_pseudo_label_precision is not None and settings.synthetic_fraction > 0
        )
        validation = self._predict_validation(teacher, trained_on_synthetic=trained_on_synthetic)
        self.on_stage(message, 1, 1)
        return validation

    def _predict_validation(
        self, model: str, *, trained_on_synthetic: bool = False
    ) -> tuple[ValidationPredictions, ValidationPredictions]:
        """Predict with a model on validation and, if it was `trained_on_synthetic` calls, on these."""
        validation_set = detection_dataset(self.study, self.store, "val").chunks
        detector = ModelChunkDetector(load_detector(model, self.store), self.study.detection, self.device)
        return predict_validation(
            detector, self.study, self.store, validation_set, trained_on_synthetic=trained_on_synthetic
        )

    def _round_metrics(self, model: str, validation: ValidationPredictions) -> RoundMetrics:
        """Compute the metrics of a model on validation, and its detections per hour in a sample of the pool."""
        threshold = load_detector(model).description.thresholds["score"]
        ranking, sample = validation.ranking(), self.pool.sample(RATE_CHUNKS)
        metrics = {}
        if ranking.ground_truth.any():
            metrics = {name: METRICS[name](ranking.with_min_score(threshold), None) for name in ROUND_METRICS}
            metrics["average_precision"] = METRICS["average_precision"](ranking, None)
        message = f"Round {self.number}: measuring detection rates"
        predictions = predict_pool(
            self.study,
            self.store,
            model,
            sample,
            self.device,
            partial(self.on_stage, message),
        )
        defined = {name: value for name, value in metrics.items() if math.isfinite(value)}
        return RoundMetrics(
            {"threshold": threshold, **defined},
            detections_per_hour(predictions, sample, threshold),
            sample.hours,
        )


STAGE_LABELS = {
    "pseudo-labels": "pseudo-labels{precision}",
    "supervised": "annotations",
    "joint": "pseudo-labels{precision} and annotations",
    "step-matched-control": "annotations, with the number of steps for pseudo-labels",
}


def _describe_precision(precision: float, synthetic: int) -> str:
    """Return the teacher's precision as text for a progress message, empty if it is undefined."""
    data = "validation and synthetic calls" if synthetic else "validation"
    return f" (precision {precision:.0%} on {data})" if math.isfinite(precision) else ""


def stage_study(study: Study, stage: PseudoLabelStage | SupervisedStage, start: str) -> Study:
    """Return the study with the settings of a self-training stage as those of `train`."""
    shared = {name: getattr(stage, name) for name in DetectorStage.model_fields}
    train = Train(**shared, init_from=start, synthetic_fraction=study.selftrain.synthetic_fraction)
    augmentation = study.augmentation.model_copy(update={"probability": stage.augmentation_probability})
    return study.model_copy(update={"train": train, "augmentation": augmentation})


def _save_model(model: str, run: TrainingRun) -> None:
    """Copy the model of the last round kept to the run's folder, in the first process only."""
    if run.is_finished or not is_first_process():
        return
    copy_model(model, str(run.model))
