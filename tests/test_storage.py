"""Storage functions work alike for local paths and s3:// locations."""

import io
import subprocess
import sys

import numpy as np
import pytest
import soundfile

from mast.audio.reader import open_audio
from mast.errors import StorageError
from mast.storage import (
    atomic_write,
    exclusive_lock,
    is_remote,
    join,
    list_files,
    open_binary,
    resolve_remote,
)


def test_a_path_is_joined_to_local_and_remote_roots(tmp_path):
    assert join("s3://bucket/cards/", "a/b.wav") == "s3://bucket/cards/a/b.wav"
    assert join(str(tmp_path), "a/b.wav") == str(tmp_path / "a" / "b.wav")
    assert is_remote("s3://bucket") and not is_remote("/s3:/bucket")


@pytest.fixture(params=["local", "s3"])
def root(request, tmp_path):
    return str(tmp_path) if request.param == "local" else request.getfixturevalue("bucket")


def test_a_complete_write_is_read_back_from_disk_and_bucket(root):
    location = join(root, "below/here.bin")
    with atomic_write(location) as file:
        file.write(b"0123456789" * 300_000)
    with open_binary(location) as file:
        assert file.read(3) == b"012"
        assert file.seek(-4, io.SEEK_END) == 2_999_996
        assert file.tell() == 2_999_996
        assert file.read() == b"6789"
        assert file.seek(1_500_005) and file.read(2) == b"56"


def test_a_failed_write_leaves_no_file(root):
    location = join(root, "half.bin")
    with pytest.raises(RuntimeError), atomic_write(location) as file:
        file.write(b"half")
        raise RuntimeError
    with pytest.raises(OSError):
        open_binary(location)


def test_a_write_into_a_file_instead_of_a_folder_raises_storage_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(StorageError, match="cannot be written"),
        atomic_write(str(tmp_path / "file" / "x")) as file,
    ):
        file.write(b"")


def test_an_invalid_location_is_rejected_with_the_valid_form():
    with pytest.raises(StorageError, match="s3://bucket/prefix"):
        resolve_remote("s3://")


def test_a_recording_in_a_bucket_is_decoded_as_from_disk(bucket, tmp_path):
    path = tmp_path / "a.flac"
    soundfile.write(path, np.random.default_rng(0).uniform(-0.5, 0.5, 96_000), 48_000)
    with atomic_write(f"{bucket}/a.flac") as file:
        file.write(path.read_bytes())
    with open_audio(str(path), 16_000) as local, open_audio(f"{bucket}/a.flac", 16_000) as remote:
        np.testing.assert_array_equal(remote.read(0.5, 1.0), local.read(0.5, 1.0))


def test_keys_are_used_unchanged(bucket):
    for name in ("AM02_20230510_073000 .WAV", "50%.wav", "what?.wav", "nr#1.wav", "ñandú.wav"):
        with atomic_write(f"{bucket}/{name}") as file:
            file.write(name.encode())
        with open_binary(f"{bucket}/{name}") as file:
            assert file.read().decode() == name


def test_a_folder_is_locked_by_one_process_at_a_time_and_free_after_a_kill(tmp_path):
    program = (
        "import sys, time\nfrom mast.storage import exclusive_lock\n"
        f"with exclusive_lock({str(tmp_path)!r}, 'embed'):\n    print('locked', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(StorageError, match="another mast embed"), exclusive_lock(str(tmp_path), "embed"):
            pass
        holder.kill()
    with exclusive_lock(str(tmp_path), "embed"):
        assert list_files(str(tmp_path)) == []
