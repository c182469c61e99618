"""Annotations that come part by part make the same file as all at once."""

import os
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.annotations import Annotations, aoef
from mast.annotations.aoef_objects import NO_FACTS, NO_TAGS
from mast.annotations.files import keep_only, place_below
from mast.annotations.formats import STREAMED
from mast.annotations.rows import Columns
from mast.annotations.tables import by_recording, merge
from mast.events import Event, Heard
from mast.storage import files_below
from tests.annotations.cases import NAMES, annotations, same

COLUMNS = Columns(
    frozenset({"score", "low_hz", "high_hz", "origin", "annotator", "reviewed"}), ("x_a", "x_b")
)


@pytest.mark.parametrize("name", ["csv", "raven", "audacity", "audubon-core", "camtrap-dp"])
def test_no_parts_make_the_same_file_as_one_without_anything(tmp_path, name):
    one, none = tmp_path / "one", tmp_path / "none"
    STREAMED[name].write_parts([Annotations()], one, COLUMNS)
    STREAMED[name].write_parts([], none, COLUMNS)
    assert contents(one) == contents(none)


@pytest.mark.parametrize("name", ["csv", "raven", "audacity", "audubon-core", "camtrap-dp"])
@given(found=annotations(), cut=st.integers(0, len(NAMES)))
@settings(max_examples=12, deadline=None)
def test_parts_make_the_same_file_as_all_at_once(tmp_path_factory, name, found, cut):
    folder = tmp_path_factory.mktemp("parts")
    each = list(by_recording(replace(found, reviewed=())).values())
    parts = [merge(each[:cut]), merge(each[cut:])]
    losses = STREAMED[name].write_parts(parts, folder / "parts", COLUMNS)
    assert STREAMED[name].write_parts([merge(each)], folder / "whole", COLUMNS) == losses
    assert contents(folder / "parts") == contents(folder / "whole")


def contents(path):
    return {item.name: item.read_bytes() for item in path.iterdir()} if path.is_dir() else path.read_bytes()


@given(found=annotations(reviewed=False), cut=st.integers(0, len(NAMES)))
@settings(max_examples=10, deadline=None)
def test_a_prediction_set_in_parts_reads_back_as_its_boxes_and_scores(tmp_path_factory, found, cut):
    path = tmp_path_factory.mktemp("aoef") / "events.json"
    events = tuple(replace(item, score=item.score or 0.0, origin="model") for item in found.events)
    each = list(by_recording(replace(found, events=events)).values())
    losses = aoef.write_parts([merge(each[:cut]), merge(each[cut:])], path, Columns())
    back = aoef.read(path)
    bare = [replace(item, label=None, annotator=None, columns=()) for item in events]
    assert same(back.events, bare)
    assert losses[NO_TAGS] == sum(bool(item.label or item.columns) for item in events)


def test_recordings_without_facts_are_counted_not_refused(tmp_path):
    part = Annotations(events=(Event("x.wav", 1, 2, score=0.5, origin="model"),))
    assert aoef.write_parts([part], tmp_path / "x.json", Columns()) == {NO_FACTS: 1}


def test_a_model_hearing_nothing_is_no_review(tmp_path):
    heard = Heard("x.wav", "empty", None, 60.0, 0, None, None)
    part = Annotations(heard=(heard,))
    assert by_recording(part)["x.wav"].heard == (heard,)
    assert merge([part, part]).heard == (heard, heard)


def test_a_name_that_fits_stays_and_others_are_told_apart():
    assert place_below("a/b.wav", ".txt") == "a/b.wav.txt"
    assert place_below("a/b?.wav", ".txt") != place_below("a/b*.wav", ".txt")


def test_of_earlier_exports_goes_only_what_they_wrote_and_nobody_has_changed(tmp_path):
    folder, names = tmp_path / "raven", ["a/1.txt", "a/2.txt", "3.txt", "4.txt"]

    def written(*new: str) -> None:
        for name in new:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("a table", "utf-8")

    assert keep_only([], str(folder), "f0") == 0 and not folder.exists()
    written(*names, "own.txt")
    assert keep_only(names, str(folder), "f0") == 0
    (tmp_path / "far.txt").write_text("elsewhere", "utf-8")
    told = folder / ".mast-f0.txt"
    told.write_text(told.read_text("utf-8") + "\n../far.txt\n", "utf-8")
    later_ns = told.stat().st_mtime_ns + 1
    os.utime(folder / "3.txt", ns=(later_ns, later_ns))
    written("5.txt")
    assert keep_only(["5.txt"], str(folder), "other run") == 0
    assert keep_only(["a/1.txt"], str(folder), "f0") == 1
    assert files_below(str(tmp_path)) == [
        "far.txt", "raven/3.txt", "raven/5.txt", "raven/a/1.txt", "raven/own.txt",
    ]  # fmt: skip
    assert keep_only([], str(folder), "f0") == 0
    assert files_below(str(folder)) == ["3.txt", "5.txt", "own.txt"] and not told.exists()
