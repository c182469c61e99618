"""The encoder and both decoders, compared with AudioMAE's reference outputs, and their general properties."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mast.errors import ConfigError
from mast.models.encoder import SIZES, Encoder, EncoderShape, patchify, sincos_position_embedding
from mast.models.mae import (
    MaskedAutoencoder,
    denormalise_patches,
    normalise_patches,
    reconstruction_loss,
    unpatchify,
)
from mast.models.mae_decoder import DECODERS, Decoder, DecoderKind
from mast.models.masking import noise, random_mask, structured_mask
from tests.models.golden import DATA, NUMBERS, formula_weights, golden_masks, load, tiny_model

GOLDEN = load("tiny_mae_golden")
BASE_GOLDEN = load("vitb_formula_golden")
MASKS = golden_masks(GOLDEN)
SPEC = GOLDEN["input"].float()[:, 0].transpose(1, 2)  # (2, F, T)
KINDS: list[DecoderKind] = ["plain", "swin"]
CLOSE = {"atol": 1e-4, "rtol": 1e-4}


def close(value: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(value.detach().double(), expected.double(), **CLOSE)


@pytest.mark.parametrize("name", MASKS)
def test_masks_are_the_reference_ones(name: str) -> None:
    mask = MASKS[name]
    assert mask.ids_keep.shape[1] == int(GOLDEN[f"{name}.n_keep"])
    assert torch.equal(mask.mask.byte(), GOLDEN[f"{name}.mask"])
    assert torch.equal(mask.ids_restore.short(), GOLDEN[f"{name}.ids_restore"])


def test_patches_and_their_embedding_are_the_reference_ones() -> None:
    encoder, chosen = tiny_model("plain").encoder, GOLDEN["patch_sel"]
    close(patchify(SPEC)[:, chosen], GOLDEN["patchify_sel"])
    bare = encoder.embed(SPEC) - encoder.pos_embed[:, 1:]
    close(bare[:, chosen], GOLDEN["patch_embed_sel"])


@torch.no_grad()
def test_unmasked_tokens_are_the_reference_ones() -> None:
    close(tiny_model("plain").encoder.all_tokens(SPEC), GOLDEN["enc_nomask"])


@torch.no_grad()
@pytest.mark.parametrize("name", ["rand75", "tf60_30"])
def test_visible_tokens_are_the_reference_ones(name: str) -> None:
    close(tiny_model("plain").encoder.visible_tokens(SPEC, MASKS[name].ids_keep), GOLDEN[f"{name}.enc"])


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MASKS)
def test_reconstructions_and_losses_are_the_reference_ones(name: str, kind: DecoderKind) -> None:
    entry, mask = f"{name}.{NUMBERS[kind]}", MASKS[name]
    reconstruction = tiny_model(kind)(SPEC, mask)
    close(reconstruction[:, GOLDEN["patch_sel"]], GOLDEN[f"{entry}.pred_sel"])
    close(reconstruction.norm(dim=-1), GOLDEN[f"{entry}.pred_patchnorm"])
    for norm_pix_loss, loss in ((True, "loss_normpix"), (False, "loss_raw")):
        ours = reconstruction_loss(reconstruction, SPEC, mask, norm_pix_loss=norm_pix_loss).mean()
        close(ours, GOLDEN[f"{entry}.{loss}"])


@torch.no_grad()
def test_an_unpatchified_reconstruction_is_the_reference_spectrogram() -> None:
    reconstruction = tiny_model("plain")(SPEC, MASKS["rand75"])
    close(unpatchify(reconstruction, 8).transpose(1, 2)[:, ::64], GOLDEN["rand75.dec0.unpatch_rows"])


def test_gradients_are_the_reference_ones() -> None:
    model = tiny_model("plain")
    reconstruction = model(SPEC, MASKS["rand75"])
    reconstruction_loss(reconstruction, SPEC, MASKS["rand75"], norm_pix_loss=True).mean().backward()
    norms = {name: parameter.grad.norm() for name, parameter in model.named_parameters()}  # type: ignore[union-attr]
    with np.load(DATA / "tiny_mae_golden.npz") as file:
        names, expected = [str(name) for name in file["grad.keys"]], file["grad.l2"]
    from tests.models.golden import mast_name

    assert sorted(map(mast_name, names)) == sorted(norms)
    close(torch.stack([norms[mast_name(name)] for name in names]), torch.from_numpy(expected))


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_the_base_model_is_the_reference_one(kind: DecoderKind) -> None:
    encoder = Encoder(SIZES["base"])
    model = MaskedAutoencoder(encoder, Decoder(DECODERS["base"][kind], encoder.shape))
    formula_weights(model)
    model.eval()
    spec, golden = SPEC[:1], BASE_GOLDEN
    if kind == "plain":
        tokens = encoder.all_tokens(spec)[0]
        close(tokens[golden["token_sel"]], golden["enc_nomask_sel"])
        close(tokens.mean(dim=0), golden["enc_nomask_mean"])
        last_three = encoder.all_tokens(spec, averaged_blocks=3)[0]
        close(last_three[golden["token_sel3"]], golden["contextual_mean_last3_sel"])
        close(encoder.pos_embed[0, golden["pos_row_index"]], golden["pos_embed_rows"])
        close(model.decoder.pos_embed[0, golden["pos_row_index"]], golden["decoder_pos_embed_rows"])
    masks = golden_masks(GOLDEN, examples=1)
    for name in ("rand80", "tf60_30"):
        reconstruction, entry = model(spec, masks[name]), f"{name}.{NUMBERS[kind]}"
        close(reconstruction[0, ::64], golden[f"{entry}.pred_sel"])
        for norm_pix_loss, loss in ((True, "loss_normpix"), (False, "loss_raw")):
            ours = reconstruction_loss(reconstruction, spec, masks[name], norm_pix_loss=norm_pix_loss)
            close(ours.mean(), golden[f"{entry}.{loss}"])


@pytest.mark.parametrize(("size", "width"), [("tiny", 192), ("small", 384), ("base", 768)])
@torch.no_grad()
def test_maps_have_one_token_per_16_frames_and_16_bins(size: str, width: int) -> None:
    encoder = Encoder(SIZES[size])
    encoder.blocks = encoder.blocks[:1]
    for frames in (16, 512, 1024, 1600):
        assert encoder(torch.zeros(1, 128, frames)).shape == (1, width, 8, frames // 16)


@torch.no_grad()
def test_the_map_puts_each_token_where_its_patch_lies() -> None:
    encoder = tiny_model("plain").encoder
    grid, tokens = encoder(SPEC), encoder.all_tokens(SPEC)
    time, band = 37, 5
    assert torch.equal(grid[:, :, band, time], tokens[:, 1 + time * 8 + band])


def test_positions_are_extended_for_longer_chunks() -> None:
    short = Encoder(EncoderShape(16, 2, 1), frames=1024)
    long = Encoder(EncoderShape(16, 2, 1), frames=4096)
    spec = torch.randn(1, 128, 4096)
    long.load_state_dict(short.state_dict() | {"pos_embed": long.pos_embed})
    assert torch.equal(short.embed(spec), long.embed(spec))


def test_every_token_has_a_unique_position() -> None:
    rows = sincos_position_embedding(64, 512, 64)[0]
    assert (torch.cdist(rows, rows) + torch.eye(513) > 0.1).all()


@pytest.mark.parametrize("shape", [(1, 64, 1024), (1, 128, 1000)])
def test_a_spectrogram_of_another_shape_is_refused_with_the_right_shape(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError, match="128 bins and a multiple of 16 frames"):
        tiny_model("plain").encoder(torch.zeros(shape))


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3))
def test_unpatchify_inverts_patchify(times: int, bands: int, examples: int) -> None:
    spec = torch.randn(examples, bands * 16, times * 16)
    assert torch.equal(unpatchify(patchify(spec), bands), spec)


def test_a_perfect_reconstruction_has_zero_loss_and_only_masked_patches_count() -> None:
    mask = MASKS["rand75"]
    true = patchify(SPEC)
    wrong_where_visible = true + (1 - mask.mask)[:, :, None]
    loss = reconstruction_loss(wrong_where_visible, SPEC, mask, norm_pix_loss=False)
    assert torch.equal(loss, torch.zeros(2))
    torch.testing.assert_close(denormalise_patches(normalise_patches(true), SPEC), true, atol=1e-3, rtol=1e-3)


@given(st.floats(0, 0.95), st.floats(0, 0.85), st.integers(0, 1000))
def test_structured_masks_hide_whole_time_steps_and_bands(
    time_ratio: float, freq_ratio: float, seed: int
) -> None:
    mask = structured_mask(noise(seed, 0, 2, 64), noise(seed, 1, 2, 8), time_ratio, freq_ratio)
    visible = 1 - mask.mask.view(2, 64, 8)
    assert torch.equal(visible, visible.amax(2, keepdim=True) * visible.amax(1, keepdim=True))
    assert mask.ids_keep.shape[1] == int(64 * (1 - time_ratio)) * int(8 * (1 - freq_ratio))


@given(st.floats(0, 0.99), st.integers(0, 1000))
def test_visible_tokens_are_not_masked_and_ids_restore_inverts_the_shuffle(ratio: float, seed: int) -> None:
    mask = random_mask(noise(seed, 0, 2, 64), ratio)
    for ids_keep, ids_restore, masked in zip(mask.ids_keep, mask.ids_restore, mask.mask, strict=True):
        assert set(ids_keep.tolist()) == set(torch.nonzero(masked == 0)[:, 0].tolist())
        assert torch.equal(ids_restore[ids_keep], torch.arange(len(ids_keep)))


def test_noise_depends_only_on_seed_and_step() -> None:
    assert torch.equal(noise(3, 7, 4), noise(3, 7, 4))
    assert not torch.equal(noise(3, 7, 4), noise(3, 8, 4))
    assert not torch.equal(noise(4, 7, 4), noise(3, 7, 4))
