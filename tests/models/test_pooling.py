"""One feature vector per box."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision.ops import roi_align

from mast.models.pooling import pool_boxes

STRIDE = (8, 4)


def ramps(batch: int = 1) -> torch.Tensor:
    """Return a map of 16 × 8 cells whose two channels are a cell's time and frequency. → (B, 2, 8, 16)"""
    time = (torch.arange(16) + 0.5).mul(8).expand(8, 16)
    frequency = (torch.arange(8) + 0.5).mul(4)[:, None].expand(8, 16)
    return torch.stack([time, frequency]).expand(batch, -1, -1, -1).clone()


def test_no_boxes_give_no_vectors_and_no_gradient() -> None:
    features = ramps(2).requires_grad_()
    pooled = pool_boxes(features, [torch.zeros(0, 4), torch.zeros(0, 4)], STRIDE)
    assert pooled.shape == (0, 2)
    pooled.sum().backward()
    assert features.grad is not None and not features.grad.any()


def test_vectors_are_in_the_order_of_chunks_and_boxes() -> None:
    features = torch.arange(3.0)[:, None, None, None].expand(3, 2, 8, 16)
    box = torch.tensor([[8.0, 4, 100, 20]])
    pooled = pool_boxes(features, [box, torch.zeros(0, 4), box.repeat(2, 1)], STRIDE)
    torch.testing.assert_close(pooled, torch.tensor([[0.0, 0], [2, 2], [2, 2]]))


def test_a_box_over_two_cells_gets_their_mean() -> None:
    features = torch.zeros(1, 1, 8, 16)
    features[0, 0, 2, 3], features[0, 0, 2, 4] = 1.0, 2.0
    assert pool_boxes(features, [torch.tensor([[24.0, 8, 40, 12]])], STRIDE).item() == 1.5


@given(st.tuples(st.floats(4, 123), st.floats(2, 29), st.floats(4, 123), st.floats(2, 29)))
def test_the_mean_of_positions_is_the_centre_of_the_box(numbers: tuple[float, float, float, float]) -> None:
    (start, end), (low, high) = sorted(numbers[0::2]), sorted(numbers[1::2])
    end, high = max(end, start + 0.01), max(high, low + 0.01)  # also far smaller than a cell
    pooled = pool_boxes(ramps(), [torch.tensor([[start, low, end, high]])], STRIDE)
    expected = torch.tensor([[(start + end) / 2, (low + high) / 2]])
    torch.testing.assert_close(pooled, expected, atol=1e-2, rtol=0)


@given(st.integers(0, 2**16), st.integers(0, 5))
def test_the_mean_equals_roi_align(seed: int, count: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    features = torch.randn(2, 3, 8, 16, generator=rng)
    edges = torch.rand(2, count, 2, 2, generator=rng).sort(dim=2).values * torch.tensor([128.0, 32])
    boxes = list(edges.flatten(2))  # (start, low, end, high)
    expected = roi_align(
        features,
        [chunk_boxes / torch.tensor([8, 4, 8, 4]) for chunk_boxes in boxes],
        output_size=(1, 1),
        aligned=True,
    )
    torch.testing.assert_close(pool_boxes(features, boxes, STRIDE), expected.flatten(1), atol=1e-5, rtol=1e-4)


def test_half_precision_maps_are_pooled_in_float32() -> None:
    assert pool_boxes(ramps().bfloat16(), [torch.tensor([[0.0, 0, 8, 4]])], STRIDE).dtype == torch.float32
