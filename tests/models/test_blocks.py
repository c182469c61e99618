"""Convolution blocks of the detector, compared with the paper."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from mast.models.blocks import (
    ConvNorm,
    LevelConvNorm,
    ResidualBlock,
    SeparableConv,
    SmoothingConv,
    convolution,
)


def random_map(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_a_convolution_keeps_the_size_or_halves_it_rounding_up() -> None:
    assert convolution(2, 3, (1, 3))(torch.zeros(1, 2, 5, 7)).shape == (1, 3, 5, 7)
    assert convolution(2, 3, step=2)(torch.zeros(1, 2, 5, 8)).shape == (1, 3, 3, 4)


def test_a_residual_block_with_zero_weights_keeps_a_positive_map() -> None:
    for inner in (None, 2):
        block = ResidualBlock(4, inner).eval()
        nn.init.zeros_(list(block.layers.modules())[-1].weight)  # type: ignore[arg-type]
        features = random_map(2, 4, 3, 5).abs()
        torch.testing.assert_close(block(features), features)


def test_a_bottleneck_has_fewer_parameters_than_two_square_convolutions() -> None:
    plain, narrow = (sum(p.numel() for p in ResidualBlock(64, inner).parameters()) for inner in (None, 16))
    assert plain == 2 * (64 * 64 * 9 + 2 * 64)
    assert narrow == 2 * 64 * 16 + 16 * 16 * 9 + 2 * (16 + 16 + 64)


def test_separable_filters_are_one_filter_of_summed_outer_products() -> None:
    block = SeparableConv(3).eval()
    along_frequency = block.along_frequency.conv.weight[..., 0]  # (middle, in, 3)
    along_time = block.along_time.conv.weight[:, :, 0]  # (out, middle, 3)
    kernel = torch.einsum("omt,mif->oift", along_time, along_frequency)
    features = random_map(1, 3, 6, 9)
    expected = functional.conv2d(features, kernel, padding=1).relu() / (1 + 1e-5)
    torch.testing.assert_close(block(features), expected, atol=1e-5, rtol=1e-5)


def test_smoothing_adds_a_cross_to_a_square() -> None:
    block = SmoothingConv(1).eval()
    for branch in (block.square, block.along_frequency, block.along_time):
        nn.init.ones_(branch.conv.weight)
    spot = torch.zeros(1, 1, 5, 5)
    spot[0, 0, 2, 2] = 1
    expected = torch.tensor([[1.0, 2, 1], [2, 3, 2], [1, 2, 1]])
    torch.testing.assert_close(block(spot)[0, 0, 1:4, 1:4], expected, atol=1e-4, rtol=0)


def test_levels_share_weights_and_have_separate_statistics() -> None:
    layer = LevelConvNorm(convolution(2, 2), levels=2)
    for _ in range(200):
        layer(random_map(4, 2, 5, 5), level=0)
        layer(100 * random_map(4, 2, 5, 5), level=1)
    quiet, loud = (layer.norms[level].running_var for level in (0, 1))
    torch.testing.assert_close(loud, 10_000 * quiet, rtol=1e-3, atol=0)
    layer.eval()
    torch.testing.assert_close(
        layer(random_map(4, 2, 5, 5), 0), layer(100 * random_map(4, 2, 5, 5), 1), rtol=1e-3, atol=1e-3
    )


def test_a_transposed_convolution_is_normalised_too() -> None:
    layer = ConvNorm(nn.ConvTranspose2d(2, 3, (4, 2), (4, 2), bias=False))
    output = layer(random_map(2, 2, 3, 5))
    assert output.shape == (2, 3, 12, 10)
    torch.testing.assert_close(output.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
