"""Assignment, losses and detector together: they pull the same way."""

from __future__ import annotations

import torch

from mast.boxes import iou
from mast.models.decoding import find_boxes
from mast.training.assignment import assign
from mast.training.contrastive import Projection, contrastive_loss, draw_regions
from mast.training.losses import detection_loss
from tests.models.small_detector import detector


def test_a_detector_shown_two_chunks_again_and_again_finds_their_boxes() -> None:
    rng = torch.Generator().manual_seed(0)
    boxes = [torch.tensor([[6.0, 20, 30, 44], [36, 88, 60, 116]]), torch.tensor([[10.0, 70, 50, 110]])]
    spec = 0.3 * torch.randn(2, 128, 64, generator=rng)
    for chunk, own in zip(spec, boxes, strict=True):
        for start, low, end, high in own.int().tolist():
            chunk[low:high, start:end] += 2
    model, projection = detector("conv", levels=2), Projection()
    optimiser = torch.optim.AdamW([*model.parameters(), *projection.parameters()], lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 40)
    for _ in range(40):
        features = model.features(spec)
        output = model.predict(features)
        terms = detection_loss(output, assign(boxes, output.locations), torch.ones(2), "quality")
        regions = draw_regions(boxes, (64, 128), [rng, rng])
        likeness = contrastive_loss(features, regions, model.adapter.stride, projection, 0.1)
        optimiser.zero_grad()
        (terms["classification"] + terms["giou"] + terms["centerness"] + 0.5 * likeness).backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        found = find_boxes(model(spec), min_score=0.2, max_boxes=10, nms_iou=0.5)
    for item, own in zip(found, boxes, strict=True):
        assert (iou(own, item.boxes[: len(own)]).amax(dim=1) > 0.5).all()
