"""What a detector learns from: labels as often as it takes, and made-up calls beside them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.config import Train, load_study
from mast.datasets.loading import FixedChunks
from mast.datasets.order import Order
from mast.errors import TrainingError
from mast.recordings.store import AudioStore
from mast.storage import join
from mast.training.finetune import FinetuneRecipe, train_study
from mast.training.lessons import Lesson, often_enough, whole_lesson
from mast.training.run import Run
from tests.small_models import shrink
from tests.training.test_finetune import QUICK


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)


@given(
    labelled=st.integers(1, 60),
    batch=st.integers(1, 20),
    epochs=st.integers(1, 12),
    share=st.sampled_from([0.0, 0.25, 0.5, 0.75]),
    least=st.integers(0, 200),
)
def test_training_has_its_least_steps_and_no_more_and_enough_labels_come_once(
    labelled: int, batch: int, epochs: int, share: float, least: int
) -> None:
    settings = Train(batch=batch, epochs=epochs, rehearsed_share=share, min_steps=least)
    chunks = FixedChunks(np.zeros((labelled, 2), np.int64))
    own = often_enough(chunks, settings)
    steps = {}
    for name, count in (("once", labelled), ("often", len(own))):
        total = count + round(count * share / (1 - share))
        steps[name] = epochs * Order(total, min(batch, total), 0, whole_batches=True).steps_per_epoch
    assert steps["often"] >= least
    if steps["once"] >= least + epochs:
        assert own is chunks
    if own is not chunks:
        assert steps["often"] < least + epochs + math.ceil(epochs / (batch * (1 - share)))


def test_few_labels_come_several_times_in_an_epoch(study_file: Path, tmp_path: Path) -> None:
    sets = (*QUICK, "model.size=tiny")
    plain = load_study(study_file, sets)
    store = AudioStore(join(plain.work, "audio.lance"))
    labelled = FinetuneRecipe(plain, store).sound.examples
    study = load_study(study_file, [*sets, "train.min_steps=20", "train.rehearsed_share=0.5"])
    recipe = FinetuneRecipe(study, store)
    assert recipe.made_up_from == 10 * study.train.batch // 2 > len(labelled)
    own = recipe.sound.examples.places(0, np.arange(recipe.made_up_from))
    assert {tuple(place) for place in own} == {
        tuple(place) for place in labelled.places(0, np.arange(len(labelled)))
    }
    assert train_study(study, Run(tmp_path), "cpu") == "finished"
    assert Run(tmp_path).read()[-1]["step"] == 20


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_without_a_label_training_says_what_to_do_instead(study_file: Path, share: float) -> None:
    study = load_study(study_file, [*QUICK, "model.size=tiny", f"train.rehearsed_share={share}"])
    store = AudioStore(join(study.work, "audio.lance"))
    nothing = Lesson(FixedChunks(np.zeros((0, 2), np.int64)))
    with pytest.raises(TrainingError, match=r"labelled for training\. mast budget .* mast rehearse"):
        whole_lesson(study, store, nothing)
