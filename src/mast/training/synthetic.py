"""`mast train-synthetic`: train a detector on synthetic calls in the study's unlabelled recordings, without annotations.

The paper pretrains only the encoder. This command also trains adapter, pyramid and head, on the wind, rain and engine
noise of every site. The result is a complete detector, from which `mast train` can also start.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from mast.config import DetectorStage, Study, Train
from mast.datasets.background_selection import select_background_chunks
from mast.datasets.loader import FixedChunkDataset, read_batch
from mast.datasets.prepare import read_normalisation
from mast.datasets.sampler import evenly_spaced
from mast.datasets.split_table import require_artifact
from mast.datasets.synthetic_calls import SyntheticCallMixer
from mast.models.frontend import FrontEnd
from mast.plotting.predictions import plot_predictions
from mast.store.audio_store import AudioStore
from mast.study.artifacts import STORE
from mast.training.loop import End, OnProgress
from mast.training.run_dir import TrainingRun
from mast.training.supervised import run_fingerprint, train_study
from mast.training.training_data import TrainingData

COMMAND = "train-synthetic"
FIGURE, PLOTTED_CHUNKS = "synthetic.png", 4


def train_synthetic_study(
    study: Study, run: TrainingRun, device: str = "auto", on_progress: OnProgress = lambda progress: None
) -> End:
    """Train a detector on synthetic calls, or resume its training."""
    synthetic_study = _synthetic_study(study)
    store = AudioStore(require_artifact(synthetic_study, STORE))
    run.check(run_fingerprint(synthetic_study, store, COMMAND))
    if run.is_finished:
        return "finished"
    background = select_background_chunks(study, store)
    chunks = FixedChunkDataset(background)
    _plot(synthetic_study, store, chunks, run.folder / FIGURE)
    training_data = TrainingData(chunks, background, synthetic_start=0, command=COMMAND)
    return train_study(synthetic_study, run, device, on_progress, training_data)


def _synthetic_study(study: Study) -> Study:
    """Return the study with the settings of `train_synthetic` as those of `train`."""
    shared = {name: getattr(study.train_synthetic, name) for name in DetectorStage.model_fields}
    return study.model_copy(update={"train": Train(**shared, init_from=study.train_synthetic.init_from)})


def _plot(study: Study, store: AudioStore, background: FixedChunkDataset, figure: Path) -> None:
    """Plot spectrograms of a few chunks with synthetic calls and their boxes, before training starts."""
    if figure.exists():
        return
    batch = read_batch(store, background, evenly_spaced(len(background), PLOTTED_CHUNKS))
    count = len(batch.examples)
    frontend = FrontEnd(study.chunking, study.spectrogram, read_normalisation(study))
    calls = SyntheticCallMixer(study.spectrogram, store.layout.sample_rate_hz, frontend.frames)
    rngs = [np.random.default_rng((study.train.seed, item)) for item in range(count)]
    mixed = calls.mix_into(batch, rngs, torch.ones(count, dtype=torch.bool))
    spec, no_labels = frontend(mixed.audio, mixed.valid_samples), [torch.ones(0)] * count
    plot_predictions(spec, mixed.boxes, batch.boxes, no_labels, study, figure, annotation_name="synthetic")
