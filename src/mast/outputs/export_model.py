"""Export a detector to ONNX or OpenVINO (`mast export-model`), and measure its deviation from float32 in PyTorch.

The output folder contains the network as `detector.onnx`, or as `detector.xml` and `detector.bin` of OpenVINO;
`locations.csv`, the location of every prediction; and `detector.json`, which describes inputs, outputs and deviation.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mast.audio.reader import chunk_and_hop
from mast.errors import ConfigError, MissingExtraError
from mast.models.anchor_points import AnchorPoints, decode_boxes
from mast.models.detector import Detector
from mast.models.devices import best_precision
from mast.models.fuse import fuse_batchnorm
from mast.models.head import HeadOutput
from mast.models.loading import LoadedModel, load_detector
from mast.models.openvino import (
    FullDetector,
    OpenVINOModel,
    RunModel,
    compile_model,
    convert_model,
    quantise,
    trace,
)
from mast.models.postprocess import scores
from mast.runs.inputs import resolve_inputs, table_of
from mast.runs.plan import plan_parts
from mast.runs.quantisation import calibration_chunks
from mast.storage import atomic_write, exists, join
from mast.wording import counted

FORMATS = {"onnx": ("float32",), "openvino": ("float32", "int8")}
"""Export formats with the precisions that each supports."""

METADATA_FILE = "detector.json"
NOISE_CHUNKS = 4
NAMES = ("logits", "centerness", "distances")
_MEANING = {
    "spectrogram": "(B, bins, frames): log-mel of a chunk in float32, normalised as in this file",
    "logits": "(B, N): classification; a score is sigmoid(logits) · sigmoid(centerness)",
    "centerness": "(B, N)",
    "distances": "(B, N, 4): from the centre of the location to start, low, end and high, in strides of the location",
}


@dataclass(frozen=True, slots=True)
class Deviation:
    """Deviation of predictions from float32: the maximum and the 99th percentile of absolute differences.

    Scores are those of all locations; edges those of boxes whose score in float32 is at least `min_score`.
    """

    chunks: int
    audio: str
    min_score: float
    boxes: int
    score_max: float
    score_99: float
    time_edge_max_frames: float
    time_edge_99_frames: float
    frequency_edge_max_bins: float
    frequency_edge_99_bins: float

    def summary(self) -> str:
        """Return a text summary for the user."""
        return (
            f"Compared with float32 on {counted(self.chunks, 'chunk')} of {self.audio}: scores "
            f"differ by at most {self.score_max:.2g} (99 % by less than {self.score_99:.2g}); edges of "
            f"{counted(self.boxes, 'box', 'boxes')} by at most {self.time_edge_max_frames:.2g} frames and "
            f"{self.frequency_edge_max_bins:.2g} bins (99 % by less than {self.time_edge_99_frames:.2g} and "
            f"{self.frequency_edge_99_bins:.2g})."
        )


def export_model(
    model: str, to: str, out: str, precision: str = "float32", recordings: Sequence[str] = ()
) -> Deviation:
    """Write a detector into a folder; measure the deviation, and calibrate int8, on recordings or by default on noise."""
    if to not in FORMATS:
        raise ConfigError(f"--to {to}: use {' or '.join(FORMATS)}.")
    if precision not in FORMATS[to]:
        raise ConfigError(f"--precision {precision}: {to} can be written in {' or '.join(FORMATS[to])}.")
    if exists(join(out, METADATA_FILE)):
        raise ConfigError(f"{out} already contains an exported detector. Specify another folder with --out.")
    loaded = load_detector(model)
    audio, valid_samples = _recorded_chunks(recordings, loaded) if recordings else _noise_chunks(loaded)
    specs = loaded.frontend(audio, valid_samples)  # (B, F, T)
    fused = fuse_batchnorm(loaded.network)
    files, run = _onnx(fused, specs) if to == "onnx" else _openvino(fused, specs, precision)
    with torch.inference_mode():
        expected = torch_predictions(loaded.network, specs)
        predictions = HeadOutput(*run(specs), expected.locations)
        min_score = loaded.description.thresholds.get("score", 0.1)
        deviation = deviation_of(
            predictions, expected, min_score, "the recordings" if recordings else "noise"
        )
    files["locations.csv"] = _locations_csv(expected.locations)
    files[METADATA_FILE] = _metadata(loaded, precision, deviation)
    for name, content in files.items():  # the metadata last: if it exists, the other files are complete
        with atomic_write(join(out, name)) as file:
            file.write(content)
    return deviation


def torch_predictions(network: Detector, specs: Tensor) -> HeadOutput:
    """Return the detector's own predictions in float32, computed one chunk at a time. (B, F, T) → (B, N)"""
    outputs = [network(spec[None]) for spec in specs]
    logits, centerness, distances = (
        torch.cat([getattr(output, name) for output in outputs]) for name in NAMES
    )
    return HeadOutput(logits, centerness, distances, outputs[0].locations)


def deviation_of(predictions: HeadOutput, expected: HeadOutput, min_score: float, audio: str) -> Deviation:
    """Compute the deviation of predictions from the expected ones for the same chunks, both (B, N)."""
    expected_scores = scores(expected)
    is_box = expected_scores >= min_score
    edges = [
        decode_boxes(output.distances, output.locations.centres, output.locations.strides)[is_box]  # (n, 4)
        for output in (predictions, expected)
    ]
    differences = (edges[0] - edges[1]).abs()
    return Deviation(
        len(expected_scores),
        audio,
        min_score,
        int(is_box.sum()),
        *_max_and_99((scores(predictions) - expected_scores).abs()),
        *_max_and_99(differences[:, 0::2]),
        *_max_and_99(differences[:, 1::2]),
    )


def _max_and_99(differences: Tensor) -> tuple[float, float]:
    """Return the maximum and the 99th percentile, both 0 if there are no differences."""
    if not differences.numel():
        return 0.0, 0.0
    return float(differences.max()), float(np.quantile(differences.numpy(), 0.99))


def _recorded_chunks(paths: Sequence[str], loaded: LoadedModel[Detector]) -> tuple[Tensor, Tensor]:
    """Return chunks from the middle of recordings, and their number of audio samples. → (B, N), (B,)"""
    inputs = resolve_inputs(list(paths))
    roots = {name: item.root for name, item in inputs.collections.items()}
    expansions = {name: item.time_expansion for name, item in inputs.collections.items()}
    with table_of(inputs, lambda stage, done, total: None) as table:
        count = plan_parts(table, expansions).recordings
        return calibration_chunks(table, count, roots, expansions, loaded.description.chunking)


def _noise_chunks(loaded: LoadedModel[Detector]) -> tuple[Tensor, Tensor]:
    """Return noise of varying amplitude, always the same, and its number of samples. → (B, N), (B,)"""
    rng = np.random.default_rng(0)
    samples, _ = chunk_and_hop(loaded.description.chunking)
    swell = np.interp(np.arange(NOISE_CHUNKS * samples), np.arange(0, NOISE_CHUNKS * samples, 3200),
                      rng.random(-(-NOISE_CHUNKS * samples // 3200)) ** 3)  # fmt: skip
    audio = (6000 * swell * rng.standard_normal(len(swell))).clip(-32767, 32767).astype(np.int16)
    return torch.from_numpy(audio.reshape(NOISE_CHUNKS, samples)), torch.full((NOISE_CHUNKS,), samples)


def _onnx(fused: Detector, specs: Tensor) -> tuple[dict[str, bytes], RunModel]:
    """Export to ONNX with a dynamic batch size; return the file, and a function that runs it in onnxruntime."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError:
        raise MissingExtraError("ONNX", "export") from None
    with tempfile.TemporaryDirectory(prefix="mast-onnx-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns about its own code
        path = Path(folder, "detector.onnx")
        exported = trace(FullDetector(fused), specs[:1].expand(2, -1, -1))
        torch.onnx.export(
            exported,
            (),
            path,
            input_names=["spectrogram"],
            output_names=NAMES,
            external_data=False,
            verbose=False,
        )
        content = path.read_bytes()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def run(chunks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        predictions = session.run(list(NAMES), {"spectrogram": chunks.numpy()})
        logits, centerness, distances = map(torch.from_numpy, predictions)
        return logits, centerness, distances

    return {"detector.onnx": content}, run


def _openvino(fused: Detector, specs: Tensor, precision: str) -> tuple[dict[str, bytes], RunModel]:
    """Export to OpenVINO; return the files, and a function that runs them.

    In an int8 model, the operations that are not int8 run in the precision that `mast detect` uses on this machine.
    """
    full = FullDetector(fused)
    is_int8 = precision == "int8"
    program: OpenVINOModel = (
        quantise(full, specs) if is_int8 else convert_model(full, specs[:1].expand(2, -1, -1))
    )
    run = compile_model(program, "bf16" if is_int8 and best_precision("cpu") == "bf16" else "f32")
    return {"detector.xml": program.graph, "detector.bin": program.weights}, run


def _locations_csv(locations: AnchorPoints) -> bytes:
    """Return a CSV table with a row for each of the N locations, in their order."""
    rows = torch.cat([locations.centres, locations.strides], dim=1).tolist()
    lines = ["centre_frames,centre_bins,stride_frames,stride_bins"]
    return "\n".join([*lines, *(",".join(f"{value:g}" for value in row) for row in rows), ""]).encode()


def _metadata(loaded: LoadedModel[Detector], precision: str, deviation: Deviation) -> bytes:
    description = loaded.description
    normalisation: Any = description.normalisation
    metadata = {
        "model": description.identity,
        "licence": description.licence,
        "precision": precision,
        "chunking": description.chunking.model_dump(),
        "spectrogram": description.spectrogram.model_dump(),
        "normalisation": asdict(normalisation),
        "frames": loaded.frontend.frames,
        "thresholds": description.thresholds,
        "tensors": _MEANING,
        "deviation_from_float32": asdict(deviation),
    }
    return json.dumps(metadata, indent=2, ensure_ascii=False).encode() + b"\n"
