"""From the head's predictions to boxes: score, choose, let duplicates vote (paper, Evaluation Details)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torchvision.ops import nms

from mast.boxes import area, clip, iou
from mast.models.head import HeadOutput
from mast.models.locations import decode

CANDIDATES = 1000
"""Best locations of a chunk that duplicates are searched among: suppression costs their square."""

VOTING_IOU = 0.7
"""Duplicates so close to the best box tell of the same edges, each with an error of its own (docs/decisions/0018)."""


@dataclass(frozen=True, slots=True)
class Detections:
    """Boxes of one chunk in frames and bins with their scores, best first; where asked for, also their vectors."""

    boxes: Tensor  # (n, 4)
    scores: Tensor  # (n,)
    vectors: Tensor | None = None  # (n, C)


def scores(output: HeadOutput) -> Tensor:
    """Probability of a sound times centerness, as FCOS first had it. → (B, N)

    Later versions take the root. Boxes rank the same, but every score would be higher, and the paper's threshold of
    0.10, chosen where scores are low, would then let almost everything pass.
    """
    return output.logits.sigmoid() * output.centerness.sigmoid()


def find_boxes(output: HeadOutput, min_score: float, max_boxes: int, nms_iou: float) -> list[Detections]:
    """Boxes of each chunk that score at least `min_score`, cut to the grid, without duplicates, at most `max_boxes`.

    A box is a duplicate if its IoU with a better one is above `nms_iou`, whatever made the sound: there is one class.
    Duplicates that are close to it have a say in where its edges are, however faint: `min_score` moves no edge.
    """
    best, chosen = scores(output).topk(min(CANDIDATES, output.logits.shape[1]), dim=1)  # (B, K)
    distances = output.distances.gather(1, chosen[:, :, None].expand(-1, -1, 4))  # (B, K, 4)
    boxes = decode(distances, output.locations.centres[chosen], output.locations.strides[chosen])
    found = []
    for own_boxes, own_scores in zip(boxes, best, strict=True):
        cut = clip(own_boxes, (0, 0, *output.locations.extent))
        is_box = area(cut) > 0
        cut, cut_scores = cut[is_box], own_scores[is_box]
        loud = int((cut_scores >= min_score).sum())  # the best come first
        kept = nms(cut[:loud], cut_scores[:loud], nms_iou)[:max_boxes]
        edges = voted(cut[kept], cut, cut_scores, max(VOTING_IOU, nms_iou))
        found.append(Detections(edges, cut_scores[kept]))
    return found


def voted(boxes: Tensor, candidates: Tensor, weights: Tensor, min_iou: float) -> Tensor:
    """Boxes at the weighted mean of the candidates that overlap them so much. (n, 4), (K, 4), (K,) → (n, 4)

    Boxes are among the candidates.
    """
    is_near = iou(boxes, candidates) >= min_iou
    votes = is_near * weights.clamp(min=torch.finfo(weights.dtype).tiny)  # (n, K)
    return votes @ candidates / votes.sum(dim=1, keepdim=True)
