"""The box contrastive loss compared with the paper's formula, and the boxes it compares."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.box_ops import box_area, box_iou
from mast.models.pooling import pool_boxes
from mast.training.contrastive import (
    NEGATIVES,
    POSITIVES,
    ProjectionHead,
    box_contrastive,
    contrastive_loss,
    jitter_boxes,
    sample_background_boxes,
    sample_regions,
)
from tests.training.builders import BINS, FRAMES, box_lists

EXTENT = (FRAMES, BINS)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def naive_loss(
    events: list[list[float]], positives: list[list[list[float]]], negatives: list[list[list[float]]]
) -> float:
    """Compute the paper's formula: z_i, its P_i, and the N of its chunk."""
    total = 0.0
    for z, own_positives, own_negatives in zip(events, positives, negatives, strict=True):
        near, far = (
            sum(math.exp(sum(a * b for a, b in zip(z, point, strict=True)) / 0.1) for point in points)
            for points in (own_positives, own_negatives)
        )
        total -= math.log(near / (near + far))
    return total / max(1, len(events))


def features(batch: int) -> torch.Tensor:
    return torch.randn(batch, 256, 32, 32, generator=rng()).requires_grad_()


@pytest.mark.parametrize("batch", [1, 3])
def test_without_boxes_the_loss_is_zero_and_so_are_all_gradients(batch: int) -> None:
    projection, maps = ProjectionHead(), features(batch)
    regions = sample_regions([torch.zeros(0, 4)] * batch, EXTENT, [rng()] * batch)
    loss = contrastive_loss(maps, regions, (8, 4), projection, 0.1)
    assert loss.item() == 0
    loss.backward()
    for values in (maps, *projection.parameters()):
        assert values.grad is not None and not values.grad.any()


def test_one_event_with_one_positive_and_one_negative_by_hand() -> None:
    event, positive, negative = torch.eye(2)[:1], torch.eye(2)[None, :1], torch.eye(2)[1:]
    same_chunk, other_chunk = torch.tensor([[True]]), torch.tensor([[False]])
    expected = -math.log(math.exp(10) / (math.exp(10) + 1))
    assert box_contrastive(event, positive, negative, same_chunk, 0.1).item() == pytest.approx(
        expected, abs=1e-6
    )
    assert box_contrastive(event, negative[None], event, same_chunk, 0.1).item() == pytest.approx(
        10, abs=1e-4
    )
    assert box_contrastive(event, positive, negative, other_chunk, 0.1).item() == 0


@given(st.integers(0, 5), st.integers(1, 3), st.integers(0, 6), st.integers(0, 1000))
def test_the_loss_equals_the_formula(events: int, positives: int, negatives: int, seed: int) -> None:
    generator = rng(seed)

    def points(*shape: int) -> torch.Tensor:
        values = torch.randn(*shape, 4, generator=generator, dtype=torch.float64)
        return torch.nn.functional.normalize(values, dim=-1)

    z, near, far = points(events), points(events, positives), points(negatives)
    same_chunk = torch.rand(events, negatives, generator=generator) < 0.5
    expected = naive_loss(z.tolist(), near.tolist(), [far[row].tolist() for row in same_chunk])
    assert box_contrastive(z, near, far, same_chunk, 0.1).item() == pytest.approx(expected, abs=1e-9)


def test_a_batch_is_pooled_projected_and_compared_chunk_by_chunk() -> None:
    projection, maps = ProjectionHead(), features(3)
    boxes = [
        torch.tensor([[10.0, 5, 60, 20], [100, 60, 130, 66]]),
        torch.zeros(0, 4),
        torch.tensor([[0.0, 0, 50, 100]]),
    ]
    regions = sample_regions(boxes, EXTENT, [rng(7)] * 3)
    loss = contrastive_loss(maps, regions, (8, 4), projection, 0.1)
    events, near, far = [], [], []
    for chunk in range(3):
        one = maps[chunk : chunk + 1]
        z, positives, negatives = (
            projection(pool_boxes(one, [part[chunk]], (8, 4))).tolist()
            for part in (regions.events, regions.positives, regions.negatives)
        )
        events += z
        near += [positives[number * POSITIVES : (number + 1) * POSITIVES] for number in range(len(z))]
        far += [negatives] * len(z)
    assert loss.item() == pytest.approx(naive_loss(events, near, far), rel=1e-4)
    loss.backward()
    assert maps.grad is not None and maps.grad.isfinite().all()
    assert maps.grad[0].any() and not maps.grad[1].any() and maps.grad[2].any()
    assert all(p.grad is not None and p.grad.any() for p in projection.parameters())


def test_projections_have_length_one() -> None:
    points = ProjectionHead()(torch.randn(5, 256, generator=rng()))
    assert points.shape == (5, 128)
    torch.testing.assert_close(points.norm(dim=1), torch.ones(5))


@given(box_lists(6), st.integers(0, 1000))
def test_no_edge_is_jittered_by_more_than_a_fifth_of_its_side(boxes: torch.Tensor, seed: int) -> None:
    moved = jitter_boxes(boxes, EXTENT, rng(seed))
    sides = (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)
    assert ((moved - boxes).abs() <= 0.2 * sides + 1e-9).all()
    assert (moved >= 0).all() and (moved[:, 2] <= FRAMES).all() and (moved[:, 3] <= BINS).all()
    assert (box_area(moved) > 0).all()


@settings(max_examples=60)
@given(box_lists(6), st.integers(0, 1000))
def test_background_boxes_are_in_the_grid_and_hardly_overlap_an_event(boxes: torch.Tensor, seed: int) -> None:
    sampled = sample_background_boxes(boxes, EXTENT, rng(seed))
    assert len(sampled) <= NEGATIVES
    assert (box_iou(sampled, boxes) < 0.1).all()
    assert (sampled >= -1e-9).all() and (sampled[:, 2:] <= torch.tensor(EXTENT) + 1e-9).all()


def test_a_chunk_with_enough_background_has_32_negatives_in_the_shapes_of_its_events() -> None:
    boxes = torch.tensor([[10.0, 5, 60, 20], [100, 60, 130, 66]])
    sampled = sample_background_boxes(boxes, EXTENT, rng())
    sides = {tuple(side) for side in (sampled[:, 2:] - sampled[:, :2]).round().tolist()}
    assert len(sampled) == 32
    assert sides == {(50.0, 15.0), (30.0, 6.0)}


def test_the_inside_of_a_long_event_is_not_background() -> None:
    boxes = torch.tensor([[0.0, 0, 256, 128], [10, 10, 20, 20]])
    assert sample_background_boxes(boxes, EXTENT, rng()).shape == (0, 4)


def test_the_same_generator_samples_the_same_boxes() -> None:
    boxes = [torch.tensor([[10.0, 5, 60, 20]])]
    first, again, other = (sample_regions(boxes, EXTENT, [rng(seed)]) for seed in (3, 3, 4))
    assert torch.equal(first.positives[0], again.positives[0]) and torch.equal(
        first.negatives[0], again.negatives[0]
    )
    assert not torch.equal(first.positives[0], other.positives[0])


def test_parts_of_a_batch_with_its_divisor_add_up_to_the_whole() -> None:
    projection, maps = ProjectionHead(), features(3)
    boxes = [
        torch.tensor([[10.0, 5, 60, 20], [100, 60, 130, 66]]),
        torch.zeros(0, 4),
        torch.tensor([[0.0, 0, 50, 100]]),
    ]
    regions = sample_regions(boxes, EXTENT, [rng(1), rng(2), rng(3)]).to(torch.device("cpu"))
    whole = contrastive_loss(maps, regions, (8, 4), projection, 0.1)
    parts = [
        contrastive_loss(maps[part], regions[part], (8, 4), projection, 0.1, torch.tensor(3.0))
        for part in (slice(0, 1), slice(1, 3))
    ]
    assert sum(part.item() for part in parts) == pytest.approx(whole.item(), rel=1e-5)


def test_mixed_precision_does_not_round_the_loss() -> None:
    projection, maps = ProjectionHead(), features(1)
    regions = sample_regions([torch.tensor([[10.0, 5, 60, 20], [100, 60, 130, 66]])], EXTENT, [rng(1)])
    exact = contrastive_loss(maps, regions, (8, 4), projection, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = contrastive_loss(maps, regions, (8, 4), projection, 0.1)
    assert mixed.dtype == torch.float32
    assert mixed.item() != mixed.bfloat16().item()  # has more digits than bf16
    assert mixed.item() == pytest.approx(exact.item(), rel=0.1)
