"""Predict class logits, centerness and box edges for every location (paper, Detector heads).

FCOS predicts four positive distances, which can only encode boxes that contain the location's centre. Narrow calls lie
between two rows of centres, so this head predicts the offset of the box's centre (two signed numbers) and the logarithm
of its two sides, as YOLOX does. The head converts these to the distances of FCOS: any box can be encoded relative to any
location, and no predicted box has its edges in the wrong order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mast.models.anchor_points import ANCHOR_STRIDES, AnchorPoints, make_anchor_points
from mast.models.blocks import CHANNELS, LevelConvNorm, SeparableLevelConvNorm, convolution

TOWER_LAYERS = 4
PRIOR = 0.01
"""Initial class probability of every location, since most locations are background (focal loss)."""

MAX_LOG_SIDE = 8.0
"""e⁸ = 2981 strides, beyond any chunk; the limit keeps early predictions finite."""


@dataclass(frozen=True, slots=True)
class HeadOutput:
    """Predictions of the head for N locations in each of B chunks, in float32."""

    logits: Tensor  # (B, N)
    centerness: Tensor  # (B, N) logits
    distances: Tensor  # (B, N, 4) of start, low, end, high, in strides
    locations: AnchorPoints


class Head(nn.Module):
    """Two towers of convolutions shared by all levels; the box tower predicts centerness, as in later FCOS.

    The towers have `width` channels, their input maps `channels`. Convolutions that are `separable` take an eighth of
    the arithmetic: the towers run on the finest map, and would cost more than a lean encoder.
    """

    def __init__(
        self,
        levels: int,
        width: int,
        channels: int = CHANNELS,
        layers: int = TOWER_LAYERS,
        *,
        separable: bool = False,
    ) -> None:
        super().__init__()
        pairs = [(channels if number == 0 else width, width) for number in range(layers)]
        self.class_tower, self.box_tower = (
            nn.ModuleList(
                SeparableLevelConvNorm(*pair, levels)
                if separable
                else LevelConvNorm(convolution(*pair), levels)
                for pair in pairs
            )
            for _ in range(2)
        )
        self.logit = nn.Conv2d(width, 1, 3, padding=1)
        self.centerness = nn.Conv2d(width, 1, 3, padding=1)
        self.box = nn.Conv2d(width, 4, 3, padding=1)  # centre in time and frequency, log sides
        self.scales = nn.Parameter(torch.ones(levels))
        for conv in (self.logit, self.centerness, self.box):
            nn.init.normal_(conv.weight, std=0.01)
            nn.init.zeros_(conv.get_parameter("bias"))
        nn.init.constant_(self.logit.get_parameter("bias"), -math.log((1 - PRIOR) / PRIOR))

    def forward(self, maps: Sequence[Tensor], strides: Sequence[tuple[int, int]]) -> HeadOutput:
        """Predict for every cell of the pyramid's maps, levels times (B, 256, F, T)."""
        sizes = [(level.shape[3], level.shape[2]) for level in maps]
        per_level = [self._level(features, number) for number, features in enumerate(maps)]
        logits, centerness, box = (torch.cat(parts, dim=1) for parts in zip(*per_level, strict=True))
        locations = make_anchor_points(sizes, strides, maps[0].device)
        return HeadOutput(logits[..., 0], centerness[..., 0], distances(box), locations)

    def _level(self, features: Tensor, level: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the raw predictions of one level. (B, 256, F, T) → (B, F · T, 1), (B, F · T, 1), (B, F · T, 4)"""
        class_features = box = features
        for class_layer, box_layer in zip(self.class_tower, self.box_tower, strict=True):
            class_features, box = class_layer(class_features, level).relu(), box_layer(box, level).relu()
        scaled = self.box(box).float() * self.scales[level]
        raw = (self.logit(class_features).float(), self.centerness(box).float(), scaled)
        logit, centerness, centre_sides = (values.flatten(2).transpose(1, 2) for values in raw)
        return logit, centerness, centre_sides


def distances(box: Tensor) -> Tensor:
    """Convert a box's centre, and its log sides relative to the anchor, to edge distances in strides. (…, 4) → (…, 4)"""
    centre, half = box[..., :2], box[..., 2:].clamp(max=MAX_LOG_SIDE).exp() * (ANCHOR_STRIDES / 2)
    return torch.cat([half - centre, half + centre], dim=-1)
