"""DETR of transformers, from random weights: a set of boxes from queries, matched to the annotations one to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.ops import box_convert

from experiments.baselines.base import Float32Output, Losses, Network, Size, best_boxes, optional
from mast.config import Detection
from mast.models.postprocess import ChunkDetections

SHAPES = {"tiny": ("resnet18", 2, 128), "small": ("resnet34", 4, 192), "base": ("resnet50", 6, 256)}
"""Backbone, layers of encoder and decoder, and their width, by size of the MAST to compare; base is as published."""

QUERIES, HEADS = 100, 8

TERMS = {"loss_ce": "classification", "loss_bbox": "l1", "loss_giou": "giou"}
"""Names of DETR's losses here; those of inner layers have a number as suffix."""


class Detr(Network):
    """DETR with dilation in its last stage (DC5): cells of 16 frames and bins; with 32, there would be only four rows.

    As published, its learning rate is a tenth of the other detectors'.
    """

    def __init__(self, settings: Detection, size: Size) -> None:
        super().__init__(settings)
        backbone, layers, width = SHAPES[size]
        transformers = optional("transformers", "The DETR baseline", "baselines")
        config = transformers.DetrConfig(
            backbone=backbone,
            num_channels=1,
            num_labels=1,
            num_queries=QUERIES,
            d_model=width,
            encoder_layers=layers,
            decoder_layers=layers,
            encoder_attention_heads=HEADS,
            decoder_attention_heads=HEADS,
            encoder_ffn_dim=8 * width,
            decoder_ffn_dim=8 * width,
            dilation=True,
            auxiliary_loss=True,
        )
        self.model = transformers.DetrForObjectDetection(config).requires_grad_()
        _make_norms_trainable(self.model)
        self.model.class_labels_classifier = Float32Output(self.model.class_labels_classifier)
        self.model.bbox_predictor = Float32Output(self.model.bbox_predictor)

    def losses(self, spec: Tensor, boxes: Sequence[Tensor]) -> Losses:
        """Compute cross-entropy, ℓ1 and GIoU losses, each weighted as published and summed over the decoder's layers."""
        extent = _extent(spec)
        labels = [
            {
                "class_labels": torch.zeros(len(item), dtype=torch.int64, device=item.device),
                "boxes": box_convert(item / extent, "xyxy", "cxcywh"),
            }
            for item in boxes
        ]
        losses = self.model(spec[:, None], labels=labels).loss_dict
        config: Any = self.model.config
        weights = {
            "loss_ce": 1.0,
            "loss_bbox": config.bbox_loss_coefficient,
            "loss_giou": config.giou_loss_coefficient,
        }
        return {
            TERMS[name]: weight
            * torch.stack([value for term, value in losses.items() if term.startswith(name)]).sum()
            for name, weight in weights.items()
        }

    def predict(self, spec: Tensor) -> list[ChunkDetections]:
        """Predict a box for every query, then apply NMS, as the paper does for all detectors."""
        output = self.model(spec[:, None])
        scores = output.logits.softmax(dim=-1)[..., 0]  # (B, queries); the other class is background
        boxes = box_convert(output.pred_boxes, "cxcywh", "xyxy") * _extent(spec)
        grid = (spec.shape[2], spec.shape[1])
        return [best_boxes(*chunk, grid, self.settings) for chunk in zip(boxes, scores, strict=True)]


def _extent(spec: Tensor) -> Tensor:
    """Return (frames, bins, frames, bins) of chunks (B, F, T)."""
    return spec.new_tensor([spec.shape[2], spec.shape[1]] * 2)


def _make_norms_trainable(model: nn.Module) -> None:
    """Replace frozen batch norms of transformers, which are meant for a pretrained backbone, by trainable ones."""
    for part in list(model.modules()):
        for name, child in part.named_children():
            if type(child).__name__ == "DetrFrozenBatchNorm2d":
                setattr(part, name, nn.BatchNorm2d(len(child.weight)))  # type: ignore[arg-type]
