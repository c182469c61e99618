"""Saved models are complete or refused in every storage; the Hub's client runs against a small local Hub."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from mast.config import Chunking, Spectrogram
from mast.errors import ConfigError, MastError, StorageError
from mast.models.checkpoint import FORMAT, WEIGHTS, ModelInfo, copy_model, load_model, save_model
from mast.normalisation import Normalisation, Provenance
from mast.storage import atomic_write, join, open_binary
from tests.s3_server import free_ports

DESCRIPTION = ModelInfo(
    kind="encoder",
    architecture={
        "encoder": {"width": 64, "heads": 1, "depth": 2},
        "note": "ä",
        "levels": [8, 4.5],
        "x": True,
    },
    spectrogram=Spectrogram(low_hz=50),
    chunking=Chunking(hop_s=9.2),
    normalisation=Normalisation("dataset", -7.123456789, 3.3, 2.5, Provenance("abc", 10, 102.4)),
    licence="CC0",
    source="a test",
    parent="0123456789abcdef",
    data="fedcba",
    thresholds={"report": 0.3},
    results={"test": {"AP": 0.5}, "val": None},
)


def random_tensors(seed: int = 0) -> dict[str, Tensor]:
    return {"encoder.norm.weight": torch.rand(64, generator=torch.Generator().manual_seed(seed))}


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    folder = str(tmp_path) if request.param == "local" else str(request.getfixturevalue("bucket"))
    return join(folder, "runs/model")


def put(location: str, name: str, content: bytes) -> None:
    with atomic_write(join(location, name)) as file:
        file.write(content)


def get(location: str, name: str) -> bytes:
    with open_binary(join(location, name)) as file:
        return b"".join(iter(lambda: file.read(1 << 20), b""))


def test_a_model_without_weights_or_normalisation_is_loaded(root: str) -> None:
    description = ModelInfo(
        kind="detector",
        architecture={},
        spectrogram=Spectrogram(),
        chunking=Chunking(),
        normalisation=None,
        licence="",
        source="",
    )
    written = save_model(root, description, {})
    assert load_model(root) == (written, {})
    assert written.versions.keys() == {"mast", "torch"}
    assert len(written.identity) == 16


def test_a_loaded_model_equals_the_saved_one(root: str) -> None:
    square = torch.arange(12.0).reshape(3, 4)
    tensors = {
        "transposed": square.T,
        "first": square,
        "second": square,
        "expanded": torch.zeros(1).expand(2, 3),
        "part": square[1:, ::2],
        "gradient": torch.nn.Parameter(torch.rand(2)),
        "number": torch.tensor(3),
        "half": torch.rand(3).bfloat16(),
    }
    written = save_model(root, DESCRIPTION, tensors)
    assert replace(written, weights=None) == DESCRIPTION
    description, loaded = load_model(root)
    assert description == written
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype and torch.equal(loaded[name], tensor)
        assert loaded[name].is_contiguous() and not loaded[name].requires_grad


def test_model_json_is_readable_utf8_json_with_the_fingerprint_of_the_weights(tmp_path: Path) -> None:
    save_model(str(tmp_path), replace(DESCRIPTION, results={"AP": float("nan")}), random_tensors())
    text = (tmp_path / "model.json").read_text(encoding="utf-8")
    values = json.loads(text)
    weights = (tmp_path / "weights.safetensors").read_bytes()
    assert values["weights"] == hashlib.blake2b(weights, digest_size=16).hexdigest()
    assert values["spectrogram"]["low_hz"] == 50 and values["normalisation"]["mean"] == -7.123456789
    assert "ä" in text and "\n  " in text and "NaN" not in text
    assert load_model(str(tmp_path))[0].results == {"AP": None}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "weights.safetensors"]


def test_saving_replaces_an_existing_model(root: str) -> None:
    first = save_model(root, DESCRIPTION, random_tensors(0))
    second = save_model(root, DESCRIPTION, random_tensors(1))
    assert load_model(root)[0] == second
    assert first.identity != second.identity


def test_identity_depends_on_everything_that_affects_predictions_and_nothing_else(tmp_path: Path) -> None:
    written = save_model(str(tmp_path), DESCRIPTION, random_tensors())
    assert DESCRIPTION.normalisation is not None
    normalisation = DESCRIPTION.normalisation
    same = [
        replace(written, licence="other", source="other", results={}, thresholds={}, parent=None, data=None),
        replace(written, chunking=Chunking(hop_s=5.12, min_audio_fraction=0.1), versions={"mast": "9"}),
        replace(written, normalisation=replace(normalisation, provenance=None)),
    ]
    assert {model.identity for model in same} == {written.identity}
    other = [
        replace(written, weights="00"),
        replace(written, architecture={"encoder": {"width": 64, "heads": 2, "depth": 2}}),
        replace(written, normalisation=replace(normalisation, mean=-7.0)),
        replace(written, normalisation=None),
        replace(written, spectrogram=Spectrogram()),
        replace(written, chunking=Chunking(chunk_s=5.12)),
        replace(written, chunking=Chunking(sample_rate_hz=32_000)),
    ]
    assert len({written.identity, *(model.identity for model in other)}) == 8
    with pytest.raises(ValueError, match="no identity before it is saved: call save_model first"):
        _ = DESCRIPTION.identity


def test_a_location_without_a_model_is_described_in_the_error(root: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="model: there is no such folder"):
        load_model(root)
    put(root, "notes.txt", b"hello")
    with pytest.raises(StorageError, match="this folder contains no model.*mast import-checkpoint"):
        load_model(root)
    put(root, "model.json", b"{}")
    with pytest.raises(ConfigError, match="model.json does not describe a MAST model"):
        load_model(root)
    (tmp_path / "pretrained.pth").write_bytes(b"PK")
    with pytest.raises(StorageError, match="this is a file.*mast import-checkpoint"):
        load_model(str(tmp_path / "pretrained.pth"))


def test_an_incomplete_model_is_refused(root: str, tmp_path: Path) -> None:
    save_model(str(tmp_path / "complete"), DESCRIPTION, random_tensors())
    put(root, "weights.safetensors", get(str(tmp_path / "complete"), "weights.safetensors"))
    with pytest.raises(StorageError, match="was not written completely"):
        load_model(root)
    other = root + "2"
    put(other, "model.json", get(str(tmp_path / "complete"), "model.json"))
    with pytest.raises(StorageError, match="model.json exists, weights.safetensors does not"):
        load_model(other)


def test_damaged_and_exchanged_weights_are_refused(root: str, tmp_path: Path) -> None:
    save_model(root, DESCRIPTION, random_tensors(0))
    complete = get(root, "weights.safetensors")
    for truncated in (complete[:-1], complete[:20], b""):
        put(root, "weights.safetensors", truncated)
        with pytest.raises(StorageError, match="damaged or truncated"):
            load_model(root)
    save_model(str(tmp_path / "other"), DESCRIPTION, random_tensors(1))
    for exchanged in (get(str(tmp_path / "other"), "weights.safetensors"), complete[:-1] + b"\x7f"):
        put(root, "weights.safetensors", exchanged)
        with pytest.raises(StorageError, match="not the file that model.json describes"):
            load_model(root)


def test_a_save_interrupted_between_the_files_leaves_no_loadable_model(tmp_path: Path) -> None:
    location = tmp_path / "model"
    (location / "model.json").mkdir(parents=True)  # nothing can be written here
    with pytest.raises(StorageError, match="cannot be written"):
        save_model(str(location), DESCRIPTION, random_tensors())
    with pytest.raises(StorageError, match="model.json cannot be read"):
        load_model(str(location))


def test_a_model_is_copied_unchanged_from_any_storage(root: str, tmp_path: Path) -> None:
    save_model(root, DESCRIPTION, random_tensors())
    copy = str(tmp_path / "copy")
    for _ in range(2):  # the second copy replaces the first
        copy_model(root, copy)
    assert [get(copy, name) for name in (WEIGHTS, "model.json")] == [
        get(root, name) for name in (WEIGHTS, "model.json")
    ]
    assert load_model(copy)[0] == load_model(root)[0]


def test_a_missing_bucket_is_named_in_the_error(bucket: str) -> None:
    with pytest.raises(StorageError, match="no-such-bucket"):
        save_model("s3://no-such-bucket/model", DESCRIPTION, random_tensors())
    with pytest.raises(StorageError, match="no-such-bucket/model: there is no such folder"):
        load_model("s3://no-such-bucket/model")


def changed(values: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {name: value for name, value in {**values, **changes}.items() if value != "gone"}


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "newer": ({"format_version": FORMAT + 1}, f"format {FORMAT + 1}, from a newer MAST.*--upgrade"),
    "no version": ({"format_version": "gone"}, "does not describe a MAST model"),
    "missing": ({"licence": "gone", "versions": "gone"}, r"licence is missing\.\n.*versions is missing"),
    "unknown": ({"colour": "red"}, "colour: "),
    "kind": ({"kind": "oracle"}, "kind: Input should be 'encoder', 'masked-autoencoder' or 'detector'"),
    "nested": ({"spectrogram": {"n_mels": -1}}, "spectrogram.n_mels: Input should be greater than 0"),
    "normalisation": ({"normalisation": {"kind": "magic", "mean": 0, "std": 1}}, "normalisation.kind: "),
    "thresholds": ({"thresholds": {"report": "high"}}, "thresholds.report: Input should be a valid number"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_wrong_description_is_refused_by_file_and_field(tmp_path: Path, case: str) -> None:
    changes, message = MISTAKES[case]
    save_model(str(tmp_path), DESCRIPTION, random_tensors())
    card = tmp_path / "model.json"
    card.write_text(json.dumps(changed(json.loads(card.read_text()), **changes)))
    with pytest.raises(ConfigError, match=f"{re.escape(str(tmp_path))}: model.json.*{message}"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[1]", b"null"])
def test_a_file_that_is_no_description_is_refused(tmp_path: Path, text: bytes) -> None:
    save_model(str(tmp_path), DESCRIPTION, random_tensors())
    (tmp_path / "model.json").write_bytes(text)
    with pytest.raises(ConfigError, match="not valid JSON|does not describe"):
        load_model(str(tmp_path))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0), value=st.integers(1, 255))
def test_any_changed_byte_of_the_weights_is_detected(tmp_path: Path, at: int, value: int) -> None:
    save_model(str(tmp_path), DESCRIPTION, random_tensors())
    content = bytearray((tmp_path / "weights.safetensors").read_bytes())
    content[at % len(content)] ^= value
    (tmp_path / "weights.safetensors").write_bytes(content)
    with pytest.raises(MastError):
        load_model(str(tmp_path))


class Hub(BaseHTTPRequestHandler):
    """The requests of the Hugging Face Hub that its client uses: revisions, their file lists, and the files."""

    commit = "0123456789abcdef0123456789abcdef01234567"
    repositories: dict[str, dict[str, bytes]]
    requests: list[str]

    def do_GET(self) -> None:
        self.requests.append(self.path)
        path = self.path.partition("?")[0]
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", path):
            name, endpoint, revision = match.groups()
            if name not in self.repositories:
                self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            elif name.startswith("gated/"):
                self.answer(403, b"{}", {"X-Error-Code": "GatedRepo"})
            elif name.startswith("broken/"):
                self.answer(400, b"{}", {})
            elif revision not in ("main", "v1", self.commit):
                self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            elif endpoint == "revision":
                self.answer(200, json.dumps({"id": name, "sha": self.commit, "siblings": []}).encode(), {})
            else:
                entries = [
                    {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    for path, data in self.repositories[name].items()
                ]
                self.answer(200, json.dumps(entries).encode(), {})
        elif match := re.fullmatch(rf"/([^/]+/[^/]+)/resolve/{self.commit}/(.+)", path):
            data = self.repositories[match[1]][match[2]]
            if match[1].startswith("closed/") and self.command == "GET":
                self.answer(403, b"", {})
                return
            headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": self.commit}
            self.answer(200, data, headers)
        else:
            self.answer(404, b"{}", {})

    def do_HEAD(self) -> None:
        self.do_GET()

    def answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *arguments: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ModelInfo]]:
    """Start a Hub with a model among other files, a repository without a model, and repositories that fail."""
    folder = tmp_path_factory.mktemp("published")
    written = save_model(str(folder), DESCRIPTION, random_tensors())
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    Hub.repositories = {
        "owner/birds": {**files, "README.md": b"# Birds", "pytorch_model.bin": b"a pickle"},
        "owner/other": {"README.md": b"# Other", "model.safetensors": b""},
        "gated/birds": files,
        "broken/birds": files,
        "closed/birds": files,
    }
    Hub.requests = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", written
    server.shutdown()
    server.server_close()


def load_in_subprocess(home: Path, locations: list[str], **environment: str) -> dict[str, str]:
    """Load each location in a subprocess, since the Hub's client reads the environment once; return the outcomes."""
    code = (
        "import json, sys\n"
        "from mast.errors import MastError\n"
        "from mast.models.checkpoint import load_model\n"
        "for location in sys.argv[1:]:\n"
        "    try:\n"
        "        description, tensors = load_model(location)\n"
        "        outcome = f'{description.identity} {len(tensors)}'\n"
        "    except MastError as error:\n"
        "        outcome = f'{type(error).__name__} {error}'\n"
        "    print(json.dumps([location, outcome]))\n"
    )
    quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *locations],
        env={**os.environ, **quiet, "HF_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return dict(json.loads(line) for line in done.stdout.splitlines())


def test_a_model_of_the_hub_is_downloaded_once_and_then_loads_offline(
    hub: tuple[str, ModelInfo], tmp_path: Path
) -> None:
    endpoint, written = hub
    Hub.requests.clear()
    loaded = f"{written.identity} 1"
    online = load_in_subprocess(
        tmp_path,
        [
            "hf://owner/birds",
            "hf://owner/birds@v1",
            f"hf://owner/birds@{Hub.commit}",
            "hf://owner/birds@v2",
            "hf://owner/none",
            "hf://owner/other",
            "hf://gated/birds",
            "hf://broken/birds",
            "hf://closed/birds",
        ],
        HF_ENDPOINT=endpoint,
    )
    assert online["hf://owner/birds"] == loaded
    assert online["hf://owner/birds@v1"] == loaded
    assert online[f"hf://owner/birds@{Hub.commit}"] == loaded
    assert re.match("StorageError hf://owner/birds@v2: .* no revision v2", online["hf://owner/birds@v2"])
    assert re.match("StorageError hf://owner/none: the Hub has no such model", online["hf://owner/none"])
    assert re.match(
        "StorageError hf://owner/other: this folder contains no model.*mast import-checkpoint",
        online["hf://owner/other"],
    )
    assert re.match("StorageError hf://gated/birds: .*access on request", online["hf://gated/birds"])
    assert re.match(
        "StorageError hf://broken/birds: .*cannot be reached .Bad request", online["hf://broken/birds"]
    )
    assert re.match("StorageError hf://closed/birds: cannot be downloaded: 403", online["hf://closed/birds"])
    downloaded = {path.rpartition("/")[2] for path in Hub.requests if "/resolve/" in path}
    assert downloaded == {"model.json", "weights.safetensors"}
    unreachable = f"http://127.0.0.1:{free_ports(1)[0]}"
    for environment in ({"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": unreachable}):
        offline = load_in_subprocess(tmp_path, ["hf://owner/birds", "hf://owner/none"], **environment)
        assert offline["hf://owner/birds"] == loaded
        assert re.match(
            "StorageError hf://owner/none: it was not downloaded before, .* cannot be reached",
            offline["hf://owner/none"],
        )


@pytest.mark.parametrize("location", ["hf://", "hf://birds", "hf://owner/birds/sub", "hf://owner/birds@"])
def test_an_invalid_hub_address_is_refused_with_the_valid_form(location: str) -> None:
    with pytest.raises(ConfigError, match="hf://owner/name@revision"):
        load_model(location)


def test_models_are_not_written_to_the_hub() -> None:
    with pytest.raises(ConfigError, match="hf upload"):
        save_model("hf://owner/birds", DESCRIPTION, random_tensors())


def test_without_the_hubs_client_the_error_has_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MastError, match=r'pip install "mast-bioacoustics\[train\]"'):
        load_model("hf://owner/birds")
