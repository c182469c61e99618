"""Batches from a prepared store: the right audio and boxes, the same for any number of workers."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mast.annotations.study_annotations import read_study_annotations
from mast.audio.reader import open_audio, read_chunks
from mast.audio.spectrogram import MelGrid
from mast.config import AnnotationSource, Chunking, Collection, Labels, Spectrogram, Splits, Study
from mast.datasets.loader import (
    ConcatDataset,
    CycledDataset,
    FixedChunkDataset,
    RandomOffsetDataset,
    iter_batches,
    read_batch,
)
from mast.datasets.prepare import prepare_study, read_normalisation
from mast.datasets.sampler import BatchSampler
from mast.datasets.split_summary import split_study
from mast.datasets.split_table import boxes_by_recording
from mast.datasets.study_datasets import (
    background_bank,
    background_chunks,
    boxes_of_chunks,
    detection_dataset,
    pretraining_dataset,
    statistics_spans,
)
from mast.errors import ConfigError
from mast.example_data import write_example
from mast.normalisation import Normalisation, remove_dc_offset
from mast.recordings.scan import PROVENANCE, scan
from mast.records import Annotation, ReviewedSpan, read_column, write_table
from mast.store.audio_store import AudioStore, to_float

SHORT = Chunking(chunk_s=2.56, hop_s=1.28)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The example card, scanned, split and prepared as the commands do, in short chunks; B1 is held out."""
    folder = tmp_path_factory.mktemp("loading")
    write_example(folder / "demo")
    example_study = Study(
        work_dir=str(folder / "work"),
        collections={"card": Collection(root=str(folder / "demo" / "card"), site="{site}/*")},
        annotations=(AnnotationSource(path=str(folder / "demo" / "boxes"), format="raven"),),
        labels=Labels(noise=("insect", "trill")),
        chunking=SHORT,
        splits=Splits(block_s=10, guard_s=2.56, held_out={"new-site": {"sites": ["B1"]}}),
        normalisation="band-median",
    )
    scan(example_study.collections, f"{example_study.work_dir}/recordings.parquet")
    study_annotations = read_study_annotations(
        example_study, read_column(f"{example_study.work_dir}/recordings.parquet", "recording_id")
    )
    write_table(study_annotations.annotations, Annotation, f"{example_study.work_dir}/annotations.parquet")
    write_table(study_annotations.reviewed, ReviewedSpan, f"{example_study.work_dir}/reviewed.parquet")
    split_study(example_study)
    assert "Normalisation band-median" in prepare_study(example_study)
    return example_study


@pytest.fixture(scope="module")
def store(study):
    return AudioStore(f"{study.work_dir}/audio.lance")


def waves_of(batch):
    """Return mean-centred waves in -1…1, padding at zero (paper, Audio preprocessing). → (B, N)"""
    return remove_dc_offset(torch.from_numpy(to_float(batch.audio.numpy())), batch.valid_samples)


def test_a_chunk_has_the_audio_of_its_location_and_the_annotations_as_boxes(study, store):
    labelled = detection_dataset(study, store, "train")
    order = BatchSampler(len(labelled.chunks), 5, seed=0)
    grid = MelGrid(Spectrogram(), 256)
    box_count = 0
    for batch in islice(iter_batches(store, labelled.chunks, order), order.steps_per_epoch):
        waves = waves_of(batch)
        for row, example in enumerate(batch.examples.tolist()):
            chunk = labelled.table.slice(example, 1).to_pylist()[0]
            path = f"{study.collections['card'].root}/{chunk['recording_id'].partition('/')[2]}"
            with open_audio(path, 16_000) as audio:
                samples = audio.read(chunk["start_s"], chunk["audio_s"])
            np.testing.assert_allclose(waves[row, : len(samples)], samples - samples.mean(), atol=1e-4)
            assert not waves[row, len(samples) :].any()
            assert len(batch.boxes[row]) == chunk["boxes"]
            for box in batch.boxes[row]:
                assert 0 <= box[0] < box[2] <= grid.frames
                assert 0 <= box[1] < box[3] <= 128
            box_count += len(batch.boxes[row])
    assert box_count > 5
    assert torch.equal(batch.weights, torch.ones(len(batch.examples)))


def test_held_out_and_training_chunks_share_no_audio(study, store):
    def tenths_of(split: str) -> set[tuple[str, int]]:
        table = detection_dataset(study, store, split).table
        return {
            (row["recording_id"], tenth)
            for row in table.to_pylist()
            for tenth in range(round(row["start_s"] * 10), round((row["start_s"] + row["audio_s"]) * 10))
        }

    tenths = [tenths_of(split) for split in ("train", "val", "test", "new-site")]
    assert all(tenths)
    assert sum(map(len, tenths)) == len(set().union(*tenths))


def test_pretraining_loads_all_training_and_unlabelled_audio_and_no_other(study, store):
    examples = pretraining_dataset(study, store, seed=0)
    allowed = set()
    ids = store.recordings["recording_id"].to_pylist()
    rows = dict(zip(store.recordings["first_row"].to_pylist(), ids, strict=True))
    for split in ("train", "unlabelled"):
        for row in detection_dataset(study, store, split).table.to_pylist():
            first = round(row["start_s"] * 16_000)
            allowed |= {
                (row["recording_id"], at) for at in range(first, first + round(row["audio_s"] * 16_000), 160)
            }
    loaded = set()
    for epoch in range(12):
        for row, start in examples.locations(epoch, np.arange(len(examples))):
            samples = int(store.valid_lengths([[row, start]], 40_960)[0])
            stops = {(rows[row], at // 160 * 160) for at in range(start + 160, start + samples - 320, 160)}
            loaded |= stops & allowed
            assert (rows[row], start // 160 * 160) in allowed or (
                rows[row],
                -(-start // 160) * 160,
            ) in allowed
    assert len(loaded) > 0.9 * len(allowed)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 500), st.integers(0, 900)), max_size=6),
    st.integers(1, 300),
    st.integers(0, 5),
    st.none() | st.integers(1, 20),
)
def test_no_random_chunk_extends_beyond_its_span(spans, samples, epoch, max_chunks):
    array = np.array([(row, first, first + length) for row, first, length in spans], np.int64).reshape(-1, 3)
    examples = RandomOffsetDataset(array, samples, seed=3, max_chunks=max_chunks)
    total = sum(length for _, _, length in spans)
    fitting = max(total // samples, 1) if total else 0
    assert len(examples) == (fitting if max_chunks is None else min(max_chunks, fitting))
    if len(examples):
        for row, start in examples.locations(epoch, np.arange(len(examples))):
            assert any(
                row == span_row and first <= start and (start + samples <= last or start == first)
                for span_row, first, last in array.tolist()
            )


def test_short_epochs_cover_all_recordings_and_over_many_epochs_all_audio():
    """Load epochs of five chunks, a twentieth of the audio, from ten recordings of a thousand samples."""
    array = np.array([(row, 0, 1000) for row in range(10)], np.int64)
    examples = RandomOffsetDataset(array, 100, seed=3, max_chunks=5)
    epochs = [examples.locations(epoch, np.arange(5)) for epoch in range(200)]
    for locations in epochs:
        assert (locations[:, 0] // 2).tolist() == [0, 1, 2, 3, 4]  # one of each two recordings
    tenths = {(row, start // 100) for locations in epochs for row, start in locations.tolist()}
    assert len(tenths) > 0.95 * 10 * 10


def test_statistics_use_each_training_chunk_once_and_the_normalisation_is_saved(study, store):
    spans = statistics_spans(study, store)
    assert len({tuple(span) for span in spans.tolist()}) == len(spans)
    normalisation = read_normalisation(study)
    assert normalisation.kind == "band-median"
    assert normalisation.provenance.fingerprint == store.fingerprint


def test_another_kind_of_normalisation_uses_the_same_statistics_and_missing_ones_raise_an_error(
    study, store, tmp_path
):
    saved = read_normalisation(study)
    other = read_normalisation(study.model_copy(update={"normalisation": "dataset"}))
    assert other.kind == "dataset" and (other.mean, other.std) == (saved.mean, saved.std)
    bare = study.model_copy(update={"work_dir": str(tmp_path)})
    (tmp_path / "normalisation.json").write_text(Normalisation.from_statistics("audiomae").to_json())
    assert read_normalisation(bare.model_copy(update={"normalisation": "audiomae"})).kind == "audiomae"
    with pytest.raises(ConfigError, match="mast prepare"):
        read_normalisation(bare)


def test_statistics_of_another_spectrogram_are_refused_and_older_files_without_settings_are_accepted(
    study, tmp_path
):
    saved = read_normalisation(study)
    narrow = study.model_copy(
        update={"spectrogram": study.spectrogram.model_copy(update={"high_hz": 7000.0})}
    )
    with pytest.raises(ConfigError, match="high_hz was 8000.0, is now 7000.0.*Run mast prepare again"):
        read_normalisation(narrow)
    older = replace(saved, provenance=replace(saved.provenance, spectrogram=None))
    (tmp_path / "normalisation.json").write_text(older.to_json())
    assert read_normalisation(narrow.model_copy(update={"work_dir": str(tmp_path)})) == older


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"chunk_s": 5.12}, "chunking.chunk_s was 2.56, is now 5.12"),
        ({"hop_s": 2.56}, "chunking.hop_s was 1.28"),
    ],
)
def test_chunks_made_with_other_settings_are_refused_with_a_remedy(study, store, changed, message):
    other = study.model_copy(update={"chunking": SHORT.model_copy(update=changed)})
    for call in (lambda: detection_dataset(other, store, "train"), lambda: prepare_study(other)):
        with pytest.raises(ConfigError, match=f"splits.parquet.*{message}.*Run mast split again"):
            call()


def test_splits_of_another_time_expansion_are_refused(study, store):
    slower = study.collections["card"].model_copy(update={"time_expansion": 10.0})
    other = study.model_copy(update={"collections": {"card": slower}})
    with pytest.raises(ConfigError, match="collections.card.time_expansion was 1.0, is now 10.0"):
        pretraining_dataset(other, store, seed=0)


def test_audio_prepared_with_other_chunks_is_refused_even_if_splits_lack_settings(study, store, tmp_path):
    table = pq.read_table(f"{study.work_dir}/splits.parquet").replace_schema_metadata({PROVENANCE: "{}"})
    pq.write_table(table, tmp_path / "splits.parquet")
    longer = SHORT.model_copy(update={"chunk_s": 5.12})
    other = study.model_copy(update={"work_dir": str(tmp_path), "chunking": longer})
    with pytest.raises(ConfigError, match="holds chunks of 2.56 s at 16000 Hz.*mast split and mast prepare"):
        detection_dataset(other, store, "train")
    assert len(detection_dataset(other.model_copy(update={"chunking": SHORT}), store, "train").chunks)


def test_the_noise_bank_has_training_chunks_without_animals(study, store):
    train = detection_dataset(study, store, "train")
    has_animals, has_noise = (
        np.array([len(boxes) > 0 for boxes in boxes_of_chunks(study, train.table, events)[0]])
        for events in (boxes_by_recording(study, "animal"), boxes_by_recording(study, "noise"))
    )
    assert (has_noise & has_animals).any() and (~has_animals).any()
    locations = background_chunks(study, store)
    all_locations = train.chunks.locations(0, np.arange(len(train.chunks)))
    assert locations.tolist() == all_locations[~has_animals].tolist()
    bank = background_bank(study, store, locations, chunks=3, seed=0)
    assert bank.shape == (3, 128, 254)
    assert torch.equal(bank, background_bank(study, store, locations, chunks=3, seed=0))
    assert torch.isfinite(bank).all()


def same(batch, other) -> bool:
    return (
        batch.epoch == other.epoch
        and torch.equal(batch.examples, other.examples)
        and torch.equal(batch.audio, other.audio)
        and torch.equal(batch.valid_samples, other.valid_samples)
        and all(map(torch.equal, batch.boxes, other.boxes))
    )


@pytest.mark.parametrize("kind", ["fixed", "any offset"])
def test_workers_ranks_and_resuming_change_no_batch(study, store, kind):
    examples = (
        detection_dataset(study, store, "train").chunks
        if kind == "fixed"
        else pretraining_dataset(study, store, seed=1)
    )
    order = BatchSampler(len(examples), 4, seed=5)
    steps = 2 * order.steps_per_epoch
    plain = list(islice(iter_batches(store, examples, order), steps))
    with_workers = list(islice(iter_batches(store, examples, order, workers=2), steps))
    resumed = list(islice(iter_batches(store, examples, order, from_step=3), steps - 3))
    assert all(map(same, plain, with_workers))
    assert all(map(same, plain[3:], resumed))
    ranks = [
        list(islice(iter_batches(store, examples, BatchSampler(len(examples), 4, 5, rank, 2)), steps))
        for rank in (0, 1)
    ]
    for step, batch in enumerate(plain):
        joined = torch.cat([rank[step].examples for rank in ranks])
        assert sorted(joined.tolist()) == sorted(batch.examples.tolist())


def test_every_chunk_of_a_recording_is_read_as_in_the_paper(study, store):
    recording = store.recordings["recording_id"][0].as_py()
    path = f"{study.collections['card'].root}/{recording.partition('/')[2]}"
    chunks = FixedChunkDataset(store.chunks(SHORT, [0]))
    waves = waves_of(read_batch(store, chunks, np.arange(len(chunks))))
    for (_, wave), read in zip(read_chunks(path, recording, SHORT), waves, strict=True):
        np.testing.assert_allclose(read, wave, atol=1e-4)


@given(
    sizes=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    size=st.integers(1, 7),
    epoch=st.integers(0, 4),
    data=st.data(),
)
def test_concatenated_examples_equal_those_of_their_own_datasets(sizes, size, epoch, data):
    count = sizes[0]
    boxes = [torch.full((number % 3, 4), float(number)) for number in range(count)]
    weights = torch.arange(count) / 10
    first = FixedChunkDataset(np.arange(2 * count).reshape(-1, 2), boxes, weights)
    second = CycledDataset(FixedChunkDataset(100 + np.arange(2 * size).reshape(-1, 2)), sizes[1])
    both = ConcatDataset(first, second)
    assert len(both) == sum(sizes)
    chosen = np.array(data.draw(st.permutations(range(len(both)))), np.int64)
    parts = [(first, number) if number < count else (second, number - count) for number in chosen]
    single = [(part, np.array([number])) for part, number in parts]
    expected = [part.locations(epoch, index)[0].tolist() for part, index in single]
    assert both.locations(epoch, chosen).tolist() == expected
    assert all(
        map(torch.equal, both.boxes(chosen, epoch), [part.boxes(index, epoch)[0] for part, index in single])
    )
    assert both.weights(chosen, epoch).tolist() == [
        float(part.weights(index, epoch)[0]) for part, index in single
    ]


@given(size=st.integers(1, 9), count=st.integers(1, 9))
def test_after_full_cycles_every_chunk_was_loaded_equally_often(size, count):
    chunks = CycledDataset(FixedChunkDataset(np.arange(2 * size).reshape(-1, 2)), count)
    loaded = np.concatenate([chunks.locations(epoch, np.arange(count)) for epoch in range(size)])
    assert np.bincount(loaded[:, 0] // 2).tolist() == [count] * size


@given(size=st.integers(1, 9), count=st.integers(1, 39), epoch=st.integers(0, 4))
def test_counts_of_cycled_examples_differ_by_at_most_one_and_boxes_follow(size, count, epoch):
    boxes = [torch.full((number % 3, 4), float(number)) for number in range(size)]
    chunks = FixedChunkDataset(np.arange(2 * size).reshape(-1, 2), boxes, torch.arange(size) / 10)
    cycled = CycledDataset(chunks, count)
    assert len(cycled) == count
    examples = np.arange(count)
    numbers = cycled.locations(epoch, examples)[:, 0] // 2
    counts = np.bincount(numbers, minlength=size)
    assert counts.min() >= count // size and counts.max() - counts.min() <= 1
    assert all(map(torch.equal, cycled.boxes(examples, epoch), chunks.boxes(numbers)))
    assert torch.equal(cycled.weights(examples, epoch), chunks.weights(numbers))


def test_an_empty_dataset_is_refused(store):
    with pytest.raises(ConfigError, match="nothing to load"):
        iter_batches(store, FixedChunkDataset(np.zeros((0, 2), np.int64)), BatchSampler(1, 1, seed=0))
