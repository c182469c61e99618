"""A location is a local path or s3://, and everything else is the same."""

import io

import numpy as np
import pytest
import soundfile

from mast.errors import StorageError
from mast.recordings.decode import open_audio
from mast.storage import is_remote, join, open_binary, remote, written_whole


def test_a_location_below_a_root_is_joined_in_the_roots_own_way(tmp_path):
    assert join("s3://bucket/cards/", "a/b.wav") == "s3://bucket/cards/a/b.wav"
    assert join(str(tmp_path), "a/b.wav") == str(tmp_path / "a" / "b.wav")
    assert is_remote("s3://bucket") and not is_remote("/s3:/bucket")


@pytest.fixture(params=["local", "s3"])
def root(request, tmp_path):
    return str(tmp_path) if request.param == "local" else request.getfixturevalue("bucket")


def test_what_is_written_whole_is_read_back_from_disk_and_bucket(root):
    location = join(root, "below/here.bin")
    with written_whole(location) as file:
        file.write(b"0123456789" * 300_000)
    with open_binary(location) as file:
        assert file.read(3) == b"012"
        assert file.seek(-4, io.SEEK_END) == 2_999_996
        assert file.tell() == 2_999_996
        assert file.read() == b"6789"
        assert file.seek(1_500_005) and file.read(2) == b"56"


def test_a_write_that_fails_leaves_nothing_behind(root):
    location = join(root, "half.bin")
    with pytest.raises(RuntimeError), written_whole(location) as file:
        file.write(b"half")
        raise RuntimeError
    with pytest.raises(OSError):
        open_binary(location)


def test_a_write_to_where_no_folder_can_be_says_so(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(StorageError, match="cannot be written"),
        written_whole(str(tmp_path / "file" / "x")) as file,
    ):
        file.write(b"")


def test_an_address_that_is_none_is_refused_with_the_right_form():
    with pytest.raises(StorageError, match="s3://bucket/prefix"):
        remote("s3://")


def test_a_recording_in_a_bucket_is_decoded_as_from_disk(bucket, tmp_path):
    path = tmp_path / "a.flac"
    soundfile.write(path, np.random.default_rng(0).uniform(-0.5, 0.5, 96_000), 48_000)
    with written_whole(f"{bucket}/a.flac") as file:
        file.write(path.read_bytes())
    with open_audio(str(path), 16_000) as near, open_audio(f"{bucket}/a.flac", 16_000) as far:
        np.testing.assert_array_equal(far.read(0.5, 1.0), near.read(0.5, 1.0))


def test_keys_are_taken_to_the_letter(bucket):
    for name in ("AM02_20230510_073000 .WAV", "50%.wav", "what?.wav", "nr#1.wav", "ñandú.wav"):
        with written_whole(f"{bucket}/{name}") as file:
            file.write(name.encode())
        with open_binary(f"{bucket}/{name}") as file:
            assert file.read().decode() == name
