"""`mast rehearse`: a detector learns to box made-up calls over the study's own unlabelled sound, before it sees a label.

The paper pretrains the encoder alone; this teaches adapter, pyramid and head as well, and what wind, rain and engines of
every site are like. What comes of it is a detector: it finds sounds as it is, and `mast train` can start from it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from mast.config import DetectorStage, Study, Train
from mast.datasets.loading import FixedChunks, read_batch
from mast.datasets.made_up import MadeUpCalls
from mast.datasets.order import spread
from mast.datasets.preparing import read_normalisation
from mast.datasets.quiet import quiet_chunks
from mast.datasets.split_table import existing
from mast.models.frontend import FrontEnd
from mast.pictures.predictions import draw_predictions
from mast.recordings.store import AudioStore
from mast.study.products import STORE
from mast.training.finetune import learned_under, train_study
from mast.training.lessons import Lesson
from mast.training.loop import End, OnProgress
from mast.training.run import Run

VERB = "rehearse"
PICTURE, PICTURED_CHUNKS = "made_up.png", 4


def rehearse_study(
    study: Study, run: Run, device: str = "auto", on_progress: OnProgress = lambda progress: None
) -> End:
    """Train a detector on made-up calls, or go on with it."""
    own = _rehearsal_study(study)
    store = AudioStore(existing(own, STORE))
    run.check(learned_under(own, store, VERB))
    if run.is_finished:
        return "finished"
    quiet = quiet_chunks(study, store)
    chunks = FixedChunks(quiet)
    _draw(own, store, chunks, run.folder / PICTURE)
    lesson = Lesson(chunks, quiet, made_up_from=0, verb=VERB)
    return train_study(own, run, device, on_progress, lesson)


def _rehearsal_study(study: Study) -> Study:
    """The study with the settings of rehearsal as those of training."""
    shared = {name: getattr(study.rehearse, name) for name in DetectorStage.model_fields}
    return study.model_copy(update={"train": Train(**shared, start=study.rehearse.start)})


def _draw(study: Study, store: AudioStore, quiet: FixedChunks, picture: Path) -> None:
    """A picture of some chunks with made-up calls and their boxes, before anything is learned."""
    if picture.exists():
        return
    batch = read_batch(store, quiet, spread(len(quiet), PICTURED_CHUNKS))
    count = len(batch.examples)
    frontend = FrontEnd(study.chunking, study.spectrogram, read_normalisation(study))
    calls = MadeUpCalls(study.spectrogram, store.layout.sample_rate_hz, frontend.frames)
    random = [np.random.default_rng((study.train.seed, item)) for item in range(count)]
    mixed = calls.over(batch, random, torch.ones(count, dtype=torch.bool))
    spec, nothing = frontend(mixed.sound, mixed.filled), [torch.ones(0)] * count
    draw_predictions(spec, mixed.boxes, batch.boxes, nothing, study, picture, true_name="made up")
