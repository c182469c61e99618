"""The head: is there a sound, how central is this place in it, and where are its edges (paper, Detector heads).

FCOS predicts four distances and keeps each positive, which only fits boxes that hold the location's centre. Narrow
calls lie between two rows of centres, so here the network predicts how far the box's middle is (two signed numbers)
and the logarithm of its two sides, as YOLOX does. What the head hands out are FCOS's distances again, made from these:
any box can be expressed from any location, and none is ever inside out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mast.models.blocks import CHANNELS, LevelConvNorm, convolution
from mast.models.locations import ANCHOR_STRIDES, Locations, lattice

TOWER_LAYERS = 4
PRIOR = 0.01
"""Score of every location before training: most of them are background (focal loss)."""

MAX_LOG_SIDE = 8.0
"""e⁸ = 2981 strides, beyond any chunk; an early wild guess must not become infinite."""


@dataclass(frozen=True, slots=True)
class HeadOutput:
    """What the head says of N locations in each of B chunks, in float32."""

    logits: Tensor  # (B, N)
    centerness: Tensor  # (B, N) logits
    distances: Tensor  # (B, N, 4) of start, low, end, high, in strides
    locations: Locations


class Head(nn.Module):
    """Two towers of convolutions that all levels share; centerness is read off the box tower, as in later FCOS.

    Towers of `width` channels read maps of `channels`.
    """

    def __init__(self, levels: int, width: int, channels: int = CHANNELS) -> None:
        super().__init__()
        self.class_tower, self.box_tower = (
            nn.ModuleList(
                LevelConvNorm(convolution(channels if number == 0 else width, width), levels)
                for number in range(TOWER_LAYERS)
            )
            for _ in range(2)
        )
        self.logit = nn.Conv2d(width, 1, 3, padding=1)
        self.centerness = nn.Conv2d(width, 1, 3, padding=1)
        self.box = nn.Conv2d(width, 4, 3, padding=1)  # middle in time and frequency, log sides
        self.scales = nn.Parameter(torch.ones(levels))
        for conv in (self.logit, self.centerness, self.box):
            nn.init.normal_(conv.weight, std=0.01)
            nn.init.zeros_(conv.get_parameter("bias"))
        nn.init.constant_(self.logit.get_parameter("bias"), -math.log((1 - PRIOR) / PRIOR))

    def forward(self, maps: Sequence[Tensor], strides: Sequence[tuple[int, int]]) -> HeadOutput:
        """Predictions for every cell of the pyramid's maps, levels times (B, 256, F, T)."""
        sizes = [(level.shape[3], level.shape[2]) for level in maps]
        per_level = [self._level(features, number) for number, features in enumerate(maps)]
        logits, centerness, box = (torch.cat(parts, dim=1) for parts in zip(*per_level, strict=True))
        locations = lattice(sizes, strides, maps[0].device)
        return HeadOutput(logits[..., 0], centerness[..., 0], distances(box), locations)

    def _level(self, features: Tensor, level: int) -> tuple[Tensor, Tensor, Tensor]:
        """Raw predictions of one level. (B, 256, F, T) → (B, F · T, 1), (B, F · T, 1), (B, F · T, 4)"""
        sound = box = features
        for class_layer, box_layer in zip(self.class_tower, self.box_tower, strict=True):
            sound, box = class_layer(sound, level).relu(), box_layer(box, level).relu()
        scaled = self.box(box).float() * self.scales[level]
        raw = (self.logit(sound).float(), self.centerness(box).float(), scaled)
        logit, centerness, middle_sides = (values.flatten(2).transpose(1, 2) for values in raw)
        return logit, centerness, middle_sides


def distances(box: Tensor) -> Tensor:
    """Distances of a box's edges from its middle and log sides against the anchor's, in strides. (…, 4) → (…, 4)"""
    middle, half = box[..., :2], box[..., 2:].clamp(max=MAX_LOG_SIDE).exp() * (ANCHOR_STRIDES / 2)
    return torch.cat([half - middle, half + middle], dim=-1)
