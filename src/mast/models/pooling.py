"""Pool one feature vector per box: the mean of a feature map over the box."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from mast.config import PATCH_SIZE


def pool_boxes(features: Tensor, boxes: Sequence[Tensor], stride: tuple[int, int]) -> Tensor:
    """Return the mean of a feature map over each box, B times (n, 4) in frames and bins.

    (B, C, F, T) → (boxes of all chunks, C)

    This is RoIAlign with a single output cell, sampled about once for every cell of the map that the box covers; a box
    smaller than a cell is sampled at its centre. The mean is a weighted sum over the map, and the weights are a product
    of weights in frequency and in time. As one matrix product it trains several times faster than the loops of RoIAlign.
    `stride` is (time, frequency).
    """
    counts = [len(chunk_boxes) for chunk_boxes in boxes]
    padded = pad_sequence(list(boxes), batch_first=True).float()  # (B, M, 4)
    bins, frames = features.shape[2:]
    time_weights = cell_weights(padded[..., 0::2] / stride[0], frames)  # (B, M, T)
    freq_weights = cell_weights(padded[..., 1::2] / stride[1], bins)  # (B, M, F)
    weights = (freq_weights[..., :, None] * time_weights[..., None, :]).flatten(2)  # (B, M, F · T)
    with torch.autocast(features.device.type, enabled=False):
        pooled = features.flatten(2) @ weights.to(features.dtype).transpose(1, 2)  # (B, C, M)
    is_box = torch.arange(padded.shape[1]) < torch.tensor(counts)[:, None]  # (B, M)
    return pooled.float().transpose(1, 2)[is_box.to(features.device)]


def unit_vectors(features: Tensor, boxes: Sequence[Tensor]) -> Tensor:
    """Return unit vectors of boxes, B times (n, 4) in frames and bins, from encoder maps. (B, C, F/16, T/16) → (N, C)"""
    return functional.normalize(pool_boxes(features.float(), boxes, (PATCH_SIZE, PATCH_SIZE)), dim=1)


def cell_weights(spans: Tensor, cells: int) -> Tensor:
    """Return the weight of each cell of an axis in the mean over spans, given in cells. (…, 2) → (…, cells)

    A span is sampled at evenly spaced points, one for each cell that it covers, interpolated between two cell centres.
    """
    start, width = spans[..., 0], (spans[..., 1] - spans[..., 0]).clamp(min=0)
    points = width.ceil().clamp(min=1)  # (…)
    max_points = int(points.max()) if points.numel() else 1
    number = torch.arange(max_points, device=spans.device)
    position = (
        start[..., None] + (number + 0.5) * (width / points)[..., None] - 0.5
    )  # (…, points); cell centres are integers
    position = position.clamp(0, cells - 1)
    point_weight = (number < points[..., None]) / points[..., None]
    left = position.floor().clamp(max=max(0, cells - 2))
    right_weight = point_weight * (position - left)
    weights = spans.new_zeros(*spans.shape[:-1], cells)
    weights.scatter_add_(-1, left.long(), point_weight - right_weight)
    return weights.scatter_add_(-1, (left.long() + 1).clamp(max=cells - 1), right_weight)
