"""Exported detectors predict the same boxes in other programs, and their files describe how to read the outputs."""

from __future__ import annotations

import csv
import json
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from mast.cli import app
from mast.errors import ConfigError, MissingExtraError
from mast.models.anchor_points import decode_boxes, make_anchor_points
from mast.models.head import HeadOutput
from mast.models.loading import load_detector
from mast.models.postprocess import scores
from mast.outputs.export_model import Deviation, deviation_of, export_model
from tests.runs.archives import card, varying_noise


def output(logits, distances) -> HeadOutput:
    """Return predictions in one chunk with two locations of 8 frames × 4 bins and centerness 1."""
    return HeadOutput(
        torch.tensor([logits]),
        torch.full((1, 2), 50.0),
        torch.tensor([distances]),
        make_anchor_points([(2, 1)], [(8, 4)]),
    )


def test_the_deviation_of_edges_without_boxes_is_zero():
    same = output([-9.0, -9.0], [[1.0] * 4] * 2)
    assert deviation_of(same, same, 0.5, "silence") == Deviation(1, "silence", 0.5, 0, *[0.0] * 6)


def test_a_deviation_worked_out_by_hand():
    expected = output([0.0, -9.0], [[1.0, 1.0, 1.0, 1.0], [1.0] * 4])
    predictions = output([np.log(3.0), -9.0], [[1.5, 1.0, 1.0, 1.25], [7.0] * 4])
    deviation = deviation_of(predictions, expected, 0.5, "a test")
    assert (deviation.chunks, deviation.boxes) == (1, 1)
    assert deviation.score_max == pytest.approx(0.25)  # 3/4 instead of 1/2
    assert (deviation.time_edge_max_frames, deviation.frequency_edge_max_bins) == (4.0, 1.0)
    assert deviation.time_edge_99_frames == pytest.approx(0.99 * 4)
    assert "edges of 1 box by at most 4 frames and 1 bins" in deviation.summary()


def export_output(*arguments) -> str:
    """Run `mast export-model`, which has to succeed, and return its output."""
    done = CliRunner().invoke(app, ["export-model", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def expected(narrow_detector):
    """Return spectrograms of two chunks, and their boxes and scores in float32."""
    loaded = load_detector(narrow_detector)
    audio = torch.from_numpy(varying_noise(2.56, seed=9)).reshape(2, -1)
    spec = loaded.frontend(audio, torch.tensor([20_480] * 2))
    with torch.inference_mode():
        predictions = loaded.network(spec)
    return (
        spec.numpy(),
        decode_boxes(
            predictions.distances, predictions.locations.centres, predictions.locations.strides
        ).numpy(),
        scores(predictions).numpy(),
    )


def boxes(folder, logits, centerness, distances):
    """Decode boxes and scores by the description in detector.json alone."""
    rows = list(csv.DictReader((folder / "locations.csv").read_text("utf-8").splitlines()))
    centres, strides = (
        np.array([[float(row[f"{quantity}_{unit}"]) for unit in ("frames", "bins")] for row in rows])
        for quantity in ("centre", "stride")
    )
    edges = np.concatenate(
        [centres - distances[..., :2] * strides, centres + distances[..., 2:] * strides], axis=-1
    )
    return edges, 1 / (1 + np.exp(-logits)) / (1 + np.exp(-centerness))


def test_onnx_predicts_the_same_boxes_for_any_number_of_chunks(narrow_detector, expected, tmp_path):
    import onnxruntime

    spec, expected_boxes, expected_scores = expected
    message = export_output(narrow_detector, "--to", "onnx", "--out", tmp_path / "out")
    session = onnxruntime.InferenceSession(tmp_path / "out" / "detector.onnx")
    for count in (1, 2):
        predictions = session.run(["logits", "centerness", "distances"], {"spectrogram": spec[:count]})
        edges, predicted_scores = boxes(tmp_path / "out", *predictions)
        np.testing.assert_allclose(edges, expected_boxes[:count], atol=1e-3)
        np.testing.assert_allclose(predicted_scores, expected_scores[:count], atol=1e-4)
    deviation = json.loads((tmp_path / "out" / "detector.json").read_text("utf-8"))["deviation_from_float32"]
    assert deviation["score_max"] < 1e-4 and deviation["time_edge_max_frames"] < 1e-3
    assert (deviation["audio"], deviation["chunks"]) == ("noise", 4) and deviation["boxes"] > 0
    assert Deviation(**deviation).summary() in message
    assert f"Written: {tmp_path / 'out'}; detector.json describes inputs and outputs" in message
    repeated = CliRunner().invoke(
        app, ["export-model", narrow_detector, "--to", "onnx", "--out", str(tmp_path / "out")]
    )
    assert isinstance(repeated.exception, ConfigError)
    assert "already contains an exported detector. Specify another folder with --out" in str(
        repeated.exception
    )


@pytest.mark.parametrize(("precision", "score", "edge"), [("float32", 1e-4, 1e-3), ("int8", 0.2, 1.0)])
def test_openvino_predicts_the_same_boxes(precision, score, edge, narrow_detector, expected, tmp_path):
    spec, expected_boxes, expected_scores = expected
    recordings, out = card(tmp_path / "card", files=3), tmp_path / "out"
    options = ["--precision", precision, "--recordings", recordings]
    message = export_output(narrow_detector, "--to", "openvino", "--out", out, *options)
    import openvino  # after MAST has disabled its telemetry: see test_openvino_sends_no_telemetry

    compiled = openvino.Core().compile_model(out / "detector.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    is_box = expected_scores > 0.3
    assert is_box.any()
    for count in (1, 2):
        predictions = compiled(spec[:count])
        edges, predicted_scores = boxes(out, *(predictions[number] for number in range(3)))
        chosen = is_box[:count]
        np.testing.assert_allclose(edges[chosen], expected_boxes[:count][chosen], atol=edge)
        np.testing.assert_allclose(predicted_scores, expected_scores[:count], atol=score)
    assert "Compared with float32 on 3 chunks of the recordings: scores differ by at most" in message
    deviation = Deviation(**json.loads((out / "detector.json").read_text("utf-8"))["deviation_from_float32"])
    assert deviation.score_99 <= deviation.score_max < score
    assert deviation.time_edge_99_frames <= deviation.time_edge_max_frames < edge


def test_unsupported_formats_and_missing_packages_are_refused(narrow_detector, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="--to tflite: use onnx or openvino"):
        export_model(narrow_detector, "tflite", str(tmp_path))
    with pytest.raises(ConfigError, match="--precision int8: onnx can be written in float32"):
        export_model(narrow_detector, "onnx", str(tmp_path), "int8")
    for module, to, extra in (("onnxscript", "onnx", "export"), ("openvino", "openvino", "fast")):
        monkeypatch.setitem(sys.modules, module, None)
        arguments = ["export-model", narrow_detector, "--to", to, "--out", str(tmp_path / "out")]
        refused = CliRunner().invoke(app, arguments).exception
        assert isinstance(refused, MissingExtraError) and f"mast-bioacoustics[{extra}]" in str(refused)
    assert not (tmp_path / "out").exists()
