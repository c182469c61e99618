"""What the detector is taught by: quality focal, GIoU, ℓ1 and centerness losses (paper, Tasks and Objectives).

The main text has focal + ℓ1 + GIoU, the appendix quality focal + GIoU + centerness: all terms are computed here, and the
caller weighs them, since the paper gives no λ.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional
from torchvision.ops import generalized_box_iou_loss, sigmoid_focal_loss

from mast.boxes import paired_iou
from mast.models.head import HeadOutput
from mast.models.locations import decode, encode
from mast.training.assignment import Targets

Classification = Literal["quality", "focal"]


def quality_focal_loss(logits: Tensor, quality: Tensor, beta: float = 2.0) -> Tensor:
    """|y - σ|^β · BCE(σ, y), for a quality y in 0…1 (Generalized Focal Loss, arXiv:2006.04388). (…), (…) → (…)"""
    surprise = (quality - logits.sigmoid()).abs().pow(beta)
    return surprise * functional.binary_cross_entropy_with_logits(logits, quality, reduction="none")


def normalisers(targets: Targets) -> Tensor:
    """What losses are divided by: the number of positive locations, and the sum of their centerness. → (2,)

    With several ranks, give `detection_loss` the mean over them, at least 1, so that each box counts the same everywhere.
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
    """Each term of the detection loss, before its λ; `weights` (B,) say how much each example counts (paper, ḡ).

    - `classification`: over all locations, a positive one's target being the IoU that its predicted box now has
      (quality) or 1 (focal); divided by the number of positives
    - `giou` and `l1`: over positives, weighted by centerness and divided by its sum, as in FCOS; ℓ1 is the mean over
      the four edges, in strides, so that it means the same on every level
    - `centerness`: over positives, divided by their number

    A weight scales an example's share; it does not enter the divisors, or a batch of poor examples would count in full.
    """
    count, central_sum = normalisers(targets).clamp(min=1) if divisors is None else divisors
    chosen = (targets.example, targets.location)
    centres, strides = output.locations.centres[targets.location], output.locations.strides[targets.location]
    distances = output.distances[chosen]  # (P, 4)
    boxes, weight = decode(distances, centres, strides), weights[targets.example]  # (P, 4), (P,)

    edges = (distances - encode(targets.boxes, centres, strides)).abs().mean(dim=1)
    giou = generalized_box_iou_loss(boxes, targets.boxes)
    central = functional.binary_cross_entropy_with_logits(
        output.centerness[chosen], targets.centerness, reduction="none"
    )
    quality = torch.zeros_like(output.logits)  # (B, N)
    if classification == "quality":
        quality[chosen] = paired_iou(boxes.detach(), targets.boxes)
        per_location = quality_focal_loss(output.logits, quality)
    else:
        quality[chosen] = 1.0
        per_location = sigmoid_focal_loss(output.logits, quality)
    return {
        "classification": (weights[:, None] * per_location).sum() / count,
        "giou": (weight * targets.centerness * giou).sum() / central_sum,
        "l1": (weight * targets.centerness * edges).sum() / central_sum,
        "centerness": (weight * central).sum() / count,
    }
