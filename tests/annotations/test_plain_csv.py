from collections import Counter

import pytest
from hypothesis import given

from mast.annotations import Annotations, read_annotations, write_annotations
from mast.annotations.plain_csv import read, write
from mast.annotations.table_io import HIGH_UNSET, LOW_UNSET, NO_TIME, RENAMED
from mast.errors import AnnotationError
from mast.records import Event, ReviewedSpan
from tests.annotations.cases import SLOW, annotations, fixed_annotations, same, tidy


def written(tmp_path, text, name="t.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_no_annotations_are_a_header_only(tmp_path):
    path = tmp_path / "t.csv"
    assert write(Annotations(), path) == Counter()
    assert path.read_text() == "recording,start_s,end_s,low_hz,high_hz,label\n"
    assert read(path).events == read(path).reviewed == ()


def test_a_fixed_table_is_written(tmp_path):
    path = tmp_path / "t.csv"
    assert write(fixed_annotations(), path) == Counter()
    assert path.read_text() == (
        "recording,start_s,end_s,low_hz,high_hz,label,annotator,Quality\n"
        "a/x.wav,1.5,2.25,1000,4000,Parus major,Ann,A\n"
        "a/x.wav,3,3,,,,,\n"
        "a/empty.wav,,,,,,,\n"
    )


@SLOW
@given(annotations())
def test_annotations_survive_a_round_trip(tmp_path_factory, original):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    assert write_annotations(original, path, "csv") == Counter()
    back = read_annotations(path, "csv")
    assert tidy(back.events) == tidy(original.events)
    assert same(back.reviewed, original.reviewed)
    assert not back.problems


def test_a_recording_with_an_expert_box_counts_as_reviewed_and_one_with_a_detection_does_not(tmp_path):
    path = written(tmp_path, "recording,start_s,end_s,score\na,0,1,\nb,0,1,0.7\n")
    annotations = read(path)
    assert [event.origin for event in annotations.events] == ["expert", "model"]
    assert annotations.reviewed == (ReviewedSpan("a"),)


def test_a_row_with_only_a_recording_is_a_review_and_a_label_without_a_time_is_a_problem(tmp_path):
    annotations = read(written(tmp_path, "recording,start_s,end_s,label\nempty.wav,,,\nrain.wav,,,rain\n"))
    assert annotations.reviewed == (ReviewedSpan("empty.wav"),)
    assert annotations.events == ()
    assert annotations.problems == {NO_TIME: 1}


def test_birdnets_columns(tmp_path):
    text = (
        "Start (s),End (s),Scientific name,Common name,Confidence,File\n0,3,Parus major,Great Tit,0.9,x.wav\n"
    )
    (event,) = read(written(tmp_path, text)).events
    assert event == Event(
        "x.wav", 0, 3, label="Parus major", score=0.9, origin="model", columns=(("Common name", "Great Tit"),)
    )


def test_birdboxs_columns(tmp_path):
    text = (
        "Filename,Start Time (s),End Time (s),Low Freq (Hz),High Freq (Hz),Species eBird Code,Confidence\n"
        "x.wav,0.5,3,200,900,gretit1,0.25\n"
    )
    (event,) = read(written(tmp_path, text)).events
    assert event == Event("x.wav", 0.5, 3, 200, 900, "gretit1", 0.25, "model")


def test_a_table_from_a_european_spreadsheet(tmp_path):
    (event,) = read(written(tmp_path, "recording;start_s;end_s\nx.wav;0,5;1,25\n")).events
    assert (event.start_s, event.end_s) == (0.5, 1.25)


def test_a_table_without_a_recording_column_belongs_to_the_recording_it_is_named_after(tmp_path):
    path = written(tmp_path, "start_s,end_s\n0,1\n", "x.BirdNET.results.csv")
    assert read(path).events[0].recording_id == "x"


def test_half_a_frequency_range_is_counted(tmp_path):
    text = "recording,start_s,end_s,low_hz,high_hz\na,0,1,-1,500\na,0,1,,500\na,0,1,500,-1\na,0,1,-1,-1\n"
    annotations = read(written(tmp_path, text))
    assert [(event.low_hz, event.high_hz) for event in annotations.events] == [
        (0, 500),
        (0, 500),
        (None, None),
        (None, None),
    ]
    assert annotations.problems == {LOW_UNSET: 2, HIGH_UNSET: 1}


def test_a_free_column_with_the_name_of_a_format_column_is_counted_as_lost(tmp_path):
    path = tmp_path / "t.csv"
    event = Event("x", 0, 1, label="a", columns=(("Label", "lost"), ("species", "kept")))
    assert write(Annotations((event,)), path) == {RENAMED: 1}
    assert read(path).events[0].columns == (("species", "kept"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recording,end_s\nx,1\n", r"no column for start_s.*the columns are recording, end_s"),
        ("recording,start_s,end_s\nx,one,2\n", r"t.csv, line 2: start_s is 'one'"),
        ("recording,start_s,end_s\nx,3,2\n", r"line 2: an event cannot last from 3.0 s to 2.0 s"),
        (
            "recording,start_s,end_s,low_hz,high_hz\nx,1,2,9,8\n",
            r"line 2: an event cannot extend from 9.0 Hz",
        ),
        ("recording,start_s,end_s,origin\nx,1,2,bird\n", r"line 2: origin is 'bird'"),
        ("recording,start_s,end_s,reviewed_s\nx,1,2,0 to 3\n", r"line 2: .*not a number"),
        ("recording,start_s,end_s,reviewed_s\nx,1,2,3\n", r"line 2: reviewed is '3'; write all, none"),
    ],
)
def test_an_invalid_row_is_rejected_with_its_line(tmp_path, text, message):
    with pytest.raises(AnnotationError, match=message):
        read(written(tmp_path, text))
