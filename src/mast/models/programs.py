"""Detectors as OpenVINO programs, which run the convolutions of a processor faster than torch does.

A program takes normalised log-mel, or what an encoder made of it, and gives logits, centerness and distances. In int8,
convolutions count in whole numbers whose scales were measured on some chunks of real sound; everything else, and the
last convolutions, whose outputs are scores and edges, keep their arithmetic.
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
Run = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
"""`run(chunks)`: logits (B, N), centerness (B, N) and distances (B, N, 4)."""


class Whole(nn.Module):
    """A detector whose predictions are plain tensors."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, spec: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, F, T) → (B, N), (B, N), (B, N, 4)"""
        output = self.detector(spec)
        return output.logits, output.centerness, output.distances


class Rest(nn.Module):
    """What follows a detector's encoder."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, read: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, C, F/16, T/16) → (B, N), (B, N), (B, N, 4)"""
        output = self.detector.decide(read)
        return output.logits, output.centerness, output.distances


@dataclass(frozen=True, slots=True)
class Program:
    """An OpenVINO program as its two files hold it."""

    graph: bytes  # .xml
    weights: bytes  # .bin


def is_here(*, quantising: bool = False) -> bool:
    """Whether OpenVINO is installed, and what is needed to quantise."""
    return all(find_spec(name) for name in (("openvino", "nncf") if quantising else ("openvino",)))


def traced(module: Whole | Rest, example: Tensor) -> torch.export.ExportedProgram:
    """A module for any number of chunks of the example's shape. (B, …), B of 2 or more"""
    batch = torch.export.Dim("batch", min=1, max=MAX_BATCH)
    with torch.no_grad():
        return torch.export.export(module.eval(), (example,), dynamic_shapes=({0: batch},))


def program_of(module: Whole | Rest, example: Tensor) -> Program:
    """A module in float32."""
    return _at_rest(_converted(module, example))


def quantised(module: Whole | Rest, chunks: Tensor) -> Program:
    """A module whose convolutions count in int8, with scales that suit some chunks. (B, …)"""
    model = _converted(module, chunks[:1].expand(2, *chunks.shape[1:]))
    kept = [op.get_friendly_name() for op in model.get_ops() if _is_last(op)]
    with redirect_stdout(io.StringIO()):  # it draws bars of its own
        nncf = _import("nncf")
        nncf.set_log_level(logging.ERROR)
        scope = nncf.IgnoredScope(names=kept, types=["MatMul", "ScaledDotProductAttention"], validate=False)
        data = nncf.Dataset([chunk[None].numpy() for chunk in chunks])
        return _at_rest(nncf.quantize(model, data, subset_size=len(chunks), ignored_scope=scope))


def opened(program: Program, hint: Hint) -> Run:
    """A program ready to run on as many threads as torch has; what is not int8 is computed in `hint`."""
    core = _import("openvino").Core()
    settings = {
        "INFERENCE_PRECISION_HINT": hint,
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "NUM_STREAMS": 1,
    }
    compiled = core.compile_model(core.read_model(program.graph, program.weights), "CPU", settings)

    def run(chunks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = compiled(chunks.float().contiguous().numpy())
        logits, centerness, distances = (torch.from_numpy(found[number]) for number in range(3))
        return logits, centerness, distances

    return run


def _converted(module: Whole | Rest, example: Tensor) -> Any:
    return _import("openvino").convert_model(traced(module, example))


def _at_rest(model: Any) -> Program:
    openvino = _import("openvino")
    with tempfile.TemporaryDirectory(prefix="mast-program-") as folder:
        path = Path(folder, "program.xml")
        openvino.save_model(model, path, compress_to_fp16=False)
        return Program(path.read_bytes(), path.with_suffix(".bin").read_bytes())


def _is_last(op: Any) -> bool:
    """A convolution to one or four channels: a logit, a centerness, a box."""
    return op.get_type_name() == "Convolution" and op.output(0).partial_shape[1].get_length() in (1, 4)


def _import(name: str) -> Any:
    """OpenVINO or a tool of it, without the package by which they report to their makers when they are imported and used.

    What is done with MAST is nobody's business; and the report would be sent by a fork, which Lance does not survive.
    Without that package they go without a report.
    """
    sys.modules.setdefault(TELEMETRY, cast(ModuleType, None))  # as if it were not installed
    try:
        return __import__(name)
    except ImportError:
        raise MissingExtraError("OpenVINO", EXTRA) from None
