"""Device, precision and processes of a run, and errors if the requested ones are not available."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from mast.errors import MissingExtraError, ModelError, TrainingError
from mast.models.devices import best_precision, resolve_device
from mast.training.fabric import _processes_and_nodes, start_fabric
from mast.training.run_dir import TrainingRun

VARIABLES = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_NTASKS", "SLURM_NNODES")
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


def test_an_unknown_device_is_refused_with_the_valid_names() -> None:
    with pytest.raises(ModelError, match="--device tpu: use auto, cpu or cuda"):
        resolve_device("tpu")


def test_the_cpu_is_always_available() -> None:
    assert resolve_device("cpu") == "cpu"


@no_gpu
def test_without_a_gpu_auto_is_the_cpu_and_cuda_is_refused() -> None:
    assert resolve_device("auto") == "cpu"
    with pytest.raises(ModelError, match="no GPU can be used here"):
        resolve_device("cuda")


@pytest.mark.parametrize(("is_supported", "expected"), [(True, "bf16"), (False, "fp16")])
def test_a_gpu_uses_bf16_if_it_supports_it(
    monkeypatch: pytest.MonkeyPatch, is_supported: bool, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: is_supported)
    assert resolve_device("auto") == resolve_device("cuda") == "cuda"
    assert best_precision("cuda") == expected


@pytest.mark.parametrize(("tiles", "avx", "expected"), [(1, 0, "bf16"), (0, 1, "bf16"), (0, 0, "fp32")])
def test_a_cpu_uses_bf16_if_it_has_instructions_for_it(
    monkeypatch: pytest.MonkeyPatch, tiles: int, avx: int, expected: str
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: bool(tiles))
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bool(avx))
    assert best_precision("cpu") == expected


def test_fp16_on_a_cpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="fp16 needs a GPU"):
        start_fabric("fp16", TrainingRun(tmp_path), "cpu")


def test_mixed_precision_multiplies_in_bf16_and_does_not_convert_inputs(tmp_path: Path) -> None:
    fabric = start_fabric("bf16", TrainingRun(tmp_path), "cpu")
    layer = fabric.setup_module(torch.nn.Linear(2, 2))
    input_types: list[torch.dtype] = []
    layer.register_forward_pre_hook(lambda module, inputs: input_types.append(inputs[0].dtype))
    layer(torch.ones(1, 2))
    with fabric.autocast():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert input_types == [torch.float32]
    assert product.dtype == torch.bfloat16
    assert layer.weight.dtype == torch.float32


def test_full_precision_multiplies_in_float32(tmp_path: Path) -> None:
    fabric = start_fabric("fp32", TrainingRun(tmp_path), "cpu")
    with fabric.autocast():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == torch.float32
    assert fabric.world_size == 1


def test_a_missing_extra_is_an_error_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    with pytest.raises(MissingExtraError, match=r'pip install "mast-bioacoustics\[train\]"'):
        start_fabric("fp32", TrainingRun(tmp_path), "cpu")


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
def test_processes_and_nodes_are_those_that_torchrun_or_slurm_has_started(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: tuple[int, int]
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _processes_and_nodes() == expected
