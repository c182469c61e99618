"""From predictions to boxes."""

from __future__ import annotations

import pytest
import torch
from torchvision.ops import batched_nms

from mast.boxes import iou
from mast.models.decoding import CANDIDATES, find_boxes, scores
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
    call, again, other = [8.0, 4, 24, 8], [8.0, 4, 26, 8], [40.0, 1, 50, 2]
    output = saying([{3: (call, 0.6), 30: (again, 0.8), 33: (other, 0.7)}, {7: (call, 0.3)}])
    first, second = find_boxes(output, 0.05, 100, 0.5)
    torch.testing.assert_close(first.boxes, torch.tensor([again, other]))
    torch.testing.assert_close(first.scores, torch.tensor([0.8, 0.7]))
    torch.testing.assert_close(second.boxes, torch.tensor([call]))
    kept_both = find_boxes(output, 0.05, 100, 0.9)[0]
    torch.testing.assert_close(kept_both.boxes, torch.tensor([again, other, call]))


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
    output = HeadOutput(logits, centerness, torch.rand(*shape, 4, generator=rng), locations)
    found = find_boxes(output, 0.15, 10_000, 0.3)
    boxes = decode(output.distances, locations.centres, locations.strides)
    boxes = torch.minimum(boxes.clamp(min=0), torch.tensor([512.0, 128, 512, 128]))
    for example, item in enumerate(found):
        score = scores(output)[example]
        best = score.argsort(descending=True)[:CANDIDATES]
        best = best[score[best] >= 0.15]
        kept = best[batched_nms(boxes[example][best], score[best], torch.zeros(len(best)), 0.3)]
        torch.testing.assert_close(item.boxes, boxes[example][kept])
        assert torch.equal(item.scores, score[kept])
        overlap = iou(item.boxes, item.boxes).fill_diagonal_(0)
        assert 0 < len(kept) < len(best) and overlap.max() <= 0.3
