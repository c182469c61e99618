"""One vector a box: the mean of a map over it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from mast.config import PATCH


def pool_boxes(features: Tensor, boxes: Sequence[Tensor], stride: tuple[int, int]) -> Tensor:
    """Mean of a map over each box, B times (n, 4) in frames and bins. (B, C, F, T) → (boxes of all chunks, C)

    RoIAlign with a single output cell, sampled about once for every cell of the map that the box covers: a box smaller
    than a cell reads the map at its middle. Such a mean is a weighted sum over the map, with weights that are a product
    of those in frequency and in time; as one product of matrices it learns several times faster than RoIAlign's own
    loops. The map's stride is (time, frequency).
    """
    counts = [len(own) for own in boxes]
    padded = pad_sequence(list(boxes), batch_first=True).float()  # (B, M, 4)
    bands, moments = features.shape[2:]
    in_time = cell_weights(padded[..., 0::2] / stride[0], moments)  # (B, M, T)
    in_band = cell_weights(padded[..., 1::2] / stride[1], bands)  # (B, M, F)
    weights = (in_band[..., :, None] * in_time[..., None, :]).flatten(2)  # (B, M, F · T)
    with torch.autocast(features.device.type, enabled=False):
        pooled = features.flatten(2) @ weights.to(features.dtype).transpose(1, 2)  # (B, C, M)
    is_box = torch.arange(padded.shape[1]) < torch.tensor(counts)[:, None]  # (B, M)
    return pooled.float().transpose(1, 2)[is_box.to(features.device)]


def unit_vectors(features: Tensor, boxes: Sequence[Tensor]) -> Tensor:
    """Vectors of boxes, B times (n, 4) in frames and bins, from encoder maps. (B, C, F/16, T/16) → (N, C)"""
    return functional.normalize(pool_boxes(features.float(), boxes, (PATCH, PATCH)), dim=1)


def cell_weights(spans: Tensor, cells: int) -> Tensor:
    """Share of each cell of an axis in the mean over spans, given in cells. (…, 2) → (…, cells)

    A span is read at evenly spaced points, one for each cell that it covers, each between the centres of two cells.
    """
    start, width = spans[..., 0], (spans[..., 1] - spans[..., 0]).clamp(min=0)
    points = width.ceil().clamp(min=1)  # (…)
    most = int(points.max()) if points.numel() else 1
    number = torch.arange(most, device=spans.device)
    at = (
        start[..., None] + (number + 0.5) * (width / points)[..., None] - 0.5
    )  # (…, points); centres are whole
    at = at.clamp(0, cells - 1)
    share = (number < points[..., None]) / points[..., None]
    left = at.floor().clamp(max=max(0, cells - 2))
    right_share = share * (at - left)
    weights = spans.new_zeros(*spans.shape[:-1], cells)
    weights.scatter_add_(-1, left.long(), share - right_share)
    return weights.scatter_add_(-1, (left.long() + 1).clamp(max=cells - 1), right_share)
