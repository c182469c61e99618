"""What a model computes on, and in which arithmetic."""

from __future__ import annotations

from typing import Literal

import torch
from timm.layers.attention import Attention
from torch import nn

from mast.errors import ModelError

Precision = Literal["bf16", "fp16", "fp32"]

DTYPES: dict[Precision, torch.dtype] = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
}


def accelerator(device: str) -> str:
    """`cuda` or `cpu`: what was asked for, or the best there is."""
    if device not in ("auto", "cpu", "cuda"):
        raise ModelError(f"--device {device}: use auto, cpu or cuda.")
    if device == "cuda" and not torch.cuda.is_available():
        raise ModelError(
            "--device cuda: no GPU can be used here. torch says whether it sees one: nvidia-smi tells."
        )
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def best_precision(kind: str) -> Precision:
    """The fastest arithmetic that loses nothing: bf16 where the hardware has it."""
    if kind == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    has_bf16 = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return "bf16" if has_bf16 else "fp32"


def autocast(kind: str, dtype: torch.dtype | None = None) -> torch.autocast:
    """Sums that can bear it in arithmetic of a type, or of the best there is; all others stay in float32."""
    chosen = dtype or DTYPES[best_precision(kind)]
    return torch.autocast(kind, chosen, enabled=chosen != torch.float32)


def suit_attention(module: nn.Module) -> None:
    """Plain attention where a module learns on a CPU: there torch's fused one is slower to learn with."""
    on_cpu = next(module.parameters()).device.type == "cpu"
    for part in module.modules():
        if isinstance(part, Attention):
            part.fused_attn = not on_cpu  # type: ignore[misc]  # timm means it for whole programs
