"""Batches from a really prepared store: the right sound, the right boxes, the same for any number of workers."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mast.annotations.study import read_expertise
from mast.config import AnnotationSource, Chunking, Collection, Labels, Spectrogram, Splits, Study
from mast.datasets.examples import (
    boxes_of_chunks,
    detection_examples,
    noise_bank,
    noise_places,
    pretraining_examples,
    statistics_spans,
)
from mast.datasets.loading import AnyOffset, FixedChunks, InTurn, Joined, batches, read_batch
from mast.datasets.order import Order
from mast.datasets.preparing import prepare_study, read_normalisation
from mast.datasets.split_summary import split_study
from mast.datasets.split_table import boxes_by_recording
from mast.errors import ConfigError
from mast.events import Annotation, Reviewed, read_column, write_table
from mast.example import write_example
from mast.normalisation import Normalisation, mean_centred
from mast.recordings.decode import open_audio, read_chunks
from mast.recordings.scan import PROVENANCE, scan
from mast.recordings.store import AudioStore, to_float
from mast.spectrogram import MelGrid

SHORT = Chunking(chunk_s=2.56, hop_s=1.28)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The example card, scanned, split and prepared as the verbs do it, in short chunks; B1 is held out."""
    folder = tmp_path_factory.mktemp("loading")
    write_example(folder / "demo")
    made = Study(
        work=str(folder / "work"),
        collections={"card": Collection(root=str(folder / "demo" / "card"), site="{site}/*")},
        annotations=(AnnotationSource(path=str(folder / "demo" / "boxes"), format="raven"),),
        labels=Labels(noise=("insect", "trill")),
        chunking=SHORT,
        splits=Splits(block_s=10, guard_s=2.56, held_out={"new-site": {"sites": ["B1"]}}),
        normalisation="band-median",
    )
    scan(made.collections, f"{made.work}/recordings.parquet")
    expertise = read_expertise(made, read_column(f"{made.work}/recordings.parquet", "recording_id"))
    write_table(expertise.annotations, Annotation, f"{made.work}/annotations.parquet")
    write_table(expertise.reviewed, Reviewed, f"{made.work}/reviewed.parquet")
    split_study(made)
    assert "Normalisation band-median" in prepare_study(made)
    return made


@pytest.fixture(scope="module")
def store(study):
    return AudioStore(f"{study.work}/audio.lance")


def waves_of(batch):
    """Mean-centred waves in -1…1, padding at zero (paper, Audio preprocessing). → (B, N)"""
    return mean_centred(torch.from_numpy(to_float(batch.sound.numpy())), batch.filled)


def test_a_chunk_is_the_sound_of_its_place_and_its_boxes_are_the_experts(study, store):
    labelled = detection_examples(study, store, "train")
    order = Order(len(labelled.chunks), 5, seed=0)
    grid = MelGrid(Spectrogram(), 256)
    seen = 0
    for batch in islice(batches(store, labelled.chunks, order), order.steps_per_epoch):
        waves = waves_of(batch)
        for row, example in enumerate(batch.examples.tolist()):
            chunk = labelled.table.slice(example, 1).to_pylist()[0]
            path = f"{study.collections['card'].root}/{chunk['recording_id'].partition('/')[2]}"
            with open_audio(path, 16_000) as audio:
                sound = audio.read(chunk["start_s"], chunk["filled_s"])
            np.testing.assert_allclose(waves[row, : len(sound)], sound - sound.mean(), atol=1e-4)
            assert not waves[row, len(sound) :].any()
            assert len(batch.boxes[row]) == chunk["boxes"]
            for box in batch.boxes[row]:
                assert 0 <= box[0] < box[2] <= grid.frames
                assert 0 <= box[1] < box[3] <= 128
            seen += len(batch.boxes[row])
    assert seen > 5
    assert torch.equal(batch.weights, torch.ones(len(batch.examples)))


def test_held_out_and_training_chunks_share_no_moment(study, store):
    def moments(split: str) -> set[tuple[str, int]]:
        table = detection_examples(study, store, split).table
        return {
            (row["recording_id"], tenth)
            for row in table.to_pylist()
            for tenth in range(round(row["start_s"] * 10), round((row["start_s"] + row["filled_s"]) * 10))
        }

    parts = [moments(split) for split in ("train", "val", "test", "new-site")]
    assert all(parts)
    assert sum(map(len, parts)) == len(set().union(*parts))


def test_pretraining_hears_training_and_unlabelled_sound_only_and_all_of_it(study, store):
    examples = pretraining_examples(study, store, seed=0)
    allowed = set()
    ids = store.recordings["recording_id"].to_pylist()
    rows = dict(zip(store.recordings["first_row"].to_pylist(), ids, strict=True))
    for split in ("train", "unlabelled"):
        for row in detection_examples(study, store, split).table.to_pylist():
            first = round(row["start_s"] * 16_000)
            allowed |= {
                (row["recording_id"], at) for at in range(first, first + round(row["filled_s"] * 16_000), 160)
            }
    heard = set()
    for epoch in range(12):
        for row, start in examples.places(epoch, np.arange(len(examples))):
            filled = int(store.filled([[row, start]], 40_960)[0])
            stops = {(rows[row], at // 160 * 160) for at in range(start + 160, start + filled - 320, 160)}
            heard |= stops & allowed
            assert (rows[row], start // 160 * 160) in allowed or (
                rows[row],
                -(-start // 160) * 160,
            ) in allowed
    assert len(heard) > 0.9 * len(allowed)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 500), st.integers(0, 900)), max_size=6),
    st.integers(1, 300),
    st.integers(0, 5),
    st.none() | st.integers(1, 20),
)
def test_no_random_chunk_reaches_out_of_its_stretch(stretches, samples, epoch, most):
    array = np.array([(row, first, first + length) for row, first, length in stretches], np.int64).reshape(
        -1, 3
    )
    examples = AnyOffset(array, samples, seed=3, most=most)
    total = sum(length for _, _, length in stretches)
    fitting = max(total // samples, 1) if total else 0
    assert len(examples) == (fitting if most is None else min(most, fitting))
    if len(examples):
        for row, start in examples.places(epoch, np.arange(len(examples))):
            assert any(
                row == own and first <= start and (start + samples <= last or start == first)
                for own, first, last in array.tolist()
            )


def test_short_epochs_each_hear_of_everything_and_in_time_every_moment():
    """Ten recordings of a thousand samples, of which an epoch of five chunks hears a twentieth."""
    array = np.array([(row, 0, 1000) for row in range(10)], np.int64)
    examples = AnyOffset(array, 100, seed=3, most=5)
    epochs = [examples.places(epoch, np.arange(5)) for epoch in range(200)]
    for places in epochs:
        assert (places[:, 0] // 2).tolist() == [0, 1, 2, 3, 4]  # one of each two recordings
    tenths = {(row, start // 100) for places in epochs for row, start in places.tolist()}
    assert len(tenths) > 0.95 * 10 * 10


def test_statistics_hear_each_moment_of_training_once_and_the_normalisation_is_kept(study, store):
    spans = statistics_spans(study, store)
    assert len({tuple(span) for span in spans.tolist()}) == len(spans)
    normalisation = read_normalisation(study)
    assert normalisation.kind == "band-median"
    assert normalisation.provenance.fingerprint == store.fingerprint


def test_another_kind_of_normalisation_takes_the_same_statistics_and_none_is_made_up(study, store, tmp_path):
    kept = read_normalisation(study)
    other = read_normalisation(study.model_copy(update={"normalisation": "dataset"}))
    assert other.kind == "dataset" and (other.mean, other.std) == (kept.mean, kept.std)
    bare = study.model_copy(update={"work": str(tmp_path)})
    (tmp_path / "normalisation.json").write_text(Normalisation.of("audiomae").to_json())
    assert read_normalisation(bare.model_copy(update={"normalisation": "audiomae"})).kind == "audiomae"
    with pytest.raises(ConfigError, match="mast prepare"):
        read_normalisation(bare)


def test_statistics_of_another_spectrogram_are_refused_and_older_files_that_do_not_tell_are_taken(
    study, tmp_path
):
    kept = read_normalisation(study)
    narrow = study.model_copy(
        update={"spectrogram": study.spectrogram.model_copy(update={"high_hz": 7000.0})}
    )
    with pytest.raises(ConfigError, match="high_hz was 8000.0, is now 7000.0.*Run mast prepare again"):
        read_normalisation(narrow)
    silent = replace(kept, provenance=replace(kept.provenance, spectrogram=None))
    (tmp_path / "normalisation.json").write_text(silent.to_json())
    assert read_normalisation(narrow.model_copy(update={"work": str(tmp_path)})) == silent


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"chunk_s": 5.12}, "chunking.chunk_s was 2.56, is now 5.12"),
        ({"hop_s": 2.56}, "chunking.hop_s was 1.28"),
    ],
)
def test_chunks_that_were_cut_otherwise_are_refused_with_what_to_run(study, store, changed, told):
    other = study.model_copy(update={"chunking": SHORT.model_copy(update=changed)})
    for begin in (lambda: detection_examples(other, store, "train"), lambda: prepare_study(other)):
        with pytest.raises(ConfigError, match=f"splits.parquet.*{told}.*Run mast splits again"):
            begin()


def test_splits_of_another_time_expansion_are_refused(study, store):
    slower = study.collections["card"].model_copy(update={"time_expansion": 10.0})
    other = study.model_copy(update={"collections": {"card": slower}})
    with pytest.raises(ConfigError, match="collections.card.time_expansion was 1.0, is now 10.0"):
        pretraining_examples(other, store, seed=0)


def test_sound_prepared_in_other_chunks_is_refused_also_beside_splits_that_do_not_tell(
    study, store, tmp_path
):
    table = pq.read_table(f"{study.work}/splits.parquet").replace_schema_metadata({PROVENANCE: "{}"})
    pq.write_table(table, tmp_path / "splits.parquet")
    longer = SHORT.model_copy(update={"chunk_s": 5.12})
    other = study.model_copy(update={"work": str(tmp_path), "chunking": longer})
    with pytest.raises(ConfigError, match="holds chunks of 2.56 s at 16000 Hz.*mast splits and mast prepare"):
        detection_examples(other, store, "train")
    assert len(detection_examples(other.model_copy(update={"chunking": SHORT}), store, "train").chunks)


def test_the_noise_bank_is_made_of_quiet_training_chunks(study, store):
    train = detection_examples(study, store, "train")
    has_animals, has_noise = (
        np.array([len(own) > 0 for own in boxes_of_chunks(study, train.table, events)[0]])
        for events in (boxes_by_recording(study, "animal"), boxes_by_recording(study, "noise"))
    )
    assert (has_noise & has_animals).any() and (~has_animals).any()
    places = noise_places(study, store)
    every = train.chunks.places(0, np.arange(len(train.chunks)))
    assert places.tolist() == every[~has_animals].tolist()
    bank = noise_bank(study, store, places, chunks=3, seed=0)
    assert bank.shape == (3, 128, 254)
    assert torch.equal(bank, noise_bank(study, store, places, chunks=3, seed=0))
    assert torch.isfinite(bank).all()


def same(batch, other) -> bool:
    return (
        batch.epoch == other.epoch
        and torch.equal(batch.examples, other.examples)
        and torch.equal(batch.sound, other.sound)
        and torch.equal(batch.filled, other.filled)
        and all(map(torch.equal, batch.boxes, other.boxes))
    )


@pytest.mark.parametrize("kind", ["fixed", "any offset"])
def test_workers_ranks_and_a_restart_change_nothing(study, store, kind):
    examples = (
        detection_examples(study, store, "train").chunks
        if kind == "fixed"
        else pretraining_examples(study, store, seed=1)
    )
    order = Order(len(examples), 4, seed=5)
    steps = 2 * order.steps_per_epoch
    plain = list(islice(batches(store, examples, order), steps))
    with_workers = list(islice(batches(store, examples, order, workers=2), steps))
    resumed = list(islice(batches(store, examples, order, from_step=3), steps - 3))
    assert all(map(same, plain, with_workers))
    assert all(map(same, plain[3:], resumed))
    ranks = [
        list(islice(batches(store, examples, Order(len(examples), 4, 5, rank, 2)), steps)) for rank in (0, 1)
    ]
    for step, batch in enumerate(plain):
        joined = torch.cat([rank[step].examples for rank in ranks])
        assert sorted(joined.tolist()) == sorted(batch.examples.tolist())


def test_every_chunk_of_a_recording_is_read_as_the_paper_cuts_it(study, store):
    recording = store.recordings["recording_id"][0].as_py()
    path = f"{study.collections['card'].root}/{recording.partition('/')[2]}"
    chunks = FixedChunks(store.chunks(SHORT, [0]))
    waves = waves_of(read_batch(store, chunks, np.arange(len(chunks))))
    for (_, wave), read in zip(read_chunks(path, recording, SHORT), waves, strict=True):
        np.testing.assert_allclose(read, wave, atol=1e-4)


@given(
    sizes=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    pool=st.integers(1, 7),
    epoch=st.integers(0, 4),
    data=st.data(),
)
def test_examples_that_are_joined_are_each_as_their_own_have_them(sizes, pool, epoch, data):
    count = sizes[0]
    boxes = [torch.full((number % 3, 4), float(number)) for number in range(count)]
    weights = torch.arange(count) / 10
    first = FixedChunks(np.arange(2 * count).reshape(-1, 2), boxes, weights)
    second = InTurn(FixedChunks(100 + np.arange(2 * pool).reshape(-1, 2)), sizes[1])
    both = Joined(first, second)
    assert len(both) == sum(sizes)
    chosen = np.array(data.draw(st.permutations(range(len(both)))), np.int64)
    parts = [(first, number) if number < count else (second, number - count) for number in chosen]
    alone = [(part, np.array([number])) for part, number in parts]
    expected = [part.places(epoch, one)[0].tolist() for part, one in alone]
    assert both.places(epoch, chosen).tolist() == expected
    assert all(
        map(torch.equal, both.boxes(chosen, epoch), [part.boxes(one, epoch)[0] for part, one in alone])
    )
    assert both.weights(chosen, epoch).tolist() == [float(part.weights(one, epoch)[0]) for part, one in alone]


@given(pool=st.integers(1, 9), count=st.integers(1, 9))
def test_in_as_many_epochs_as_it_takes_every_chunk_has_had_its_turn_as_often_as_any(pool, count):
    chunks = InTurn(FixedChunks(np.arange(2 * pool).reshape(-1, 2)), count)
    heard = np.concatenate([chunks.places(epoch, np.arange(count)) for epoch in range(pool)])
    assert np.bincount(heard[:, 0] // 2).tolist() == [count] * pool


@given(own=st.integers(1, 9), count=st.integers(1, 39), epoch=st.integers(0, 4))
def test_what_comes_in_turn_comes_as_often_as_any_other_or_once_more_with_its_own_boxes(own, count, epoch):
    boxes = [torch.full((number % 3, 4), float(number)) for number in range(own)]
    few = FixedChunks(np.arange(2 * own).reshape(-1, 2), boxes, torch.arange(own) / 10)
    often = InTurn(few, count)
    assert len(often) == count
    everything = np.arange(count)
    numbers = often.places(epoch, everything)[:, 0] // 2
    counts = np.bincount(numbers, minlength=own)
    assert counts.min() >= count // own and counts.max() - counts.min() <= 1
    assert all(map(torch.equal, often.boxes(everything, epoch), few.boxes(numbers)))
    assert torch.equal(often.weights(everything, epoch), few.weights(numbers))


def test_nothing_to_load_is_told(store):
    with pytest.raises(ConfigError, match="nothing to load"):
        batches(store, FixedChunks(np.zeros((0, 2), np.int64)), Order(1, 1, seed=0))
