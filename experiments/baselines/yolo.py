"""YOLO26 of ultralytics, from random weights.

ultralytics is licensed under AGPL-3.0, so MAST does not depend on it: it is a separate extra for this comparison, and is
imported only when the network is created or used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchvision.ops import box_convert

from experiments.baselines.base import Losses, Network, Size, best_boxes, optional, to_float32
from mast.config import Detection
from mast.models.postprocess import ChunkDetections

ARCHITECTURES = {"tiny": "yolo26s.yaml", "small": "yolo26m.yaml", "base": "yolo26x.yaml"}
"""Architecture by size of the MAST to compare; base is that of the paper."""

PURPOSE, EXTRA = "The YOLO26 baseline", "yolo"


class Yolo(Network):
    """YOLO26 with both heads: the first has many positive locations per box, the second, used in prediction, one."""

    def __init__(self, settings: Detection, size: Size) -> None:
        super().__init__(settings)
        tasks, cfg = (optional(f"ultralytics.{name}", PURPOSE, EXTRA) for name in ("nn.tasks", "cfg"))
        shape = {**tasks.yaml_model_load(ARCHITECTURES[size]), "nc": 1}
        self.model = tasks.DetectionModel(shape, ch=1, verbose=False)
        self.model.args = cfg.get_cfg()  # weights of its losses

    def losses(self, spec: Tensor, boxes: Sequence[Tensor]) -> Losses:
        """Compute box, classification and ℓ1 losses; the weight moves from the first head to the second, as published."""
        criterion = optional("ultralytics.utils.loss", PURPOSE, EXTRA).E2ELoss(self.model)
        one_to_many_weight = criterion.decay(self.progress * (self.model.args.epochs - 1))
        raw, batch = self._raw_outputs(spec), _batch(boxes, spec)
        heads = (
            (one_to_many_weight, criterion.one2many, "one2many"),
            (1 - one_to_many_weight, criterion.one2one, "one2one"),
        )
        terms = sum(weight * loss(raw[head], batch)[0] for weight, loss, head in heads) / len(boxes)  # (3,)
        return dict(zip(("box", "classification", "l1"), terms, strict=True))

    def predict(self, spec: Tensor) -> list[ChunkDetections]:
        """Predict boxes with the second head, then apply NMS, as the paper does for all detectors."""
        tal = optional("ultralytics.utils.tal", PURPOSE, EXTRA)
        raw = self._raw_outputs(spec)["one2one"]
        centres, strides = tal.make_anchors(raw["feats"], self.model.stride)  # (N, 2), (N, 1), in cells
        boxes = tal.dist2bbox(raw["boxes"].transpose(1, 2), centres, xywh=False) * strides  # (B, N, 4)
        scores = raw["scores"][:, 0].sigmoid()  # (B, N)
        grid = (spec.shape[2], spec.shape[1])
        return [best_boxes(*chunk, grid, self.settings) for chunk in zip(boxes, scores, strict=True)]

    def _raw_outputs(self, spec: Tensor) -> dict[str, Any]:
        """Return the raw outputs of both heads; in evaluation mode, ultralytics returns them after its decoded boxes."""
        output = self.model(spec[:, None])
        raw: dict[str, Any] = to_float32(output[1] if isinstance(output, tuple) else output)
        return raw


def _batch(boxes: Sequence[Tensor], spec: Tensor) -> dict[str, Tensor]:
    """Convert boxes to ultralytics format: one list for all chunks; centres and sides as fractions of the extent."""
    extent = spec.new_tensor([spec.shape[2], spec.shape[1]] * 2)
    all_boxes = torch.cat([torch.zeros(0, 4, device=spec.device), *boxes])
    chunks = torch.arange(len(boxes), device=spec.device)
    return {
        "batch_idx": chunks.repeat_interleave(
            torch.tensor([len(item) for item in boxes], device=spec.device)
        ),
        "cls": torch.zeros(len(all_boxes), device=spec.device),
        "bboxes": box_convert(all_boxes / extent, "xyxy", "cxcywh"),
    }
