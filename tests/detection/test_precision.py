"""A run in int8: prepared once, from its own recordings, and the same for all who work at it."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace

import numpy as np
import pytest

from mast import __version__
from mast.detection import chunks, cluster
from mast.detection.archive import LONG_S, Asked, Shard
from mast.detection.calibration import chunks_of
from mast.detection.cluster import missed
from mast.detection.part import open_ear
from mast.detection.part_tables import Orders
from mast.errors import ConfigError, StorageError
from mast.models import engines
from mast.models.loading import load_detector
from tests.detection.archives import card, contents, heard, opened, rows


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    monkeypatch.setattr(engines.shutil, "which", lambda _: None)


def test_an_engine_is_prepared_once_and_all_who_work_at_a_run_find_the_same(
    narrow_detector, tmp_path, short_parts
):
    recordings = card(tmp_path / "card")
    whole = opened(recordings, narrow_detector, tmp_path / "whole", asked=Asked("int8"))
    assert whole.orders.engine == "int8" and missed(asdict(whole.orders), __version__) is None
    shutil.copytree(tmp_path / "whole", tmp_path / "shards")
    heard(whole)
    for shard in (Shard(1, 2), Shard(2, 2)):
        later = opened(recordings, narrow_detector, tmp_path / "shards")  # asks for nothing: as it began
        assert later.orders == replace(whole.orders, out=str(tmp_path / "shards"))
        heard(later, shard)
    assert contents(tmp_path / "whole") == contents(tmp_path / "shards")
    assert rows(tmp_path / "whole", "events")
    (tmp_path / "whole" / "engine.bin").unlink()
    with pytest.raises(StorageError, match="engine.bin is gone"):
        open_ear(whole.orders, "cpu")


def test_orders_open_the_same_engine_whichever_process_they_were_sent_to(
    narrow_detector, tmp_path, monkeypatch
):
    run = opened(card(tmp_path / "card", files=1), narrow_detector, tmp_path / "out", asked=Asked("float32"))
    names = []
    monkeypatch.setattr(chunks, "open_engine", lambda name, *rest: names.append(name))
    monkeypatch.setattr(chunks, "best_engine", lambda kind: "bf16")  # of a machine that would choose another
    sent = json.dumps(asdict(run.orders))  # as the leader of a process sends them, of either engine
    open_ear(Orders(**json.loads(sent)), "cpu")
    assert names == ["float32"]


def test_a_machine_of_a_cluster_without_openvino_is_told(narrow_detector, tmp_path, monkeypatch):
    run = opened(card(tmp_path / "card", files=1), narrow_detector, tmp_path / "out", asked=Asked("float32"))
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    assert missed(asdict(run.orders), __version__) is None
    told = missed(asdict(replace(run.orders, engine="int8")), __version__)
    assert told == 'it has no OpenVINO, which this run needs: pip install "mast-bioacoustics[fast]".'


def test_another_precision_is_another_run(narrow_detector, tmp_path):
    recordings = card(tmp_path / "card", files=2)
    first = opened(recordings, narrow_detector, tmp_path / "out", asked=Asked("float32"))
    assert first.orders.engine == "float32"
    assert opened(recordings, narrow_detector, tmp_path / "out").orders == first.orders
    with pytest.raises(ConfigError, match="engine was float32, is now bf16"):
        opened(recordings, narrow_detector, tmp_path / "out", asked=Asked("bf16"))
    other = opened(recordings, narrow_detector, tmp_path / "other", asked=Asked("bf16"))
    assert other.orders.fingerprint != first.orders.fingerprint


def test_int8_is_chosen_by_itself_for_a_long_run_alone(monkeypatch):
    monkeypatch.setattr(engines, "best_precision", lambda _: "bf16")
    assert Asked().engine(LONG_S - 1) == "bf16" and Asked().engine(LONG_S) == "int8"
    assert Asked("bf16").engine(LONG_S) == Asked(kind="cuda").engine(LONG_S) == "bf16"
    monkeypatch.setattr(engines, "is_here", lambda **_: False)
    assert Asked().engine(LONG_S) == "bf16"
    monkeypatch.undo()
    monkeypatch.setattr(engines.shutil, "which", lambda _: None)
    monkeypatch.setattr(engines, "best_precision", lambda _: "bf16")
    assert Asked("fastest").engine() == "int8"
    monkeypatch.setattr(engines, "best_precision", lambda _: "fp32")
    assert Asked().engine() == "float32"


def test_engines_are_prepared_on_the_middle_of_recordings_that_can_be_read(narrow_detector, tmp_path):
    recordings = card(tmp_path / "card", files=3, seconds=2.0)
    broken = recordings / "A" / "20230510_003000.WAV"
    run = opened(recordings, narrow_detector, tmp_path / "out", asked=Asked("float32"))
    chunking = load_detector(narrow_detector).description.chunking
    whole = next((recordings / "B").glob("*"))
    broken.write_bytes(b"no sound")
    where = (str(tmp_path / "out" / "recordings.parquet"), 3, run.orders.roots, run.orders.expansions)
    sound, filled = chunks_of(*where, chunking)
    assert sound.shape == (2, 20_480) and filled.tolist() == [20_480] * 2
    samples = np.frombuffer(whole.read_bytes()[-2 * 32_000 :], "<i2")
    middle = samples[5760 : 5760 + 20_480].astype(int)
    assert any(abs(chunk - middle).max() <= 1 for chunk in sound.numpy().astype(int))
    for path in recordings.rglob("*.WAV"):
        path.write_bytes(b"")
    silence, filled = chunks_of(*where, chunking)
    assert silence.shape == (1, 20_480) and not silence.any()
