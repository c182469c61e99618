"""Import public checkpoints: AudioMAE, Bird-MAE, and conversions with timm's names.

PyTorch files are pickles, and a pickle can run any program. Only tensors, plain values and AudioMAE's
`argparse.Namespace` are read from a pickle; a file with any other object is refused.
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
from mast.models.checkpoint import ModelInfo
from mast.normalisation import Normalisation

SUPPORTED = (
    "Supported are AudioMAE's pretrained.pth and finetuned.pth, Bird-MAE's Lightning and safetensors files, and plain "
    "ViTs with timm's names, with patches of 16 × 16 on 1024 or 512 frames × 128 bins."
)
PATCH, BINS, HEAD_WIDTH = 16, 128, 64
NO_TENSORS = torch.empty(0)
META_WIDTH = 384
"""Hidden width of the Swin decoder's MLP for relative positions."""

IGNORED = {
    "head.": "classifier of a fine-tuned model",
    "fc_norm.": "layer norm of pooled tokens for a classifier",
    "encoder_emb.": "unused tensor of older files",
    "decoder_emb_pixel.": "unused tensor of older files",
}
"""Tensors that are not imported, by name prefix, with the reason."""

NO_NORM = (
    "a fine-tuned model has only fc_norm after pooling, no norm of tokens; replaced by weight 1 and bias 0"
)
ENCODER_ONLY = "only the encoder of Bird-MAE is imported"


@dataclass(frozen=True, slots=True)
class Family:
    """Properties of a checkpoint that its tensors do not contain: input format, name and licence."""

    name: str
    licence: str
    spectrogram: Spectrogram
    chunking: Chunking
    normalisation: Normalisation
    differences: tuple[str, ...]

    @property
    def raster_tokens(self) -> int:
        """Number of tokens along time, the row length of the position embedding's grid."""
        return round(self.chunking.chunk_s / self.spectrogram.frame_shift_s) // PATCH


def families() -> Mapping[int, Family]:
    """Return the known checkpoint families by the number of patches of their position embedding."""
    return {
        512: Family(
            "AudioMAE",
            "CC BY-NC 4.0 (LICENSE file; the README says CC BY 4.0)",
            Spectrogram(),
            Chunking(),
            Normalisation.from_statistics("audiomae"),
            (),
        ),
        256: Family(
            "Bird-MAE",
            "none stated",
            Spectrogram(high_hz=16_000),
            Chunking(sample_rate_hz=32_000, chunk_s=5.12, hop_s=2.56),
            Normalisation("audiomae", -7.2, 4.43),
            (
                "input is 32 kHz audio up to 16 kHz, MAST's default is 16 kHz up to 8 kHz: its features do not fit "
                "16 kHz audio",
                "input has 512 frames (trained on 5 s), MAST's default is 1024 (10.24 s)",
                "positions are on a grid of 8 × 32, AudioMAE's of 8 × 64",
                "normalised with mean -7.2 and standard deviation 4.43, AudioMAE with -4.27 and 4.57",
            ),
        ),
    }


@dataclass(frozen=True, slots=True)
class ImportReport:
    """Outcome of every tensor of a checkpoint, and other differences from MAST's defaults."""

    matched: dict[str, str]  # checkpoint name → MAST name
    ignored: dict[str, str]  # checkpoint name → reason
    missing: dict[str, str]  # MAST name → replacement
    differences: tuple[str, ...]

    def summary(self) -> str:
        """Return the report to print."""
        lines = [f"Imported: {len(self.matched)} of {len(self.matched) + len(self.ignored)} tensors"]
        for title, names in (("Ignored", self.ignored), ("Missing", self.missing)):
            for reason in dict.fromkeys(names.values()):
                group = [name for name, its_reason in names.items() if its_reason == reason]
                lines.append(f"{title}: {_shorten_list(group)}: {reason}")
        return "\n".join([*lines, *(f"Difference: {difference}" for difference in self.differences)])


@dataclass(frozen=True, slots=True)
class Imported:
    """A checkpoint in MAST's format, ready for `save_model`, and the import report."""

    description: ModelInfo
    tensors: dict[str, Tensor]
    report: ImportReport


def import_checkpoint(path: str | Path) -> Imported:
    """Import a public checkpoint; raise an error if it is damaged, unsafe or not fully supported."""
    path = Path(path)
    source_tensors = read_tensors(path)
    matched, ignored = _match_names(source_tensors)
    tensors = {mast_name: _convert_value(name, source_tensors[name]) for name, mast_name in matched.items()}
    family = _find_family(path, source_tensors, tensors)
    missing: dict[str, str] = {}
    if IGNORED["fc_norm."] in ignored.values():
        width = tensors["encoder.cls_token"].shape[-1]
        replacements = {"encoder.norm.weight": torch.ones(width), "encoder.norm.bias": torch.zeros(width)}
        if not replacements.keys() & tensors.keys():
            tensors |= replacements
            missing = dict.fromkeys(replacements, NO_NORM)
    architecture = _architecture(tensors, family)
    _check(path, matched, tensors, _shapes(architecture))
    with path.open("rb") as file:
        fingerprint = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    source = f"{family.name}, imported from {path.name} (blake2b {fingerprint})"
    description = ModelInfo(
        kind="masked-autoencoder" if "decoder" in architecture else "encoder",
        architecture={part: dict(values) for part, values in architecture.items()},
        spectrogram=family.spectrogram,
        chunking=family.chunking,
        normalisation=family.normalisation,
        licence=family.licence,
        source=f"{source}; encoder.norm: {NO_NORM}" if missing else source,
    )
    return Imported(description, tensors, ImportReport(matched, ignored, missing, family.differences))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a PyTorch or safetensors file by name, without wrappers; no code in the file is run."""
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
            "Download it again, and check that it is the checkpoint and not a web page."
        )
    content = _load_pickled(path, is_zip=is_zip)
    for wrapper in ("model", "state_dict"):
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    named = content.items() if isinstance(content, dict) else ()
    tensors = {name: value for name, value in named if isinstance(name, str) and isinstance(value, Tensor)}
    if not tensors or len(tensors) < len(named):
        other_names = [str(name) for name, _ in named if name not in tensors]
        raise ConfigError(
            f"{path}: no table of tensors{f', it has {_shorten_list(other_names)}' if other_names else ''}. {SUPPORTED}"
        )
    return tensors


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise StorageError(f"{path}: damaged or truncated ({error}). Download it again.") from None


def _load_pickled(path: Path, *, is_zip: bool) -> Any:
    """Load plain values and tensors of a pickle; memory-map zip files, so the unused optimiser state is not read."""
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals([argparse.Namespace]):
            warnings.simplefilter("ignore")  # about other kinds of pickles, which are either refused or read
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:  # a damaged pickle can raise any exception
        forbidden = re.search(r"GLOBAL\s+([\w.]+)", str(error))
        if not forbidden:
            raise StorageError(f"{path}: damaged, truncated, or no checkpoint. Download it again.") from None
        raise StorageError(
            f"{path}: refused, because it contains {forbidden[1]}, which is not a tensor. Objects in a checkpoint can "
            "run any program when they are loaded. If you trust its source, load it and save only its tensors: "
            "torch.save(checkpoint['state_dict'], 'weights.pth')"
        ) from None


def _match_names(source_tensors: Mapping[str, Tensor]) -> tuple[dict[str, str], dict[str, str]]:
    """Return MAST's names by checkpoint names, and the reasons for ignored tensors."""
    prefix = ""
    for wrapper in ("module.", "model."):  # prefixes of parallel training, of the Hub
        if all(name.startswith(prefix + wrapper) for name in source_tensors):
            prefix += wrapper
    is_prefixed = f"{prefix}encoder.cls_token" in source_tensors
    matched: dict[str, str] = {}
    ignored: dict[str, str] = {}
    for name in source_tensors:
        bare = name.removeprefix(prefix)
        if is_prefixed and not bare.startswith("encoder."):
            if bare.startswith("decoder."):
                ignored[name] = ENCODER_ONLY
            else:
                matched[name] = bare  # neither encoder nor decoder: reported as unknown
            continue
        bare = bare.removeprefix("encoder.") if is_prefixed else bare
        reason = next((text for start, text in IGNORED.items() if bare.startswith(start)), None)
        if reason:
            ignored[name] = reason
        else:
            matched[name] = _mast_name(bare)
    return matched, ignored


def _mast_name(name: str) -> str:
    """Return MAST's name for a name of AudioMAE; its Swin decoder's temperature becomes timm's logit scale."""
    if name == "mask_token":
        return "decoder.mask_token"
    if name.startswith("decoder_"):
        return re.sub(r"\.tau$", ".logit_scale", f"decoder.{name.removeprefix('decoder_')}")
    return f"encoder.{name}"


def _convert_value(name: str, value: Tensor) -> Tensor:
    """Convert a tensor to float32, and a temperature τ to log(1/τ)."""
    return -value.float().clamp(min=0.01).log() if name.endswith(".tau") else value.float()


def _find_family(path: Path, source_tensors: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> Family:
    """Return the family of a checkpoint by its number of patches; raise ConfigError for an unknown layout."""
    token, positions = (tensors.get(f"encoder.{name}", NO_TENSORS) for name in ("cls_token", "pos_embed"))
    if token.ndim != 3 or positions.ndim != 3:
        raise ConfigError(f"{path}: unknown layout: {_shorten_list(source_tensors)}. {SUPPORTED}")
    if token.shape[-1] % HEAD_WIDTH or not token.numel():
        raise ConfigError(
            f"{path}: heads are {HEAD_WIDTH} wide, and {token.shape[-1]} is no multiple of {HEAD_WIDTH}."
        )
    patches = positions.shape[1] - 1
    family = families().get(patches)
    if family is None:
        raise ConfigError(
            f"{path}: the position embedding has {patches} patches, not 512 or 256. {SUPPORTED}"
        )
    if family.name != "Bird-MAE" and any("encoder.cls_token" in name for name in source_tensors):
        raise ConfigError(
            f"{path}: unknown layout: {_shorten_list(source_tensors)}. {SUPPORTED} "
            "A model that MAST saved needs no import: use its folder."
        )
    return family


def _architecture(tensors: Mapping[str, Tensor], family: Family) -> dict[str, dict[str, int | str]]:
    """Return the sizes of encoder and decoder, derived from the shapes of their tensors."""
    width = tensors["encoder.cls_token"].shape[-1]
    encoder: dict[str, int | str] = {
        "width": width,
        "heads": {1280: 16}.get(width, width // HEAD_WIDTH),  # ViT-H is the exception
        "depth": _depth(tensors, "encoder"),
        "bins": BINS,
        "raster_tokens": family.raster_tokens,
    }
    if not any(name.startswith("decoder.") for name in tensors):
        return {"encoder": encoder}
    decoder_width = tensors.get("decoder.mask_token", NO_TENSORS).numel()
    temperatures = tensors.get("decoder.blocks.0.attn.logit_scale")
    decoder: dict[str, int | str] = {
        "kind": "plain" if temperatures is None else "swin",
        "width": decoder_width,
        # Shapes do not determine the heads of plain attention; AudioMAE has 16 for its width of 512.
        "heads": decoder_width // 32 if temperatures is None else temperatures.numel(),
        "depth": _depth(tensors, "decoder"),
    }
    return {"encoder": encoder, "decoder": decoder}


def _depth(tensors: Iterable[str], part: str) -> int:
    numbers = (re.match(rf"{part}\.blocks\.(\d+)\.", name) for name in tensors)
    return len({number[1] for number in numbers if number})


def _shapes(architecture: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor of this architecture by MAST's names."""
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
    decoder_width, heads = decoder["width"], decoder["heads"]
    shapes |= {"decoder.mask_token": (1, 1, decoder_width), "decoder.pos_embed": (1, tokens, decoder_width)}
    shapes |= {**_linear("decoder.embed", decoder_width, width), **_norm("decoder.norm", decoder_width)}
    shapes |= _linear("decoder.pred", PATCH * PATCH, decoder_width)
    for number in range(decoder["depth"]):
        block = f"decoder.blocks.{number}"
        shapes |= _block(block, decoder_width)
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
    """Raise ConfigError if a checkpoint has unknown or missing tensors, or tensors of unexpected shapes."""
    unknown = [name for name, mast_name in matched.items() if mast_name not in shapes]
    absent = [name for name in shapes if name not in tensors]
    mismatched = [
        f"{name} {tuple(tensors[name].shape)} instead of {shape}"
        for name, shape in shapes.items()
        if name in tensors and tuple(tensors[name].shape) != shape
    ]
    for problem, names in (
        ("unknown tensors", unknown),
        ("missing tensors", absent),
        ("tensors of the wrong shape", mismatched),
    ):
        if names:
            raise ConfigError(f"{path}: {problem} ({len(names)}): {_shorten_list(names)}. {SUPPORTED}")


def _shorten_list(names: Iterable[str], maximum: int = 4) -> str:
    """Join up to `maximum` names, and the number of the others."""
    listed = list(names)
    return ", ".join(listed[:maximum]) + (
        f" and {len(listed) - maximum} more" if len(listed) > maximum else ""
    )
