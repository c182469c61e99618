"""A study's map: chunks from every recording, the same for a seed, with what is known about each."""

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
from mast.datasets.examples import prepared_chunks
from mast.embeddings.chunk_map import NEIGHBOURS, flattened, map_study, spread
from mast.errors import ConfigError, MissingExtraError, ModelError, StorageError
from mast.events import from_table
from mast.pictures.chunk_map import ChunkPoint
from tests.embeddings.made import SHAPE, tiny_model


@pytest.fixture(scope="module")
def model(study, tmp_path_factory):
    return tiny_model(study, tmp_path_factory.mktemp("model"))


def test_of_no_chunks_none_are_chosen():
    assert spread(np.array([], object), 10, seed=0).tolist() == []


def test_each_recording_gives_a_chunk_before_any_gives_a_second():
    names = np.array(["long"] * 50 + ["short"] + ["middle"] * 4, object)
    chosen = spread(names, 7, seed=0)
    assert Counter(names[chosen]) == {"long": 3, "middle": 3, "short": 1}


@given(
    lengths=st.lists(st.integers(1, 12), max_size=8), most=st.integers(0, 60), seed=st.integers(0, 1 << 31)
)
def test_choices_are_distinct_in_order_repeatable_and_as_even_as_they_can_be(lengths, most, seed):
    names = np.repeat(np.array([f"recording {n}" for n in range(len(lengths))], object), lengths)
    chosen = spread(names, most, seed)
    assert chosen.tolist() == sorted(set(chosen.tolist())) == spread(names, most, seed).tolist()
    assert len(chosen) == min(most, len(names))
    taken = Counter(names[chosen])
    for name, length in Counter(names).items():
        if taken[name] < length:  # it had more to give, so none gave two more
            assert max(taken.values(), default=0) <= taken[name] + 1


def test_another_seed_chooses_other_chunks():
    names = np.array(["one"] * 1000, object)
    assert spread(names, 10, seed=0).tolist() != spread(names, 10, seed=1).tolist()


def test_only_chunks_with_prepared_sound_are_on_the_map(study, store):
    table, places = prepared_chunks(study, store)
    assert len(table) == len(places) > 100
    names, samples = (store.recordings[name].to_pylist() for name in ("recording_id", "samples"))
    lengths = dict(zip(names, samples, strict=True))
    for row, (first_row, start) in zip(table.to_pylist(), places, strict=True):
        assert start == round(row["start_s"] * 16_000) < lengths[row["recording_id"]]
        assert store.recordings["first_row"][names.index(row["recording_id"])].as_py() == first_row


def test_umap_keeps_two_kinds_apart_repeats_itself_and_leaves_torchs_threads_alone():
    rng, threads = np.random.default_rng(0), torch.get_num_threads()
    vectors = rng.normal(size=(60, 8)).astype(np.float32)
    vectors[30:] += 20
    places = flattened(vectors, seed=3)
    assert places.shape == (60, 2)
    np.testing.assert_array_equal(places, flattened(vectors, seed=3))
    assert torch.get_num_threads() == threads
    one, other = places[:30], places[30:]
    apart = np.linalg.norm(one.mean(axis=0) - other.mean(axis=0))
    assert apart > 2 * max(np.linalg.norm(kind - kind.mean(axis=0), axis=1).mean() for kind in (one, other))


def test_a_study_becomes_a_picture_and_a_table_of_the_same_name(study, store, model, tmp_path):
    told = []
    out = tmp_path / "new folder" / "map.PNG"
    result = map_study(study, model, str(out), chunks=40, on_progress=lambda *item: told.append(item))
    assert told[-1] == (40, 40)
    assert imread(result.picture, format="png").shape[1] > 2000
    points = from_table(pq.read_table(result.table), ChunkPoint)
    assert Path(result.table) == tmp_path / "new folder" / "map.parquet"
    assert len(points) == result.chunks == 40
    assert {item.site for item in points} == {"A1", "A2", "B1"}
    assert result.recordings == len({item.recording_id for item in points}) >= 10
    table, _ = prepared_chunks(study, store)
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


def test_too_few_chunks_are_told_before_any_work(study, model):
    with pytest.raises(StorageError, match=f"more than {NEIGHBOURS} chunks of prepared sound, not 15"):
        map_study(study, model, chunks=NEIGHBOURS)


def test_without_prepared_sound_the_verb_that_makes_it_is_told(study, model, tmp_path):
    with pytest.raises(StorageError, match="mast prepare"):
        map_study(study.model_copy(update={"work": str(tmp_path)}), model)


def test_a_picture_has_a_format_that_people_can_open(study, model):
    with pytest.raises(ConfigError, match=r"map\.parquet: a map is written as \.png, \.pdf, \.svg"):
        map_study(study, model, "map.parquet")


def test_without_umap_the_line_that_installs_it_is_told(study, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(MissingExtraError, match=r"mast-bioacoustics\[train\]"):
        map_study(study, model)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"chunking": Chunking()}, r"hears chunks of 10.24 s at 16000 Hz; .* chunks of 2.56 s at 16000 Hz"),
        ({"normalisation": None}, "does not say how spectrograms are scaled"),
        ({"architecture": {}}, "without an encoder's shape"),
        ({"architecture": {"encoder": asdict(replace(SHAPE, depth=2))}}, "not those of the network"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_with_a_remedy(study, tmp_path, changes, complaint):
    with pytest.raises(ModelError, match=complaint):
        map_study(study, tiny_model(study, tmp_path, **changes))
