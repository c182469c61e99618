"""Runs in int8: calibrated once, on the recordings of the run, and identical for all its processes."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace

import numpy as np
import pytest

from mast import __version__
from mast.detection import chunk_detector
from mast.errors import ConfigError, StorageError
from mast.models import inference_engines
from mast.models.loading import load_detector
from mast.runs import ray
from mast.runs.quantisation import calibration_chunks
from mast.runs.ray import missing_requirements
from mast.runs.run import LONG_S, PrecisionRequest, Shard
from mast.runs.tables import RunConfig
from mast.runs.worker import load_detector_for_run
from tests.runs.archives import card, contents, open_paths, process_missing, rows


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    monkeypatch.setattr(inference_engines.shutil, "which", lambda _: None)


def test_an_engine_is_prepared_once_and_all_shards_detect_the_same_events(
    narrow_detector, tmp_path, short_parts
):
    recordings = card(tmp_path / "card")
    whole = open_paths(recordings, narrow_detector, tmp_path / "whole", request=PrecisionRequest("int8"))
    assert whole.config.engine == "int8" and missing_requirements(asdict(whole.config), __version__) is None
    shutil.copytree(tmp_path / "whole", tmp_path / "shards")
    process_missing(whole)
    for shard in (Shard(1, 2), Shard(2, 2)):
        later = open_paths(
            recordings, narrow_detector, tmp_path / "shards"
        )  # the precision of the started run
        assert later.config == replace(whole.config, out=str(tmp_path / "shards"))
        process_missing(later, shard)
    assert contents(tmp_path / "whole") == contents(tmp_path / "shards")
    assert rows(tmp_path / "whole", "events")
    (tmp_path / "whole" / "engine.bin").unlink()
    with pytest.raises(StorageError, match="engine.bin is missing"):
        load_detector_for_run(whole.config, "cpu")


def test_a_configuration_opens_the_same_engine_in_any_process(narrow_detector, tmp_path, monkeypatch):
    run = open_paths(
        card(tmp_path / "card", files=1),
        narrow_detector,
        tmp_path / "out",
        request=PrecisionRequest("float32"),
    )
    names = []
    monkeypatch.setattr(chunk_detector, "open_engine", lambda name, *rest: names.append(name))
    # a machine that would choose another engine
    monkeypatch.setattr(chunk_detector, "best_engine", lambda kind: "bf16")
    sent = json.dumps(asdict(run.config))  # as the supervisors of both backends send it
    load_detector_for_run(RunConfig(**json.loads(sent)), "cpu")
    assert names == ["float32"]


def test_a_machine_of_a_cluster_without_openvino_is_reported(narrow_detector, tmp_path, monkeypatch):
    run = open_paths(
        card(tmp_path / "card", files=1),
        narrow_detector,
        tmp_path / "out",
        request=PrecisionRequest("float32"),
    )
    monkeypatch.setattr(ray, "find_spec", lambda name: None)
    assert missing_requirements(asdict(run.config), __version__) is None
    problem = missing_requirements(asdict(replace(run.config, engine="int8")), __version__)
    assert problem == 'it lacks OpenVINO, which this run needs: pip install "mast-bioacoustics[fast]".'


def test_another_precision_is_another_run(narrow_detector, tmp_path):
    recordings = card(tmp_path / "card", files=2)
    first = open_paths(recordings, narrow_detector, tmp_path / "out", request=PrecisionRequest("float32"))
    assert first.config.engine == "float32"
    assert open_paths(recordings, narrow_detector, tmp_path / "out").config == first.config
    with pytest.raises(ConfigError, match="engine was float32, is now bf16"):
        open_paths(recordings, narrow_detector, tmp_path / "out", request=PrecisionRequest("bf16"))
    other = open_paths(recordings, narrow_detector, tmp_path / "other", request=PrecisionRequest("bf16"))
    assert other.config.fingerprint != first.config.fingerprint


def test_int8_is_chosen_automatically_only_for_a_long_run(monkeypatch):
    monkeypatch.setattr(inference_engines, "best_precision", lambda _: "bf16")
    assert PrecisionRequest().engine(LONG_S - 1) == "bf16" and PrecisionRequest().engine(LONG_S) == "int8"
    assert PrecisionRequest("bf16").engine(LONG_S) == PrecisionRequest(kind="cuda").engine(LONG_S) == "bf16"
    monkeypatch.setattr(inference_engines, "is_available", lambda **_: False)
    assert PrecisionRequest().engine(LONG_S) == "bf16"
    monkeypatch.undo()
    monkeypatch.setattr(inference_engines.shutil, "which", lambda _: None)
    monkeypatch.setattr(inference_engines, "best_precision", lambda _: "bf16")
    assert PrecisionRequest("fastest").engine() == "int8"
    monkeypatch.setattr(inference_engines, "best_precision", lambda _: "fp32")
    assert PrecisionRequest().engine() == "float32"


def test_engines_are_calibrated_on_the_middle_of_readable_recordings(narrow_detector, tmp_path):
    recordings = card(tmp_path / "card", files=3, seconds=2.0)
    broken = recordings / "A" / "20230510_003000.WAV"
    run = open_paths(recordings, narrow_detector, tmp_path / "out", request=PrecisionRequest("float32"))
    chunking = load_detector(narrow_detector).description.chunking
    whole = next((recordings / "B").glob("*"))
    broken.write_bytes(b"no audio")
    arguments = (str(tmp_path / "out" / "recordings.parquet"), 3, run.config.roots, run.config.expansions)
    audio, valid_samples = calibration_chunks(*arguments, chunking)
    assert audio.shape == (2, 20_480) and valid_samples.tolist() == [20_480] * 2
    samples = np.frombuffer(whole.read_bytes()[-2 * 32_000 :], "<i2")
    middle = samples[5760 : 5760 + 20_480].astype(int)
    assert any(abs(chunk - middle).max() <= 1 for chunk in audio.numpy().astype(int))
    for path in recordings.rglob("*.WAV"):
        path.write_bytes(b"")
    silence, _ = calibration_chunks(*arguments, chunking)
    assert silence.shape == (1, 20_480) and not silence.any()
