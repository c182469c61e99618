"""Maths on boxes: tensors `(N, 4)` of (start, low, end, high), in frames and bins or in seconds and Hz alike."""

from __future__ import annotations

import torch
from torch import Tensor


def area(boxes: Tensor) -> Tensor:
    """Area of each box. (N, 4) → (N,)"""
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def intersection(boxes: Tensor, others: Tensor) -> Tensor:
    """Area every box shares with every other. (N, 4), (M, 4) → (N, M)"""
    start_low = torch.maximum(boxes[:, None, :2], others[None, :, :2])
    end_high = torch.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return (end_high - start_low).clamp(min=0).prod(dim=2)


def iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Shared area over joint area, 0 where both are empty. (N, 4), (M, 4) → (N, M)"""
    shared = intersection(boxes, others)
    joint = area(boxes)[:, None] + area(others)[None, :] - shared
    return torch.where(joint > 0, shared / joint.clamp(min=torch.finfo(joint.dtype).tiny), 0)


def paired_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """IoU of each box with its partner alone, 0 where both are empty. (…, 4), (…, 4) → (…)"""
    start_low = torch.maximum(boxes[..., :2], others[..., :2])
    end_high = torch.minimum(boxes[..., 2:], others[..., 2:])
    shared = (end_high - start_low).clamp(min=0).prod(dim=-1)
    areas, other_areas = ((item[..., 2:] - item[..., :2]).prod(dim=-1) for item in (boxes, others))
    joint = areas + other_areas - shared
    return torch.where(joint > 0, shared / joint.clamp(min=torch.finfo(joint.dtype).tiny), 0)


def iomin(boxes: Tensor, others: Tensor) -> Tensor:
    """Shared area over the smaller area: 1 for a box inside the other, however loose. (N, 4), (M, 4) → (N, M)"""
    shared = intersection(boxes, others)
    smaller = torch.minimum(area(boxes)[:, None], area(others)[None, :])
    return torch.where(smaller > 0, shared / smaller.clamp(min=torch.finfo(smaller.dtype).tiny), 0)


def clip(boxes: Tensor, bounds: tuple[float, float, float, float]) -> Tensor:
    """Boxes cut to (start, low, end, high) bounds; a box outside becomes empty at the nearest edge. (N, 4) → (N, 4)"""
    start, low, end, high = bounds
    least = boxes.new_tensor([start, low, start, low])
    most = boxes.new_tensor([end, high, end, high])
    return torch.minimum(torch.maximum(boxes, least), most)
