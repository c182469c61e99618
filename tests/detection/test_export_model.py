"""A detector written for other programs finds the same boxes there, and the files tell how to read them."""

from __future__ import annotations

import csv
import json
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from mast.cli import app
from mast.detection.export_model import Deviation, deviation_of, export_model
from mast.errors import ConfigError, MissingExtraError
from mast.models.decoding import scores
from mast.models.head import HeadOutput
from mast.models.loading import load_detector
from mast.models.locations import decode, lattice
from tests.detection.archives import card, swelling


def output(logits, distances) -> HeadOutput:
    """Predictions of one chunk of two cells of 8 frames × 4 bins, wholly central."""
    return HeadOutput(
        torch.tensor([logits]),
        torch.full((1, 2), 50.0),
        torch.tensor([distances]),
        lattice([(2, 1)], [(8, 4)]),
    )


def test_of_no_boxes_edges_do_not_deviate():
    same = output([-9.0, -9.0], [[1.0] * 4] * 2)
    assert deviation_of(same, same, 0.5, "silence") == Deviation(1, "silence", 0.5, 0, *[0.0] * 6)


def test_a_deviation_worked_out_by_hand():
    expected = output([0.0, -9.0], [[1.0, 1.0, 1.0, 1.0], [1.0] * 4])
    found = output([np.log(3.0), -9.0], [[1.5, 1.0, 1.0, 1.25], [7.0] * 4])
    deviation = deviation_of(found, expected, 0.5, "a test")
    assert (deviation.chunks, deviation.boxes) == (1, 1)
    assert deviation.score_max == pytest.approx(0.25)  # 3/4 instead of 1/2
    assert (deviation.time_edge_max_frames, deviation.frequency_edge_max_bins) == (4.0, 1.0)
    assert deviation.time_edge_99_frames == pytest.approx(0.99 * 4)
    assert "edges of 1 boxes by at most 4 frames and 1 bins" in deviation.summary()


def exported(*words) -> str:
    """What `mast export-model` says that has to end well."""
    done = CliRunner().invoke(app, ["export-model", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def expected(narrow_detector):
    """Spectrograms of two chunks, and the boxes and scores of them in float32."""
    loaded = load_detector(narrow_detector)
    sound = torch.from_numpy(swelling(2.56, seed=9)).reshape(2, -1)
    spec = loaded.frontend(sound, torch.tensor([20_480] * 2))
    with torch.inference_mode():
        found = loaded.network(spec)
    return (
        spec.numpy(),
        decode(found.distances, found.locations.centres, found.locations.strides).numpy(),
        scores(found).numpy(),
    )


def boxes(folder, logits, centerness, distances):
    """Boxes and scores as someone would make them who has read nothing but detector.json."""
    rows = list(csv.DictReader((folder / "locations.csv").read_text("utf-8").splitlines()))
    centres, strides = (
        np.array([[float(row[f"{what}_{unit}"]) for unit in ("frames", "bins")] for row in rows])
        for what in ("centre", "stride")
    )
    edges = np.concatenate(
        [centres - distances[..., :2] * strides, centres + distances[..., 2:] * strides], axis=-1
    )
    return edges, 1 / (1 + np.exp(-logits)) / (1 + np.exp(-centerness))


def test_onnx_gives_the_same_boxes_for_any_number_of_chunks(narrow_detector, expected, tmp_path):
    import onnxruntime

    spec, own_boxes, own_scores = expected
    said = exported(narrow_detector, "--to", "onnx", "--out", tmp_path / "out")
    session = onnxruntime.InferenceSession(tmp_path / "out" / "detector.onnx")
    for count in (1, 2):
        found = session.run(["logits", "centerness", "distances"], {"spectrogram": spec[:count]})
        edges, likely = boxes(tmp_path / "out", *found)
        np.testing.assert_allclose(edges, own_boxes[:count], atol=1e-3)
        np.testing.assert_allclose(likely, own_scores[:count], atol=1e-4)
    deviation = json.loads((tmp_path / "out" / "detector.json").read_text("utf-8"))["deviation_from_float32"]
    assert deviation["score_max"] < 1e-4 and deviation["time_edge_max_frames"] < 1e-3
    assert (deviation["sound"], deviation["chunks"]) == ("noise", 4) and deviation["boxes"] > 0
    assert Deviation(**deviation).summary() in said
    assert f"Written: {tmp_path / 'out'}; detector.json tells" in said
    again = CliRunner().invoke(
        app, ["export-model", narrow_detector, "--to", "onnx", "--out", str(tmp_path / "out")]
    )
    assert isinstance(again.exception, ConfigError)
    assert "holds an exported detector already. Name another folder with --out" in str(again.exception)


@pytest.mark.parametrize(("precision", "score", "edge"), [("float32", 1e-4, 1e-3), ("int8", 0.2, 1.0)])
def test_openvino_gives_the_same_boxes(precision, score, edge, narrow_detector, expected, tmp_path):
    spec, own_boxes, own_scores = expected
    recordings, out = card(tmp_path / "card", files=3), tmp_path / "out"
    words = ["--precision", precision, "--recordings", recordings]
    said = exported(narrow_detector, "--to", "openvino", "--out", out, *words)
    import openvino  # as MAST has let it in: see test_openvino_tells_nobody

    compiled = openvino.Core().compile_model(out / "detector.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    is_box = own_scores > 0.3
    assert is_box.any()
    for count in (1, 2):
        found = compiled(spec[:count])
        edges, likely = boxes(out, *(found[number] for number in range(3)))
        chosen = is_box[:count]
        np.testing.assert_allclose(edges[chosen], own_boxes[:count][chosen], atol=edge)
        np.testing.assert_allclose(likely, own_scores[:count], atol=score)
    assert "Against float32, on 3 chunks of the recordings: scores differ by at most" in said
    deviation = Deviation(**json.loads((out / "detector.json").read_text("utf-8"))["deviation_from_float32"])
    assert deviation.score_99 <= deviation.score_max < score
    assert deviation.time_edge_99_frames <= deviation.time_edge_max_frames < edge


def test_what_cannot_be_written_is_refused(narrow_detector, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="--to tflite: use onnx or openvino"):
        export_model(narrow_detector, "tflite", str(tmp_path))
    with pytest.raises(ConfigError, match="--precision int8: onnx can be written in float32"):
        export_model(narrow_detector, "onnx", str(tmp_path), "int8")
    for module, to, extra in (("onnxscript", "onnx", "export"), ("openvino", "openvino", "fast")):
        monkeypatch.setitem(sys.modules, module, None)
        words = ["export-model", narrow_detector, "--to", to, "--out", str(tmp_path / "out")]
        refused = CliRunner().invoke(app, words).exception
        assert isinstance(refused, MissingExtraError) and f"mast-bioacoustics[{extra}]" in str(refused)
    assert not (tmp_path / "out").exists()
