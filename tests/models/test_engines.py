"""Every engine against the same detector in float32, and how one is chosen."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from mast.errors import ConfigError, MissingExtraError, ModelError
from mast.models import engines, programs
from mast.models.decoding import scores
from mast.models.engines import best_engine, choose_engine, open_engine, prepare_engine
from mast.models.folding import fold
from mast.models.loading import load_detector
from tests.detection.archives import NARROW, save_detector, swelling

SCORES = {"float32": 1e-4, "bf16": 0.02, "int8": 0.15, "int8-compiled": 0.15}
"""Largest difference of a score. The head of this random detector is a hundred times steeper than a learned one."""

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
    """Sound, and how much of each chunk is sound; the last one is half empty."""
    sound = torch.from_numpy(swelling(1.28 * 6).reshape(6, -1))
    return sound, torch.tensor([20_480] * 5 + [10_000])


@pytest.fixture(scope="module")
def expected(loaded, chunks):
    with torch.inference_mode():
        return loaded.network(loaded.frontend(*chunks))


@pytest.mark.parametrize("name", SCORES)
def test_an_engine_finds_what_float32_finds(name, loaded, chunks, expected):
    before = {key: value.clone() for key, value in loaded.network.state_dict().items()}
    network = open_engine(name, loaded, "cpu", prepare_engine(name, loaded, *chunks))
    with torch.inference_mode():
        found = network(loaded.frontend(*chunks))
        alone = network(loaded.frontend(*(item[:1] for item in chunks)))
    assert scores(expected).std() > 0.05
    torch.testing.assert_close(scores(found), scores(expected), atol=SCORES[name], rtol=0)
    torch.testing.assert_close(found.distances, expected.distances, atol=EDGES[name], rtol=0)
    torch.testing.assert_close(found.locations.centres, expected.locations.centres)
    torch.testing.assert_close(alone.logits[0], found.logits[0], atol=0.1, rtol=0)
    assert all(torch.equal(value, before[key]) for key, value in loaded.network.state_dict().items())


@pytest.mark.parametrize("name", SCORES)
def test_an_engine_hands_the_picture_on_to_an_adapter_that_looks_at_it(name, chunks, tmp_path):
    loaded = load_detector(save_detector(tmp_path, architecture={**NARROW, "adapter": "detail"}))
    network = open_engine(name, loaded, "cpu", prepare_engine(name, loaded, *chunks))
    with torch.inference_mode():
        specs = loaded.frontend(*chunks)
        expected, read = loaded.network(specs), network.encode(specs)
        found = network.predict(read)
        tokens = loaded.network.encoder(specs)
    torch.testing.assert_close(scores(found), scores(expected), atol=SCORES[name], rtol=0)
    torch.testing.assert_close(found.distances, expected.distances, atol=EDGES[name], rtol=0)
    if network.tokens is None:
        assert name == "int8"
    else:
        assert read.shape[1] == tokens.shape[1] + 256
        torch.testing.assert_close(network.tokens(read).float(), tokens, atol=0.1, rtol=0)


def test_autocast_as_on_a_gpu_finds_what_float32_finds(loaded, chunks, expected):
    network = engines._autocast(fold(loaded.network), "cpu", torch.bfloat16)
    with torch.inference_mode():
        found = network(loaded.frontend(*chunks))
    assert not torch.equal(found.logits, expected.logits)  # it is another arithmetic
    torch.testing.assert_close(scores(found), scores(expected), atol=SCORES["bf16"], rtol=0)


def test_weights_of_a_compiled_encoder_are_built_in_whether_one_chunk_comes_or_several(loaded, chunks):
    encoder, specs = fold(loaded.network).encoder, loaded.frontend(*chunks)
    encode = engines.compiled(encoder, torch.zeros_like(specs[:1]))
    with torch.inference_mode():
        together, alone = encode(specs[:4]), encode(specs[:1])
        torch.testing.assert_close(together[:1], alone, atol=0.1, rtol=0)
        for block in encoder.blocks:
            block.mlp.fc1.weight.zero_()
        assert torch.equal(encode(specs[:4]), together) and torch.equal(encode(specs[:1]), alone)


def test_engines_of_torch_need_no_preparing(loaded, chunks):
    assert prepare_engine("bf16", loaded, *chunks) is None
    with pytest.raises(ModelError, match="has to be prepared first"):
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
def test_the_engine_for_what_is_asked_and_what_is_there(
    precision, kind, best, compiler, expected, monkeypatch
):
    monkeypatch.setattr(engines, "best_precision", lambda _: best)
    monkeypatch.setattr(engines.torch.cuda, "is_available", lambda: kind == "cuda")
    monkeypatch.setattr(engines.shutil, "which", lambda _: compiler)
    assert choose_engine(precision, kind) == expected


def test_without_openvino_the_fastest_is_torch_and_int8_tells_what_to_install(monkeypatch):
    monkeypatch.setattr(programs, "find_spec", lambda name: None)
    assert choose_engine("fastest", "cpu") == best_engine("cpu")
    with pytest.raises(MissingExtraError, match=r"mast-bioacoustics\[fast\]"):
        choose_engine("int8", "cpu")
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingExtraError, match=r"mast-bioacoustics\[fast\]"):
        programs._import("openvino")


def test_gpus_of_a_cluster_that_this_machine_is_not_among_compute_in_bf16(monkeypatch):
    monkeypatch.setattr(engines.torch.cuda, "is_available", lambda: False)
    assert choose_engine("auto", "cuda") == "bf16"


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="--precision int4: use auto, float32, bf16, int8, fastest"):
        choose_engine("int4", "cpu")
    with pytest.raises(ConfigError, match="int8 is for processors"):
        choose_engine("int8", "cuda")


WATCHED = """
import sys, torch

def told(event, arguments):
    if event in ("os.fork", "socket.connect", "socket.getaddrinfo"):
        print(event, arguments, flush=True)

sys.addaudithook(told)
from mast.models.engines import open_engine, prepare_engine
from mast.models.loading import load_detector

loaded, sound = load_detector(sys.argv[1]), torch.zeros(2, 20_480, dtype=torch.int16)
chunks = sound, torch.tensor([20_480, 20_480])
network = open_engine("int8", loaded, "cpu", prepare_engine("int8", loaded, *chunks))
network(loaded.frontend(*chunks))
print("done", "openvino" in sys.modules, sys.modules["openvino_telemetry"], flush=True)
"""
"""Makes an engine of OpenVINO and runs it, and prints whenever a process is forked or anyone is called."""


def test_openvino_tells_nobody(tmp_path):
    model = save_detector(tmp_path / "model", architecture=NARROW)
    elsewhere = {"HOME": str(tmp_path)}  # where nobody has declined to be reported
    told = subprocess.run(
        [sys.executable, "-c", WATCHED, model],
        env={**os.environ, **elsewhere, "CI": ""},
        check=True,
        capture_output=True,
        text=True,
    )
    assert told.stdout.splitlines()[-1:] == ["done True None"]
    assert not [line for line in told.stdout.splitlines() if line.startswith(("os.fork", "socket."))]
    assert not (tmp_path / "intel").exists()
