"""Public checkpoints brought into our format: AudioMAE's, Bird-MAE's, and conversions with timm's names.

PyTorch's files are pickles, and a pickle can run any program. Only tensors, plain values and AudioMAE's
`argparse.Namespace` are ever read from one; a file with anything else is refused.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mast.config import Chunking, Spectrogram
from mast.errors import ConfigError, StorageError
from mast.models.checkpoint import Description
from mast.normalisation import Normalisation

UNDERSTOOD = (
    "Understood are AudioMAE's pretrained.pth and finetuned.pth, Bird-MAE's Lightning and safetensors files, and plain "
    "ViTs with timm's names, with patches of 16 × 16 on 1024 or 512 frames × 128 bins."
)
PATCH, BINS, HEAD_WIDTH = 16, 128, 64
NOTHING = torch.empty(0)
META_WIDTH = 384
"""Hidden width of the Swin decoder's position network."""

IGNORED = {
    "head.": "the classifier of a fine-tuned model",
    "fc_norm.": "normalises pooled tokens for a classifier",
    "encoder_emb.": "left over in older files, used by nothing",
    "decoder_emb_pixel.": "left over in older files, used by nothing",
}
"""Parts that are left out, by how their names begin, and why."""

NO_NORM = "a fine-tuned model has no norm of single tokens, only fc_norm after pooling: scale 1 and shift 0 stand in"
PREFIXED = "only the encoder of Bird-MAE is taken over"


@dataclass(frozen=True, slots=True)
class Family:
    """What the tensors of a checkpoint do not say: how the model hears, and whose it is."""

    name: str
    licence: str
    spectrogram: Spectrogram
    chunking: Chunking
    normalisation: Normalisation
    differences: tuple[str, ...]

    @property
    def raster_tokens(self) -> int:
        """Tokens along time, the width on which positions were laid out."""
        return round(self.chunking.chunk_s / self.spectrogram.shift_s) // PATCH


def families() -> Mapping[int, Family]:
    """Whose a checkpoint is, by the number of patches that its positions are for."""
    return {
        512: Family(
            "AudioMAE",
            "CC BY-NC 4.0 (LICENSE file; the README says CC BY 4.0)",
            Spectrogram(),
            Chunking(),
            Normalisation.of("audiomae"),
            (),
        ),
        256: Family(
            "Bird-MAE",
            "none stated",
            Spectrogram(high_hz=16_000),
            Chunking(sample_rate_hz=32_000, chunk_s=5.12, hop_s=2.56),
            Normalisation("audiomae", -7.2, 4.43),
            (
                "hears 32 kHz sound up to 16 kHz, where MAST's default is 16 kHz up to 8 kHz: its features do not fit "
                "16 kHz sound",
                "sees 512 frames (it learned on 5 s), where MAST's default is 1024 (10.24 s)",
                "positions lie on a raster of 8 × 32, where AudioMAE's is 8 × 64",
                "scaled by mean -7.2 and deviation 4.43, where AudioMAE's are -4.27 and 4.57",
            ),
        ),
    }


@dataclass(frozen=True, slots=True)
class Account:
    """What became of every tensor of a checkpoint, and what else does not match."""

    matched: dict[str, str]  # their name → ours
    ignored: dict[str, str]  # their name → why
    missing: dict[str, str]  # our name → what stands in
    differences: tuple[str, ...]

    def summary(self) -> str:
        """A few lines for a person."""
        lines = [f"Taken over: {len(self.matched)} of {len(self.matched) + len(self.ignored)} tensors"]
        for title, names in (("Left out", self.ignored), ("Not in the file", self.missing)):
            for reason in dict.fromkeys(names.values()):
                chosen = [name for name, why in names.items() if why == reason]
                lines.append(f"{title}: {_some(chosen)}: {reason}")
        return "\n".join([*lines, *(f"Differs: {difference}" for difference in self.differences)])


@dataclass(frozen=True, slots=True)
class Imported:
    """A checkpoint in our format, ready for `save_model`, and what became of its parts."""

    description: Description
    tensors: dict[str, Tensor]
    account: Account


def import_checkpoint(path: str | Path) -> Imported:
    """Read a public checkpoint; refuse what is damaged, unsafe or not understood in full."""
    path = Path(path)
    theirs = read_tensors(path)
    matched, ignored = _names(theirs)
    tensors = {ours: _value(name, theirs[name]) for name, ours in matched.items()}
    family = _family(path, theirs, tensors)
    missing: dict[str, str] = {}
    if IGNORED["fc_norm."] in ignored.values():
        width = tensors["encoder.cls_token"].shape[-1]
        stand_ins = {"encoder.norm.weight": torch.ones(width), "encoder.norm.bias": torch.zeros(width)}
        if not stand_ins.keys() & tensors.keys():
            tensors |= stand_ins
            missing = dict.fromkeys(stand_ins, NO_NORM)
    architecture = _architecture(tensors, family)
    _check(path, matched, tensors, _shapes(architecture))
    with path.open("rb") as file:
        fingerprint = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    source = f"{family.name}, imported from {path.name} (blake2b {fingerprint})"
    description = Description(
        kind="masked-autoencoder" if "decoder" in architecture else "encoder",
        architecture={part: dict(values) for part, values in architecture.items()},
        spectrogram=family.spectrogram,
        chunking=family.chunking,
        normalisation=family.normalisation,
        licence=family.licence,
        source=f"{source}; encoder.norm: {NO_NORM}" if missing else source,
    )
    return Imported(description, tensors, Account(matched, ignored, missing, family.differences))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a PyTorch or safetensors file by their names, whatever wraps them; nothing in the file is run."""
    try:
        with path.open("rb") as file:
            head = file.read(9)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror or error}.") from None
    if head[8:] == b"{":
        return _read_safetensors(path)
    is_zip = head[:4] == b"PK\x03\x04"
    if not is_zip and head[:1] != b"\x80":
        raise StorageError(
            f"{path}: {'an empty file' if not head else 'neither a PyTorch nor a safetensors file'}. "
            "Download it again, and look whether it is the checkpoint itself and not a web page."
        )
    content = _load_pickled(path, is_zip=is_zip)
    for wrapper in ("model", "state_dict"):
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    named = content.items() if isinstance(content, dict) else ()
    tensors = {name: value for name, value in named if isinstance(name, str) and isinstance(value, Tensor)}
    if not tensors or len(tensors) < len(named):
        strange = [str(name) for name, _ in named if name not in tensors]
        raise ConfigError(
            f"{path}: no table of tensors in here{f', but {_some(strange)}' if strange else ''}. {UNDERSTOOD}"
        )
    return tensors


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise StorageError(f"{path}: damaged or cut short ({error}). Download it again.") from None


def _load_pickled(path: Path, *, is_zip: bool) -> Any:
    """Plain values and tensors of a pickle. Mapped into memory where it can be: the optimiser's state is not wanted."""
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals([argparse.Namespace]):
            warnings.simplefilter(
                "ignore"
            )  # about pickles of other kinds: they are refused or read, not warned of
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:  # a damaged pickle fails in as many ways as it has instructions
        found = re.search(r"GLOBAL\s+([\w.]+)", str(error))
        if not found:
            raise StorageError(f"{path}: damaged, cut short, or no checkpoint. Download it again.") from None
        raise StorageError(
            f"{path}: refused, for it holds more than tensors: {found[1]}. Objects in a checkpoint can run any program "
            "when they are read. If you trust its source, load it there and save its tensors alone: "
            "torch.save(checkpoint['state_dict'], 'weights.pth')"
        ) from None


def _names(theirs: Mapping[str, Tensor]) -> tuple[dict[str, str], dict[str, str]]:
    """Our names for theirs, and what is left out and why."""
    prefix = ""
    for wrapper in ("module.", "model."):  # of parallel training, of the Hub
        if all(name.startswith(prefix + wrapper) for name in theirs):
            prefix += wrapper
    is_prefixed = f"{prefix}encoder.cls_token" in theirs
    matched: dict[str, str] = {}
    ignored: dict[str, str] = {}
    for name in theirs:
        bare = name.removeprefix(prefix)
        if is_prefixed and not bare.startswith("encoder."):
            if bare.startswith("decoder."):
                ignored[name] = PREFIXED
            else:
                matched[name] = bare  # a part beside the two, which nothing of ours is called
            continue
        bare = bare.removeprefix("encoder.") if is_prefixed else bare
        reason = next((why for start, why in IGNORED.items() if bare.startswith(start)), None)
        if reason:
            ignored[name] = reason
        else:
            matched[name] = _our_name(bare)
    return matched, ignored


def _our_name(name: str) -> str:
    """Our name for AudioMAE's; its Swin decoder's temperature is timm's logit scale."""
    if name == "mask_token":
        return "decoder.mask_token"
    if name.startswith("decoder_"):
        return re.sub(r"\.tau$", ".logit_scale", f"decoder.{name.removeprefix('decoder_')}")
    return f"encoder.{name}"


def _value(name: str, value: Tensor) -> Tensor:
    """A tensor as we keep it: float32, and the temperature τ as log(1/τ)."""
    return -value.float().clamp(min=0.01).log() if name.endswith(".tau") else value.float()


def _family(path: Path, theirs: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> Family:
    """Whose a checkpoint is, by the number of its patches; refuse what is no ViT that we know."""
    token, positions = (tensors.get(f"encoder.{name}", NOTHING) for name in ("cls_token", "pos_embed"))
    if token.ndim != 3 or positions.ndim != 3:
        raise ConfigError(f"{path}: not a layout that MAST knows: {_some(theirs)}. {UNDERSTOOD}")
    if token.shape[-1] % HEAD_WIDTH or not token.numel():
        raise ConfigError(f"{path}: heads are {HEAD_WIDTH} wide, and {token.shape[-1]} is no multiple of it.")
    patches = positions.shape[1] - 1
    family = families().get(patches)
    if family is None:
        raise ConfigError(f"{path}: positions for {patches} patches. {UNDERSTOOD}")
    if family.name != "Bird-MAE" and any("encoder.cls_token" in name for name in theirs):
        raise ConfigError(
            f"{path}: not a layout that MAST knows: {_some(theirs)}. {UNDERSTOOD} "
            "A model that MAST made needs no import: give its folder."
        )
    return family


def _architecture(tensors: Mapping[str, Tensor], family: Family) -> dict[str, dict[str, int | str]]:
    """Sizes of encoder and decoder, from the shapes of their tensors."""
    width = tensors["encoder.cls_token"].shape[-1]
    encoder: dict[str, int | str] = {
        "width": width,
        "heads": {1280: 16}.get(width, width // HEAD_WIDTH),  # the huge ViT is the exception
        "depth": _depth(tensors, "encoder"),
        "bins": BINS,
        "raster_tokens": family.raster_tokens,
    }
    if not any(name.startswith("decoder.") for name in tensors):
        return {"encoder": encoder}
    narrow = tensors.get("decoder.mask_token", NOTHING).numel()
    temperatures = tensors.get("decoder.blocks.0.attn.logit_scale")
    decoder: dict[str, int | str] = {
        "kind": "plain" if temperatures is None else "swin",
        "width": narrow,
        # Shapes do not tell the heads of plain attention; AudioMAE has 16 for its width of 512.
        "heads": narrow // 32 if temperatures is None else temperatures.numel(),
        "depth": _depth(tensors, "decoder"),
    }
    return {"encoder": encoder, "decoder": decoder}


def _depth(tensors: Iterable[str], part: str) -> int:
    numbers = (re.match(rf"{part}\.blocks\.(\d+)\.", name) for name in tensors)
    return len({number[1] for number in numbers if number})


def _shapes(architecture: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[int, ...]]:
    """Every tensor that a model of this architecture has, by our names."""
    encoder, decoder = architecture["encoder"], architecture.get("decoder")
    width, tokens = encoder["width"], 1 + encoder["raster_tokens"] * (BINS // PATCH)
    shapes: dict[str, tuple[int, ...]] = {
        "encoder.cls_token": (1, 1, width),
        "encoder.pos_embed": (1, tokens, width),
        "encoder.patch_embed.proj.weight": (width, 1, PATCH, PATCH),
        "encoder.patch_embed.proj.bias": (width,),
        **_norm("encoder.norm", width),
    }
    for number in range(encoder["depth"]):
        shapes |= _block(f"encoder.blocks.{number}", width)
    if decoder is None:
        return shapes
    narrow, heads = decoder["width"], decoder["heads"]
    shapes |= {"decoder.mask_token": (1, 1, narrow), "decoder.pos_embed": (1, tokens, narrow)}
    shapes |= {**_linear("decoder.embed", narrow, width), **_norm("decoder.norm", narrow)}
    shapes |= _linear("decoder.pred", PATCH * PATCH, narrow)
    for number in range(decoder["depth"]):
        block = f"decoder.blocks.{number}"
        shapes |= _block(block, narrow)
        if decoder["kind"] == "swin":
            shapes[f"{block}.attn.logit_scale"] = (heads,)
            shapes |= _linear(f"{block}.attn.meta_mlp.fc1", META_WIDTH, 2)
            shapes |= _linear(f"{block}.attn.meta_mlp.fc2", heads, META_WIDTH)
    return shapes


def _block(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {
        **_norm(f"{name}.norm1", width),
        **_linear(f"{name}.attn.qkv", 3 * width, width),
        **_linear(f"{name}.attn.proj", width, width),
        **_norm(f"{name}.norm2", width),
        **_linear(f"{name}.mlp.fc1", 4 * width, width),
        **_linear(f"{name}.mlp.fc2", width, 4 * width),
    }


def _linear(name: str, outputs: int, inputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _check(
    path: Path,
    matched: Mapping[str, str],
    tensors: Mapping[str, Tensor],
    shapes: Mapping[str, tuple[int, ...]],
) -> None:
    """Refuse a checkpoint with tensors too many, too few, or of another shape than the rest asks for."""
    unknown = [theirs for theirs, ours in matched.items() if ours not in shapes]
    absent = [ours for ours in shapes if ours not in tensors]
    other = [
        f"{ours} {tuple(tensors[ours].shape)} instead of {shape}"
        for ours, shape in shapes.items()
        if ours in tensors and tuple(tensors[ours].shape) != shape
    ]
    for trouble, names in (("unknown", unknown), ("missing", absent), ("of another shape", other)):
        if names:
            raise ConfigError(f"{path}: {len(names)} tensors are {trouble}: {_some(names)}. {UNDERSTOOD}")


def _some(names: Iterable[str], most: int = 4) -> str:
    """The first few of some names."""
    every = list(names)
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")
