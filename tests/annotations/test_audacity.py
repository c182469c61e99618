from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given

from mast.annotations import Annotations, read_annotations, write_annotations
from mast.annotations.audacity import NAME_CHANGED, PARTLY_REVIEWED, read, write
from mast.annotations.model import is_whole
from mast.annotations.table_io import HIGH_UNSET, LOW_UNSET
from mast.errors import AnnotationError
from mast.records import Event, ReviewedSpan
from tests.annotations.cases import SLOW, annotations, fixed_annotations, same


def written(tmp_path, text, name="x.txt"):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return path


def test_an_empty_track_means_reviewed_without_events(tmp_path):
    annotations = read(written(tmp_path, ""))
    assert annotations.events == ()
    assert annotations.reviewed == (ReviewedSpan("x"),)
    assert write(Annotations(), tmp_path / "none.txt") == Counter()


def test_labels_of_a_fixed_track(tmp_path):
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
        ("hello\n", "line 1: 'hello' is not a label"),
        ("a\tb\tc\n", "line 1: start_s is 'a'"),
    ],
)
def test_an_invalid_line_is_rejected_with_its_number(tmp_path, text, message):
    with pytest.raises(AnnotationError, match=message):
        read(written(tmp_path, text))


def test_a_fixed_track_is_written(tmp_path):
    losses = write(fixed_annotations(), tmp_path)
    assert (tmp_path / "a" / "x.wav.txt").read_bytes() == b"1.5\t2.25\tParus major\n\\\t1000\t4000\n3\t3\t\n"
    assert (tmp_path / "a" / "empty.wav.txt").read_bytes() == b""
    assert losses == {"annotator: not written": 1, "free column: not written": 1}


def test_several_recordings_do_not_fit_one_track(tmp_path):
    with pytest.raises(AnnotationError, match="holds one recording, but the annotations cover 2"):
        write(fixed_annotations(), tmp_path / "t.txt")


def test_one_track_has_the_name_of_its_recording_or_the_change_is_counted(tmp_path):
    original = Annotations((Event("x", 0, 1),), (ReviewedSpan("x"),))
    assert write(original, tmp_path / "x.txt") == Counter()
    assert write(original, tmp_path / "other.txt") == {NAME_CHANGED: 1}


@SLOW
@given(annotations())
def test_times_frequencies_and_labels_survive_a_round_trip_and_the_rest_is_counted(
    tmp_path_factory, original
):
    folder = tmp_path_factory.mktemp("audacity")
    losses = write_annotations(original, folder, "audacity")
    bare = [
        replace(event, score=None, origin="expert", annotator=None, columns=()) for event in original.events
    ]
    recording_ids = {item.recording_id for item in (*original.events, *original.reviewed)}
    whole = {span.recording_id for span in original.reviewed if is_whole(span)}
    assert losses == +Counter(
        {
            "score: not written": sum(event.score is not None for event in original.events),
            "annotator: not written": sum(event.annotator is not None for event in original.events),
            "origin other than expert: not written": sum(
                event.origin != "expert" for event in original.events
            ),
            "free column: not written": sum(len(event.columns) for event in original.events),
            PARTLY_REVIEWED: len(recording_ids - whole),
        }
    )
    if recording_ids:
        back = read_annotations(folder, "audacity")
        assert same(back.events, bare)
        assert set(back.reviewed) == {ReviewedSpan(name) for name in recording_ids}
