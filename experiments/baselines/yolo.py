"""YOLO26, that of ultralytics, from random weights.

ultralytics is licensed under AGPL-3.0, so MAST never depends on it: it is an extra of its own, for this comparison alone,
and is imported only where the network is made and asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchvision.ops import box_convert

from experiments.baselines.network import Losses, Network, Size, best_boxes, in_full, optional
from mast.config import Detection
from mast.models.decoding import Detections

ARCHITECTURES = {"tiny": "yolo26s.yaml", "small": "yolo26m.yaml", "base": "yolo26x.yaml"}
"""Beside a MAST of each size; the paper's is the last."""

PURPOSE, EXTRA = "The YOLO26 baseline", "yolo"


class Yolo(Network):
    """YOLO26 with both of its heads: one learns from many locations a box, the other, which is asked, from one."""

    def __init__(self, settings: Detection, size: Size) -> None:
        super().__init__(settings)
        tasks, cfg = (optional(f"ultralytics.{name}", PURPOSE, EXTRA) for name in ("nn.tasks", "cfg"))
        shape = {**tasks.yaml_model_load(ARCHITECTURES[size]), "nc": 1}
        self.model = tasks.DetectionModel(shape, ch=1, verbose=False)
        self.model.args = cfg.get_cfg()  # weights of its losses

    def losses(self, spec: Tensor, boxes: Sequence[Tensor]) -> Losses:
        """Box, classification and ℓ1 losses of both heads; weight moves from the first to the second, as published."""
        criterion = optional("ultralytics.utils.loss", PURPOSE, EXTRA).E2ELoss(self.model)
        many = criterion.decay(self.learned * (self.model.args.epochs - 1))
        raw, batch = self._answer(spec), _batch(boxes, spec)
        heads = ((many, criterion.one2many, "one2many"), (1 - many, criterion.one2one, "one2one"))
        terms = sum(weight * loss(raw[head], batch)[0] for weight, loss, head in heads) / len(boxes)  # (3,)
        return dict(zip(("box", "classification", "l1"), terms, strict=True))

    def find(self, spec: Tensor) -> list[Detections]:
        """Boxes of the second head, then without duplicates, as the paper does for all detectors."""
        tal = optional("ultralytics.utils.tal", PURPOSE, EXTRA)
        raw = self._answer(spec)["one2one"]
        centres, strides = tal.make_anchors(raw["feats"], self.model.stride)  # (N, 2), (N, 1), in cells
        boxes = tal.dist2bbox(raw["boxes"].transpose(1, 2), centres, xywh=False) * strides  # (B, N, 4)
        scores = raw["scores"][:, 0].sigmoid()  # (B, N)
        grid = (spec.shape[2], spec.shape[1])
        return [best_boxes(*own, grid, self.settings) for own in zip(boxes, scores, strict=True)]

    def _answer(self, spec: Tensor) -> dict[str, Any]:
        """What both heads say before it is decoded; in evaluation, ultralytics puts its own boxes before it."""
        told = self.model(spec[:, None])
        answer: dict[str, Any] = in_full(told[1] if isinstance(told, tuple) else told)
        return answer


def _batch(boxes: Sequence[Tensor], spec: Tensor) -> dict[str, Tensor]:
    """Boxes as ultralytics wants them: one list for all chunks, centres and sides as shares of the picture."""
    extent = spec.new_tensor([spec.shape[2], spec.shape[1]] * 2)
    every = torch.cat([torch.zeros(0, 4, device=spec.device), *boxes])
    numbers = torch.arange(len(boxes), device=spec.device)
    return {
        "batch_idx": numbers.repeat_interleave(torch.tensor([len(own) for own in boxes], device=spec.device)),
        "cls": torch.zeros(len(every), device=spec.device),
        "bboxes": box_convert(every / extent, "xyxy", "cxcywh"),
    }
