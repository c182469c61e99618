"""Recordings, model and events on an object store: the same files as on a disk."""

import sys
from pathlib import Path

import boto3
import pytest

from mast.cli import main
from mast.detection import leading
from mast.detection.inputs import look_at
from mast.detection.local import Compute, run_local
from mast.errors import ConfigError, StorageError
from mast.storage import files_below, open_binary, written_whole
from tests.detection.archives import card, contents, heard, opened
from tests.detection.flaky import flaky_store

pytestmark = pytest.mark.usefixtures("short_parts")


def upload(folder, bucket, prefix):
    for path in sorted(item for item in folder.rglob("*") if item.is_file()):
        with written_whole(f"{bucket}/{prefix}/{path.relative_to(folder).as_posix()}") as file:
            file.write(path.read_bytes())


def stored(out):
    """Every file of a run but the two that name the root of its recordings."""
    names = [name for name in files_below(out) if "part-" in name]
    found = {}
    for name in names:
        with open_binary(f"{out}/{name}") as file:
            found[name] = file.read()
    return found


def test_from_bucket_to_bucket_the_files_are_those_of_a_disk(detector, bucket, tmp_path):
    root = card(tmp_path / "card", 5)
    (root / "empty.wav").touch()
    (root / "b r#1.wav").write_bytes((root / "A" / "20230510_003000.WAV").read_bytes()[:20_044])
    upload(root, bucket, "2023/card")
    here = heard(opened(root, detector, tmp_path / "out"))
    words = [f"{bucket}/2023/card"]
    there = opened(words, detector, f"{bucket}/out")
    assert there.plan.recordings == 7 and len(there.missing()) == 3
    outcome = run_local(there, Compute("cpu", 1))
    assert (outcome.end, outcome.exit_code, outcome.missing) == ("finished", 3, 0)
    assert stored(there.out) == {name: data for name, data in contents(here.out).items() if "part-" in name}
    again = opened(words, detector, f"{bucket}/out")
    assert not len(again.missing()) and "3 parts done, 0 to do" in again.summary()
    with pytest.raises(ConfigError, match="must not mix"):
        opened(words, detector, f"{bucket}/out", min_score=0.5)


def test_a_store_that_refuses_now_and_then_changes_nothing(
    detector, bucket, s3_server, tmp_path, monkeypatch
):
    """Requests are refused more often in a row than the client itself tries again."""
    root = card(tmp_path / "card", 4)
    upload(root, bucket, "card")
    here = heard(opened(root, detector, tmp_path / "out"))
    archive = opened([f"{bucket}/card"], detector, f"{bucket}/out")

    def refuses(method, path, times):
        is_write = method == "PUT" and "/out/" in path
        is_read = method == "GET" and path.endswith("B/20230510_013000.WAV")
        return (is_write or is_read) and times <= 4

    monkeypatch.setattr(leading, "PAUSE_S", 0.01)
    # else uploads do not tell their length
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    with flaky_store(s3_server, refuses) as (address, refused):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        outcome = run_local(archive, Compute("cpu", 1))
    assert (outcome.end, outcome.exit_code, outcome.missing) == ("finished", 0, 0)
    assert refused["PUT"] >= 4 * 4 and refused["GET"] == 4
    assert stored(archive.out) == {name: data for name, data in contents(here.out).items() if "part-" in name}


def test_single_objects_and_a_model_in_a_bucket_will_do(detector, bucket, tmp_path):
    upload(Path(detector), bucket, "model")
    upload(card(tmp_path / "card", 2), bucket, "card")
    words = [f"{bucket}/card/B/20230510_013000.WAV", f"{bucket}/card/A/20230510_003000.WAV"]
    here = heard(opened(sorted((tmp_path / "card").rglob("*.WAV")), detector, tmp_path / "here"))
    there = heard(opened(words, f"{bucket}/model", tmp_path / "there"))
    assert there.orders.roots == {"card": f"{bucket}/card"}
    parts = [name for name in contents(here.out) if "part-" in name]
    assert [contents(there.out)[name] for name in parts] == [contents(here.out)[name] for name in parts]


def test_files_of_two_buckets_are_refused_and_so_is_what_is_not_there(bucket):
    other = f"{bucket}-other"
    boto3.client("s3").create_bucket(Bucket=other.removeprefix("s3://"))
    for place in (bucket, other):
        with written_whole(f"{place}/a.wav") as file:
            file.write(b"RIFF")
    with pytest.raises(ConfigError, match="of one bucket, or of this machine, at a time"):
        look_at([f"{bucket}/a.wav", f"{other}/a.wav"])
    with pytest.raises(StorageError, match="there is no such file or folder"):
        look_at([f"{bucket}/nowhere"])


def test_a_bucket_that_is_gone_is_not_the_recordings_fault(detector, bucket, tmp_path):
    upload(card(tmp_path / "card", 1), bucket, "card")
    archive = opened([f"{bucket}/card"], detector, tmp_path / "out")
    boto3.client("s3").delete_object(Bucket=bucket.removeprefix("s3://"), Key="card/A/20230510_003000.WAV")
    with pytest.raises(StorageError, match="cannot be reached any more"):
        heard(archive)


def test_a_store_that_does_not_answer_is_told_in_one_message(detector, bucket, monkeypatch, capsys):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(sys, "argv", ["mast", "detect", f"{bucket}/card", "--model", detector])
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr().err
    assert stop.value.code == 1
    assert "AWS Error NETWORK_CONNECTION" in said and "Check the bucket, the AWS_ variables" in said
