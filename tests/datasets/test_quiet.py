"""Quiet chunks: the least lively of every site, whole; of labelled sound, those in which the experts found nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mast.config import Spectrogram, Study, load_study
from mast.datasets import examples, quiet
from mast.datasets.examples import prepared_chunks
from mast.datasets.quiet import quiet_chunks
from mast.errors import TrainingError
from mast.recordings.store import AudioStore
from mast.spectrogram import LogMel
from mast.storage import join
from tests.training.studies import prepare_example


@pytest.fixture(scope="module")
def study_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_example(tmp_path_factory.mktemp("study"))


def store_of(study: Study) -> AudioStore:
    return AudioStore(join(study.work, "audio.lance"))


def test_quiet_chunks_are_a_share_of_each_site_and_none_that_is_cut(study_file: Path) -> None:
    study = load_study(study_file, ["rehearse.quiet_share=0.25"])
    store = store_of(study)
    chosen = {tuple(place) for place in quiet_chunks(study, store).tolist()}
    table, places = prepared_chunks(study, store, ["unlabelled"])
    whole = store.filled(places, store.layout.step_samples) == store.layout.step_samples
    assert not whole.all()
    sites = np.array(table["site"].to_pylist())
    for site in np.unique(sites):
        here = {tuple(place) for place in places[whole & (sites == site)].tolist()}
        assert len(here & chosen) == max(1, round(0.25 * len(here)))
    assert not chosen & {tuple(place) for place in places[~whole].tolist()}


def test_a_call_makes_a_chunk_lively_and_louder_hiss_does_not() -> None:
    rng, samples = np.random.default_rng(0), 40_960
    hiss = rng.normal(0, 0.01, samples)
    time_s = np.arange(samples) / 16_000
    call = np.where((time_s > 1) & (time_s < 1.5), 0.05 * np.sin(2 * np.pi * 3000 * time_s), 0)
    sound = np.stack([hiss, 10 * hiss, hiss + call])

    class Store:
        """As much of a store as is asked for here."""

        class layout:  # noqa: N801
            step_samples = samples

        @staticmethod
        def filled(places: np.ndarray, samples: int) -> np.ndarray:
            return np.full(len(places), samples)

        @staticmethod
        def read(places: np.ndarray, samples: int) -> np.ndarray:
            return np.rint(sound[places[:, 0]] * 32_767).astype(np.int16)

    places = np.stack([np.arange(3), np.zeros(3, int)], axis=1)
    plain, louder, lively = quiet._liveliness(Store, LogMel(Spectrogram(), 16_000), places)
    assert lively > 2 * max(plain, louder)
    assert plain == pytest.approx(louder, abs=0.01)


def test_where_nothing_is_unlabelled_they_are_those_in_which_experts_found_no_animal(
    study_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = load_study(study_file)
    store = store_of(study)
    monkeypatch.setattr(quiet, "UNLABELLED", "no such split")
    chosen = {tuple(place) for place in quiet_chunks(study, store).tolist()}
    table, places = prepared_chunks(study, store, ["train"])
    empty = {
        tuple(place)
        for place, boxes in zip(places.tolist(), table["boxes"].to_pylist(), strict=True)
        if not boxes
    }
    assert chosen and chosen <= empty
    cut = np.array(sorted(empty - chosen), np.int64).reshape(-1, 2)
    assert (store.filled(cut, store.layout.step_samples) < store.layout.step_samples).all()


def test_a_study_without_quiet_sound_is_told_what_to_add(
    study_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = load_study(study_file)
    monkeypatch.setattr(quiet, "UNLABELLED", "no such split")
    monkeypatch.setattr(examples, "TRAIN", "no such split")
    with pytest.raises(TrainingError, match="Add recordings without annotations"):
        quiet_chunks(study, store_of(study))
