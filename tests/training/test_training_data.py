"""Training data of a detector: annotated chunks, repeated to the minimum number of steps, and synthetic calls."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.config import Train, load_study
from mast.datasets.loader import FixedChunkDataset
from mast.datasets.sampler import BatchSampler
from mast.errors import TrainingError
from mast.storage import join
from mast.store.audio_store import AudioStore
from mast.training.run_dir import TrainingRun
from mast.training.supervised import DetectorTask, train_study
from mast.training.training_data import TrainingData, build_training_data, repeat_to_min_steps
from tests.small_models import shrink
from tests.training.test_supervised import QUICK


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)


@given(
    labelled=st.integers(1, 60),
    batch=st.integers(1, 20),
    epochs=st.integers(1, 12),
    fraction=st.sampled_from([0.0, 0.25, 0.5, 0.75]),
    min_steps=st.integers(0, 200),
)
def test_training_reaches_min_steps_with_few_more_and_enough_labels_are_not_repeated(
    labelled: int, batch: int, epochs: int, fraction: float, min_steps: int
) -> None:
    settings = Train(batch_size=batch, epochs=epochs, synthetic_fraction=fraction, min_steps=min_steps)
    chunks = FixedChunkDataset(np.zeros((labelled, 2), np.int64))
    repeated = repeat_to_min_steps(chunks, settings)
    steps = {}
    for name, count in (("once", labelled), ("repeated", len(repeated))):
        total = count + round(count * fraction / (1 - fraction))
        steps[name] = epochs * BatchSampler(total, min(batch, total), 0, drop_last=True).steps_per_epoch
    assert steps["repeated"] >= min_steps
    if steps["once"] >= min_steps + epochs:
        assert repeated is chunks
    if repeated is not chunks:
        assert steps["repeated"] < min_steps + epochs + math.ceil(epochs / (batch * (1 - fraction)))


def test_few_labelled_chunks_are_repeated_within_an_epoch(study_file: Path, tmp_path: Path) -> None:
    overrides = (*QUICK, "model.size=tiny")
    plain = load_study(study_file, overrides)
    store = AudioStore(join(plain.work_dir, "audio.lance"))
    labelled = DetectorTask(plain, store).training_set.examples
    study = load_study(study_file, [*overrides, "train.min_steps=20", "train.synthetic_fraction=0.5"])
    task = DetectorTask(study, store)
    assert task.synthetic_start == 10 * study.train.batch_size // 2 > len(labelled)
    locations = task.training_set.examples.locations(0, np.arange(task.synthetic_start))
    assert {tuple(location) for location in locations} == {
        tuple(location) for location in labelled.locations(0, np.arange(len(labelled)))
    }
    assert train_study(study, TrainingRun(tmp_path), "cpu") == "finished"
    assert TrainingRun(tmp_path).read()[-1]["step"] == 20


@pytest.mark.parametrize("fraction", [0.0, 0.5])
def test_without_annotations_the_error_says_what_to_do_instead(study_file: Path, fraction: float) -> None:
    study = load_study(study_file, [*QUICK, "model.size=tiny", f"train.synthetic_fraction={fraction}"])
    store = AudioStore(join(study.work_dir, "audio.lance"))
    no_examples = TrainingData(FixedChunkDataset(np.zeros((0, 2), np.int64)))
    with pytest.raises(
        TrainingError,
        match=r"no annotated chunks in the training split\. mast sample .* mast train-synthetic",
    ):
        build_training_data(study, store, no_examples)
