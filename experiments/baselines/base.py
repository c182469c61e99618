"""Interface of trainable baselines, and functions that several of them use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Literal

from torch import Tensor, nn
from torchvision.ops import nms

from mast.box_ops import box_area, clip_boxes
from mast.config import Detection
from mast.errors import MissingExtraError
from mast.models.postprocess import ChunkDetections

Losses = dict[str, Tensor]
Size = Literal["tiny", "small", "base"]
"""Sizes of MAST; the baseline of a size has about the cost per step of the MAST of that size."""


class Network(nn.Module, ABC):
    """A detector of one class on one-channel spectrograms: x is frames, y is bins, boxes are (start, low, end, high).

    `progress` is the fraction of finished epochs, for losses that change during training.
    """

    progress = 0.0

    def __init__(self, settings: Detection) -> None:
        super().__init__()
        self.settings = settings

    @abstractmethod
    def losses(self, spec: Tensor, boxes: Sequence[Tensor]) -> Losses:
        """Compute the loss terms, to be summed, of normalised chunks (B, F, T) with boxes, B times (n, 4)."""

    @abstractmethod
    def predict(self, spec: Tensor) -> list[ChunkDetections]:
        """Predict boxes in normalised chunks, highest score first. (B, F, T) → B"""


class Float32Output(nn.Module):
    """A module with float32 outputs, also under autocast: in bf16, frame 501 would be rounded to 500."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, *inputs: Any) -> Any:
        """Return the part's outputs as float32."""
        return to_float32(self.part(*inputs))


def to_float32(value: Any) -> Any:
    """Convert tensors to float32, also within lists, tuples and dicts."""
    if isinstance(value, Tensor):
        return value.float()
    if isinstance(value, dict):
        return {name: to_float32(item) for name, item in value.items()}
    return type(value)(to_float32(item) for item in value)


def best_boxes(
    boxes: Tensor, scores: Tensor, extent: tuple[int, int], settings: Detection
) -> ChunkDetections:
    """Postprocess boxes (N, 4) with scores (N,) as MAST does: clip them to the grid of (frames, bins), then apply NMS."""
    clipped = clip_boxes(boxes, (0, 0, *extent))
    is_box = (scores >= settings.score_threshold) & (box_area(clipped) > 0)
    clipped, scores = clipped[is_box], scores[is_box]
    kept = nms(clipped, scores, settings.nms_iou_threshold)[: settings.max_detections]
    return ChunkDetections(clipped[kept], scores[kept])


def optional(module: str, purpose: str, extra: str) -> Any:
    """Import a module of an optional extra; raise MissingExtraError if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise MissingExtraError(purpose, extra) from None
