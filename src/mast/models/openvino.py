"""Convert detectors to OpenVINO models, which run convolutions on a CPU faster than torch does.

A model takes normalised log-mel, or the adapter's input, and returns logits, centerness and distances. In int8,
convolutions compute with integers whose scales are calibrated on chunks of real audio; all other operations, and the
last convolutions, whose outputs are scores and edges, keep their precision.
"""

from __future__ import annotations

import io
import logging
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from mast.errors import MissingExtraError
from mast.models.detector import Detector

EXTRA = "fast"
MAX_BATCH = 4096
TELEMETRY = "openvino_telemetry"
Hint = Literal["f32", "bf16"]
RunModel = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
"""`run(chunks)` returns logits (B, N), centerness (B, N) and distances (B, N, 4)."""


class FullDetector(nn.Module):
    """A detector that returns plain tensors."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, spec: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits, centerness and distances. (B, F, T) → (B, N), (B, N), (B, N, 4)"""
        output = self.detector(spec)
        return output.logits, output.centerness, output.distances


class DetectorTail(nn.Module):
    """A detector without its encoder: adapter, pyramid and head."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, adapter_input: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits, centerness and distances. (B, C, F/16, T/16) → (B, N), (B, N), (B, N, 4)"""
        output = self.detector.predict_from_adapter_input(adapter_input)
        return output.logits, output.centerness, output.distances


@dataclass(frozen=True, slots=True)
class OpenVINOModel:
    """The content of the two files of an OpenVINO model."""

    graph: bytes  # .xml
    weights: bytes  # .bin


def is_available(*, quantising: bool = False) -> bool:
    """Return True if OpenVINO is installed, and with `quantising` also NNCF."""
    return all(find_spec(name) for name in (("openvino", "nncf") if quantising else ("openvino",)))


def trace(module: FullDetector | DetectorTail, example: Tensor) -> torch.export.ExportedProgram:
    """Export a module for any batch size; `example` (B, …) has the shape of a batch with B >= 2."""
    batch = torch.export.Dim("batch", min=1, max=MAX_BATCH)
    with torch.no_grad():
        return torch.export.export(module.eval(), (example,), dynamic_shapes=({0: batch},))


def convert_model(module: FullDetector | DetectorTail, example: Tensor) -> OpenVINOModel:
    """Convert a module to OpenVINO in float32."""
    return _freeze(_convert(module, example))


def quantise(module: FullDetector | DetectorTail, chunks: Tensor) -> OpenVINOModel:
    """Convert a module to OpenVINO with int8 convolutions, calibrated on `chunks` (B, …)."""
    model = _convert(module, chunks[:1].expand(2, *chunks.shape[1:]))
    unquantised = [op.get_friendly_name() for op in model.get_ops() if _is_output_conv(op)]
    with redirect_stdout(io.StringIO()):  # NNCF prints progress bars
        nncf = _import("nncf")
        nncf.set_log_level(logging.ERROR)
        scope = nncf.IgnoredScope(
            names=unquantised, types=["MatMul", "ScaledDotProductAttention"], validate=False
        )
        data = nncf.Dataset([chunk[None].numpy() for chunk in chunks])
        return _freeze(nncf.quantize(model, data, subset_size=len(chunks), ignored_scope=scope))


def compile_model(program: OpenVINOModel, hint: Hint) -> RunModel:
    """Compile a model for the number of threads that torch uses; operations that are not int8 compute in `hint`."""
    core = _import("openvino").Core()
    settings = {
        "INFERENCE_PRECISION_HINT": hint,
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "NUM_STREAMS": 1,
    }
    compiled = core.compile_model(core.read_model(program.graph, program.weights), "CPU", settings)

    def run(chunks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        outputs = compiled(chunks.float().contiguous().numpy())
        logits, centerness, distances = (torch.from_numpy(outputs[index]) for index in range(3))
        return logits, centerness, distances

    return run


def _convert(module: FullDetector | DetectorTail, example: Tensor) -> Any:
    return _import("openvino").convert_model(trace(module, example))


def _freeze(model: Any) -> OpenVINOModel:
    openvino = _import("openvino")
    with tempfile.TemporaryDirectory(prefix="mast-openvino-") as folder:
        path = Path(folder, "model.xml")
        openvino.save_model(model, path, compress_to_fp16=False)
        return OpenVINOModel(path.read_bytes(), path.with_suffix(".bin").read_bytes())


def _is_output_conv(op: Any) -> bool:
    """Return True for a convolution to one or four channels, which predicts logits, centerness or boxes."""
    return op.get_type_name() == "Convolution" and op.output(0).partial_shape[1].get_length() in (1, 4)


def _import(name: str) -> Any:
    """Import OpenVINO or NNCF without the telemetry package, which reports their import and use to their developers.

    MAST sends no usage data; in addition, the report would be sent from a forked process, and Lance does not support
    forks. Both packages work without the telemetry package.
    """
    sys.modules.setdefault(TELEMETRY, cast(ModuleType, None))  # as if it were not installed
    try:
        return __import__(name)
    except ImportError:
        raise MissingExtraError("OpenVINO", EXTRA) from None
