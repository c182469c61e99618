"""Adapters: resolution, size, and properties of each (paper, Adapter Designs)."""

from __future__ import annotations

import pytest
import torch

from mast.models.adapter import (
    ADAPTERS,
    AnisotropicAdapter,
    HybridAdapter,
    UpsamplingAdapter,
    append_patches,
    drop_patches,
)

STRIDES = {"none": (16, 16), "conv": (16, 16), "anisotropic": (16, 4), "upsampling": (8, 4), "hybrid": (8, 4)}


def tokens(width: int, frames: int) -> torch.Tensor:
    return torch.randn(2, width, 8, frames // 16, generator=torch.Generator().manual_seed(0))


def adapter_input(name: str, width: int, frames: int) -> torch.Tensor:
    """Return the input of an adapter: tokens, with the spectrogram's patches if it reads them."""
    plain = tokens(width, frames)
    spec = torch.randn(2, 128, frames, generator=torch.Generator().manual_seed(1))
    return append_patches(plain, spec) if ADAPTERS[name].reads_spectrogram else plain


@pytest.mark.parametrize("name", STRIDES)
@pytest.mark.parametrize(("width", "frames"), [(192, 176), (768, 64)])
def test_an_adapter_gives_256_channels_at_its_stride(name: str, width: int, frames: int) -> None:
    adapter = ADAPTERS[name](width)
    assert adapter.stride == STRIDES[name]
    assert adapter(adapter_input(name, width, frames)).shape == (
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
            "hybrid",  # those of `upsampling`, and 2.1 M for the spectrogram
            768 * 256
            + (2 * 9 + 8 + 2 * 3 + 2 * 9) * 256 * 256
            + 9 * (16 * 128 + 4 * 128 * 128 + 128 * 256 + 2 * 256 * 256),
        ),
    ],
)
def test_the_numbers_of_parameters_for_a_base_encoder_are_those_of_the_text(
    name: str, convolutions: int
) -> None:
    parameters = list(ADAPTERS[name](768).parameters())
    assert sum(p.numel() for p in parameters if p.ndim == 4) == convolutions
    in_millions = {"none": 0.2, "conv": 5.3, "anisotropic": 3.6, "upsampling": 3.5, "hybrid": 5.6}
    assert round(sum(p.numel() for p in parameters) / 1e6, 1) == in_millions[name]


def test_the_anisotropic_adapter_repeats_each_band_four_times() -> None:
    fine = AnisotropicAdapter(192)(tokens(192, 64))
    bands = fine.unflatten(2, (8, 4))
    assert torch.equal(bands, bands[:, :, :, :1].expand_as(bands))
    assert not torch.equal(fine[:, :, 0], fine[:, :, 4])


def test_the_upsampling_adapter_distinguishes_the_bands_within_a_token() -> None:
    fine = UpsamplingAdapter(192)(tokens(192, 64))
    assert all((fine[:, :, 8 + band] - fine[:, :, 9 + band]).abs().max() > 0.01 for band in range(3))


@pytest.mark.parametrize("name", STRIDES)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    adapter = ADAPTERS[name](192)
    (
        adapter(adapter_input(name, 192, 64)) * torch.linspace(-1, 1, 256)[:, None, None]
    ).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in adapter.parameters())


def test_drop_patches_inverts_append_patches() -> None:
    plain = tokens(192, 64)
    combined = append_patches(plain, torch.randn(2, 128, 64))
    assert combined.shape == (2, 192 + 256, 8, 4)
    assert torch.equal(drop_patches(combined), plain)


def test_the_hybrid_adapter_responds_at_the_position_of_a_changed_cell() -> None:
    """Change one cell of the spectrogram: the output changes only near that cell, at the right time and frequency."""
    adapter, plain = HybridAdapter(192).eval(), tokens(192, 256)
    spec = torch.zeros(2, 128, 256)
    changed = spec.clone()
    changed[:, 100, 40] = 10
    change = (
        (adapter(append_patches(plain, changed)) - adapter(append_patches(plain, spec))).abs().sum(dim=(0, 1))
    )
    band, time = divmod(int(change.argmax()), change.shape[1])
    assert abs(band - 100 / 4) <= 2
    assert abs(time - 40 / 8) <= 2
    assert change[:12].abs().max() == 0  # bins 0 to 48 are far away
    assert change[:, 20:].abs().max() == 0  # and so are frames >= 160
