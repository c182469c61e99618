"""Faster R-CNN and FCOS of torchvision on a ResNet with a feature pyramid, from random weights.

Their parts are called one by one, without torchvision's transform: spectrograms are neither resized nor rescaled.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torchvision.models import resnet18, resnet34, resnet50
from torchvision.models.detection import FCOS, FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.image_list import ImageList

from experiments.baselines.base import Float32Output, Losses, Network, Size, to_float32
from mast.config import Detection
from mast.models.postprocess import ChunkDetections

BACKBONES = {"tiny": (resnet18, 64), "small": (resnet34, 128), "base": (resnet50, 256)}
"""Backbone and channels of its pyramid, by size of the MAST to compare.

Base is that of the paper; the others have about the cost per step of the MAST of their size.
"""

STRIDES = (4, 8, 16, 32, 64)
"""Strides of the pyramid's levels (P2–P6), in frames and bins.

With P3–P7, FCOS's levels for photographs, one call in eight has no location that may be assigned to it; with P2–P6, one
in fifteen.
"""

ANCHOR_BINS = (8, 16, 32, 64, 128)
"""Square roots of the anchors' areas, finest level first; torchvision's, for photographs, are four times as large."""

ANCHOR_RATIOS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Ratios of height to width, from a long whistle to a click: 19 in 20 boxes have an anchor with an IoU of 0.5."""

MAX_LOG_CELLS = 6.0

PROPOSALS, SAMPLED_PROPOSALS = 500, 64
"""Number of proposals per chunk, and of those sampled for training.

torchvision's 2000 and 512 are for photographs with sixteen times as many pixels, and training RoIAlign is slow on a CPU.
"""


class FasterRcnn(Network):
    """Faster R-CNN: region proposals, then RoIAlign and two layers for each."""

    def __init__(self, settings: Detection, size: Size) -> None:
        super().__init__(settings)
        model = FasterRCNN(
            _backbone(size),
            num_classes=2,  # with background
            rpn_anchor_generator=AnchorGenerator(
                tuple((size,) for size in ANCHOR_BINS), (ANCHOR_RATIOS,) * len(ANCHOR_BINS)
            ),
            rpn_pre_nms_top_n_train=2 * PROPOSALS,
            rpn_pre_nms_top_n_test=2 * PROPOSALS,
            rpn_post_nms_top_n_train=PROPOSALS,
            rpn_post_nms_top_n_test=PROPOSALS,
            box_batch_size_per_image=SAMPLED_PROPOSALS,
            box_score_thresh=settings.score_threshold,
            box_nms_thresh=settings.nms_iou_threshold,
            box_detections_per_img=settings.max_detections,
        )
        self.backbone, self.rpn, self.roi_heads = model.backbone, model.rpn, model.roi_heads
        self.rpn.head = Float32Output(self.rpn.head)
        self.roi_heads.box_predictor = Float32Output(self.roi_heads.box_predictor)

    def losses(self, spec: Tensor, boxes: Sequence[Tensor]) -> Losses:
        """Compute the losses of the proposals and of the final boxes, each on a random sample."""
        images, features, targets = _images(spec), self._features(spec), _targets(boxes, label=1)
        self._set_loss_mode(enabled=True)
        proposals, proposal_losses = self.rpn(images, features, targets)
        _, box_losses = self.roi_heads(features, proposals, images.image_sizes, targets)
        return {**proposal_losses, **box_losses}

    def predict(self, spec: Tensor) -> list[ChunkDetections]:
        """Predict boxes with torchvision's NMS and the settings of the study."""
        images, features = _images(spec), self._features(spec)
        self._set_loss_mode(enabled=False)
        proposals, _ = self.rpn(images, features)
        predictions, _ = self.roi_heads(features, proposals, images.image_sizes)
        return [ChunkDetections(item["boxes"], item["scores"]) for item in predictions]

    def _features(self, spec: Tensor) -> OrderedDict[str, Tensor]:
        """Return feature maps in float32, because the anchors have the type of the maps."""
        return OrderedDict(to_float32(self.backbone(spec[:, None])))

    def _set_loss_mode(self, *, enabled: bool) -> None:
        """Make torchvision return losses or boxes, which depends on `training`.

        No layer of these two parts depends on `training`, so losses can also be computed in validation.
        """
        self.rpn.training = self.roi_heads.training = enabled


class Fcos(Network):
    """FCOS: distances, centerness and score at every location."""

    def __init__(self, settings: Detection, size: Size) -> None:
        super().__init__(settings)
        self.model = FCOS(
            _backbone(size),
            num_classes=1,
            anchor_generator=AnchorGenerator(
                tuple((stride,) for stride in STRIDES), ((1.0,),) * len(STRIDES)
            ),
            score_thresh=settings.score_threshold,
            nms_thresh=settings.nms_iou_threshold,
            detections_per_img=settings.max_detections,
        )
        head = self.model.head.regression_head
        head.bbox_reg = nn.Sequential(head.bbox_reg, Exponential())

    def losses(self, spec: Tensor, boxes: Sequence[Tensor]) -> Losses:
        """Compute focal, GIoU and centerness losses."""
        outputs, anchors, sizes = self._outputs(spec)
        losses: Losses = self.model.compute_loss(_targets(boxes, label=0), outputs, anchors, sizes)
        return losses

    def predict(self, spec: Tensor) -> list[ChunkDetections]:
        """Predict boxes with torchvision's NMS and the settings of the study."""
        outputs, anchors, sizes = self._outputs(spec)
        by_level = {name: list(torch.split(value, sizes, dim=1)) for name, value in outputs.items()}
        anchors_by_level = [list(torch.split(item, sizes)) for item in anchors]
        shapes = _images(spec).image_sizes
        predictions = self.model.postprocess_detections(by_level, anchors_by_level, shapes)
        return [ChunkDetections(item["boxes"], item["scores"]) for item in predictions]

    def _outputs(self, spec: Tensor) -> tuple[dict[str, Tensor], list[Tensor], list[int]]:
        """Return the head's outputs by name (B, N, …), the anchors of each chunk (N, 4), and the number in each level."""
        features = list(to_float32(self.model.backbone(spec[:, None])).values())
        outputs = to_float32(self.model.head(features))
        anchors = self.model.anchor_generator(_images(spec), features)
        return outputs, anchors, [item.shape[2] * item.shape[3] for item in features]


class Exponential(nn.Module):
    """Exponential that maps outputs to positive distances, as in the FCOS paper and in MAST.

    torchvision uses ReLU instead, which makes boxes without area, where GIoU has no gradient. From random weights, all
    edges of one side soon become 0 and never recover.
    """

    def forward(self, values: Tensor) -> Tensor:
        """Map any number to a distance in cells, at most about 400."""
        return values.float().clamp(max=MAX_LOG_CELLS).exp()


def _backbone(size: Size) -> BackboneWithFPN:
    """Create a ResNet with a feature pyramid, all trainable, for spectrograms with one channel."""
    resnet, channels = BACKBONES[size]
    body = resnet(weights=None)
    body.conv1 = nn.Conv2d(1, 64, kernel_size=7, stride=2, padding=3, bias=False)
    nn.init.kaiming_normal_(body.conv1.weight, mode="fan_out", nonlinearity="relu")  # as the other layers
    layers = {f"layer{number}": str(number) for number in range(1, 5)}
    widths = [body.fc.in_features // 2**number for number in (3, 2, 1, 0)]
    return BackboneWithFPN(body, layers, widths, channels)


def _images(spec: Tensor) -> ImageList:
    """Convert chunks (B, F, T) to torchvision's image list."""
    return ImageList(spec[:, None], [(spec.shape[1], spec.shape[2])] * len(spec))


def _targets(boxes: Sequence[Tensor], label: int) -> list[dict[str, Tensor]]:
    return [
        {"boxes": item, "labels": torch.full((len(item),), label, dtype=torch.int64, device=item.device)}
        for item in boxes
    ]
