from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given

from mast.annotations import Annotations, read_annotations, write_annotations
from mast.annotations.audacity import NAME_CHANGED, NOT_WHOLE, read, write
from mast.annotations.rows import HIGH_UNSET, LOW_UNSET
from mast.annotations.tables import is_whole
from mast.errors import AnnotationError
from mast.events import Event, Reviewed
from tests.annotations.cases import SLOW, annotations, by_hand, same


def written(tmp_path, text, name="x.txt"):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return path


def test_an_empty_track_means_reviewed_and_nothing_found(tmp_path):
    annotations = read(written(tmp_path, ""))
    assert annotations.events == ()
    assert annotations.reviewed == (Reviewed("x"),)
    assert write(Annotations(), tmp_path / "none.txt") == Counter()


def test_labels_worked_out_by_hand(tmp_path):
    text = "0.5\t1.25\tcall\r\n\\\t1000\t2000.5\r\n2\t2\tpoint\r\n3,5\t4\t\r\n5\t6\r\n"
    assert read(written(tmp_path, text, "x_label.txt")).events == (
        Event("x", 0.5, 1.25, 1000, 2000.5, "call"),
        Event("x", 2, 2, label="point"),
        Event("x", 3.5, 4),
        Event("x", 5, 6),
    )


def test_minus_one_is_unset_and_half_a_range_is_counted(tmp_path):
    text = "0\t1\ta\n\\\t-1\t-1\n0\t1\tb\n\\\t-1.000000\t500\n0\t1\tc\n\\\t500\t-1\n"
    annotations = read(written(tmp_path, text))
    assert [(event.low_hz, event.high_hz) for event in annotations.events] == [
        (None, None),
        (0, 500),
        (None, None),
    ]
    assert annotations.problems == {LOW_UNSET: 1, HIGH_UNSET: 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\\\t1\t2\n", "line 1: a line of frequencies"),
        ("0\t1\ta\n\\\t1\n", "line 2: a line of frequencies"),
        ("0\t1\ta\n\\\t1\t2\n\\\t1\t2\n", "line 3: a line of frequencies"),
        ("hello\n", "line 1: 'hello' is no label"),
        ("a\tb\tc\n", "line 1: start_s is 'a'"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(tmp_path, text, message):
    with pytest.raises(AnnotationError, match=message):
        read(written(tmp_path, text))


def test_a_track_is_written_by_hand(tmp_path):
    losses = write(by_hand(), tmp_path)
    assert (tmp_path / "a" / "x.wav.txt").read_bytes() == b"1.5\t2.25\tParus major\n\\\t1000\t4000\n3\t3\t\n"
    assert (tmp_path / "a" / "empty.wav.txt").read_bytes() == b""
    assert losses == {"annotator: left out": 1, "free column: left out": 1}


def test_several_recordings_do_not_fit_one_track(tmp_path):
    with pytest.raises(AnnotationError, match="belongs to one recording, and these are 2"):
        write(by_hand(), tmp_path / "t.txt")


def test_one_track_carries_the_name_of_its_recording_or_the_change_is_counted(tmp_path):
    found = Annotations((Event("x", 0, 1),), (Reviewed("x"),))
    assert write(found, tmp_path / "x.txt") == Counter()
    assert write(found, tmp_path / "other.txt") == {NAME_CHANGED: 1}


@SLOW
@given(annotations())
def test_times_frequencies_and_labels_come_back_and_the_rest_is_counted(tmp_path_factory, found):
    folder = tmp_path_factory.mktemp("audacity")
    losses = write_annotations(found, folder, "audacity")
    bare = [replace(event, score=None, origin="expert", annotator=None, columns=()) for event in found.events]
    spoken_of = {item.recording_id for item in (*found.events, *found.reviewed)}
    whole = {span.recording_id for span in found.reviewed if is_whole(span)}
    assert losses == +Counter(
        {
            "score: left out": sum(event.score is not None for event in found.events),
            "annotator: left out": sum(event.annotator is not None for event in found.events),
            "origin other than expert: left out": sum(event.origin != "expert" for event in found.events),
            "free column: left out": sum(len(event.columns) for event in found.events),
            NOT_WHOLE: len(spoken_of - whole),
        }
    )
    if spoken_of:
        back = read_annotations(folder, "audacity")
        assert same(back.events, bare)
        assert set(back.reviewed) == {Reviewed(name) for name in spoken_of}
