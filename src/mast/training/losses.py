"""Detection losses: quality focal, GIoU, ℓ1 and centerness (paper, Tasks and Objectives).

The main text has focal + ℓ1 + GIoU, the appendix quality focal + GIoU + centerness. This module computes all terms, and
the caller weights them, since the paper gives no λ.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional
from torchvision.ops import generalized_box_iou_loss, sigmoid_focal_loss

from mast.box_ops import paired_box_iou
from mast.models.anchor_points import decode_boxes, encode_boxes
from mast.models.head import HeadOutput
from mast.training.assignment import Targets

Classification = Literal["quality", "focal"]


def quality_focal_loss(logits: Tensor, quality: Tensor, beta: float = 2.0) -> Tensor:
    """Return |y - σ|^β · BCE(σ, y) for a quality y in 0…1 (Generalized Focal Loss, arXiv:2006.04388). (…), (…) → (…)"""
    modulation = (quality - logits.sigmoid()).abs().pow(beta)
    return modulation * functional.binary_cross_entropy_with_logits(logits, quality, reduction="none")


def loss_normalisers(targets: Targets) -> Tensor:
    """Return the divisors of the losses: the number of positive locations, and the sum of their centerness. → (2,)

    With several ranks, pass the mean over ranks, at least 1, to `detection_loss`, so that each box has the same weight on
    every rank.
    """
    central = targets.centerness
    return torch.stack([central.new_tensor(float(len(central))), central.sum()])


def detection_loss(
    output: HeadOutput,
    targets: Targets,
    weights: Tensor,
    classification: Classification,
    divisors: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return each term of the detection loss, before its λ; `weights` (B,) are the examples' loss weights (paper, ḡ).

    - `classification`: a sum over all locations, divided by the number of positives. The target of a positive location
      is the IoU of its predicted box (quality) or 1 (focal).
    - `giou` and `l1`: sums over positives, weighted by centerness and divided by its sum, as in FCOS. ℓ1 is the mean
      over the four edges, in strides, so that its scale is the same on every level.
    - `centerness`: a sum over positives, divided by their number

    The weights scale the examples' terms but not the divisors; otherwise a batch of low-weight examples would have the
    full weight.
    """
    count, central_sum = loss_normalisers(targets).clamp(min=1) if divisors is None else divisors
    positive = (targets.example, targets.location)
    centres, strides = output.locations.centres[targets.location], output.locations.strides[targets.location]
    distances = output.distances[positive]  # (P, 4)
    boxes, weight = decode_boxes(distances, centres, strides), weights[targets.example]  # (P, 4), (P,)

    edges = (distances - encode_boxes(targets.boxes, centres, strides)).abs().mean(dim=1)
    giou = generalized_box_iou_loss(boxes, targets.boxes)
    central = functional.binary_cross_entropy_with_logits(
        output.centerness[positive], targets.centerness, reduction="none"
    )
    quality = torch.zeros_like(output.logits)  # (B, N)
    if classification == "quality":
        quality[positive] = paired_box_iou(boxes.detach(), targets.boxes)
        per_location = quality_focal_loss(output.logits, quality)
    else:
        quality[positive] = 1.0
        per_location = sigmoid_focal_loss(output.logits, quality)
    return {
        "classification": (weights[:, None] * per_location).sum() / count,
        "giou": (weight * targets.centerness * giou).sum() / central_sum,
        "l1": (weight * targets.centerness * edges).sum() / central_sum,
        "centerness": (weight * central).sum() / count,
    }
