"""Conversion of predictions to boxes."""

from __future__ import annotations

import pytest
import torch
from torchvision.ops import batched_nms

from mast.box_ops import box_iou
from mast.models.anchor_points import decode_boxes, encode_boxes, make_anchor_points
from mast.models.head import HeadOutput
from mast.models.postprocess import CANDIDATES, VOTING_IOU, box_voting, decode_detections, scores

LOCATIONS = make_anchor_points([(8, 4), (4, 2)], [(8, 4), (16, 8)])  # 64 frames × 16 bins, 40 locations


def predictions(boxes_by_location: list[dict[int, tuple[list[float], float]]]) -> HeadOutput:
    """Return predictions with a box and a score at the given locations, and background elsewhere."""
    logits = torch.full((len(boxes_by_location), 40), -30.0)
    distances = torch.ones(len(boxes_by_location), 40, 4)
    for example, boxes in enumerate(boxes_by_location):
        for number, (box, score) in boxes.items():
            logits[example, number] = torch.tensor(score).logit()
            distances[example, number] = encode_boxes(
                torch.tensor(box), LOCATIONS.centres[number], LOCATIONS.strides[number]
            )
    return HeadOutput(logits, torch.full_like(logits, 30.0), distances, LOCATIONS)


def test_background_predictions_give_no_boxes() -> None:
    detections = decode_detections(predictions([{}, {}]), 0.05, 100, 0.5)
    assert [chunk.boxes.shape for chunk in detections] == [(0, 4), (0, 4)]
    assert [chunk.scores.shape for chunk in detections] == [(0,), (0,)]


def test_a_score_is_the_product_of_both_probabilities() -> None:
    output = predictions([{}])
    output.logits[0, 0], output.centerness[0, 0] = torch.tensor([0.9, 0.4]).logit()
    assert scores(output)[0, 0].item() == pytest.approx(0.36)


def test_boxes_are_sorted_by_score_and_duplicates_are_removed() -> None:
    call, duplicate, other = [8.0, 4, 24, 8], [8.0, 4, 32, 8], [40.0, 1, 50, 2]  # IoU of the first two: 2 / 3
    output = predictions([{3: (call, 0.6), 30: (duplicate, 0.8), 33: (other, 0.7)}, {7: (call, 0.3)}])
    first, second = decode_detections(output, 0.05, 100, 0.5)
    torch.testing.assert_close(first.boxes, torch.tensor([duplicate, other]))
    torch.testing.assert_close(first.scores, torch.tensor([0.8, 0.7]))
    torch.testing.assert_close(second.boxes, torch.tensor([call]))
    kept_both = decode_detections(output, 0.05, 100, 0.9)[0]
    torch.testing.assert_close(kept_both.boxes, torch.tensor([duplicate, other, call]))


def test_close_duplicates_vote_on_the_edges_whatever_the_score_threshold() -> None:
    best, close, far = [8.0, 4, 24, 8], [8.0, 4, 20, 8], [8.0, 4, 34, 8]  # IoU with the best: 0.75, 0.62
    output = predictions([{3: (best, 0.6), 30: (close, 0.2), 33: (far, 0.5)}])
    for score_threshold in (0.05, 0.3):
        detections = decode_detections(output, score_threshold, 100, 0.5)[0]
        torch.testing.assert_close(detections.boxes, torch.tensor([[8.0, 4, 23, 8]]))
        torch.testing.assert_close(detections.scores, torch.tensor([0.6]))
    both = decode_detections(output, 0.15, 100, 0.8)[0]  # with this NMS threshold they are no duplicates
    torch.testing.assert_close(both.boxes, torch.tensor([best, far, close]))


def test_voting_without_boxes_is_empty_and_a_box_of_weight_zero_stays_unchanged() -> None:
    assert box_voting(torch.zeros(0, 4), torch.zeros(0, 4), torch.zeros(0), 0.7).shape == (0, 4)
    box = torch.tensor([[8.0, 4, 24, 8]])
    torch.testing.assert_close(box_voting(box, box, torch.zeros(1), 0.7), box)


def test_low_scores_are_removed_and_max_detections_limits_the_boxes() -> None:
    output = predictions(
        [{number: ([8.0 * number, 0, 8.0 * number + 6, 4], 0.9 - number / 10) for number in range(8)}]
    )
    assert decode_detections(output, 0.45, 100, 0.5)[0].scores.tolist() == pytest.approx(
        [0.9, 0.8, 0.7, 0.6, 0.5]
    )
    assert decode_detections(output, 0.45, 2, 0.5)[0].scores.tolist() == pytest.approx([0.9, 0.8])


def test_boxes_are_clipped_to_the_grid_and_boxes_outside_are_removed() -> None:
    over, outside = [-10.0, -3, 70, 9], [70.0, 2, 90, 5]
    detections = decode_detections(predictions([{0: (over, 0.9), 1: (outside, 0.8)}]), 0.05, 100, 0.5)[0]
    torch.testing.assert_close(detections.boxes, torch.tensor([[0.0, 0, 64, 9]]))


def test_a_batch_equals_plain_nms_over_all_boxes() -> None:
    rng = torch.Generator().manual_seed(0)
    locations = make_anchor_points([(64, 32)], [(8, 4)])
    shape = (3, 2048)
    logits, centerness = torch.randn(2, *shape, generator=rng)
    output = HeadOutput(logits, centerness, 2 + torch.rand(*shape, 4, generator=rng), locations)
    detections = decode_detections(output, 0.15, 10_000, 0.3)
    boxes = decode_boxes(output.distances, locations.centres, locations.strides)
    boxes = torch.minimum(boxes.clamp(min=0), torch.tensor([512.0, 128, 512, 128]))
    for example, chunk in enumerate(detections):
        score = scores(output)[example]
        candidates = score.argsort(descending=True)[:CANDIDATES]
        best = candidates[score[candidates] >= 0.15]
        kept = best[batched_nms(boxes[example][best], score[best], torch.zeros(len(best)), 0.3)]
        assert torch.equal(chunk.scores, score[kept])
        overlap = box_iou(boxes[example][kept], boxes[example][kept]).fill_diagonal_(0)
        assert 0 < len(kept) < len(best) and overlap.max() <= 0.3
        chunk_boxes = boxes[example]
        overlaps = box_iou(chunk_boxes[kept], chunk_boxes[candidates])
        near = [candidates[row >= VOTING_IOU] for row in overlaps]
        means = [(chunk_boxes[rows] * score[rows][:, None]).sum(dim=0) / score[rows].sum() for rows in near]
        torch.testing.assert_close(chunk.boxes, torch.stack(means), rtol=1e-5, atol=1e-4)
        assert max(len(rows) for rows in near) > 1
