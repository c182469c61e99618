"""Assignment, losses and detector together: a detector overfits two chunks."""

from __future__ import annotations

import torch

from mast.box_ops import box_iou
from mast.models.postprocess import decode_detections
from mast.training.assignment import assign
from mast.training.contrastive import ProjectionHead, contrastive_loss, sample_regions
from mast.training.losses import detection_loss
from tests.models.small_detector import detector


def test_a_detector_trained_on_two_chunks_predicts_their_boxes() -> None:
    rng = torch.Generator().manual_seed(0)
    boxes = [torch.tensor([[6.0, 20, 30, 44], [36, 88, 60, 116]]), torch.tensor([[10.0, 70, 50, 110]])]
    spec = 0.3 * torch.randn(2, 128, 64, generator=rng)
    for chunk, chunk_boxes in zip(spec, boxes, strict=True):
        for start, low, end, high in chunk_boxes.int().tolist():
            chunk[low:high, start:end] += 2
    model, projection = detector("conv", levels=2), ProjectionHead()
    optimiser = torch.optim.AdamW([*model.parameters(), *projection.parameters()], lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 40)
    for _ in range(40):
        features = model.features(spec)
        output = model.predict(features)
        terms = detection_loss(output, assign(boxes, output.locations), torch.ones(2), "quality")
        regions = sample_regions(boxes, (64, 128), [rng, rng])
        contrastive = contrastive_loss(features, regions, model.adapter.stride, projection, 0.1)
        optimiser.zero_grad()
        (terms["classification"] + terms["giou"] + terms["centerness"] + 0.5 * contrastive).backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        detections = decode_detections(model(spec), 0.2, 10, 0.5)
    for item, chunk_boxes in zip(detections, boxes, strict=True):
        assert (box_iou(chunk_boxes, item.boxes[: len(chunk_boxes)]).amax(dim=1) > 0.5).all()
