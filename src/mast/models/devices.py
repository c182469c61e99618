"""Select the device and the precision of computation."""

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


def resolve_device(device: str) -> str:
    """Return `cuda` or `cpu`: the requested device, or for `auto` the fastest available one."""
    if device not in ("auto", "cpu", "cuda"):
        raise ModelError(f"--device {device}: use auto, cpu or cuda.")
    if device == "cuda" and not torch.cuda.is_available():
        raise ModelError(
            "--device cuda: no GPU can be used here. Check the driver with nvidia-smi, and the CUDA build of torch."
        )
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def best_precision(kind: str) -> Precision:
    """Return the fastest precision that does not lower accuracy: bf16 if the hardware supports it."""
    if kind == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    has_bf16 = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return "bf16" if has_bf16 else "fp32"


def autocast(kind: str, dtype: torch.dtype | None = None) -> torch.autocast:
    """Return an autocast context for `dtype`, by default the fastest precision that the device supports."""
    chosen = dtype or DTYPES[best_precision(kind)]
    return torch.autocast(kind, chosen, enabled=chosen != torch.float32)


def select_attention_kernel(module: nn.Module) -> None:
    """Use unfused attention for training on a CPU, where training with torch's fused attention is slower."""
    on_cpu = next(module.parameters()).device.type == "cpu"
    for submodule in module.modules():
        if isinstance(submodule, Attention):
            submodule.fused_attn = not on_cpu  # type: ignore[misc]  # timm declares it as a global constant
