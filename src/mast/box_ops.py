"""Operations on boxes: tensors (N, 4) of (start, low, end, high), in frames and bins or in seconds and Hz."""

from __future__ import annotations

import torch
from torch import Tensor


def box_area(boxes: Tensor) -> Tensor:
    """Compute the area of each box, (N, 4) → (N,)."""
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def intersection(boxes: Tensor, others: Tensor) -> Tensor:
    """Compute the intersection area of all pairs of boxes, (N, 4), (M, 4) → (N, M)."""
    start_low = torch.maximum(boxes[:, None, :2], others[None, :, :2])
    end_high = torch.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return (end_high - start_low).clamp(min=0).prod(dim=2)


def box_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Compute the IoU of all pairs of boxes, (N, 4), (M, 4) → (N, M); 0 if both boxes are empty."""
    overlap = intersection(boxes, others)
    union = box_area(boxes)[:, None] + box_area(others)[None, :] - overlap
    return torch.where(union > 0, overlap / union.clamp(min=torch.finfo(union.dtype).tiny), 0)


def paired_box_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Compute the IoU of boxes at equal indices, (…, 4), (…, 4) → (…); 0 if both boxes are empty."""
    start_low = torch.maximum(boxes[..., :2], others[..., :2])
    end_high = torch.minimum(boxes[..., 2:], others[..., 2:])
    overlap = (end_high - start_low).clamp(min=0).prod(dim=-1)
    areas, other_areas = ((item[..., 2:] - item[..., :2]).prod(dim=-1) for item in (boxes, others))
    union = areas + other_areas - overlap
    return torch.where(union > 0, overlap / union.clamp(min=torch.finfo(union.dtype).tiny), 0)


def box_iomin(boxes: Tensor, others: Tensor) -> Tensor:
    """Compute intersection over smaller area of all pairs, (N, 4), (M, 4) → (N, M); 1 for a box inside the other."""
    overlap = intersection(boxes, others)
    smaller = torch.minimum(box_area(boxes)[:, None], box_area(others)[None, :])
    return torch.where(smaller > 0, overlap / smaller.clamp(min=torch.finfo(smaller.dtype).tiny), 0)


def clip_boxes(boxes: Tensor, bounds: tuple[float, float, float, float]) -> Tensor:
    """Clip boxes to (start, low, end, high), (N, 4) → (N, 4); a box outside becomes empty at the nearest edge."""
    start, low, end, high = bounds
    minimum = boxes.new_tensor([start, low, start, low])
    maximum = boxes.new_tensor([end, high, end, high])
    return torch.minimum(torch.maximum(boxes, minimum), maximum)
