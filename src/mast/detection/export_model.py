"""`mast export-model`: a detector for other programs, and how far what it finds then is from its own float32.

A folder gets the network as `detector.onnx`, or as `detector.xml` and `detector.bin` of OpenVINO; `locations.csv`, the
place of every prediction; and `detector.json`, which says what goes in, what comes out, and the deviation.
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

from mast.detection.calibration import chunks_of
from mast.detection.inputs import look_at, table_of
from mast.detection.plan import plan_parts
from mast.errors import ConfigError, MissingExtraError
from mast.models.decoding import scores
from mast.models.detector import Detector
from mast.models.devices import best_precision
from mast.models.folding import fold
from mast.models.head import HeadOutput
from mast.models.loading import Loaded, load_detector
from mast.models.locations import Locations, decode
from mast.models.programs import Program, Run, Whole, opened, program_of, quantised, traced
from mast.recordings.decode import chunk_and_hop
from mast.storage import exists, join, written_whole

FORMATS = {"onnx": ("float32",), "openvino": ("float32", "int8")}
"""Kinds of file, each with the arithmetic that it can hold."""

STORY = "detector.json"
NOISE_CHUNKS = 4
NAMES = ("logits", "centerness", "distances")
_MEANING = {
    "spectrogram": "(B, bins, frames): log-mel of a chunk, normalised as stated here, in float32",
    "logits": "(B, N): is there a sound; a score is sigmoid(logits) · sigmoid(centerness)",
    "centerness": "(B, N)",
    "distances": "(B, N, 4): of start, low, end and high from the centre of their location, in its strides",
}


@dataclass(frozen=True, slots=True)
class Deviation:
    """How far predictions are from those in float32: the largest difference, and what 99 % stay below.

    Scores are those of all locations; edges those of boxes whose score in float32 is at least `min_score`.
    """

    chunks: int
    sound: str
    min_score: float
    boxes: int
    score_max: float
    score_99: float
    time_edge_max_frames: float
    time_edge_99_frames: float
    frequency_edge_max_bins: float
    frequency_edge_99_bins: float

    def summary(self) -> str:
        """For a person to read."""
        return (
            f"Against float32, on {self.chunks} chunks of {self.sound}: scores differ by at most {self.score_max:.2g} "
            f"(99 % by less than {self.score_99:.2g}); edges of {self.boxes:,} boxes by at most "
            f"{self.time_edge_max_frames:.2g} frames and {self.frequency_edge_max_bins:.2g} bins (99 % by less than "
            f"{self.time_edge_99_frames:.2g} and {self.frequency_edge_99_bins:.2g})."
        )


def export_model(
    model: str, to: str, out: str, precision: str = "float32", recordings: Sequence[str] = ()
) -> Deviation:
    """Write a detector into a folder; the deviation is measured, and int8 prepared, on recordings, or else on noise."""
    if to not in FORMATS:
        raise ConfigError(f"--to {to}: use {' or '.join(FORMATS)}.")
    if precision not in FORMATS[to]:
        raise ConfigError(f"--precision {precision}: {to} can be written in {' or '.join(FORMATS[to])}.")
    if exists(join(out, STORY)):
        raise ConfigError(f"{out} holds an exported detector already. Name another folder with --out.")
    loaded = load_detector(model)
    sound, filled = _recorded(recordings, loaded) if recordings else _noise(loaded)
    specs = loaded.frontend(sound, filled)  # (B, F, T)
    folded = fold(loaded.network)
    files, run = _onnx(folded, specs) if to == "onnx" else _openvino(folded, specs, precision)
    with torch.inference_mode():
        expected = torch_predictions(loaded.network, specs)
        found = HeadOutput(*run(specs), expected.locations)
        least = loaded.description.thresholds.get("score", 0.1)
        deviation = deviation_of(found, expected, least, "the recordings" if recordings else "noise")
    files["locations.csv"] = _locations_csv(expected.locations)
    files[STORY] = _told(loaded, precision, deviation)
    for name, content in files.items():  # the story last: where it is, the others are whole
        with written_whole(join(out, name)) as file:
            file.write(content)
    return deviation


def torch_predictions(network: Detector, specs: Tensor) -> HeadOutput:
    """What the detector itself says, in float32, a chunk at a time. (B, F, T) → (B, N)"""
    each = [network(spec[None]) for spec in specs]
    logits, centerness, distances = (torch.cat([getattr(item, name) for item in each]) for name in NAMES)
    return HeadOutput(logits, centerness, distances, each[0].locations)


def deviation_of(found: HeadOutput, expected: HeadOutput, min_score: float, sound: str) -> Deviation:
    """How far the predictions of two engines for the same chunks are from each other."""
    own = scores(expected)
    is_box = own >= min_score
    edges = [
        decode(output.distances, output.locations.centres, output.locations.strides)[is_box]  # (n, 4)
        for output in (found, expected)
    ]
    off = (edges[0] - edges[1]).abs()
    return Deviation(
        len(own),
        sound,
        min_score,
        int(is_box.sum()),
        *_largest((scores(found) - own).abs()),
        *_largest(off[:, 0::2]),
        *_largest(off[:, 1::2]),
    )


def _largest(differences: Tensor) -> tuple[float, float]:
    """The largest, and what 99 % stay below; zeros of nothing."""
    if not differences.numel():
        return 0.0, 0.0
    return float(differences.max()), float(np.quantile(differences.numpy(), 0.99))


def _recorded(paths: Sequence[str], loaded: Loaded[Detector]) -> tuple[Tensor, Tensor]:
    """Chunks from the middle of recordings. → (B, N), (B,)"""
    given = look_at(list(paths))
    roots = {name: item.root for name, item in given.collections.items()}
    expansions = {name: item.time_expansion for name, item in given.collections.items()}
    with table_of(given, lambda stage, done, total: None) as table:
        count = plan_parts(table, expansions).recordings
        return chunks_of(table, count, roots, expansions, loaded.description.chunking)


def _noise(loaded: Loaded[Detector]) -> tuple[Tensor, Tensor]:
    """Noise that swells and ebbs, always the same. → (B, N), (B,)"""
    rng = np.random.default_rng(0)
    samples, _ = chunk_and_hop(loaded.description.chunking)
    swell = np.interp(np.arange(NOISE_CHUNKS * samples), np.arange(0, NOISE_CHUNKS * samples, 3200),
                      rng.random(-(-NOISE_CHUNKS * samples // 3200)) ** 3)  # fmt: skip
    sound = (6000 * swell * rng.standard_normal(len(swell))).clip(-32767, 32767).astype(np.int16)
    return torch.from_numpy(sound.reshape(NOISE_CHUNKS, samples)), torch.full((NOISE_CHUNKS,), samples)


def _onnx(folded: Detector, specs: Tensor) -> tuple[dict[str, bytes], Run]:
    """ONNX of any number of chunks, and the same through onnxruntime."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError:
        raise MissingExtraError("ONNX", "export") from None
    with tempfile.TemporaryDirectory(prefix="mast-onnx-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        path = Path(folder, "detector.onnx")
        exported = traced(Whole(folded), specs[:1].expand(2, -1, -1))
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
        found = session.run(list(NAMES), {"spectrogram": chunks.numpy()})
        logits, centerness, distances = map(torch.from_numpy, found)
        return logits, centerness, distances

    return {"detector.onnx": content}, run


def _openvino(folded: Detector, specs: Tensor, precision: str) -> tuple[dict[str, bytes], Run]:
    """OpenVINO's files, and the same running; what is not int8 then runs as `mast detect` would have it run here."""
    whole = Whole(folded)
    is_int8 = precision == "int8"
    program: Program = quantised(whole, specs) if is_int8 else program_of(whole, specs[:1].expand(2, -1, -1))
    run = opened(program, "bf16" if is_int8 and best_precision("cpu") == "bf16" else "f32")
    return {"detector.xml": program.graph, "detector.bin": program.weights}, run


def _locations_csv(locations: Locations) -> bytes:
    """A row for each of the N locations, in their order."""
    rows = torch.cat([locations.centres, locations.strides], dim=1).tolist()
    lines = ["centre_frames,centre_bins,stride_frames,stride_bins"]
    return "\n".join([*lines, *(",".join(f"{value:g}" for value in row) for row in rows), ""]).encode()


def _told(loaded: Loaded[Detector], precision: str, deviation: Deviation) -> bytes:
    description = loaded.description
    normalisation: Any = description.normalisation
    story = {
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
    return json.dumps(story, indent=2, ensure_ascii=False).encode() + b"\n"
