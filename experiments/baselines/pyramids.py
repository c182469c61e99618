"""Faster R-CNN and FCOS on a ResNet with a feature pyramid, torchvision's, from random weights.

Their parts are called one by one, without torchvision's own transform: pictures are neither resized nor scaled.
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

from experiments.baselines.network import InFull, Losses, Network, Size, in_full
from mast.config import Detection
from mast.models.decoding import Detections

BACKBONES = {"tiny": (resnet18, 64), "small": (resnet34, 128), "base": (resnet50, 256)}
"""Backbone and channels of its pyramid beside a MAST of each size. The paper's is the last; the others cost about as much
a step as the MAST of their size does."""

STRIDES = (4, 8, 16, 32, 64)
"""Cells of the pyramid's levels (P2–P6), in frames and bins. From P3 on, as FCOS has it for photographs, one call in
eight would lie between the locations that may learn it; from P2 on it is one in fifteen."""

ANCHOR_BINS = (8, 16, 32, 64, 128)
"""Roots of the anchors' areas, finest level first; torchvision's are four times that, for photographs."""

ANCHOR_RATIOS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Heights over widths: from a long whistle to a click. All but one in twenty boxes then have an anchor of IoU 0.5."""

MAX_LOG_CELLS = 6.0

PROPOSALS, DRAWN = 500, 64
"""Regions of a chunk that are looked into, and of these the ones learned from; torchvision's 2000 and 512 are for
photographs of sixteen times as many pixels, and RoIAlign learns slowly on a CPU."""


class FasterRcnn(Network):
    """Region proposals, then RoIAlign and two layers for each."""

    def __init__(self, settings: Detection, size: Size) -> None:
        super().__init__(settings)
        model = FasterRCNN(
            _backbone(size),
            num_classes=2,  # background is one
            rpn_anchor_generator=AnchorGenerator(
                tuple((size,) for size in ANCHOR_BINS), (ANCHOR_RATIOS,) * len(ANCHOR_BINS)
            ),
            rpn_pre_nms_top_n_train=2 * PROPOSALS,
            rpn_pre_nms_top_n_test=2 * PROPOSALS,
            rpn_post_nms_top_n_train=PROPOSALS,
            rpn_post_nms_top_n_test=PROPOSALS,
            box_batch_size_per_image=DRAWN,
            box_score_thresh=settings.min_score,
            box_nms_thresh=settings.nms_iou,
            box_detections_per_img=settings.max_boxes,
        )
        self.backbone, self.rpn, self.roi_heads = model.backbone, model.rpn, model.roi_heads
        self.rpn.head = InFull(self.rpn.head)
        self.roi_heads.box_predictor = InFull(self.roi_heads.box_predictor)

    def losses(self, spec: Tensor, boxes: Sequence[Tensor]) -> Losses:
        """Losses of the proposals and of the boxes made of them, each on examples drawn at random."""
        images, features, targets = _images(spec), self._features(spec), _targets(boxes, label=1)
        self._answer_with_losses(yes=True)
        proposals, of_proposals = self.rpn(images, features, targets)
        _, of_boxes = self.roi_heads(features, proposals, images.image_sizes, targets)
        return {**of_proposals, **of_boxes}

    def find(self, spec: Tensor) -> list[Detections]:
        """Boxes as torchvision suppresses them, by this study's settings."""
        images, features = _images(spec), self._features(spec)
        self._answer_with_losses(yes=False)
        proposals, _ = self.rpn(images, features)
        found, _ = self.roi_heads(features, proposals, images.image_sizes)
        return [Detections(item["boxes"], item["scores"]) for item in found]

    def _features(self, spec: Tensor) -> OrderedDict[str, Tensor]:
        """Maps in float32: anchors take their numbers' type from them."""
        return OrderedDict(in_full(self.backbone(spec[:, None])))

    def _answer_with_losses(self, *, yes: bool) -> None:
        """Boxes or losses: torchvision goes by `training`. No layer of these two parts does, so validation has losses."""
        self.rpn.training = self.roi_heads.training = yes


class Fcos(Network):
    """Distances, centerness and score at every location."""

    def __init__(self, settings: Detection, size: Size) -> None:
        super().__init__(settings)
        self.model = FCOS(
            _backbone(size),
            num_classes=1,
            anchor_generator=AnchorGenerator(
                tuple((stride,) for stride in STRIDES), ((1.0,),) * len(STRIDES)
            ),
            score_thresh=settings.min_score,
            nms_thresh=settings.nms_iou,
            detections_per_img=settings.max_boxes,
        )
        head = self.model.head.regression_head
        head.bbox_reg = nn.Sequential(head.bbox_reg, Exponential())

    def losses(self, spec: Tensor, boxes: Sequence[Tensor]) -> Losses:
        """Focal, GIoU and centerness losses."""
        outputs, anchors, sizes = self._answer(spec)
        losses: Losses = self.model.compute_loss(_targets(boxes, label=0), outputs, anchors, sizes)
        return losses

    def find(self, spec: Tensor) -> list[Detections]:
        """Boxes as torchvision suppresses them, by this study's settings."""
        outputs, anchors, sizes = self._answer(spec)
        by_level = {name: list(torch.split(value, sizes, dim=1)) for name, value in outputs.items()}
        anchors_by_level = [list(torch.split(own, sizes)) for own in anchors]
        shapes = _images(spec).image_sizes
        found = self.model.postprocess_detections(by_level, anchors_by_level, shapes)
        return [Detections(item["boxes"], item["scores"]) for item in found]

    def _answer(self, spec: Tensor) -> tuple[dict[str, Tensor], list[Tensor], list[int]]:
        """What the head says, by name (B, N, …); the locations of each chunk (N, 4); how many there are in each level."""
        features = list(in_full(self.model.backbone(spec[:, None])).values())
        outputs = in_full(self.model.head(features))
        anchors = self.model.anchor_generator(_images(spec), features)
        return outputs, anchors, [item.shape[2] * item.shape[3] for item in features]


class Exponential(nn.Module):
    """Distances above 0, as FCOS first had them and MAST has.

    ReLU, which torchvision has instead, makes boxes without area, where GIoU has no slope. From random weights all edges
    of one side soon end there and never come back.
    """

    def forward(self, values: Tensor) -> Tensor:
        """Any number to a distance in cells; none is longer than 400."""
        return values.float().clamp(max=MAX_LOG_CELLS).exp()


def _backbone(size: Size) -> BackboneWithFPN:
    """A ResNet with a pyramid in which everything learns, for pictures of one channel."""
    resnet, channels = BACKBONES[size]
    body = resnet(weights=None)
    body.conv1 = nn.Conv2d(1, 64, kernel_size=7, stride=2, padding=3, bias=False)
    nn.init.kaiming_normal_(body.conv1.weight, mode="fan_out", nonlinearity="relu")  # as the others
    layers = {f"layer{number}": str(number) for number in range(1, 5)}
    widths = [body.fc.in_features // 2**number for number in (3, 2, 1, 0)]
    return BackboneWithFPN(body, layers, widths, channels)


def _images(spec: Tensor) -> ImageList:
    """Chunks (B, F, T) as torchvision wants them."""
    return ImageList(spec[:, None], [(spec.shape[1], spec.shape[2])] * len(spec))


def _targets(boxes: Sequence[Tensor], label: int) -> list[dict[str, Tensor]]:
    return [
        {"boxes": own, "labels": torch.full((len(own),), label, dtype=torch.int64, device=own.device)}
        for own in boxes
    ]
