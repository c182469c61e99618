"""The retrieval evaluation of the paper, after an evaluation of a detector on a small study."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from mast.cli import app
from mast.config import load_study
from mast.embeddings.evaluate_retrieval import evaluate_retrieval, training_references
from mast.errors import AnnotationError
from mast.evaluation.evaluate import evaluate_study
from tests.embeddings.builders import tiny_model
from tests.evaluation.studies import random_detector, study_under_shift


@pytest.fixture(scope="module")
def shifted(tmp_path_factory):
    file = study_under_shift(tmp_path_factory.mktemp("shifted"))
    return file, load_study(file), random_detector(file, tmp_path_factory.mktemp("detector") / "model")


def test_test_boxes_are_labelled_by_training_boxes(shifted, tmp_path):
    _, study, detector = shifted
    encoder = tiny_model(study, tmp_path / "encoder")
    evaluated = evaluate_study(study, detector, str(tmp_path / "evaluation"), resamples=3)
    result = evaluate_retrieval(study, evaluated.folder, encoder)
    references = training_references(study)
    assert 0 < len(references) == len(result.references.boxes)
    content = json.loads((tmp_path / "evaluation" / "retrieval.json").read_text("utf-8"))
    assert content["sets"].keys() == result.sets.keys() == {item.name for item in evaluated.results.sets}
    for modes in result.sets.values():
        oracle = modes["oracle"]
        assert (
            oracle.queries + oracle.unmatched > 0
            and modes["detected"].queries <= oracle.queries + oracle.unmatched
        )
    assert "annotations" in result.summary() and "matched detections" in result.summary()
    assert f"Retrieval: {evaluated.folder}" in result.summary()


def test_a_matched_detection_has_the_label_of_its_annotation(shifted, tmp_path):
    _, study, detector = shifted
    encoder = tiny_model(study, tmp_path / "encoder")
    folder = tmp_path / "evaluation"
    evaluate_study(study, detector, str(folder), resamples=3)
    ground_truth = pq.read_table(folder / "ground_truth.parquet")
    perfect = ground_truth.select(["set", "recording_id", "start_s", "end_s", "low_hz", "high_hz"])
    ones = pa.array([1.0] * len(perfect))
    perfect = perfect.append_column("score", ones).append_column("overlap", ones)
    pq.write_table(
        perfect.append_column("matched", pa.array([True] * len(perfect))), folder / "events.parquet"
    )
    results = json.loads((folder / "results.json").read_text("utf-8"))
    (folder / "results.json").write_text(json.dumps(results | {"threshold": 0.5}), "utf-8")
    result = evaluate_retrieval(study, str(folder), encoder)
    for modes in result.sets.values():  # detections equal to the annotations give the same metrics
        assert modes["detected"].top_1 == modes["oracle"].top_1
        assert modes["detected"].queries == modes["oracle"].queries


def test_the_command_prints_the_metrics_and_writes_them(shifted, tmp_path):
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
        "training annotations of other recordings" in done.stdout
        and (tmp_path / "out" / "retrieval.json").exists()
    )


def test_a_training_split_without_labels_is_refused(shifted, tmp_path, monkeypatch):
    _, study, _ = shifted
    monkeypatch.setattr("mast.embeddings.evaluate_retrieval.training_references", lambda study: [])
    with pytest.raises(AnnotationError, match="no annotation of the training split has a label"):
        evaluate_retrieval(study, str(tmp_path), tiny_model(study, tmp_path / "encoder"))
