"""What a detector runs on: torch in several kinds of arithmetic, or the faster programs that are installed.

Engines differ in speed and in the last digits of what they find, so the name of the one in use belongs to a result.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from mast.errors import ConfigError, MissingExtraError, ModelError
from mast.models.detector import Detector
from mast.models.devices import DTYPES, Precision, autocast, best_precision
from mast.models.folding import fold
from mast.models.head import HeadOutput
from mast.models.loading import Loaded
from mast.models.programs import EXTRA, Program, Rest, Whole, is_here, opened, quantised

EngineName = Literal["float32", "bf16", "fp16", "int8", "int8-compiled"]
PrecisionChoice = Literal["auto", "float32", "bf16", "int8", "fastest"]
"""What may be asked for; `auto` loses nothing here, `fastest` may lose a little."""


@dataclass(frozen=True, slots=True)
class Network:
    """A detector ready to run: normalised log-mel to what its adapter reads, and from there to predictions.

    `tokens` takes the encoder's map out of that. A program that is not to be taken apart leaves all to `predict`, and has
    no map to hand out.
    """

    encode: Callable[[Tensor], Tensor]  # (B, F, T) → (B, C', F/16, T/16)
    predict: Callable[[Tensor], HeadOutput]  # → (B, N)
    tokens: Callable[[Tensor], Tensor] | None  # (B, C', F/16, T/16) → (B, C, F/16, T/16)

    def __call__(self, spec: Tensor) -> HeadOutput:
        """(B, F, T) → (B, N)"""
        return self.predict(self.encode(spec))


TORCH: dict[EngineName, Precision] = {"float32": "fp32", "bf16": "bf16", "fp16": "fp16"}
QUANTISED: tuple[EngineName, ...] = ("int8", "int8-compiled")
"""Engines that have to be prepared with some chunks of sound: whole as a program, or all but a compiled encoder."""

TOGETHER = 4
"""Chunks that a compiled encoder takes at once."""

TOLD: dict[EngineName, str] = {
    "float32": "float32",
    "bf16": "bf16",
    "fp16": "fp16",
    "int8": "OpenVINO int8 and bf16",
    "int8-compiled": "OpenVINO int8 + compiled bf16",
}


def choose_engine(precision: str, kind: str) -> EngineName:
    """The engine for what was asked for, on `cpu` or `cuda`."""
    if precision not in get_args(PrecisionChoice):
        raise ConfigError(f"--precision {precision}: use {', '.join(get_args(PrecisionChoice))}.")
    if precision == "fastest":
        can = kind == "cpu" and is_here(quantising=True)
        return _quantised_here() if can else best_engine(kind)
    if precision == "int8":
        if kind != "cpu":
            raise ConfigError(
                "--precision int8 is for processors. Use it with --device cpu, or bf16 on a GPU."
            )
        if not is_here(quantising=True):
            raise MissingExtraError("Detecting in int8", EXTRA)
        return _quantised_here()
    if precision == "auto":
        return best_engine(kind)
    return "float32" if precision == "float32" else "bf16"


def best_engine(kind: str) -> EngineName:
    """The fastest of torch's own that loses nothing: bf16 where the hardware has it."""
    if kind == "cuda" and not torch.cuda.is_available():
        return "bf16"  # on the GPUs of a cluster that this machine is not among
    best = best_precision(kind)
    return next(name for name, precision in TORCH.items() if precision == best)


def _quantised_here() -> EngineName:
    """Compiling the encoder as well takes a while and a C++ compiler, and pays where it computes in bf16."""
    can_compile = best_precision("cpu") == "bf16" and shutil.which("g++") is not None
    return "int8-compiled" if can_compile else "int8"


def prepare_engine(
    name: EngineName, loaded: Loaded[Detector], sound: Tensor, filled: Tensor
) -> Program | None:
    """What an engine needs before it can be opened, measured on chunks of sound (B, N), (B,); mostly nothing."""
    if name not in QUANTISED:
        return None
    folded, specs = fold(loaded.network), loaded.frontend(sound, filled)  # (B, F, T)
    if name == "int8":
        return quantised(Whole(folded), specs)
    with torch.no_grad():
        tokens = torch.cat([folded.encode(spec[None]) for spec in specs])  # (B, C, F/16, T/16)
    return quantised(Rest(folded), tokens)


def open_engine(
    name: EngineName, loaded: Loaded[Detector], kind: str, program: Program | None = None
) -> Network:
    """A folded copy of a detector that is ready to run, in `torch.inference_mode`, where its chunks are."""
    folded = fold(loaded.network)
    if name in TORCH:
        return _in_torch(folded, kind, DTYPES[TORCH[name]])
    if kind != "cpu" or program is None:
        raise ModelError(f"The engine {name} is for processors, and has to be prepared first.")
    run = opened(program, "bf16" if best_precision(kind) == "bf16" else "f32")
    chunk = torch.zeros(1, loaded.description.spectrogram.bins, loaded.frontend.frames)
    with torch.inference_mode():
        locations = folded(chunk).locations

    def predict(read: Tensor) -> HeadOutput:
        return HeadOutput(*run(read), locations)

    if name == "int8":
        return Network(lambda spec: spec, predict, None)
    tokens_of = compiled(folded.encoder, chunk)
    return Network(lambda spec: folded.as_read(tokens_of(spec), spec), predict, folded.tokens)


def _in_torch(network: Detector, kind: str, dtype: torch.dtype) -> Network:
    """On a processor the weights are of the arithmetic's type, which is faster than autocast there."""
    network = network.to(kind).to(memory_format=torch.channels_last)
    if kind != "cpu":
        return _autocast(network, kind, dtype)
    network = network.to(dtype)
    return Network(lambda spec: network.encode(spec.to(dtype)), network.decide, network.tokens)


def _autocast(network: Detector, kind: str, dtype: torch.dtype) -> Network:
    """On a GPU delicate sums stay in float32."""
    cast = autocast(kind, dtype)
    return Network(cast(network.encode), cast(network.decide), network.tokens)


def compiled(encoder: nn.Module, chunk: Tensor) -> Callable[[Tensor], Tensor]:
    """An encoder in bf16 whose weights are built into machine code; (B, F, T) → (B, C, F/16, T/16), in float32.

    It is compiled for `TOGETHER` chunks, and for one: those that are left over at the end of a recording. Every other
    number would be compiled anew. Weights are built in only where the setting holds for all of torch while it compiles.
    """
    from torch._inductor import config

    machine_code = torch.compile(encoder.to(torch.bfloat16), dynamic=False)

    def encode(spec: Tensor) -> Tensor:
        count = TOGETHER if len(spec) % TOGETHER == 0 else 1
        portions = spec.to(torch.bfloat16).reshape(-1, count, *spec.shape[1:])  # (B / count, count, F, T)
        return torch.cat([machine_code(portion) for portion in portions]).float()

    with torch.inference_mode(), config.patch(freezing=True):
        for count in (1, TOGETHER):
            encode(chunk.repeat(count, 1, 1))
    return encode
