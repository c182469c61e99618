"""The paper's evaluation of vectors, after a real evaluation of a detector on a small study."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from mast.cli import app
from mast.config import load_study
from mast.detection.evaluate import evaluate_study
from mast.embeddings.retrieval import retrieve, training_examples
from mast.errors import AnnotationError
from tests.embeddings.made import tiny_model
from tests.evaluation.studies import random_detector, study_under_shift


@pytest.fixture(scope="module")
def shifted(tmp_path_factory):
    file = study_under_shift(tmp_path_factory.mktemp("shifted"))
    return file, load_study(file), random_detector(file, tmp_path_factory.mktemp("detector") / "model")


def test_training_boxes_name_those_of_the_test_sets(shifted, tmp_path):
    _, study, detector = shifted
    encoder = tiny_model(study, tmp_path / "encoder")
    evaluated = evaluate_study(study, detector, str(tmp_path / "evaluation"), resamples=3)
    found = retrieve(study, evaluated.folder, encoder)
    known = training_examples(study)
    assert 0 < len(known) == len(found.known.boxes)
    told = json.loads((tmp_path / "evaluation" / "retrieval.json").read_text("utf-8"))
    assert told["sets"].keys() == found.sets.keys() == {item.name for item in evaluated.results.sets}
    for ways in found.sets.values():
        oracle = ways["oracle"]
        assert oracle.queries + oracle.alone > 0 and ways["detected"].queries <= oracle.queries + oracle.alone
    assert "experts' boxes" in found.summary() and "Retrieval:" in found.summary()


def test_detections_that_match_go_by_the_name_of_the_experts_box(shifted, tmp_path):
    _, study, detector = shifted
    encoder = tiny_model(study, tmp_path / "encoder")
    folder = tmp_path / "evaluation"
    evaluate_study(study, detector, str(folder), resamples=3)
    truths = pq.read_table(folder / "truths.parquet")
    perfect = truths.select(["set", "recording_id", "start_s", "end_s", "low_hz", "high_hz"])
    ones = pa.array([1.0] * len(perfect))
    perfect = perfect.append_column("score", ones).append_column("overlap", ones)
    pq.write_table(
        perfect.append_column("matched", pa.array([True] * len(perfect))), folder / "events.parquet"
    )
    results = json.loads((folder / "results.json").read_text("utf-8"))
    (folder / "results.json").write_text(json.dumps(results | {"threshold": 0.5}), "utf-8")
    found = retrieve(study, str(folder), encoder)
    for ways in found.sets.values():  # a detector that draws the experts' boxes is told the same
        assert ways["detected"].top_1 == ways["oracle"].top_1
        assert ways["detected"].queries == ways["oracle"].queries


def test_the_command_tells_both(shifted, tmp_path):
    file, study, detector = shifted
    encoder = tiny_model(study, tmp_path / "encoder")
    command = [
        "evaluate",
        str(file),
        "--model",
        detector,
        "--out",
        str(tmp_path / "out"),
        "--retrieval",
        encoder,
    ]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert (
        "training boxes of other recordings" in done.stdout and (tmp_path / "out" / "retrieval.json").exists()
    )


def test_without_names_there_is_nothing_to_tell(shifted, tmp_path, monkeypatch):
    _, study, _ = shifted
    monkeypatch.setattr("mast.embeddings.retrieval.training_examples", lambda study: [])
    with pytest.raises(AnnotationError, match="no box of the training split has a name"):
        retrieve(study, str(tmp_path), tiny_model(study, tmp_path / "encoder"))
