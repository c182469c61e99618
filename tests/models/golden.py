"""States and outputs of AudioMAE's reference implementation, with MAST's names."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mast.models.encoder import Encoder, EncoderShape
from mast.models.mae import MaskedAutoencoder
from mast.models.mae_decoder import Decoder, DecoderKind, DecoderShape
from mast.models.masking import Mask, random_mask, structured_mask

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
        "rand75": random_mask(noise, 0.75),
        "rand80": random_mask(noise, 0.8),
        "tf60_30": structured_mask(*structured, 0.6, 0.3),
    }


def tiny_model(kind: DecoderKind) -> MaskedAutoencoder:
    """Return the tiny reference model with its stored weights."""
    model = MaskedAutoencoder(Encoder(TINY), Decoder(TINY_DECODERS[kind], TINY))
    state = load("tiny_mae_dec0_state")
    if kind == "swin":
        state = {name: value for name, value in state.items() if not is_decoder(name)}
        state |= load("tiny_mae_dec1_swin_decoder_state")
    model.load_state_dict({mast_name(name): mast_value(name, value) for name, value in state.items()})
    return model.eval()


def formula_weights(model: MaskedAutoencoder) -> None:
    """Set weights that depend only on their reference names, as for the full-size reference outputs."""
    state = model.state_dict()
    for name, value in state.items():
        reference = reference_name(name)
        if reference.endswith("pos_embed"):
            continue
        n = np.random.RandomState(zlib.crc32(reference.encode())).standard_normal(tuple(value.shape))
        n = n.astype(np.float32)
        last = reference.rsplit(".", 1)[-1]
        if last == "tau":
            values = 0.3 + 0.2 * np.abs(n)
        elif "norm" in reference and last == "weight":
            values = 1 + 0.2 * n
        elif reference in ("cls_token", "mask_token"):
            values = 0.5 * n
        elif n.ndim == 1:
            values = 0.1 * n
        else:
            values = n / np.sqrt(np.prod(n.shape[1:]))
        state[name] = mast_value(reference, torch.from_numpy(values.astype(np.float32)))
    model.load_state_dict(state)


def is_decoder(name: str) -> bool:
    return name.startswith("decoder_") or name == "mask_token"


def mast_name(name: str) -> str:
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


def mast_value(name: str, value: Tensor) -> Tensor:
    value = value.float()
    return -value.clamp(min=0.01).log() if name.endswith("tau") else value
