"""Adapters: their resolution, their size, and what sets each apart (paper, Adapter Designs)."""

from __future__ import annotations

import pytest
import torch

from mast.models.adapter import (
    ADAPTERS,
    AnisotropicAdapter,
    DetailAdapter,
    UpsamplingAdapter,
    with_picture,
    without_picture,
)

STRIDES = {"none": (16, 16), "conv": (16, 16), "anisotropic": (16, 4), "upsampling": (8, 4), "detail": (8, 4)}


def tokens(width: int, frames: int) -> torch.Tensor:
    return torch.randn(2, width, 8, frames // 16, generator=torch.Generator().manual_seed(0))


def read_by(name: str, width: int, frames: int) -> torch.Tensor:
    """What an adapter takes: tokens, and the picture as well if it looks at that."""
    own = tokens(width, frames)
    picture = torch.randn(2, 128, frames, generator=torch.Generator().manual_seed(1))
    return with_picture(own, picture) if ADAPTERS[name].reads_picture else own


@pytest.mark.parametrize("name", STRIDES)
@pytest.mark.parametrize(("width", "frames"), [(192, 176), (768, 64)])
def test_an_adapter_gives_256_channels_at_its_stride(name: str, width: int, frames: int) -> None:
    adapter = ADAPTERS[name](width)
    assert adapter.stride == STRIDES[name]
    assert adapter(read_by(name, width, frames)).shape == (
        2,
        256,
        128 // STRIDES[name][1],
        frames // STRIDES[name][0],
    )


@pytest.mark.parametrize(
    ("name", "convolutions"),
    [
        ("none", 768 * 256),
        ("conv", 9 * (768 * 512 + 512 * 256 + 256 * 256)),  # 5.3 M
        (
            "anisotropic",  # 3.6 M
            768 * 512 + 2 * 512 * 128 + 9 * 128 * 128 + 2 * 3 * 512 * 512 + 512 * 256 + 2 * 9 * 256 * 256,
        ),
        ("upsampling", 768 * 256 + 2 * 9 * 256 * 256 + 8 * 256 * 256 + 2 * 3 * 256 * 256 + 2 * 9 * 256 * 256),
        (
            "detail",  # those of `upsampling`, and 2.1 M to look with
            768 * 256
            + (2 * 9 + 8 + 2 * 3 + 2 * 9) * 256 * 256
            + 9 * (16 * 128 + 4 * 128 * 128 + 128 * 256 + 2 * 256 * 256),
        ),
    ],
)
def test_parameters_for_a_base_encoder_are_those_of_the_text(name: str, convolutions: int) -> None:
    parameters = list(ADAPTERS[name](768).parameters())
    assert sum(p.numel() for p in parameters if p.ndim == 4) == convolutions
    in_millions = {"none": 0.2, "conv": 5.3, "anisotropic": 3.6, "upsampling": 3.5, "detail": 5.6}
    assert round(sum(p.numel() for p in parameters) / 1e6, 1) == in_millions[name]


def test_the_anisotropic_adapter_repeats_each_band_four_times() -> None:
    fine = AnisotropicAdapter(192)(tokens(192, 64))
    bands = fine.unflatten(2, (8, 4))
    assert torch.equal(bands, bands[:, :, :, :1].expand_as(bands))
    assert not torch.equal(fine[:, :, 0], fine[:, :, 4])


def test_the_upsampling_adapter_tells_the_bands_within_a_token_apart() -> None:
    fine = UpsamplingAdapter(192)(tokens(192, 64))
    assert all((fine[:, :, 8 + band] - fine[:, :, 9 + band]).abs().max() > 0.01 for band in range(3))


@pytest.mark.parametrize("name", STRIDES)
def test_every_parameter_learns(name: str) -> None:
    adapter = ADAPTERS[name](192)
    (adapter(read_by(name, 192, 64)) * torch.linspace(-1, 1, 256)[:, None, None]).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in adapter.parameters())


def test_tokens_come_back_from_beneath_a_picture() -> None:
    own = tokens(192, 64)
    read = with_picture(own, torch.randn(2, 128, 64))
    assert read.shape == (2, 192 + 256, 8, 4)
    assert torch.equal(without_picture(read), own)


def test_the_detail_adapter_sees_a_cell_of_the_picture_where_it_is() -> None:
    """What changes with one cell of the picture is near that cell: pieces lie as in the picture, upside up."""
    adapter, own = DetailAdapter(192).eval(), tokens(192, 256)
    picture = torch.zeros(2, 128, 256)
    spotted = picture.clone()
    spotted[:, 100, 40] = 10
    change = (adapter(with_picture(own, spotted)) - adapter(with_picture(own, picture))).abs().sum(dim=(0, 1))
    band, moment = divmod(int(change.argmax()), change.shape[1])
    assert abs(band - 100 / 4) <= 2
    assert abs(moment - 40 / 8) <= 2
    assert change[:12].abs().max() == 0  # bins 0 to 48 are far away
    assert change[:, 20:].abs().max() == 0  # and so are the frames from 160 on
