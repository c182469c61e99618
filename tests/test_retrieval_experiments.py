"""The experiments on retrieval and novelty, on the made-up card instead of public sources."""

import csv

import numpy as np
import pytest
from experiments.known_calls import SOURCES, Call, hear_calls, read_calls, ways_of
from experiments.novelty import examples, held_out
from experiments.novelty import measured as measured_novelty
from experiments.retrieval import TURNS, draw
from experiments.retrieval import measured as measured_retrieval

from mast.annotations import read_annotations
from mast.evaluation.retrieval import Named
from mast.example import write_example
from tests.embeddings.runs import save_encoder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The card as a source whose recordings are told apart by their names."""
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


def test_calls_are_read_with_their_recordings_and_heard_in_a_chunk_each(data, models):
    calls = read_calls(data, most=2)
    assert len(calls) == 12 and len({call.label for call in calls}) == 6
    encoder, ways = ways_of(models)
    heard = hear_calls(calls, encoder)
    assert len(heard) == 12 and all(
        isinstance(item.call, Call) and len(item.cut.boxes) == 1 for item in heard
    )
    assert list(ways) == ["tiny", "tiny, last blocks", "random encoder", "log-mel"]


def test_figures_of_retrieval_are_those_that_are_promised_and_can_be_drawn(data, models, tmp_path):
    figures = measured_retrieval(data, models, None, most=8)
    assert figures["labels"].keys() == {"frog", "hoot", "insect", "trill", "two-note song", "whistle"}
    for ways in figures["vectors"].values():
        assert ways.keys() == TURNS.keys() and all(0 <= own["top_1"][0] <= 1 for own in ways.values())
    assert figures["mixtures"].keys() == {"1", "2", "3"}
    draw(figures, tmp_path / "retrieval.png")
    assert (tmp_path / "retrieval.png").stat().st_size > 10_000


def test_figures_of_novelty_are_those_that_are_promised(data, models):
    figures = measured_novelty(data, models, None, most=10)
    assert figures["vectors"]["tiny"]["mean"].keys() == {"1%", "5%", "10%"}


def test_calls_unlike_all_others_are_found_and_calls_like_others_by_chance():
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b", "odd"], [60, 60, 20])
    recordings = np.array([f"{label}{number % 6}" for number, label in enumerate(labels)])
    middles = {"a": [1, 0, 0], "b": [0, 1, 0], "odd": [0, 0, 1]}
    vectors = np.array([middles[label] for label in labels]) + 0.05 * rng.normal(size=(140, 3))
    calls = Named(
        (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), labels, recordings
    )
    figures = held_out(calls)
    assert figures["labels"]["odd"]["10%"] == 1 and figures["room"]["10%"] == 1
    chosen = examples(calls, seed=0)
    assert set(labels[chosen]) == {"a", "b", "odd"} and not chosen.all()
