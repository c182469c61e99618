"""Background chunks: the least active complete ones of every site, or training chunks without annotations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mast.audio.spectrogram import LogMel
from mast.config import Spectrogram, Study, load_study
from mast.datasets import background_selection, study_datasets
from mast.datasets.background_selection import select_background_chunks
from mast.datasets.study_datasets import split_chunks
from mast.errors import TrainingError
from mast.storage import join
from mast.store.audio_store import AudioStore
from tests.training.studies import prepare_example


@pytest.fixture(scope="module")
def study_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_example(tmp_path_factory.mktemp("study"))


def store_of(study: Study) -> AudioStore:
    return AudioStore(join(study.work_dir, "audio.lance"))


def test_background_chunks_are_a_fraction_of_each_site_and_complete(study_file: Path) -> None:
    study = load_study(study_file, ["train_synthetic.background_fraction=0.25"])
    store = store_of(study)
    chosen = {tuple(location) for location in select_background_chunks(study, store).tolist()}
    table, locations = split_chunks(study, store, ["unlabelled"])
    complete = store.valid_lengths(locations, store.layout.block_samples) == store.layout.block_samples
    assert not complete.all()
    sites = np.array(table["site"].to_pylist())
    for site in np.unique(sites):
        of_site = {tuple(location) for location in locations[complete & (sites == site)].tolist()}
        assert len(of_site & chosen) == max(1, round(0.25 * len(of_site)))
    assert not chosen & {tuple(location) for location in locations[~complete].tolist()}


def test_a_call_raises_the_activity_of_a_chunk_and_louder_hiss_does_not() -> None:
    rng, samples = np.random.default_rng(0), 40_960
    hiss = rng.normal(0, 0.01, samples)
    time_s = np.arange(samples) / 16_000
    call = np.where((time_s > 1) & (time_s < 1.5), 0.05 * np.sin(2 * np.pi * 3000 * time_s), 0)
    audio = np.stack([hiss, 10 * hiss, hiss + call])

    class Store:
        """The methods of a store that the function uses."""

        class layout:  # noqa: N801
            block_samples = samples

        @staticmethod
        def valid_lengths(locations: np.ndarray, samples: int) -> np.ndarray:
            return np.full(len(locations), samples)

        @staticmethod
        def read(locations: np.ndarray, samples: int) -> np.ndarray:
            return np.rint(audio[locations[:, 0]] * 32_767).astype(np.int16)

    locations = np.stack([np.arange(3), np.zeros(3, int)], axis=1)
    logmel = LogMel(Spectrogram(), 16_000)
    plain, louder, with_call = background_selection._acoustic_activity(Store, logmel, locations)
    assert with_call > 2 * max(plain, louder)
    assert plain == pytest.approx(louder, abs=0.01)


def test_without_unlabelled_audio_they_are_training_chunks_without_animal_annotations(
    study_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = load_study(study_file)
    store = store_of(study)
    monkeypatch.setattr(background_selection, "UNLABELLED", "no such split")
    chosen = {tuple(location) for location in select_background_chunks(study, store).tolist()}
    table, locations = split_chunks(study, store, ["train"])
    empty = {
        tuple(location)
        for location, boxes in zip(locations.tolist(), table["boxes"].to_pylist(), strict=True)
        if not boxes
    }
    assert chosen and chosen <= empty
    incomplete = np.array(sorted(empty - chosen), np.int64).reshape(-1, 2)
    assert (store.valid_lengths(incomplete, store.layout.block_samples) < store.layout.block_samples).all()


def test_a_study_without_background_chunks_raises_an_error_with_a_remedy(
    study_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = load_study(study_file)
    monkeypatch.setattr(background_selection, "UNLABELLED", "no such split")
    monkeypatch.setattr(study_datasets, "TRAIN", "no such split")
    with pytest.raises(TrainingError, match="Add recordings without annotations"):
        select_background_chunks(study, store_of(study))
