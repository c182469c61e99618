"""From the head's predictions to boxes: score, choose, suppress duplicates (paper, Evaluation Details)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torchvision.ops import nms

from mast.boxes import area, clip
from mast.models.head import HeadOutput
from mast.models.locations import decode

CANDIDATES = 1000
"""Best locations of a chunk that duplicates are searched among: suppression costs their square."""


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
    """
    best, chosen = scores(output).topk(min(CANDIDATES, output.logits.shape[1]), dim=1)  # (B, K)
    distances = output.distances.gather(1, chosen[:, :, None].expand(-1, -1, 4))  # (B, K, 4)
    boxes = decode(distances, output.locations.centres[chosen], output.locations.strides[chosen])
    found = []
    for own_boxes, own_scores in zip(boxes, best, strict=True):
        cut = clip(own_boxes, (0, 0, *output.locations.extent))
        is_box = (own_scores >= min_score) & (area(cut) > 0)
        cut, kept_scores = cut[is_box], own_scores[is_box]
        kept = nms(cut, kept_scores, nms_iou)[:max_boxes]
        found.append(Detections(cut[kept], kept_scores[kept]))
    return found
