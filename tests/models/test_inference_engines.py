"""Every engine compared with the same detector in float32, and the choice of an engine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from mast.errors import ConfigError, MissingExtraError, ModelError
from mast.models import inference_engines, openvino
from mast.models.fuse import fuse_batchnorm
from mast.models.inference_engines import best_engine, choose_engine, open_engine, prepare_engine
from mast.models.loading import load_detector
from mast.models.postprocess import scores
from tests.runs.archives import NARROW, save_detector, varying_noise

SCORES = {"float32": 1e-4, "bf16": 0.02, "int8": 0.15, "int8-compiled": 0.15}
"""Largest difference of a score. Scores of this random detector vary a hundred times more than those of a trained one."""

EDGES = {"float32": 1e-4, "bf16": 0.05, "int8": 0.1, "int8-compiled": 0.1}
"""Largest difference of an edge, in strides."""


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return load_detector(save_detector(tmp_path_factory.mktemp("model"), architecture=NARROW))


@pytest.fixture(scope="module")
def chunks():
    """Return chunks of audio and their valid samples; the last chunk is half empty."""
    audio = torch.from_numpy(varying_noise(1.28 * 6).reshape(6, -1))
    return audio, torch.tensor([20_480] * 5 + [10_000])


@pytest.fixture(scope="module")
def expected(loaded, chunks):
    with torch.inference_mode():
        return loaded.network(loaded.frontend(*chunks))


@pytest.mark.parametrize("name", SCORES)
def test_an_engine_predicts_the_same_as_float32(name, loaded, chunks, expected):
    before = {key: value.clone() for key, value in loaded.network.state_dict().items()}
    network = open_engine(name, loaded, "cpu", prepare_engine(name, loaded, *chunks))
    with torch.inference_mode():
        output = network(loaded.frontend(*chunks))
        single = network(loaded.frontend(*(values[:1] for values in chunks)))
    assert scores(expected).std() > 0.05
    torch.testing.assert_close(scores(output), scores(expected), atol=SCORES[name], rtol=0)
    torch.testing.assert_close(output.distances, expected.distances, atol=EDGES[name], rtol=0)
    torch.testing.assert_close(output.locations.centres, expected.locations.centres)
    torch.testing.assert_close(single.logits[0], output.logits[0], atol=0.1, rtol=0)
    assert all(torch.equal(value, before[key]) for key, value in loaded.network.state_dict().items())


@pytest.mark.parametrize("name", SCORES)
def test_an_engine_passes_the_spectrogram_to_an_adapter_that_reads_it(name, chunks, tmp_path):
    loaded = load_detector(save_detector(tmp_path, architecture={**NARROW, "adapter": "hybrid"}))
    network = open_engine(name, loaded, "cpu", prepare_engine(name, loaded, *chunks))
    with torch.inference_mode():
        specs = loaded.frontend(*chunks)
        expected, adapter_input = loaded.network(specs), network.encode(specs)
        output = network.predict(adapter_input)
        tokens = loaded.network.encoder(specs)
    torch.testing.assert_close(scores(output), scores(expected), atol=SCORES[name], rtol=0)
    torch.testing.assert_close(output.distances, expected.distances, atol=EDGES[name], rtol=0)
    if network.tokens is None:
        assert name == "int8"
    else:
        assert adapter_input.shape[1] == tokens.shape[1] + 256
        torch.testing.assert_close(network.tokens(adapter_input).float(), tokens, atol=0.1, rtol=0)


def test_autocast_as_on_a_gpu_predicts_the_same_as_float32(loaded, chunks, expected):
    network = inference_engines._autocast(fuse_batchnorm(loaded.network), "cpu", torch.bfloat16)
    with torch.inference_mode():
        output = network(loaded.frontend(*chunks))
    assert not torch.equal(output.logits, expected.logits)  # the precision differs
    torch.testing.assert_close(scores(output), scores(expected), atol=SCORES["bf16"], rtol=0)


def test_weights_of_a_compiled_encoder_are_constant_for_one_chunk_and_for_several(loaded, chunks):
    encoder, specs = fuse_batchnorm(loaded.network).encoder, loaded.frontend(*chunks)
    encode = inference_engines.compile_encoder(encoder, torch.zeros_like(specs[:1]))
    with torch.inference_mode():
        batch, single = encode(specs[:4]), encode(specs[:1])
        torch.testing.assert_close(batch[:1], single, atol=0.1, rtol=0)
        for block in encoder.blocks:
            block.mlp.fc1.weight.zero_()
        assert torch.equal(encode(specs[:4]), batch) and torch.equal(encode(specs[:1]), single)


def test_torch_engines_need_no_preparation(loaded, chunks):
    assert prepare_engine("bf16", loaded, *chunks) is None
    with pytest.raises(ModelError, match="prepare_engine must quantise its model first"):
        open_engine("int8", loaded, "cpu")


@pytest.mark.parametrize(
    ("precision", "kind", "best", "compiler", "expected"),
    [
        ("auto", "cpu", "bf16", "g++", "bf16"),
        ("auto", "cpu", "fp32", "g++", "float32"),
        ("auto", "cuda", "fp16", None, "fp16"),
        ("auto", "cuda", "bf16", None, "bf16"),
        ("float32", "cuda", "bf16", None, "float32"),
        ("bf16", "cpu", "fp32", None, "bf16"),
        ("fastest", "cpu", "bf16", "g++", "int8-compiled"),
        ("fastest", "cpu", "bf16", None, "int8"),
        ("fastest", "cpu", "fp32", "g++", "int8"),
        ("fastest", "cuda", "bf16", "g++", "bf16"),
        ("int8", "cpu", "bf16", "g++", "int8-compiled"),
    ],
)
def test_the_engine_depends_on_precision_and_hardware(precision, kind, best, compiler, expected, monkeypatch):
    monkeypatch.setattr(inference_engines, "best_precision", lambda _: best)
    monkeypatch.setattr(inference_engines.torch.cuda, "is_available", lambda: kind == "cuda")
    monkeypatch.setattr(inference_engines.shutil, "which", lambda _: compiler)
    assert choose_engine(precision, kind) == expected


def test_without_openvino_the_fastest_engine_is_torch_and_int8_raises_an_error(monkeypatch):
    monkeypatch.setattr(openvino, "find_spec", lambda name: None)
    assert choose_engine("fastest", "cpu") == best_engine("cpu")
    with pytest.raises(MissingExtraError, match=r"mast-bioacoustics\[fast\]"):
        choose_engine("int8", "cpu")
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingExtraError, match=r"mast-bioacoustics\[fast\]"):
        openvino._import("openvino")


def test_gpus_of_a_cluster_use_bf16_when_chosen_on_a_machine_without_gpu(monkeypatch):
    monkeypatch.setattr(inference_engines.torch.cuda, "is_available", lambda: False)
    assert choose_engine("auto", "cuda") == "bf16"


def test_invalid_precisions_are_refused():
    with pytest.raises(ConfigError, match="--precision int4: use auto, float32, bf16, int8, fastest"):
        choose_engine("int4", "cpu")
    with pytest.raises(ConfigError, match="int8 runs on CPUs only"):
        choose_engine("int8", "cuda")


AUDITED_PROGRAM = """
import sys, torch

def print_event(event, arguments):
    if event in ("os.fork", "socket.connect", "socket.getaddrinfo"):
        print(event, arguments, flush=True)

sys.addaudithook(print_event)
from mast.models.inference_engines import open_engine, prepare_engine
from mast.models.loading import load_detector

loaded, audio = load_detector(sys.argv[1]), torch.zeros(2, 20_480, dtype=torch.int16)
chunks = audio, torch.tensor([20_480, 20_480])
network = open_engine("int8", loaded, "cpu", prepare_engine("int8", loaded, *chunks))
network(loaded.frontend(*chunks))
print("done", "openvino" in sys.modules, sys.modules["openvino_telemetry"], flush=True)
"""
"""Program that runs an OpenVINO engine, and prints every fork and network connection."""


def test_openvino_sends_no_telemetry(tmp_path):
    model = save_detector(tmp_path / "model", architecture=NARROW)
    home = {"HOME": str(tmp_path)}  # a folder without a stored refusal of telemetry
    process = subprocess.run(
        [sys.executable, "-c", AUDITED_PROGRAM, model],
        env={**os.environ, **home, "CI": ""},
        check=True,
        capture_output=True,
        text=True,
    )
    assert process.stdout.splitlines()[-1:] == ["done True None"]
    assert not [line for line in process.stdout.splitlines() if line.startswith(("os.fork", "socket."))]
    assert not (tmp_path / "intel").exists()
