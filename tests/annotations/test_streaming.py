"""Annotations written in parts give the same file as annotations written at once."""

import os
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.annotations import Annotations
from mast.annotations.aoef import io as aoef
from mast.annotations.aoef.objects import NO_METADATA, NO_TAGS
from mast.annotations.formats import STREAMING_FORMATS
from mast.annotations.model import by_recording, merge
from mast.annotations.paths import remove_stale_exports, table_path
from mast.annotations.table_io import Columns
from mast.records import Event, RecordingStatus
from mast.storage import list_files
from tests.annotations.cases import NAMES, annotations, same

COLUMNS = Columns(
    frozenset({"score", "low_hz", "high_hz", "origin", "annotator", "reviewed"}), ("x_a", "x_b")
)


@pytest.mark.parametrize("name", ["csv", "raven", "audacity", "audubon-core", "camtrap-dp"])
def test_no_parts_give_the_same_file_as_one_empty_part(tmp_path, name):
    one, none = tmp_path / "one", tmp_path / "none"
    STREAMING_FORMATS[name].write_parts([Annotations()], one, COLUMNS)
    STREAMING_FORMATS[name].write_parts([], none, COLUMNS)
    assert contents(one) == contents(none)


@pytest.mark.parametrize("name", ["csv", "raven", "audacity", "audubon-core", "camtrap-dp"])
@given(original=annotations(), cut=st.integers(0, len(NAMES)))
@settings(max_examples=12, deadline=None)
def test_parts_give_the_same_file_as_one_write(tmp_path_factory, name, original, cut):
    folder = tmp_path_factory.mktemp("parts")
    each = list(by_recording(replace(original, reviewed=())).values())
    parts = [merge(each[:cut]), merge(each[cut:])]
    losses = STREAMING_FORMATS[name].write_parts(parts, folder / "parts", COLUMNS)
    assert STREAMING_FORMATS[name].write_parts([merge(each)], folder / "whole", COLUMNS) == losses
    assert contents(folder / "parts") == contents(folder / "whole")


def contents(path):
    return {item.name: item.read_bytes() for item in path.iterdir()} if path.is_dir() else path.read_bytes()


@given(original=annotations(reviewed=False), cut=st.integers(0, len(NAMES)))
@settings(max_examples=10, deadline=None)
def test_a_prediction_set_in_parts_stores_boxes_and_scores(tmp_path_factory, original, cut):
    path = tmp_path_factory.mktemp("aoef") / "events.json"
    events = tuple(replace(item, score=item.score or 0.0, origin="model") for item in original.events)
    each = list(by_recording(replace(original, events=events)).values())
    losses = aoef.write_parts([merge(each[:cut]), merge(each[cut:])], path, Columns())
    back = aoef.read(path)
    bare = [replace(item, label=None, annotator=None, columns=()) for item in events]
    assert same(back.events, bare)
    assert losses[NO_TAGS] == sum(bool(item.label or item.columns) for item in events)


def test_recordings_without_metadata_are_counted_not_rejected(tmp_path):
    part = Annotations(events=(Event("x.wav", 1, 2, score=0.5, origin="model"),))
    assert aoef.write_parts([part], tmp_path / "x.json", Columns()) == {NO_METADATA: 1}


def test_a_processed_recording_without_detections_is_not_a_review(tmp_path):
    status = RecordingStatus("x.wav", "empty", None, 60.0, 0, None, None)
    part = Annotations(processed=(status,))
    assert by_recording(part)["x.wav"].processed == (status,)
    assert merge([part, part]).processed == (status, status)


def test_valid_names_are_kept_and_others_stay_unique():
    assert table_path("a/b.wav", ".txt") == "a/b.wav.txt"
    assert table_path("a/b?.wav", ".txt") != table_path("a/b*.wav", ".txt")


def test_only_unmodified_files_of_earlier_exports_are_removed(tmp_path):
    folder, names = tmp_path / "raven", ["a/1.txt", "a/2.txt", "3.txt", "4.txt"]

    def written(*new: str) -> None:
        for name in new:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("a table", "utf-8")

    assert remove_stale_exports([], str(folder), "f0") == 0 and not folder.exists()
    written(*names, "added.txt")
    assert remove_stale_exports(names, str(folder), "f0") == 0
    (tmp_path / "far.txt").write_text("elsewhere", "utf-8")
    exported = folder / ".mast-f0.txt"
    exported.write_text(exported.read_text("utf-8") + "\n../far.txt\n", "utf-8")
    later_ns = exported.stat().st_mtime_ns + 1
    os.utime(folder / "3.txt", ns=(later_ns, later_ns))
    written("5.txt")
    assert remove_stale_exports(["5.txt"], str(folder), "other run") == 0
    assert remove_stale_exports(["a/1.txt"], str(folder), "f0") == 1
    assert list_files(str(tmp_path)) == [
        "far.txt", "raven/3.txt", "raven/5.txt", "raven/a/1.txt", "raven/added.txt",
    ]  # fmt: skip
    assert remove_stale_exports([], str(folder), "f0") == 0
    assert list_files(str(folder)) == ["3.txt", "5.txt", "added.txt"] and not exported.exists()
