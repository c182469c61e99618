"""What a run computes on: what was asked for, or a sentence that says why not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from mast.errors import MissingExtraError, ModelError, TrainingError
from mast.models.devices import accelerator, best_precision
from mast.training.devices import _processes_and_nodes, start_fabric
from mast.training.run import Run

VARIABLES = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_NTASKS", "SLURM_NNODES")
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")


def test_an_unknown_device_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelError, match="--device tpu: use auto, cpu or cuda"):
        accelerator("tpu")


def test_a_cpu_may_always_be_asked_for() -> None:
    assert accelerator("cpu") == "cpu"


@no_gpu
def test_without_a_gpu_auto_is_the_cpu_and_cuda_is_refused() -> None:
    assert accelerator("auto") == "cpu"
    with pytest.raises(ModelError, match="no GPU can be used here"):
        accelerator("cuda")


@pytest.mark.parametrize(("is_supported", "expected"), [(True, "bf16"), (False, "fp16")])
def test_a_gpu_takes_bf16_where_it_has_it(
    monkeypatch: pytest.MonkeyPatch, is_supported: bool, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: is_supported)
    assert accelerator("auto") == accelerator("cuda") == "cuda"
    assert best_precision("cuda") == expected


@pytest.mark.parametrize(("tiles", "avx", "expected"), [(1, 0, "bf16"), (0, 1, "bf16"), (0, 0, "fp32")])
def test_a_cpu_takes_bf16_where_it_multiplies_in_it(
    monkeypatch: pytest.MonkeyPatch, tiles: int, avx: int, expected: str
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: bool(tiles))
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bool(avx))
    assert best_precision("cpu") == expected


def test_fp16_on_a_cpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="fp16 needs a GPU"):
        start_fabric("fp16", Run(tmp_path), "cpu")


def test_mixed_precision_multiplies_in_bf16_and_leaves_what_goes_in_as_it_is(tmp_path: Path) -> None:
    fabric = start_fabric("bf16", Run(tmp_path), "cpu")
    layer = fabric.setup_module(torch.nn.Linear(2, 2))
    seen: list[torch.dtype] = []
    layer.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].dtype))
    layer(torch.ones(1, 2))
    with fabric.autocast():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert seen == [torch.float32]
    assert product.dtype == torch.bfloat16
    assert layer.weight.dtype == torch.float32


def test_full_precision_is_what_it_says(tmp_path: Path) -> None:
    fabric = start_fabric("fp32", Run(tmp_path), "cpu")
    with fabric.autocast():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == torch.float32
    assert fabric.world_size == 1


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    with pytest.raises(MissingExtraError, match=r'pip install "mast-bioacoustics\[train\]"'):
        start_fabric("fp32", Run(tmp_path), "cpu")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (1, 1)),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, (4, 2)),  # torchrun
        ({"SLURM_NTASKS": "8", "SLURM_NNODES": "2"}, (4, 2)),  # srun
        ({"SLURM_NTASKS": "2"}, (2, 1)),
        ({"SLURM_NTASKS": "2", "SLURM_NNODES": "2", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, (4, 2)),
    ],
)
def test_as_many_processes_are_expected_as_torchrun_or_slurm_has_started(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: tuple[int, int]
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _processes_and_nodes() == expected
