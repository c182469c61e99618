"""Convert the head's predictions to boxes: scores, NMS and box voting (paper, Evaluation Details)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torchvision.ops import nms

from mast.box_ops import box_area, box_iou, clip_boxes
from mast.models.anchor_points import decode_boxes
from mast.models.head import HeadOutput

CANDIDATES = 1000
"""Maximum number of locations of a chunk that enter NMS, whose cost is quadratic."""

VOTING_IOU = 0.7
"""Minimum IoU of duplicates that vote: they estimate the same edges with different errors (docs/decisions/0018)."""


@dataclass(frozen=True, slots=True)
class ChunkDetections:
    """Boxes of one chunk in frames and bins with their scores, best first, and optionally their embedding vectors."""

    boxes: Tensor  # (n, 4)
    scores: Tensor  # (n,)
    vectors: Tensor | None = None  # (n, C)


def scores(output: HeadOutput) -> Tensor:
    """Return the class probability times centerness, as in the first version of FCOS. → (B, N)

    Later versions take the square root. The ranking is the same, but every score would be higher, and the paper's
    threshold of 0.10, chosen for low scores, would then accept almost every box.
    """
    return output.logits.sigmoid() * output.centerness.sigmoid()


def decode_detections(
    output: HeadOutput, score_threshold: float, max_detections: int, nms_iou_threshold: float
) -> list[ChunkDetections]:
    """Return up to `max_detections` boxes of each chunk with score >= `score_threshold`, clipped, after NMS.

    A box is a duplicate if its IoU with a better one is above `nms_iou_threshold`; there is only one class. Duplicates
    with a high IoU vote on the edges of the better box, whatever their score: `score_threshold` does not affect edges.
    """
    best, chosen = scores(output).topk(min(CANDIDATES, output.logits.shape[1]), dim=1)  # (B, K)
    distances = output.distances.gather(1, chosen[:, :, None].expand(-1, -1, 4))  # (B, K, 4)
    boxes = decode_boxes(distances, output.locations.centres[chosen], output.locations.strides[chosen])
    detections = []
    for chunk_boxes, chunk_scores in zip(boxes, best, strict=True):
        clipped = clip_boxes(chunk_boxes, (0, 0, *output.locations.extent))
        is_box = box_area(clipped) > 0
        clipped, box_scores = clipped[is_box], chunk_scores[is_box]
        above = int((box_scores >= score_threshold).sum())  # scores are in descending order
        kept = nms(clipped[:above], box_scores[:above], nms_iou_threshold)[:max_detections]
        edges = box_voting(clipped[kept], clipped, box_scores, max(VOTING_IOU, nms_iou_threshold))
        detections.append(ChunkDetections(edges, box_scores[kept]))
    return detections


def box_voting(boxes: Tensor, candidates: Tensor, weights: Tensor, min_iou: float) -> Tensor:
    """Replace each box by the weighted mean of the candidates with IoU >= `min_iou`. (n, 4), (K, 4), (K,) → (n, 4)

    The boxes themselves are among the candidates.
    """
    is_near = box_iou(boxes, candidates) >= min_iou
    votes = is_near * weights.clamp(min=torch.finfo(weights.dtype).tiny)  # (n, K)
    return votes @ candidates / votes.sum(dim=1, keepdim=True)
