"""`mast selftrain`: a detector teaches its successor on unlabelled sound, in rounds (paper, Self-training).

A round: the teacher draws boxes in the unlabelled pool; the student, which starts as the teacher, learns from those in
stage 1 and from the experts' in stage 2; then a guard looks whether it got worse on validation, or draws many more boxes
than it did at any site. If so the round is taken back and the teacher is the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from mast.config import DetectorStage, ExpertStage, PseudoStage, Study, Train
from mast.datasets.examples import TRAIN, detection_examples
from mast.datasets.loading import FixedChunks, InTurn, Joined, read_batch
from mast.datasets.order import spread
from mast.datasets.preparing import read_normalisation
from mast.datasets.split_table import existing
from mast.detection.chunks import BoxFinder
from mast.errors import TrainingError
from mast.evaluation.metrics import METRICS
from mast.models.checkpoint import copy_model, known_identity
from mast.models.frontend import FrontEnd
from mast.models.loading import load_detector
from mast.pictures.predictions import draw_predictions
from mast.recordings.clocks import length
from mast.recordings.store import AudioStore
from mast.study.products import STORE
from mast.training.devices import is_first_process
from mast.training.finetune import SETTINGS, settings_of, train_study
from mast.training.hearing import Heard, hear_validation
from mast.training.lessons import Lesson
from mast.training.loop import End, Progress
from mast.training.pseudo_labels import (
    Pool,
    UnsureTeacherError,
    label_pool,
    learned_from,
    pool_of,
    rate_by_site,
    read_labels,
    score_to_learn_from,
    statistics,
    unsure_of,
    write_labels,
)
from mast.training.rounds import REPORT, Judged, Round, read_round, why_rejected, write_round, write_rounds
from mast.training.run import ANNOTATIONS, SPLITS, STARTED_FROM, Run, tables_of
from mast.training.starting import check_normalisation

PICTURE, PICTURED_CHUNKS = "pseudo.png", 4

GUARD_CHUNKS = 400
"""Unlabelled chunks on which rates are compared: a few for each hour of the day and site."""

CURRICULA = {
    "two-stage": ("pseudo", "expert"),
    "pseudo": ("pseudo",),
    "expert": ("expert",),
    "union": ("union",),
    "control": ("control", "expert"),
}
"""What a student learns from, one after the other (paper, self-training ablation; `control` is ours)."""

MEASURED = ("precision", "recall", "f1")

OnStage = Callable[[str, int, int], None]
"""`on_stage(what is being done, done, total)`."""


@dataclass(frozen=True, slots=True)
class Taught:
    """How self-training ended, the rounds that are done, and why there are no more of them, if a teacher was unsure."""

    end: End
    rounds: tuple[Round, ...]
    unsure: str | None = None


def selftrain_study(
    study: Study,
    run: Run,
    teacher: str,
    device: str = "auto",
    on_stage: OnStage = lambda what, done, total: None,
) -> Taught:
    """Improve a detector on a study's unlabelled sound, or go on with it. The model is the last round's that stood."""
    store = AudioStore(existing(study, STORE))
    groups = SETTINGS - {"train"} | {"selftrain"}
    settings = settings_of(study, groups, hears_quiet=study.selftrain.rehearsed_share > 0)
    learned = {
        "data": store.fingerprint,
        **tables_of(study, [ANNOTATIONS, SPLITS]),
        "teacher": teacher,
        STARTED_FROM: known_identity(teacher),
        **settings,
    }
    run.check(learned)
    pool = pool_of(study, store)
    _check_labelled(study, store)
    check_normalisation(teacher, load_detector(teacher).description, study)
    run.open(learned)
    unsure = None
    rounds: list[Round] = []
    for number in range(1, study.selftrain.rounds + 1):
        folder = run.folder / f"round_{number}"
        lesson = _Lesson(study, store, pool, folder, device, on_stage, number)
        try:
            end, done = lesson.give(teacher, rounds[0].before if rounds else None)
        except UnsureTeacherError as error:
            if not rounds:
                raise
            unsure = f"There is no round {number}: {error}"
            break
        if done is None:
            return Taught(end, tuple(rounds))
        rounds.append(done)
        write_rounds(rounds, str(run.folder / REPORT))
        if done.rejected:
            break
        teacher = str(lesson.student)
    _keep(teacher, run)
    return Taught("finished", tuple(rounds), unsure)


def _check_labelled(study: Study, store: AudioStore) -> None:
    """Refuse, before anything is learned, a study without the experts' boxes that its curriculum needs."""
    curriculum = study.selftrain.curriculum
    if curriculum != "pseudo" and not len(detection_examples(study, store, TRAIN).chunks):
        raise TrainingError(
            f"Nothing of this study is labelled for training, and selftrain.curriculum {curriculum} learns from experts. "
            "To learn from the teacher alone: --set selftrain.curriculum=pseudo. mast budget proposes what to label."
        )


@dataclass(frozen=True)
class _Lesson:
    """What a round works with."""

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
        """Where the round's model is, once it is done."""
        return Run(self.folder / self.stages[-1]).model

    def give(self, teacher: str, first: Judged | None) -> tuple[End, Round | None]:
        """Label, learn, judge against the first teacher, if this is not it; each part that is done stays done."""
        known = self.folder / "round.json"
        if known.exists():
            return "finished", read_round(known)
        found, settings = self._labels(teacher), self.study.selftrain
        real, made_up = self._asked(teacher)
        ranking = (real + made_up).ranking()
        q = score_to_learn_from(settings, ranking)
        right = METRICS["precision"](ranking.above(q), None) if ranking.truths.any() else math.nan
        pseudo = learned_from(found, self.pool, q, settings)
        if not len(pseudo):
            raise UnsureTeacherError(
                f"{teacher} finds nothing in the unlabelled sound that scores {q:.2f}. Lower selftrain.min_score, "
                "or train a better teacher first."
            )
        self._draw(pseudo)
        start = teacher
        unsure = unsure_of(found, q, settings) if settings.silence_unsure else None
        drawn = Lesson(pseudo, unsure=unsure, verb="selftrain")
        for name in self.stages:
            end = self._learn(name, start, drawn, _told_right(right, made_up.boxes))
            if end != "finished":
                return end, None
            start = str(Run(self.folder / name).model)
        before = first or self._judged(teacher, real)
        after = self._judged(start, self._heard(start)[0])
        done = Round(
            number=self.number,
            teacher=teacher,
            pseudo={
                **statistics(found, self.pool, q, settings),
                "right_on_validation": right if math.isfinite(right) else None,
                "made_up_calls": made_up.boxes,
            },
            before=before,
            after=after,
            rejected=why_rejected(before, after, settings.guard),
        )
        write_round(done, known)
        return "finished", done

    def _labels(self, teacher: str) -> Any:
        """The teacher's boxes, drawn once."""
        location = self.folder / "pseudo.parquet"
        if not location.exists():
            pool = length(3600 * len(self.pool.places) * self.pool.chunk_hours)
            told = f"Round {self.number}: the teacher listens to {pool}"
            found = label_pool(
                self.study,
                self.store,
                teacher,
                self.pool,
                self.device,
                partial(self.on_stage, told),
            )
            self.folder.mkdir(parents=True, exist_ok=True)
            write_labels(found, str(location))
        found, chunks = read_labels(str(location)), len(self.pool.places)
        if len(found) != chunks:
            raise TrainingError(
                f"{location} has boxes for {len(found):,} chunks, and there are {chunks:,} unlabelled ones now. "
                "Give this run a name of its own with --name, or delete its folder."
            )
        return found

    def _learn(self, name: str, start: str, drawn: Lesson, right: str) -> End:
        """One stage of the round, of which `drawn` is the teacher's part; how much of that is `right` is told."""
        settings, pseudo = self.study.selftrain, cast(FixedChunks, drawn.examples)
        expert = detection_examples(self.study, self.store, TRAIN).chunks
        own = replace(drawn, examples=expert, unsure=None)
        unsure = None if drawn.unsure is None else [*drawn.unsure, *[torch.zeros(0, 4)] * len(expert)]
        union = replace(drawn, examples=Joined(pseudo, expert), unsure=unsure)
        as_many = replace(own, examples=InTurn(expert, len(pseudo)))
        lesson = {"pseudo": drawn, "expert": own, "union": union, "control": as_many}[name]
        stage: PseudoStage | ExpertStage = settings.expert if name == "expert" else settings.pseudo
        told = f"Round {self.number}: learning from {TOLD[name].format(right=right)}"

        def on_progress(progress: Progress) -> None:
            self.on_stage(told, progress.step, progress.steps)

        return train_study(
            stage_study(self.study, stage, start),
            Run(self.folder / name),
            self.device,
            on_progress,
            lesson,
        )

    def _draw(self, pseudo: FixedChunks) -> None:
        """A picture of some chunks with what the student is to believe, before it learns."""
        picture = self.folder / PICTURE
        if picture.exists():
            return
        batch = read_batch(self.store, pseudo, spread(len(pseudo), PICTURED_CHUNKS))
        frontend = FrontEnd(self.study.chunking, self.study.spectrogram, read_normalisation(self.study))
        none = [torch.zeros(0, 4)] * len(batch.boxes)
        weights = [weight.expand(len(own)) for weight, own in zip(batch.weights, batch.boxes, strict=True)]
        draw_predictions(frontend(batch.sound, batch.filled), none, batch.boxes, weights, self.study, picture)

    def _asked(self, teacher: str) -> tuple[Heard, Heard]:
        """What tells how often a teacher is right: validation and, if its student learns from such, made-up calls."""
        settings, told = self.study.selftrain, f"Round {self.number}: asking how sure the teacher is"
        self.on_stage(told, 0, 1)
        knows = settings.min_precision is not None and settings.rehearsed_share > 0
        heard = self._heard(teacher, knows_made_up=knows)
        self.on_stage(told, 1, 1)
        return heard

    def _heard(self, model: str, *, knows_made_up: bool = False) -> tuple[Heard, Heard]:
        """What a model finds on validation, and of made-up calls if it knows such."""
        held = detection_examples(self.study, self.store, "val").chunks
        finder = BoxFinder(load_detector(model, self.store), self.study.detection, self.device)
        return hear_validation(finder, self.study, self.store, held, knows_made_up=knows_made_up)

    def _judged(self, model: str, validation: Heard) -> Judged:
        """A model by what it finds on validation and in some of the pool."""
        threshold = load_detector(model).description.thresholds["score"]
        ranking, some = validation.ranking(), self.pool.some(GUARD_CHUNKS)
        measured = {}
        if ranking.truths.any():
            measured = {name: METRICS[name](ranking.above(threshold), None) for name in MEASURED}
            measured["ap_area"] = METRICS["ap_area"](ranking, None)
        told = f"Round {self.number}: looking at the result"
        found = label_pool(
            self.study,
            self.store,
            model,
            some,
            self.device,
            partial(self.on_stage, told),
        )
        known = {name: value for name, value in measured.items() if math.isfinite(value)}
        return Judged({"threshold": threshold, **known}, rate_by_site(found, some, threshold), some.hours)


TOLD = {
    "pseudo": "the teacher's boxes{right}",
    "expert": "the experts' boxes",
    "union": "the teacher's{right} and the experts' boxes",
    "control": "the experts' boxes, in as many steps as the teacher's would take",
}


def _told_right(right: float, made_up: int) -> str:
    """How much of what a teacher draws is right, as far as anything tells."""
    where = "validation and made-up calls" if made_up else "validation"
    return f" (on {where} {right:.0%} right)" if math.isfinite(right) else ""


def stage_study(study: Study, stage: PseudoStage | ExpertStage, start: str) -> Study:
    """The study with a stage's settings as those of training."""
    shared = {name: getattr(stage, name) for name in DetectorStage.model_fields}
    train = Train(**shared, start=start, rehearsed_share=study.selftrain.rehearsed_share)
    varied = study.augmentation.model_copy(update={"probability": stage.augmentation_probability})
    return study.model_copy(update={"train": train, "augmentation": varied})


def _keep(model: str, run: Run) -> None:
    """The model that stood, wherever it is, as the run's own. One process does it for all."""
    if run.is_finished or not is_first_process():
        return
    copy_model(model, str(run.model))
