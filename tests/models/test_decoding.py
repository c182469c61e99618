"""From predictions to boxes."""

from __future__ import annotations

import pytest
import torch
from torchvision.ops import batched_nms

from mast.boxes import iou
from mast.models.decoding import CANDIDATES, VOTING_IOU, find_boxes, scores, voted
from mast.models.head import HeadOutput
from mast.models.locations import decode, encode, lattice

LOCATIONS = lattice([(8, 4), (4, 2)], [(8, 4), (16, 8)])  # 64 frames × 16 bins, 40 locations


def saying(said: list[dict[int, tuple[list[float], float]]]) -> HeadOutput:
    """Predictions of nothing, but for some locations a box and a score."""
    logits = torch.full((len(said), 40), -30.0)
    distances = torch.ones(len(said), 40, 4)
    for example, boxes in enumerate(said):
        for number, (box, score) in boxes.items():
            logits[example, number] = torch.tensor(score).logit()
            distances[example, number] = encode(
                torch.tensor(box), LOCATIONS.centres[number], LOCATIONS.strides[number]
            )
    return HeadOutput(logits, torch.full_like(logits, 30.0), distances, LOCATIONS)


def test_where_nothing_is_said_nothing_is_found() -> None:
    found = find_boxes(saying([{}, {}]), 0.05, 100, 0.5)
    assert [item.boxes.shape for item in found] == [(0, 4), (0, 4)]
    assert [item.scores.shape for item in found] == [(0,), (0,)]


def test_a_score_is_the_product_of_both_probabilities() -> None:
    output = saying([{}])
    output.logits[0, 0], output.centerness[0, 0] = torch.tensor([0.9, 0.4]).logit()
    assert scores(output)[0, 0].item() == pytest.approx(0.36)


def test_boxes_come_best_first_and_duplicates_go() -> None:
    call, again, other = [8.0, 4, 24, 8], [8.0, 4, 32, 8], [40.0, 1, 50, 2]  # IoU of the first two: 2 / 3
    output = saying([{3: (call, 0.6), 30: (again, 0.8), 33: (other, 0.7)}, {7: (call, 0.3)}])
    first, second = find_boxes(output, 0.05, 100, 0.5)
    torch.testing.assert_close(first.boxes, torch.tensor([again, other]))
    torch.testing.assert_close(first.scores, torch.tensor([0.8, 0.7]))
    torch.testing.assert_close(second.boxes, torch.tensor([call]))
    kept_both = find_boxes(output, 0.05, 100, 0.9)[0]
    torch.testing.assert_close(kept_both.boxes, torch.tensor([again, other, call]))


def test_close_duplicates_say_together_where_the_edges_are_whatever_the_least_score() -> None:
    best, close, far = [8.0, 4, 24, 8], [8.0, 4, 20, 8], [8.0, 4, 34, 8]  # IoU with the best: 0.75, 0.62
    output = saying([{3: (best, 0.6), 30: (close, 0.2), 33: (far, 0.5)}])
    for min_score in (0.05, 0.3):
        found = find_boxes(output, min_score, 100, 0.5)[0]
        torch.testing.assert_close(found.boxes, torch.tensor([[8.0, 4, 23, 8]]))
        torch.testing.assert_close(found.scores, torch.tensor([0.6]))
    both = find_boxes(output, 0.15, 100, 0.8)[0]  # here they are no duplicates
    torch.testing.assert_close(both.boxes, torch.tensor([best, far, close]))


def test_no_box_has_no_edges_and_a_box_of_weight_zero_keeps_its_own() -> None:
    assert voted(torch.zeros(0, 4), torch.zeros(0, 4), torch.zeros(0), 0.7).shape == (0, 4)
    box = torch.tensor([[8.0, 4, 24, 8]])
    torch.testing.assert_close(voted(box, box, torch.zeros(1), 0.7), box)


def test_low_scores_go_and_only_so_many_boxes_stay() -> None:
    output = saying(
        [{number: ([8.0 * number, 0, 8.0 * number + 6, 4], 0.9 - number / 10) for number in range(8)}]
    )
    assert find_boxes(output, 0.45, 100, 0.5)[0].scores.tolist() == pytest.approx([0.9, 0.8, 0.7, 0.6, 0.5])
    assert find_boxes(output, 0.45, 2, 0.5)[0].scores.tolist() == pytest.approx([0.9, 0.8])


def test_boxes_are_cut_to_the_grid_and_those_outside_it_go() -> None:
    over, outside = [-10.0, -3, 70, 9], [70.0, 2, 90, 5]
    found = find_boxes(saying([{0: (over, 0.9), 1: (outside, 0.8)}]), 0.05, 100, 0.5)[0]
    torch.testing.assert_close(found.boxes, torch.tensor([[0.0, 0, 64, 9]]))


def test_a_batch_equals_a_plain_suppression_over_everything() -> None:
    rng = torch.Generator().manual_seed(0)
    locations = lattice([(64, 32)], [(8, 4)])
    shape = (3, 2048)
    logits, centerness = torch.randn(2, *shape, generator=rng)
    output = HeadOutput(logits, centerness, 2 + torch.rand(*shape, 4, generator=rng), locations)
    found = find_boxes(output, 0.15, 10_000, 0.3)
    boxes = decode(output.distances, locations.centres, locations.strides)
    boxes = torch.minimum(boxes.clamp(min=0), torch.tensor([512.0, 128, 512, 128]))
    for example, item in enumerate(found):
        score = scores(output)[example]
        candidates = score.argsort(descending=True)[:CANDIDATES]
        best = candidates[score[candidates] >= 0.15]
        kept = best[batched_nms(boxes[example][best], score[best], torch.zeros(len(best)), 0.3)]
        assert torch.equal(item.scores, score[kept])
        overlap = iou(boxes[example][kept], boxes[example][kept]).fill_diagonal_(0)
        assert 0 < len(kept) < len(best) and overlap.max() <= 0.3
        own = boxes[example]
        near = [candidates[row >= VOTING_IOU] for row in iou(own[kept], own[candidates])]
        means = [(own[rows] * score[rows][:, None]).sum(dim=0) / score[rows].sum() for rows in near]
        torch.testing.assert_close(item.boxes, torch.stack(means), rtol=1e-5, atol=1e-4)
        assert max(len(rows) for rows in near) > 1
