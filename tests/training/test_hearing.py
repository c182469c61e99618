"""What a detector is asked before a score is chosen: validation, and made-up calls where that has few boxes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mast.config import Study, load_study
from mast.datasets.examples import detection_examples
from mast.datasets.loading import Examples, FixedChunks, Places
from mast.datasets.made_up import MEAN_CALLS
from mast.datasets.quiet import quiet_chunks
from mast.models.decoding import Detections
from mast.recordings.store import AudioStore
from mast.storage import join
from mast.training import hearing
from mast.training.hearing import NOTHING, Heard, hear, hear_validation


class Listener:
    """Boxes the first second of every chunk, as sure as it is loud."""

    batch, frames = 4, 512

    def __call__(self, sound: NDArray[np.int16], filled: NDArray[np.int64]) -> list[Detections]:
        loud = np.abs(sound.astype(float)).mean(axis=1) / 2**15
        box = torch.tensor([[0.0, 0, 100, 128]])
        return [Detections(box, torch.tensor([score], dtype=torch.float32)) for score in loud]


@pytest.fixture
def asked(study_file: Path) -> tuple[Study, AudioStore, Examples]:
    study = load_study(study_file)
    store = AudioStore(join(study.work, "audio.lance"))
    return study, store, detection_examples(study, store, "val").chunks


def quiet_of(held: Examples) -> Places:
    every = np.arange(len(held))
    return held.places(0, np.flatnonzero([not len(own) for own in held.boxes(every)]))


def test_validation_is_heard_chunk_by_chunk_with_its_own_boxes(
    asked: tuple[Study, AudioStore, Examples],
) -> None:
    study, store, held = asked
    real, made_up = hear_validation(Listener(), study, store, held, knows_made_up=False)
    assert made_up == NOTHING  # what never learned from such calls is not asked about them
    assert len(real.found) == len(real.truths) == len(held) > Listener.batch
    last = np.array([len(held) - 1])
    (alone,) = hear(Listener(), store, FixedChunks(held.places(0, last), held.boxes(last))).found
    assert torch.equal(alone.scores, real.found[-1].scores)
    assert real.boxes == sum(map(len, held.boxes(np.arange(len(held))))) > 0


def test_made_up_calls_stand_in_for_the_boxes_that_validation_lacks(
    asked: tuple[Study, AudioStore, Examples], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, store, held = asked
    boxes = hear(Listener(), store, held).boxes
    monkeypatch.setattr(hearing, "STEADY_BOXES", 40)
    assert 0 < boxes < 40
    real, made_up = hear_validation(Listener(), study, store, held, knows_made_up=True)
    assert real.boxes == boxes
    assert len(made_up.truths) == len(made_up.found) == math.ceil((40 - boxes) / MEAN_CALLS)
    assert 0.4 < made_up.boxes / (40 - boxes) < 1.6
    _, again = hear_validation(Listener(), study, store, held, knows_made_up=True)
    for one, two in zip(made_up.truths, again.truths, strict=True):
        assert torch.equal(one, two)
    monkeypatch.setattr(hearing, "STEADY_BOXES", boxes)
    assert hear_validation(Listener(), study, store, held, knows_made_up=True)[1] == NOTHING


def test_they_lie_over_validation_without_a_box_or_else_over_quiet_unlabelled_sound(
    asked: tuple[Study, AudioStore, Examples], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, store, held = asked
    heard: list[Places] = []

    def note(finder: object, spectrogram: object, store: object, quiet: Places, boxes: int) -> Heard:
        heard.append(quiet)
        return NOTHING

    monkeypatch.setattr(hearing, "hear_made_up", note)
    hear_validation(Listener(), study, store, held, knows_made_up=True)
    hear_validation(Listener(), study, store, FixedChunks(np.zeros((0, 2), np.int64)), knows_made_up=True)
    assert len(heard[0]) and heard[0].tolist() == quiet_of(held).tolist()
    assert len(heard[1]) and heard[1].tolist() == quiet_chunks(study, store).tolist()


def test_calls_are_louder_than_the_quiet_they_lie_over(asked: tuple[Study, AudioStore, Examples]) -> None:
    study, store, held = asked
    quiet = quiet_of(held)[:1]
    (before,) = hear(Listener(), store, FixedChunks(quiet)).found
    made_up = hearing.hear_made_up(Listener(), study.spectrogram, store, quiet, 30)
    with_calls = [
        item.scores for item, own in zip(made_up.found, made_up.truths, strict=True) if len(own) > 1
    ]
    assert with_calls and all(score > before.scores for score in with_calls)


def test_what_is_heard_at_two_places_is_matched_at_each() -> None:
    box, none = torch.tensor([[0.0, 0, 10, 10]]), torch.zeros(0, 4)
    one = Heard([Detections(box, torch.tensor([0.9]))], [box])
    other = Heard([Detections(box, torch.tensor([0.4]))], [none])
    ranking = (one + other).ranking()
    assert ranking.score.tolist() == pytest.approx([0.9, 0.4]) and ranking.truths.tolist() == [1, 0]
    assert (ranking.overlap > 0).tolist() == [True, False]
    assert (NOTHING + one).ranking().truths.tolist() == [1]
