"""Run a detector with an inference engine: torch in several precisions, or OpenVINO if it is installed.

Engines differ in speed and in the last digits of their predictions, so results record the name of the engine.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn

from mast.errors import ConfigError, MissingExtraError, ModelError
from mast.models.conv_encoder import ConvEncoder
from mast.models.detector import AdapterInput, Detector
from mast.models.devices import DTYPES, Precision, autocast, best_precision
from mast.models.fuse import fuse_batchnorm
from mast.models.head import HeadOutput
from mast.models.loading import LoadedModel
from mast.models.openvino import (
    EXTRA,
    DetectorTail,
    FullDetector,
    OpenVINOModel,
    compile_model,
    is_available,
    quantise,
)

EngineName = Literal["float32", "bf16", "fp16", "int8", "int8-compiled"]
PrecisionChoice = Literal["auto", "float32", "bf16", "int8", "fastest"]
"""Values of `--precision`; `auto` keeps the accuracy, `fastest` may lower it slightly."""


@dataclass(frozen=True, slots=True)
class InferenceEngine:
    """A detector ready to run: `encode` maps normalised log-mel to the adapter's input, `predict` that to predictions.

    `tokens` extracts the encoder's feature map from the adapter's input. An engine that runs the full detector in one
    model has an identity `encode`, and no `tokens`.
    """

    encode: Callable[[Tensor], AdapterInput]  # (B, F, T) →
    predict: Callable[[AdapterInput], HeadOutput]  # → (B, N)
    tokens: Callable[[AdapterInput], Tensor] | None  # → (B, C, F/16, T/16)

    def __call__(self, spec: Tensor) -> HeadOutput:
        """Predict on normalised log-mel. (B, F, T) → (B, N)"""
        return self.predict(self.encode(spec))


TORCH: dict[EngineName, Precision] = {"float32": "fp32", "bf16": "bf16", "fp16": "fp16"}
QUANTISED: tuple[EngineName, ...] = ("int8", "int8-compiled")
"""Engines that are quantised on chunks of audio: the full detector, or all of it except a compiled encoder."""

COMPILED_BATCH_SIZE = 4
"""Batch size of a compiled encoder."""

ENGINE_LABELS: dict[EngineName, str] = {
    "float32": "float32",
    "bf16": "bf16",
    "fp16": "fp16",
    "int8": "OpenVINO int8 and bf16",
    "int8-compiled": "OpenVINO int8 + compiled bf16",
}


def choose_engine(precision: str, kind: str) -> EngineName:
    """Return the engine for a value of `--precision` on `cpu` or `cuda`."""
    if precision not in get_args(PrecisionChoice):
        raise ConfigError(f"--precision {precision}: use {', '.join(get_args(PrecisionChoice))}.")
    if precision == "fastest":
        can_quantise = kind == "cpu" and is_available(quantising=True)
        return _best_quantised_engine() if can_quantise else best_engine(kind)
    if precision == "int8":
        if kind != "cpu":
            raise ConfigError(
                "--precision int8 runs on CPUs only. Use it with --device cpu, or use bf16 on a GPU."
            )
        if not is_available(quantising=True):
            raise MissingExtraError("Detection in int8", EXTRA)
        return _best_quantised_engine()
    if precision == "auto":
        return best_engine(kind)
    return "float32" if precision == "float32" else "bf16"


def best_engine(kind: str) -> EngineName:
    """Return the fastest torch engine that keeps the accuracy: bf16 if the hardware supports it."""
    if kind == "cuda" and not torch.cuda.is_available():
        return "bf16"  # on GPUs of a cluster, from a machine without one
    best = best_precision(kind)
    return next(name for name, precision in TORCH.items() if precision == best)


def _best_quantised_engine() -> EngineName:
    """Return int8-compiled if compiling the encoder is possible and worth its time, otherwise int8.

    Compilation takes time and a C++ compiler, and is faster only if the CPU computes in bf16.
    """
    can_compile = best_precision("cpu") == "bf16" and shutil.which("g++") is not None
    return "int8-compiled" if can_compile else "int8"


def prepare_engine(
    name: EngineName, loaded: LoadedModel[Detector], audio: Tensor, valid_samples: Tensor
) -> OpenVINOModel | None:
    """Quantise a detector for an int8 engine, calibrated on chunks of audio (B, N), (B,); None for other engines."""
    if name not in QUANTISED:
        return None
    fused, specs = fuse_batchnorm(loaded.network), loaded.frontend(audio, valid_samples)  # (B, F, T)
    if name == "int8" or isinstance(fused.encoder, ConvEncoder):
        return quantise(FullDetector(fused), specs)
    with torch.no_grad():
        tokens = [cast("Tensor", fused.encode(spec[None])) for spec in specs]
    return quantise(DetectorTail(fused), torch.cat(tokens))  # (B, C, F/16, T/16)


def open_engine(
    name: EngineName, loaded: LoadedModel[Detector], kind: str, program: OpenVINOModel | None = None
) -> InferenceEngine:
    """Return an engine with a fused copy of a detector; call it in `torch.inference_mode`, on the chunks' device."""
    fused = fuse_batchnorm(loaded.network)
    if name in TORCH:
        return _torch_engine(fused, kind, DTYPES[TORCH[name]])
    if kind != "cpu" or program is None:
        raise ModelError(
            f"The engine {name} runs on CPUs only, and prepare_engine must quantise its model first."
        )
    run = compile_model(program, "bf16" if best_precision(kind) == "bf16" else "f32")
    chunk = torch.zeros(1, loaded.description.spectrogram.n_mels, loaded.frontend.frames)
    with torch.inference_mode():
        locations = fused(chunk).locations

    def predict(adapter_input: AdapterInput) -> HeadOutput:
        return HeadOutput(*run(cast("Tensor", adapter_input)), locations)

    if name == "int8" or isinstance(fused.encoder, ConvEncoder):
        return InferenceEngine(lambda spec: spec, predict, None)
    encode = compile_encoder(fused.encoder, chunk)
    return InferenceEngine(lambda spec: fused.adapter_input(encode(spec), spec), predict, fused.tokens)


def _torch_engine(network: Detector, kind: str, dtype: torch.dtype) -> InferenceEngine:
    """Return a torch engine; on a CPU the weights have type `dtype`, which is faster than autocast there."""
    network = network.to(kind).to(memory_format=torch.channels_last)
    if kind != "cpu":
        return _autocast(network, kind, dtype)
    network = network.to(dtype)
    return InferenceEngine(
        lambda spec: network.encode(spec.to(dtype)), network.predict_from_adapter_input, network.tokens
    )


def _autocast(network: Detector, kind: str, dtype: torch.dtype) -> InferenceEngine:
    """Return a torch engine with autocast, which keeps sensitive operations in float32."""
    context = autocast(kind, dtype)
    return InferenceEngine(
        context(network.encode), context(network.predict_from_adapter_input), network.tokens
    )


def compile_encoder(encoder: nn.Module, chunk: Tensor) -> Callable[[Tensor], Tensor]:
    """Compile an encoder in bf16 with constant weights: (B, F, T) → (B, C, F/16, T/16), in float32.

    The encoder is compiled for `COMPILED_BATCH_SIZE` chunks and for one chunk, for the rest at the end of a recording.
    Every other batch size would be compiled again. `freezing` makes weights constant only while it is set globally.
    """
    from torch._inductor import config

    compiled = torch.compile(encoder.to(torch.bfloat16), dynamic=False)

    def encode(spec: Tensor) -> Tensor:
        count = COMPILED_BATCH_SIZE if len(spec) % COMPILED_BATCH_SIZE == 0 else 1
        batches = spec.to(torch.bfloat16).reshape(-1, count, *spec.shape[1:])  # (B / count, count, F, T)
        return torch.cat([compiled(batch) for batch in batches]).float()

    with torch.inference_mode(), config.patch(freezing=True):
        for count in (1, COMPILED_BATCH_SIZE):
            encode(chunk.repeat(count, 1, 1))
    return encode
