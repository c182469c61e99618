"""Fuse BatchNorm layers into convolutions: the same detector with fewer passes over its feature maps."""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from mast.models.blocks import ConvNorm, LevelConvNorm, SmoothingConv
from mast.models.detector import Detector


class FusedSmoothingConv(nn.Module):
    """The three branches of `SmoothingConv` as one 3×3 convolution."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, features: Tensor) -> Tensor:
        """Apply the convolution and ReLU. (B, C, F, T) → (B, C, F, T)"""
        smoothed: Tensor = self.conv(features)
        return smoothed.relu()


class FusedLevelConv(nn.Module):
    """One convolution for every level, with the level's BatchNorm fused into it."""

    def __init__(self, convs: list[nn.Conv2d]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, features: Tensor, level: int) -> Tensor:
        """Apply the convolution of a level. (B, C, F, T) → (B, C', F, T)"""
        filtered: Tensor = self.convs[level](features)
        return filtered


def fuse_batchnorm(detector: Detector) -> Detector:
    """Return a fused copy for inference, with equal predictions up to rounding; the original stays unchanged."""
    fused = copy.deepcopy(detector).eval()
    for module in (fused.encoder, fused.adapter, fused.pyramid, fused.head):
        _fuse_children(module)
    return fused.requires_grad_(requires_grad=False)


def _fuse_children(module: nn.Module) -> None:
    for name, submodule in module.named_children():
        if isinstance(submodule, ConvNorm):
            setattr(module, name, _fuse_conv(submodule))
        elif isinstance(submodule, LevelConvNorm):
            norms = [cast("nn.BatchNorm2d", norm) for norm in submodule.norms]
            setattr(module, name, FusedLevelConv([fuse_conv_bn_eval(submodule.conv, norm) for norm in norms]))
        elif isinstance(submodule, SmoothingConv):
            setattr(module, name, FusedSmoothingConv(_merge_kernels(submodule)))
        else:
            _fuse_children(submodule)


def _fuse_conv(layer: ConvNorm) -> nn.Conv2d | nn.ConvTranspose2d:
    return fuse_conv_bn_eval(layer.conv, layer.norm, transpose=isinstance(layer.conv, nn.ConvTranspose2d))


def _merge_kernels(smoothing: SmoothingConv) -> nn.Module:
    """Return the 3×3 convolution equal to the three branches: the sum of their kernels, zero-padded to 3×3."""
    square = _fuse_conv(smoothing.square)
    for branch, padding in ((smoothing.along_frequency, (1, 1, 0, 0)), (smoothing.along_time, (0, 0, 1, 1))):
        conv = _fuse_conv(branch)
        with torch.no_grad():
            square.weight += functional.pad(
                conv.weight, padding
            )  # padding starts with the last axis: time, then frequency
            square.get_parameter("bias").add_(conv.get_parameter("bias"))
    return square
