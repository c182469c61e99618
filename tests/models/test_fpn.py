"""The pyramid: sizes, strides and fusion of its levels."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from mast.models.fpn import Pyramid


def random_map(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("levels", "size", "sizes"),
    [
        (4, (32, 128), [(32, 128), (16, 64), (8, 32), (4, 16)]),
        (3, (32, 128), [(32, 128), (16, 64), (8, 32)]),
        (4, (8, 11), [(8, 11), (4, 6), (2, 3), (1, 2)]),
        (1, (8, 11), [(8, 11)]),
    ],
)
def test_each_level_halves_both_axes(
    levels: int, size: tuple[int, int], sizes: list[tuple[int, int]]
) -> None:
    maps = Pyramid(levels).eval()(random_map(1, 256, *size))
    assert [tuple(level.shape) for level in maps] == [(1, 256, *size) for size in sizes]


def test_strides_double_from_level_to_level_on_either_axis() -> None:
    assert Pyramid(4).strides((8, 4)) == [(8, 4), (16, 8), (32, 16), (64, 32)]
    assert Pyramid(3).strides((16, 16)) == [(16, 16), (32, 32), (64, 64)]


def test_fusion_weights_are_never_negative_and_sum_to_one() -> None:
    pyramid = Pyramid(4)
    torch.testing.assert_close(pyramid.fusion_weights(), torch.full((3, 2), 0.5), atol=1e-4, rtol=0)
    pyramid.fusion.data = torch.tensor([[3.0, 1.0], [-2.0, 0.5], [-1.0, -1.0]])
    expected = torch.tensor([[0.75, 0.25], [0.0, 1.0], [0.0, 0.0]])
    torch.testing.assert_close(pyramid.fusion_weights(), expected, atol=3e-4, rtol=0)


def test_levels_equal_a_direct_implementation_of_the_paper() -> None:
    pyramid = Pyramid(3).eval()
    pyramid.fusion.data = torch.tensor([[3.0, 1.0], [1.0, 1.0]])
    fine = random_map(2, 256, 8, 12)
    middle = pyramid.down[0](fine).relu()
    coarse = pyramid.down[1](middle).relu()
    top = pyramid.lateral[2](coarse)
    fused_middle = 0.5 * pyramid.lateral[1](middle) + 0.5 * functional.interpolate(top, scale_factor=2)
    fused_fine = 0.75 * pyramid.lateral[0](fine) + 0.25 * functional.interpolate(fused_middle, scale_factor=2)
    for level, smooth, fused in zip(
        pyramid(fine), pyramid.smoothing, (fused_fine, fused_middle, top), strict=True
    ):
        torch.testing.assert_close(level, smooth(fused), atol=1e-3, rtol=1e-3)


def test_every_parameter_gets_a_gradient() -> None:
    pyramid = Pyramid(4)
    maps = pyramid(random_map(2, 256, 16, 16))
    sum((level * torch.linspace(-1, 1, 256)[:, None, None]).square().sum() for level in maps).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in pyramid.parameters())
