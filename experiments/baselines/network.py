"""What a baseline that learns has to do, and what several of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Literal

from torch import Tensor, nn
from torchvision.ops import nms

from mast.boxes import area, clip
from mast.config import Detection
from mast.errors import MissingExtraError
from mast.models.decoding import Detections

Losses = dict[str, Tensor]
Size = Literal["tiny", "small", "base"]
"""Sizes as those of MAST: each baseline has one that costs about as much a step."""


class Network(nn.Module, ABC):
    """A detector of one class on pictures of one channel: x is frames, y is bins, boxes are (start, low, end, high).

    `learned` is the share of its epochs that are over, for losses that change on the way.
    """

    learned = 0.0

    def __init__(self, settings: Detection) -> None:
        super().__init__()
        self.settings = settings

    @abstractmethod
    def losses(self, spec: Tensor, boxes: Sequence[Tensor]) -> Losses:
        """Terms whose sum is to be lowered, of normalised chunks (B, F, T) with boxes, B times (n, 4)."""

    @abstractmethod
    def find(self, spec: Tensor) -> list[Detections]:
        """Boxes of normalised chunks, best first. (B, F, T) → B"""


class InFull(nn.Module):
    """A part whose answers are float32 also under autocast: in bf16, frame 501 would be told as 500."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, *inputs: Any) -> Any:
        """What the part makes of its inputs."""
        return in_full(self.part(*inputs))


def in_full(value: Any) -> Any:
    """Tensors as float32, also within lists, tuples and dicts."""
    if isinstance(value, Tensor):
        return value.float()
    if isinstance(value, dict):
        return {name: in_full(item) for name, item in value.items()}
    return type(value)(in_full(item) for item in value)


def best_boxes(boxes: Tensor, scores: Tensor, extent: tuple[int, int], settings: Detection) -> Detections:
    """Boxes (N, 4) with scores (N,) as MAST reports its own: cut to the grid of (frames, bins), without duplicates."""
    cut = clip(boxes, (0, 0, *extent))
    is_box = (scores >= settings.min_score) & (area(cut) > 0)
    cut, scores = cut[is_box], scores[is_box]
    kept = nms(cut, scores, settings.nms_iou)[: settings.max_boxes]
    return Detections(cut[kept], scores[kept])


def optional(module: str, purpose: str, extra: str) -> Any:
    """A module of an optional part, imported when it is needed."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise MissingExtraError(purpose, extra) from None
