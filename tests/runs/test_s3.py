"""Runs with recordings, model and events on an object store: the same files as on a disk."""

import sys
from pathlib import Path

import boto3
import pytest

from mast.cli import main
from mast.errors import ConfigError, StorageError
from mast.runs import supervisor
from mast.runs.inputs import resolve_inputs
from mast.runs.local import ComputeResources, run_local
from mast.storage import atomic_write, list_files, open_binary
from tests.runs.archives import card, contents, open_paths, process_missing
from tests.runs.flaky import flaky_store

pytestmark = pytest.mark.usefixtures("short_parts")


def upload(folder, bucket, prefix):
    for path in sorted(item for item in folder.rglob("*") if item.is_file()):
        with atomic_write(f"{bucket}/{prefix}/{path.relative_to(folder).as_posix()}") as file:
            file.write(path.read_bytes())


def stored(out):
    """Return every file of a run except the two that contain the root of its recordings."""
    names = [name for name in list_files(out) if "part-" in name]
    files = {}
    for name in names:
        with open_binary(f"{out}/{name}") as file:
            files[name] = file.read()
    return files


def test_a_run_from_bucket_to_bucket_writes_the_files_of_a_run_on_a_disk(detector, bucket, tmp_path):
    root = card(tmp_path / "card", 5)
    (root / "empty.wav").touch()
    (root / "b r#1.wav").write_bytes((root / "A" / "20230510_003000.WAV").read_bytes()[:20_044])
    upload(root, bucket, "2023/card")
    local = process_missing(open_paths(root, detector, tmp_path / "out"))
    paths = [f"{bucket}/2023/card"]
    remote = open_paths(paths, detector, f"{bucket}/out")
    assert remote.plan.recordings == 7 and len(remote.missing()) == 3
    outcome = run_local(remote, ComputeResources("cpu", 1))
    assert (outcome.end, outcome.exit_code, outcome.missing) == ("finished", 3, 0)
    assert stored(remote.out) == {name: data for name, data in contents(local.out).items() if "part-" in name}
    resumed = open_paths(paths, detector, f"{bucket}/out")
    assert not len(resumed.missing()) and "Parts: 3 done, 0 to do" in resumed.summary()
    with pytest.raises(ConfigError, match="must not be mixed"):
        open_paths(paths, detector, f"{bucket}/out", min_score=0.5)


def test_refused_requests_do_not_change_the_results(detector, bucket, s3_server, tmp_path, monkeypatch):
    """Refuse a request more often in a row than the client retries it."""
    root = card(tmp_path / "card", 4)
    upload(root, bucket, "card")
    local = process_missing(open_paths(root, detector, tmp_path / "out"))
    run = open_paths([f"{bucket}/card"], detector, f"{bucket}/out")

    def refuses(method, path, count):
        is_write = method == "PUT" and "/out/" in path
        is_read = method == "GET" and path.endswith("B/20230510_013000.WAV")
        return (is_write or is_read) and count <= 4

    monkeypatch.setattr(supervisor, "PAUSE_S", 0.01)
    # else uploads have no content length
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    with flaky_store(s3_server, refuses) as (address, refused):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        outcome = run_local(run, ComputeResources("cpu", 1))
    assert (outcome.end, outcome.exit_code, outcome.missing) == ("finished", 0, 0)
    assert refused["PUT"] >= 4 * 4 and refused["GET"] == 4
    assert stored(run.out) == {name: data for name, data in contents(local.out).items() if "part-" in name}


def test_single_objects_and_a_model_in_a_bucket_are_supported(detector, bucket, tmp_path):
    upload(Path(detector), bucket, "model")
    upload(card(tmp_path / "card", 2), bucket, "card")
    paths = [f"{bucket}/card/B/20230510_013000.WAV", f"{bucket}/card/A/20230510_003000.WAV"]
    local = process_missing(
        open_paths(sorted((tmp_path / "card").rglob("*.WAV")), detector, tmp_path / "local")
    )
    remote = process_missing(open_paths(paths, f"{bucket}/model", tmp_path / "remote"))
    assert remote.config.roots == {"card": f"{bucket}/card"}
    parts = [name for name in contents(local.out) if "part-" in name]
    assert [contents(remote.out)[name] for name in parts] == [contents(local.out)[name] for name in parts]


def test_files_of_two_buckets_and_missing_folders_are_refused(bucket):
    other = f"{bucket}-other"
    boto3.client("s3").create_bucket(Bucket=other.removeprefix("s3://"))
    for root in (bucket, other):
        with atomic_write(f"{root}/a.wav") as file:
            file.write(b"RIFF")
    with pytest.raises(ConfigError, match="of only one bucket, or only of this machine"):
        resolve_inputs([f"{bucket}/a.wav", f"{other}/a.wav"])
    with pytest.raises(StorageError, match="there is no such file or folder"):
        resolve_inputs([f"{bucket}/nowhere"])


def test_a_missing_bucket_does_not_quarantine_recordings(detector, bucket, tmp_path):
    upload(card(tmp_path / "card", 1), bucket, "card")
    run = open_paths([f"{bucket}/card"], detector, tmp_path / "out")
    boto3.client("s3").delete_object(Bucket=bucket.removeprefix("s3://"), Key="card/A/20230510_003000.WAV")
    with pytest.raises(StorageError, match="are no longer reachable"):
        process_missing(run)


def test_an_unreachable_store_gives_one_error_message(detector, bucket, monkeypatch, capsys):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(sys, "argv", ["mast", "detect", f"{bucket}/card", "--model", detector])
    with pytest.raises(SystemExit) as stop:
        main()
    message = capsys.readouterr().err
    assert stop.value.code == 1
    assert "AWS Error NETWORK_CONNECTION" in message and "Check the bucket, the AWS_ variables" in message
