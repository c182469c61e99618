"""BatchNorm merged into convolutions: the same detector, with fewer passes over its maps."""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from mast.models.blocks import ConvNorm, LevelConvNorm, Smoothing
from mast.models.detector import Detector


class FoldedSmoothing(nn.Module):
    """The three branches of `Smoothing` as one 3×3 convolution."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, features: Tensor) -> Tensor:
        """(B, C, F, T) → (B, C, F, T)"""
        smoothed: Tensor = self.conv(features)
        return smoothed.relu()


class FoldedLevelConv(nn.Module):
    """A convolution for every level, in which the level's BatchNorm is merged."""

    def __init__(self, convs: list[nn.Conv2d]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, features: Tensor, level: int) -> Tensor:
        """(B, C, F, T) → (B, C', F, T)"""
        filtered: Tensor = self.convs[level](features)
        return filtered


def fold(detector: Detector) -> Detector:
    """A copy for inference alone that gives the same predictions up to rounding; the original stays as it is."""
    folded = copy.deepcopy(detector).eval()
    for part in (folded.adapter, folded.pyramid, folded.head):
        _fold_children(part)
    return folded.requires_grad_(requires_grad=False)


def _fold_children(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, ConvNorm):
            setattr(module, name, _folded(child))
        elif isinstance(child, LevelConvNorm):
            norms = [cast("nn.BatchNorm2d", norm) for norm in child.norms]
            setattr(module, name, FoldedLevelConv([fuse_conv_bn_eval(child.conv, norm) for norm in norms]))
        elif isinstance(child, Smoothing):
            setattr(module, name, FoldedSmoothing(_one_square(child)))
        else:
            _fold_children(child)


def _folded(layer: ConvNorm) -> nn.Conv2d | nn.ConvTranspose2d:
    return fuse_conv_bn_eval(layer.conv, layer.norm, transpose=isinstance(layer.conv, nn.ConvTranspose2d))


def _one_square(smoothing: Smoothing) -> nn.Module:
    """The 3×3 convolution that equals three branches: their kernels, padded with zeros to its own, add up."""
    square = _folded(smoothing.square)
    for branch, padding in ((smoothing.along_frequency, (1, 1, 0, 0)), (smoothing.along_time, (0, 0, 1, 1))):
        conv = _folded(branch)
        with torch.no_grad():
            square.weight += functional.pad(conv.weight, padding)  # a last axis first: time, then frequency
            square.get_parameter("bias").add_(conv.get_parameter("bias"))
    return square
