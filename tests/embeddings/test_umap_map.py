"""The UMAP of a study: chunks of every recording, reproducible for a seed, with their metadata."""

import sys
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from mast.config import Chunking
from mast.datasets.study_datasets import split_chunks
from mast.embeddings.umap_map import NEIGHBOURS, map_study, subsample, umap_projection
from mast.errors import ConfigError, MissingExtraError, ModelError, StorageError
from mast.plotting.chunk_map import ChunkPoint
from mast.records import from_table
from tests.embeddings.builders import SHAPE, tiny_model


@pytest.fixture(scope="module")
def model(study, tmp_path_factory):
    return tiny_model(study, tmp_path_factory.mktemp("model"))


def test_a_sample_of_no_chunks_is_empty():
    assert subsample(np.array([], object), 10, seed=0).tolist() == []


def test_each_recording_gives_a_chunk_before_any_gives_a_second():
    names = np.array(["long"] * 50 + ["short"] + ["middle"] * 4, object)
    chosen = subsample(names, 7, seed=0)
    assert Counter(names[chosen]) == {"long": 3, "middle": 3, "short": 1}


@given(
    lengths=st.lists(st.integers(1, 12), max_size=8), maximum=st.integers(0, 60), seed=st.integers(0, 1 << 31)
)
def test_a_sample_is_distinct_sorted_reproducible_and_even(lengths, maximum, seed):
    names = np.repeat(np.array([f"recording {n}" for n in range(len(lengths))], object), lengths)
    chosen = subsample(names, maximum, seed)
    assert chosen.tolist() == sorted(set(chosen.tolist())) == subsample(names, maximum, seed).tolist()
    assert len(chosen) == min(maximum, len(names))
    taken = Counter(names[chosen])
    for name, length in Counter(names).items():
        if taken[name] < length:  # it has unsampled chunks, so no recording has two more
            assert max(taken.values(), default=0) <= taken[name] + 1


def test_another_seed_samples_other_chunks():
    names = np.array(["one"] * 1000, object)
    assert subsample(names, 10, seed=0).tolist() != subsample(names, 10, seed=1).tolist()


def test_only_chunks_with_prepared_audio_are_on_the_map(study, store):
    table, locations = split_chunks(study, store)
    assert len(table) == len(locations) > 100
    names, samples = (store.recordings[name].to_pylist() for name in ("recording_id", "samples"))
    lengths = dict(zip(names, samples, strict=True))
    for row, (first_row, start) in zip(table.to_pylist(), locations, strict=True):
        assert start == round(row["start_s"] * 16_000) < lengths[row["recording_id"]]
        assert store.recordings["first_row"][names.index(row["recording_id"])].as_py() == first_row


def test_umap_separates_two_clusters_reproducibly_and_keeps_the_threads_of_torch():
    rng, threads = np.random.default_rng(0), torch.get_num_threads()
    vectors = rng.normal(size=(60, 8)).astype(np.float32)
    vectors[30:] += 20
    coordinates = umap_projection(vectors, seed=3)
    assert coordinates.shape == (60, 2)
    np.testing.assert_array_equal(coordinates, umap_projection(vectors, seed=3))
    assert torch.get_num_threads() == threads
    one, other = coordinates[:30], coordinates[30:]
    distance = np.linalg.norm(one.mean(axis=0) - other.mean(axis=0))
    assert distance > 2 * max(
        np.linalg.norm(points - points.mean(axis=0), axis=1).mean() for points in (one, other)
    )


def test_a_study_gives_a_figure_and_a_table_of_the_same_name(study, store, model, tmp_path):
    progress = []
    out = tmp_path / "new folder" / "map.PNG"
    result = map_study(study, model, str(out), chunks=40, on_progress=lambda *call: progress.append(call))
    assert progress[-1] == (40, 40)
    assert imread(result.figure, format="png").shape[1] > 2000
    points = from_table(pq.read_table(result.table), ChunkPoint)
    assert Path(result.table) == tmp_path / "new folder" / "map.parquet"
    assert len(points) == result.chunks == 40
    assert {item.site for item in points} == {"A1", "A2", "B1"}
    assert result.recordings == len({item.recording_id for item in points}) >= 10
    table, _ = split_chunks(study, store)
    rows = {(row["recording_id"], row["start_s"]): row for row in table.to_pylist()}
    for item in points:
        row = rows[item.recording_id, item.start_s]
        assert item.boxes == (row["boxes"] if row["split"] in ("train", "val", "test") else None)
        assert (item.hour is None) == (row["start_local"] is None)
        if item.hour is not None:
            assert int(item.hour) == row["start_local"].hour
    assert 0 < result.reviewed == sum(item.boxes is not None for item in points) < 40
    assert all(item.boxes is None for item in points if item.site == "B1")
    assert {5, 7, 21} <= {int(item.hour) for item in points if item.hour is not None}
    assert "40 chunks of" in result.summary()
    assert str(out) in result.summary()


def test_too_few_chunks_are_refused_before_any_computation(study, model):
    with pytest.raises(StorageError, match=f"more than {NEIGHBOURS} chunks of prepared audio, not 15"):
        map_study(study, model, chunks=NEIGHBOURS)


def test_without_prepared_audio_the_error_names_mast_prepare(study, model, tmp_path):
    with pytest.raises(StorageError, match="mast prepare"):
        map_study(study.model_copy(update={"work_dir": str(tmp_path)}), model)


def test_an_unknown_figure_format_is_refused(study, model):
    with pytest.raises(
        ConfigError, match=r"map\.parquet: the figure format must be one of \.png, \.pdf, \.svg"
    ):
        map_study(study, model, "map.parquet")


def test_without_umap_the_error_has_the_install_command(study, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(MissingExtraError, match=r"mast-bioacoustics\[train\]"):
        map_study(study, model)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"chunking": Chunking()}, r"reads chunks of 10.24 s at 16000 Hz; .* chunks of 2.56 s at 16000 Hz"),
        ({"normalisation": None}, "does not state how spectrograms are normalised"),
        ({"architecture": {}}, "model.json of this encoder has no encoder architecture"),
        (
            {"architecture": {"encoder": asdict(replace(SHAPE, depth=2))}},
            "the weights do not fit the architecture in model.json",
        ),
    ],
)
def test_a_model_that_does_not_fit_is_refused_with_a_remedy(study, tmp_path, changes, complaint):
    with pytest.raises(ModelError, match=complaint):
        map_study(study, tiny_model(study, tmp_path, **changes))
