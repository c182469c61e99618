"""Import of public checkpoints: the report covers every tensor, and no file can run code."""

from __future__ import annotations

import argparse
import json
import math
import os
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from mast.config import Chunking, Spectrogram
from mast.errors import ConfigError, MastError, StorageError
from mast.models.checkpoint import load_model, save_model
from mast.models.import_checkpoint import import_checkpoint
from mast.normalisation import Normalisation

KEYS = json.loads((Path(__file__).parent.parent / "data" / "encoder_keys.json").read_text())
Shapes = dict[str, list[int]]


def zeros(shapes: Shapes) -> dict[str, Tensor]:
    """Return expanded tensors that take a few bytes in a file."""
    return {name: torch.zeros(1).expand(shape) for name, shape in shapes.items()}


def narrow(layout: str, tokens: int = 513, width: int = 64, depth: int = 2) -> dict[str, Tensor]:
    """Return random tensors with the names of a public checkpoint and small shapes, the decoder half as wide."""
    sizes = {768: width, 2304: 3 * width, 3072: 4 * width, 513: tokens}
    sizes |= {512: width // 2, 1536: 3 * width // 2, 2048: 2 * width}
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.rand([sizes.get(size, size) for size in shape], generator=generator)
        for name, shape in KEYS[layout].items()
        if "blocks." not in name or int(name.split(".")[1]) < depth
    }


def write_released(path: Path, tensors: Mapping[str, Tensor]) -> Path:
    """Write a file in the format of AudioMAE's trainer."""
    arguments = argparse.Namespace(model="mae_vit_base_patch16", mask_ratio=0.8, norm_pix_loss=True)
    optimiser = {"state": {0: {"step": 10, "exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 2e-4}]}
    content = {"model": tensors, "optimizer": optimiser, "epoch": 32, "scaler": {"scale": 65536.0}}
    torch.save({**content, "args": arguments}, path)
    return path


def reported(imported: Any) -> set[str]:
    return {*imported.report.matched, *imported.report.ignored}


def test_an_empty_table_of_tensors_is_refused(tmp_path: Path) -> None:
    torch.save({"model": {}}, tmp_path / "a.pth")
    save_file({}, tmp_path / "a.safetensors")
    with pytest.raises(ConfigError, match="no table of tensors"):
        import_checkpoint(tmp_path / "a.pth")
    with pytest.raises(ConfigError, match="Supported are"):
        import_checkpoint(tmp_path / "a.safetensors")


def test_every_tensor_of_the_released_pretrained_file_is_imported(tmp_path: Path) -> None:
    shapes = KEYS["released_decoder_mode_1"]
    imported = import_checkpoint(write_released(tmp_path / "pretrained.pth", zeros(shapes)))
    assert reported(imported) == shapes.keys() and len(imported.report.matched) == 430
    assert imported.tensors.keys() == set(imported.report.matched.values())
    assert sum(tensor.numel() for tensor in imported.tensors.values()) == 136_992_768
    assert not imported.report.missing and not imported.report.ignored
    description = imported.description
    assert description.kind == "masked-autoencoder"
    assert description.architecture == {
        "encoder": {"width": 768, "heads": 12, "depth": 12, "bins": 128, "raster_tokens": 64},
        "decoder": {"kind": "swin", "width": 512, "heads": 16, "depth": 16},
    }
    assert description.licence == "CC BY-NC 4.0 (LICENSE file; the README says CC BY 4.0)"
    assert description.normalisation == Normalisation.from_statistics("audiomae")
    assert (description.spectrogram, description.chunking) == (Spectrogram(), Chunking())
    assert description.source.startswith("AudioMAE, imported from pretrained.pth (blake2b ")
    assert imported.report.summary() == "Imported: 430 of 430 tensors"


def test_a_plain_decoder_is_imported_also_from_a_bare_table_and_the_old_file_format(tmp_path: Path) -> None:
    shapes = KEYS["decoder_mode_0"]
    torch.save(zeros(shapes), tmp_path / "bare.pth")
    torch.save(zeros(shapes), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    for name in ("bare.pth", "old.pth"):
        imported = import_checkpoint(str(tmp_path / name))
        assert reported(imported) == shapes.keys() and not imported.report.ignored
        expected = {"kind": "plain", "width": 512, "heads": 16, "depth": 8}
        assert imported.description.architecture["decoder"] == expected


def test_names_are_converted_and_temperatures_become_logit_scales(tmp_path: Path) -> None:
    source = narrow("released_decoder_mode_1")
    source["decoder_blocks.0.attn.tau"] = torch.tensor([0.005, 0.01, 0.5, 1.0])
    source["decoder_blocks.1.attn.tau"] = torch.full((4,), 0.1)
    for block in ("decoder_blocks.0", "decoder_blocks.1"):
        source[f"{block}.attn.meta_mlp.fc2.weight"] = torch.rand(4, 384)
        source[f"{block}.attn.meta_mlp.fc2.bias"] = torch.rand(4)
    imported = import_checkpoint(write_released(tmp_path / "a.pth", source))
    mast_names = {
        "cls_token": "encoder.cls_token",
        "pos_embed": "encoder.pos_embed",
        "blocks.1.attn.qkv.weight": "encoder.blocks.1.attn.qkv.weight",
        "norm.bias": "encoder.norm.bias",
        "mask_token": "decoder.mask_token",
        "decoder_pos_embed": "decoder.pos_embed",
        "decoder_embed.weight": "decoder.embed.weight",
        "decoder_blocks.1.attn.meta_mlp.fc1.weight": "decoder.blocks.1.attn.meta_mlp.fc1.weight",
        "decoder_blocks.0.norm2.bias": "decoder.blocks.0.norm2.bias",
        "decoder_norm.weight": "decoder.norm.weight",
        "decoder_pred.bias": "decoder.pred.bias",
    }
    for name, mast_name in mast_names.items():
        assert imported.report.matched[name] == mast_name
        assert torch.equal(imported.tensors[mast_name], source[name])
    scales = imported.tensors["decoder.blocks.0.attn.logit_scale"]
    expected = torch.tensor([math.log(100), math.log(100), math.log(2), 0.0])
    torch.testing.assert_close(scales, expected)
    assert imported.description.architecture["decoder"] == {
        "kind": "swin",
        "width": 32,
        "heads": 4,
        "depth": 2,
    }


def test_half_precision_becomes_float32(tmp_path: Path) -> None:
    source = narrow("decoder_mode_0")
    torch.save({name: value.half() for name, value in source.items()}, tmp_path / "a.pth")
    imported = import_checkpoint(tmp_path / "a.pth")
    assert {tensor.dtype for tensor in imported.tensors.values()} == {torch.float32}
    assert torch.equal(imported.tensors["encoder.pos_embed"], source["pos_embed"].half().float())


def test_a_fine_tuned_model_is_imported_without_classifier_and_with_an_identity_norm(tmp_path: Path) -> None:
    shapes = KEYS["finetuned_vit_base_patch16"]
    imported = import_checkpoint(write_released(tmp_path / "finetuned.pth", zeros(shapes)))
    report = imported.report
    assert reported(imported) == shapes.keys()
    assert report.ignored.keys() == {"head.weight", "head.bias", "fc_norm.weight", "fc_norm.bias"}
    assert report.missing.keys() == {"encoder.norm.weight", "encoder.norm.bias"}
    assert imported.tensors["encoder.norm.weight"].eq(1).all()
    assert imported.tensors["encoder.norm.bias"].eq(0).all()
    assert imported.description.kind == "encoder"
    assert len(imported.tensors) == 150
    assert "replaced by weight 1 and bias 0" in imported.description.source
    assert report.summary().splitlines() == [
        "Imported: 148 of 152 tensors",
        "Ignored: head.weight, head.bias: classifier of a fine-tuned model",
        "Ignored: fc_norm.weight, fc_norm.bias: layer norm of pooled tokens for a classifier",
        "Missing: encoder.norm.weight, encoder.norm.bias: a fine-tuned model has only fc_norm after pooling, no norm of "
        "tokens; replaced by weight 1 and bias 0",
    ]


def encoder_part(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name in KEYS["encoder_only"]}


def test_the_encoder_of_a_lightning_bird_mae_is_imported_and_differences_are_reported(tmp_path: Path) -> None:
    tensors = narrow("decoder_mode_0", tokens=257, width=768, depth=1)
    encoder = encoder_part(tensors)
    state = {f"encoder.{name}": value for name, value in encoder.items()}
    state |= {f"decoder.{name}": value for name, value in tensors.items() if name not in encoder}
    torch.save({"state_dict": state, "epoch": 1, "pytorch-lightning_version": "2.4"}, tmp_path / "bird.ckpt")
    imported = import_checkpoint(tmp_path / "bird.ckpt")
    assert reported(imported) == state.keys()
    assert imported.report.ignored.keys() == {name for name in state if name.startswith("decoder.")}
    assert imported.tensors.keys() == {f"encoder.{name}" for name in encoder}
    assert torch.equal(imported.tensors["encoder.pos_embed"], tensors["pos_embed"])
    description = imported.description
    assert description.kind == "encoder" and description.licence == "none stated"
    assert description.architecture == {
        "encoder": {"width": 768, "heads": 12, "depth": 1, "bins": 128, "raster_tokens": 32}
    }
    assert (description.chunking.sample_rate_hz, description.chunking.chunk_s) == (32_000, 5.12)
    assert description.spectrogram.high_hz == 16_000
    assert description.normalisation is not None
    normalised = description.normalisation.apply(torch.tensor([-7.2, 1.66]))
    torch.testing.assert_close(normalised, torch.tensor([0.0, 1.0]))
    summary = imported.report.summary()
    for difference in ("32 kHz", "512 frames", "8 × 32", "-7.2"):
        assert difference in summary


@pytest.mark.parametrize("prefix", ["", "model.", "module.", "module.model."])
def test_bird_mae_of_the_hub_is_imported_with_any_prefix(tmp_path: Path, prefix: str) -> None:
    encoder = encoder_part(narrow("decoder_mode_0", tokens=257))
    encoder |= {"fc_norm.weight": torch.rand(64), "fc_norm.bias": torch.rand(64)}
    save_file({prefix + name: value for name, value in encoder.items()}, tmp_path / "model.safetensors")
    imported = import_checkpoint(tmp_path / "model.safetensors")
    assert imported.report.ignored.keys() == {f"{prefix}fc_norm.weight", f"{prefix}fc_norm.bias"}
    assert not imported.report.missing
    assert torch.equal(imported.tensors["encoder.norm.weight"], encoder["norm.weight"])
    assert imported.description.source.startswith("Bird-MAE")


def test_a_checkpoint_with_timm_names_is_imported_as_audiomae(tmp_path: Path) -> None:
    encoder = encoder_part(narrow("decoder_mode_0"))
    save_file(encoder, tmp_path / "model.safetensors")
    imported = import_checkpoint(tmp_path / "model.safetensors")
    assert imported.description.source.startswith("AudioMAE")
    assert imported.tensors.keys() == {f"encoder.{name}" for name in encoder}
    pooled = {name: value for name, value in encoder.items() if not name.startswith("norm.")}
    pooled |= {"fc_norm.weight": torch.rand(64), "fc_norm.bias": torch.rand(64)}
    save_file(pooled, tmp_path / "pooled.safetensors")
    assert import_checkpoint(tmp_path / "pooled.safetensors").report.missing


def test_the_huge_vit_has_heads_of_another_width(tmp_path: Path) -> None:
    encoder = encoder_part(narrow("decoder_mode_0", tokens=257, width=1280, depth=1))
    torch.save(encoder, tmp_path / "huge.pth")
    part = import_checkpoint(tmp_path / "huge.pth").description.architecture["encoder"]
    assert isinstance(part, dict) and part["heads"] == 16


def test_unused_tensors_of_older_files_are_ignored_and_reported(tmp_path: Path) -> None:
    source = narrow("decoder_mode_0")
    extras = {"encoder_emb.weight": torch.rand(3), "decoder_emb_pixel.bias": torch.rand(2)}
    imported = import_checkpoint(write_released(tmp_path / "a.pth", {**source, **extras}))
    assert imported.report.ignored.keys() == extras.keys()
    assert "Ignored: encoder_emb.weight, decoder_emb_pixel.bias" in imported.report.summary()


def without(tensors: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name not in set(names)}


UNKNOWN = {
    "another network": ({"conv1.weight": torch.rand(3), "fc.bias": torch.rand(1)}, "conv1.weight, fc.bias"),
    "layer scale": (
        {**narrow("decoder_mode_0"), "blocks.0.ls1.gamma": torch.rand(64)},
        r"unknown tensors \(1\): blocks.0.ls1.gamma",
    ),
    "a missing block": (
        {name: value for name, value in narrow("decoder_mode_0").items() if not name.startswith("blocks.0.")},
        r"unknown tensors \(12\): blocks.1.norm1.weight",
    ),
    "a missing tensor": (
        without(narrow("decoder_mode_0"), ["blocks.1.mlp.fc2.bias"]),
        r"missing tensors \(1\): encoder.blocks.1.mlp.fc2.bias",
    ),
    "no norm at all": (
        without(narrow("decoder_mode_0"), ["norm.weight", "norm.bias"]),
        r"missing tensors \(2\): encoder.norm.weight",
    ),
    "no mask token": (
        without(narrow("decoder_mode_0"), ["mask_token"]),
        r"missing tensors \(1\): decoder.mask_token",
    ),
    "three channels": (
        {**narrow("decoder_mode_0"), "patch_embed.proj.weight": torch.rand(64, 3, 16, 16)},
        r"patch_embed.proj.weight \(64, 3, 16, 16\) instead of \(64, 1, 16, 16\)",
    ),
    "another length": (narrow("decoder_mode_0", tokens=197), "position embedding has 196 patches"),
    "another width": (narrow("decoder_mode_0", width=96), "96 is no multiple"),
    "a second token beside the encoder": (
        {
            **{f"encoder.{name}": value for name, value in narrow("finetuned_vit_base_patch16", 257).items()},
            "cls_token": torch.rand(1, 1, 64),
        },
        r"unknown tensors \(1\): cls_token",
    ),
    "a model of MAST": (
        {f"encoder.{name}": value for name, value in encoder_part(narrow("decoder_mode_0")).items()},
        "needs no import",
    ),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_unsupported_checkpoints_are_refused(tmp_path: Path, case: str) -> None:
    tensors, message = UNKNOWN[case]
    torch.save(tensors, tmp_path / "a.pth")
    with pytest.raises(ConfigError, match=message):
        import_checkpoint(tmp_path / "a.pth")


@pytest.mark.parametrize("content", [[torch.rand(3)], {"a": 1, "b": torch.rand(3)}, torch.rand(3), 7])
def test_a_file_that_is_no_table_of_tensors_is_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "a.pth")
    with pytest.raises(ConfigError, match="no table of tensors"):
        import_checkpoint(tmp_path / "a.pth")


class Malicious:
    """An object that runs a command when it is unpickled without restrictions."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.target),)


def test_a_pickle_that_would_run_a_command_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    harm = tmp_path / "harm"
    content = {"model": {}, "extra": Malicious(harm)}
    torch.save(content, tmp_path / "zip.pth")
    torch.save(content, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    for protocol in (2, 4):
        (tmp_path / f"pickle{protocol}.pth").write_bytes(pickle.dumps(content, protocol=protocol))
    for path in sorted(tmp_path.glob("*.pth")):
        with pytest.raises(StorageError, match=rf"{path.name}: (refused|damaged)"):
            import_checkpoint(path)
        assert not harm.exists()
    with pytest.raises(StorageError, match=r"(posix|nt)\.mkdir.*can run any program when they are loaded"):
        import_checkpoint(tmp_path / "zip.pth")
    pickle.loads((tmp_path / "pickle4.pth").read_bytes())
    assert harm.exists()  # proof that the file was dangerous


def test_an_object_of_another_class_is_refused_by_its_name(tmp_path: Path) -> None:
    arguments = argparse.Namespace(output=Path("runs"))
    torch.save({"model": {}, "args": arguments}, tmp_path / "a.pth")
    with pytest.raises(StorageError, match=r"a\.pth: refused, .*pathlib.*save only its tensors"):
        import_checkpoint(tmp_path / "a.pth")
    assert argparse.Namespace not in torch.serialization.get_safe_globals()


def test_files_that_are_no_checkpoints_are_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "empty.pth").write_bytes(b"")
    (tmp_path / "text.pth").write_text("<!DOCTYPE html><html>Quota exceeded</html>")
    complete = write_released(tmp_path / "whole.pth", narrow("decoder_mode_0")).read_bytes()
    (tmp_path / "cut.pth").write_bytes(complete[: len(complete) // 2])
    save_file({"a": torch.rand(100)}, tmp_path / "whole.safetensors")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "whole.safetensors").read_bytes()[:-100])
    messages = {
        "empty.pth": "an empty file",
        "text.pth": "neither a PyTorch nor a safetensors file.*web page",
        "cut.pth": "damaged, truncated",
        "cut.safetensors": "damaged or truncated",
        "none.pth": "No such file",
        "": "Is a directory",
    }
    for name, message in messages.items():
        with pytest.raises(StorageError, match=message):
            import_checkpoint(tmp_path / name)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_but_never_a_crash(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "a.pth"
    is_zip = data.draw(st.booleans())
    state = {"model": {"cls_token": torch.rand(1, 1, 64)}, "args": argparse.Namespace(a=1)}
    torch.save(state, path, _use_new_zipfile_serialization=is_zip)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with pytest.raises(MastError):  # a file that can be read has too few tensors
        import_checkpoint(path)


def test_an_imported_checkpoint_is_saved_and_loaded_unchanged(tmp_path: Path) -> None:
    imported = import_checkpoint(write_released(tmp_path / "a.pth", narrow("decoder_mode_0")))
    written = save_model(str(tmp_path / "model"), imported.description, imported.tensors)
    description, tensors = load_model(str(tmp_path / "model"))
    assert description == written
    assert tensors.keys() == imported.tensors.keys()
    assert all(torch.equal(tensors[name], value) for name, value in imported.tensors.items())
