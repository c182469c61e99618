"""The experiments on retrieval and novelty, on the example data instead of public sources."""

import csv

import numpy as np
import pytest
from experiments.labelled_calls import SOURCES, Call, chunk_calls, make_embedders, read_calls
from experiments.novelty import held_out, sample_references
from experiments.novelty import measure as measure_novelty
from experiments.retrieval import TRANSFORMS, plot
from experiments.retrieval import measure as measure_retrieval

from mast.annotations import read_annotations
from mast.evaluation.retrieval_metrics import LabelledVectors
from mast.example_data import write_example
from tests.embeddings.runs import save_encoder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return the example data as a source that distinguishes recordings by their names."""
    folder = tmp_path_factory.mktemp("data")
    write_example(folder / "example")
    source = folder / "data" / "xc-green-hermit"
    (source / "audio").mkdir(parents=True)
    boxes = read_annotations(folder / "example" / "boxes", "raven").events
    names = {}
    for path in sorted((folder / "example" / "card").rglob("2024*.WAV")):
        names[f"{path.parent.name}/{path.name}"] = f"{path.parent.name}_{path.name}"
        path.rename(source / "audio" / f"{path.parent.name}_{path.name}")
    rows = [
        [names[event.recording_id], event.start_s, event.end_s, event.low_hz, event.high_hz, event.label]
        for event in boxes
    ]
    for name, head, table in (
        ("recordings", ["recording"], [[name] for name in names.values()]),
        ("annotations", ["recording", "start_s", "end_s", "low_hz", "high_hz", "label"], rows),
    ):
        with (source / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([head, *table])
    return folder / "data"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return {"tiny": save_encoder(tmp_path_factory.mktemp("encoder") / "model")}


def test_an_empty_folder_has_no_calls(tmp_path):
    assert read_calls(tmp_path) == [] and "xc-green-hermit" in SOURCES


def test_calls_are_read_with_their_recordings_and_each_gets_a_chunk(data, models):
    calls = read_calls(data, max_per_label=2)
    assert len(calls) == 12 and len({call.label for call in calls}) == 6
    encoder, embedders = make_embedders(models)
    chunked = chunk_calls(calls, encoder)
    assert len(chunked) == 12
    assert all(isinstance(item.call, Call) and len(item.chunk.boxes) == 1 for item in chunked)
    assert list(embedders) == ["tiny", "tiny, last blocks", "random encoder", "log-mel"]


def test_retrieval_metrics_have_the_expected_keys_and_can_be_plotted(data, models, tmp_path):
    metrics = measure_retrieval(data, models, None, max_per_label=8)
    assert metrics["labels"].keys() == {"frog", "hoot", "insect", "trill", "two-note song", "whistle"}
    for by_transform in metrics["vectors"].values():
        assert by_transform.keys() == TRANSFORMS.keys()
        assert all(0 <= item["top_1"][0] <= 1 for item in by_transform.values())
    assert metrics["mixtures"].keys() == {"1", "2", "3"}
    plot(metrics, tmp_path / "retrieval.png")
    assert (tmp_path / "retrieval.png").stat().st_size > 10_000


def test_novelty_metrics_have_the_expected_keys(data, models):
    metrics = measure_novelty(data, models, None, max_per_label=10)
    assert metrics["vectors"]["tiny"]["mean"].keys() == {"1%", "5%", "10%"}


def test_calls_far_from_all_references_rank_first():
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b", "odd"], [60, 60, 20])
    recordings = np.array([f"{label}{number % 6}" for number, label in enumerate(labels)])
    centres = {"a": [1, 0, 0], "b": [0, 1, 0], "odd": [0, 0, 1]}
    vectors = np.array([centres[label] for label in labels]) + 0.05 * rng.normal(size=(140, 3))
    calls = LabelledVectors(
        (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), labels, recordings
    )
    metrics = held_out(calls)
    assert metrics["labels"]["odd"]["10%"] == 1 and metrics["upper_bound"]["10%"] == 1
    chosen = sample_references(calls, seed=0)
    assert set(labels[chosen]) == {"a", "b", "odd"} and not chosen.all()
