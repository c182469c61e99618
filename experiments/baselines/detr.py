"""DETR, that of transformers, from random weights: a set of boxes from queries, matched to the experts' one to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.ops import box_convert

from experiments.baselines.network import InFull, Losses, Network, Size, best_boxes, optional
from mast.config import Detection
from mast.models.decoding import Detections

SHAPES = {"tiny": ("resnet18", 2, 128), "small": ("resnet34", 4, 192), "base": ("resnet50", 6, 256)}
"""Backbone, layers of encoder and decoder, and their width, beside a MAST of each size; as published, the last."""

QUERIES, HEADS = 100, 8

TERMS = {"loss_ce": "classification", "loss_bbox": "l1", "loss_giou": "giou"}
"""DETR's losses, by our names; those of inner layers have a number behind."""


class Detr(Network):
    """DETR with dilation in its last stage (DC5): cells of 16 frames and bins; 32 would leave four to all bands.

    As published it learns with a tenth of the others' rate.
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
        _learn_norms(self.model)
        self.model.class_labels_classifier = InFull(self.model.class_labels_classifier)
        self.model.bbox_predictor = InFull(self.model.bbox_predictor)

    def losses(self, spec: Tensor, boxes: Sequence[Tensor]) -> Losses:
        """Cross-entropy, ℓ1 and GIoU losses, each weighted as published and summed over the decoder's layers."""
        extent = _extent(spec)
        labels = [
            {
                "class_labels": torch.zeros(len(own), dtype=torch.int64, device=own.device),
                "boxes": box_convert(own / extent, "xyxy", "cxcywh"),
            }
            for own in boxes
        ]
        told = self.model(spec[:, None], labels=labels).loss_dict
        config: Any = self.model.config
        weights = {
            "loss_ce": 1.0,
            "loss_bbox": config.bbox_loss_coefficient,
            "loss_giou": config.giou_loss_coefficient,
        }
        return {
            TERMS[name]: weight
            * torch.stack([value for term, value in told.items() if term.startswith(name)]).sum()
            for name, weight in weights.items()
        }

    def find(self, spec: Tensor) -> list[Detections]:
        """A box for every query, then without duplicates, as the paper does for all detectors."""
        told = self.model(spec[:, None])
        scores = told.logits.softmax(dim=-1)[..., 0]  # (B, queries); the other class is no sound
        boxes = box_convert(told.pred_boxes, "cxcywh", "xyxy") * _extent(spec)
        grid = (spec.shape[2], spec.shape[1])
        return [best_boxes(*own, grid, self.settings) for own in zip(boxes, scores, strict=True)]


def _extent(spec: Tensor) -> Tensor:
    """(frames, bins, frames, bins) of chunks (B, F, T)."""
    return spec.new_tensor([spec.shape[2], spec.shape[1]] * 2)


def _learn_norms(model: nn.Module) -> None:
    """BatchNorm in place of transformers' frozen ones, which only make sense with a pretrained backbone."""
    for part in list(model.modules()):
        for name, child in part.named_children():
            if type(child).__name__ == "DetrFrozenBatchNorm2d":
                setattr(part, name, nn.BatchNorm2d(len(child.weight)))  # type: ignore[arg-type]
