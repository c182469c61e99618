"""AudioMAE's own numbers: states and outputs of the reference implementation, in our names."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mast.models.decoder import Decoder, DecoderKind, DecoderShape
from mast.models.encoder import Encoder, EncoderShape
from mast.models.mae import MaskedAutoencoder
from mast.models.masking import Mask, hide_any, hide_moments_and_bands

DATA = Path(__file__).parent.parent / "data"
TINY = EncoderShape(width=64, heads=4, depth=2)
TINY_DECODERS = {"plain": DecoderShape("plain", 32, 4, 1), "swin": DecoderShape("swin", 32, 16, 4)}
NUMBERS = {"plain": "dec0", "swin": "dec1"}


def load(name: str) -> dict[str, Tensor]:
    with np.load(DATA / f"{name}.npz") as file:
        return {key: torch.from_numpy(file[key]) for key in file.files if file[key].dtype.kind != "U"}


def golden_masks(golden: dict[str, Tensor], examples: int = 2) -> dict[str, Mask]:
    noise = golden["noise_random"][:examples]
    structured = golden["noise_t"][:examples], golden["noise_f"][:examples]
    return {
        "rand75": hide_any(noise, 0.75),
        "rand80": hide_any(noise, 0.8),
        "tf60_30": hide_moments_and_bands(*structured, 0.6, 0.3),
    }


def tiny_model(kind: DecoderKind) -> MaskedAutoencoder:
    """The tiny reference model with its stored weights."""
    model = MaskedAutoencoder(Encoder(TINY), Decoder(TINY_DECODERS[kind], TINY))
    state = load("tiny_mae_dec0_state")
    if kind == "swin":
        state = {name: value for name, value in state.items() if not is_decoder(name)}
        state |= load("tiny_mae_dec1_swin_decoder_state")
    model.load_state_dict({our_name(name): our_value(name, value) for name, value in state.items()})
    return model.eval()


def formula_weights(model: MaskedAutoencoder) -> None:
    """Weights that follow from their reference names alone, as the full-size numbers were made with."""
    state = model.state_dict()
    for name, value in state.items():
        reference = reference_name(name)
        if reference.endswith("pos_embed"):
            continue
        n = np.random.RandomState(zlib.crc32(reference.encode())).standard_normal(tuple(value.shape))
        n = n.astype(np.float32)
        last = reference.rsplit(".", 1)[-1]
        if last == "tau":
            drawn = 0.3 + 0.2 * np.abs(n)
        elif "norm" in reference and last == "weight":
            drawn = 1 + 0.2 * n
        elif reference in ("cls_token", "mask_token"):
            drawn = 0.5 * n
        elif n.ndim == 1:
            drawn = 0.1 * n
        else:
            drawn = n / np.sqrt(np.prod(n.shape[1:]))
        state[name] = our_value(reference, torch.from_numpy(drawn.astype(np.float32)))
    model.load_state_dict(state)


def is_decoder(name: str) -> bool:
    return name.startswith("decoder_") or name == "mask_token"


def our_name(name: str) -> str:
    name = name.replace("attn.tau", "attn.logit_scale")
    if name == "mask_token":
        return "decoder.mask_token"
    return f"decoder.{name.removeprefix('decoder_')}" if is_decoder(name) else f"encoder.{name}"


def reference_name(name: str) -> str:
    name = name.replace("attn.logit_scale", "attn.tau")
    if name == "decoder.mask_token":
        return "mask_token"
    return (
        name.removeprefix("encoder.") if name.startswith("encoder.") else name.replace("decoder.", "decoder_")
    )


def our_value(name: str, value: Tensor) -> Tensor:
    value = value.float()
    return -value.clamp(min=0.01).log() if name.endswith("tau") else value
