from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.errors import StorageError
from mast.recordings.discover_files import FoundFile, walk


def walked(root: Path) -> tuple[list[FoundFile], Counter[str]]:
    ignored: Counter[str] = Counter()
    return list(walk(str(root), ignored)), ignored


def put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def test_an_empty_folder_has_no_files(tmp_path: Path) -> None:
    assert walked(tmp_path) == ([], Counter())


def test_recordings_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    paths = ["a.wav", "a/z.WAV", "a/b/c.flac", "b .WAV", "B.mp3", "é/x.ogg", "a-1/x.wav"]
    for path in paths:
        put(tmp_path / path)
    assert [file.path for file in walked(tmp_path)[0]] == sorted(paths)


@settings(max_examples=20, deadline=None)
@given(st.sets(st.text("ab/ .-é", min_size=1, max_size=8)))
def test_the_walk_equals_a_naive_one(tmp_path_factory: pytest.TempPathFactory, names: set[str]) -> None:
    root = tmp_path_factory.mktemp("walk")
    for name in names:
        parts = [f"d{part}" for part in name.split("/")]
        put(root.joinpath(*parts[:-1], f"{parts[-1]}.wav"))
    naive = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.wav") if path.is_file())
    assert [file.path for file in walked(root)[0]] == naive


def test_other_files_are_counted_by_extension(tmp_path: Path) -> None:
    for name in (
        "a.txt",
        "b.TXT",
        "README",
        "._a.WAV",
        ".hidden/a.wav",
        "System Volume Information/x.wav",
        "a.wav",
    ):
        put(tmp_path / name)
    files, ignored = walked(tmp_path)
    assert [file.path for file in files] == ["a.wav"]
    assert ignored == {".txt": 2, "no extension": 1, "hidden": 3}


def test_the_number_of_counted_extensions_is_bounded(tmp_path: Path) -> None:
    for number in range(120):
        put(tmp_path / f"log.{number}")
    ignored = walked(tmp_path)[1]
    assert len(ignored) == 101
    assert ignored["other"] == 20


def test_broken_links_and_link_loops_are_faults(tmp_path: Path) -> None:
    put(tmp_path / "site" / "a.wav")
    (tmp_path / "site" / "up").symlink_to("..")
    (tmp_path / "site" / "self.wav").symlink_to("self.wav")
    (tmp_path / "site" / "gone.wav").symlink_to("nowhere.wav")
    (tmp_path / "drive").symlink_to("/not/mounted")
    (tmp_path / "gone.txt").symlink_to("nowhere.txt")
    files, ignored = walked(tmp_path)
    assert {file.path: file.fault for file in files} == {
        "drive": "broken-link",
        "site/a.wav": None,
        "site/gone.wav": "broken-link",
        "site/self.wav": "link-loop",
        "site/up": "link-loop",
    }
    assert ignored == {".txt": 1}


def test_links_to_other_folders_and_files_are_followed(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere" / "b.wav")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "folder").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "root" / "file.wav").symlink_to(tmp_path / "elsewhere" / "b.wav")
    assert [file.path for file in walked(tmp_path / "root")[0]] == [
        "file.wav",
        "folder/b.wav",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_name_that_is_not_valid_text_is_a_fault(tmp_path: Path) -> None:
    for name in (b"caf\xe9.wav", b"d\xff"):
        target = os.fsencode(tmp_path) + b"/" + name
        if name.endswith(b".wav"):
            Path(os.fsdecode(target)).touch()
        else:
            put(Path(os.fsdecode(target)) / "x.wav")
    assert [(file.path, file.fault) for file in walked(tmp_path)[0]] == [
        ("caf\\xe9.wav", "invalid-filename"),
        ("d\\xff/x.wav", "invalid-filename"),
    ]


def test_unusual_but_valid_names_are_accepted(tmp_path: Path) -> None:
    names = sorted(["new\nline.wav", " space.wav", "trail.wav ", "🦇.wav", "[bold].wav"])
    for name in names:
        put(tmp_path / name)
    assert walked(tmp_path)[0] == [FoundFile(name) for name in names]


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")]
)
def test_a_folder_that_cannot_be_opened_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    put(tmp_path / "bad" / "a.wav")
    put(tmp_path / "good" / "b.wav")
    real = os.scandir

    def scandir(path: str) -> object:
        if path.rstrip("/").endswith("bad"):
            raise error
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    bad, good = walked(tmp_path)[0]
    assert (bad.path, bad.fault) == ("bad", "no-permission" if error.errno == 13 else "unreadable")
    assert error.strerror in (bad.detail or "")
    assert good == FoundFile("good/b.wav")


def test_a_link_into_a_forbidden_folder_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mast.recordings import discover_files

    class Entry:
        def stat(self) -> None:
            raise PermissionError(13, "Permission denied")

    assert discover_files._link_fault(Entry(), []) == "no-permission"  # type: ignore[arg-type]


def test_deep_folders_do_not_exhaust_the_stack(tmp_path: Path) -> None:
    folders = [tmp_path / "d"]
    for _ in range(1200):
        folders[-1].mkdir()
        folders.append(folders[-1] / "d")
    recording = folders[-2] / "a.wav"
    recording.touch()
    files = walked(tmp_path)[0]
    recording.unlink()
    for folder in reversed(folders[:-1]):  # shutil.rmtree would not get so deep
        folder.rmdir()
    assert len(files) == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FileNotFoundError(2, "x"), "no such folder"),
        (NotADirectoryError(20, "x"), "is a file"),
        (PermissionError(13, "x"), "no permission to list"),
        (OSError(5, "Input/output error"), "Input/output error"),
    ],
)
def test_a_root_that_cannot_be_listed_ends_the_scan_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, message: str
) -> None:
    def scandir(_: str) -> None:
        raise error

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(StorageError, match=message):
        walked(tmp_path)
