from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given

from mast.annotations import Annotations, RecordingFacts, read_annotations, write_annotations
from mast.annotations.audubon_core import SLOWED, read, write
from mast.errors import AnnotationError
from mast.events import Event
from tests.annotations.cases import SLOW, annotations, by_hand, same, tidy

START = datetime(2023, 5, 10, 5, 30, tzinfo=UTC)


def test_nothing_is_a_header_only(tmp_path):
    path = tmp_path / "t.csv"
    assert write(Annotations(), path) == Counter()
    assert path.read_text().startswith(
        "ac:isROIOf,ac:startTime,ac:endTime,ac:startTimestamp,ac:endTimestamp,"
    )
    assert read(path).events == ()


def test_a_table_worked_out_by_hand(tmp_path):
    path = tmp_path / "t.csv"
    known = replace(by_hand(), recordings=(RecordingFacts("a/x.wav", start_utc=START),))
    assert write(known, path) == Counter()
    clocks = "2023-05-10T05:30:01.500000Z,2023-05-10T05:30:02.250000Z"
    assert path.read_text().splitlines() == [
        "ac:isROIOf,ac:startTime,ac:endTime,ac:startTimestamp,ac:endTimestamp,ac:freqLow,ac:freqHigh,ac:mediaSpeed,"
        "dwc:verbatimIdentification,dwc:identifiedBy,Quality",
        f"a/x.wav,1.5,2.25,{clocks},1000,4000,1,Parus major,Ann,A",
        "a/x.wav,3,3,2023-05-10T05:30:03.000000Z,2023-05-10T05:30:03.000000Z,,,1,,,",
        "a/empty.wav,,,,,,,,,,",
    ]


def test_clock_times_stay_empty_where_the_start_is_unknown(tmp_path):
    path = tmp_path / "t.csv"
    assert write(by_hand(), path) == Counter()
    assert path.read_text().splitlines()[1].startswith("a/x.wav,1.5,2.25,,,1000,4000,1,")
    assert read(path).recordings == ()


@SLOW
@given(annotations())
def test_everything_comes_back_with_the_start_of_each_recording(tmp_path_factory, found):
    path = tmp_path_factory.mktemp("audubon") / "t.csv"
    assert write_annotations(found, path, "audubon-core") == Counter()
    back = read_annotations(path, "audubon-core")
    assert tidy(back.events) == tidy(found.events)
    assert same(back.reviewed, found.reviewed)
    for item in back.recordings:
        assert abs(item.start_utc - found.recordings[0].start_utc) <= timedelta(microseconds=2)


def test_another_speed_is_counted_and_a_clock_without_a_zone_tells_no_start(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "ac:isROIOf,ac:startTime,ac:endTime,ac:startTimestamp,ac:mediaSpeed\nx,1,2,2023-05-10T05:30:00,0.1\n"
    )
    found = read(path)
    assert found.problems == {SLOWED: 1}
    assert found.recordings == ()


def test_a_wrong_clock_time_is_refused_with_its_line(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("ac:isROIOf,ac:startTime,ac:endTime,ac:startTimestamp\nx,1,2,yesterday\n")
    with pytest.raises(AnnotationError, match=r"line 2: 'yesterday' is no ISO 8601 time"):
        read(path)


def test_a_moment_past_the_calendar_stays_empty(tmp_path):
    path = tmp_path / "t.csv"
    write(Annotations((Event("x", 0, 1e15),), recordings=(RecordingFacts("x", start_utc=START),)), path)
    assert path.read_text().splitlines()[1] == "x,0,1000000000000000,2023-05-10T05:30:00.000000Z,,,,1,,none"
