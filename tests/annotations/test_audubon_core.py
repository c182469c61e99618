from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given

from mast.annotations import Annotations, RecordingMetadata, read_annotations, write_annotations
from mast.annotations.audubon_core import SLOWED, read, write
from mast.errors import AnnotationError
from mast.records import Event
from tests.annotations.cases import SLOW, annotations, fixed_annotations, same, tidy

START = datetime(2023, 5, 10, 5, 30, tzinfo=UTC)


def test_no_annotations_are_a_header_only(tmp_path):
    path = tmp_path / "t.csv"
    assert write(Annotations(), path) == Counter()
    assert path.read_text().startswith(
        "ac:isROIOf,ac:startTime,ac:endTime,ac:startTimestamp,ac:endTimestamp,"
    )
    assert read(path).events == ()


def test_a_fixed_table_is_written(tmp_path):
    path = tmp_path / "t.csv"
    original = replace(fixed_annotations(), recordings=(RecordingMetadata("a/x.wav", start_utc=START),))
    assert write(original, path) == Counter()
    clocks = "2023-05-10T05:30:01.500000Z,2023-05-10T05:30:02.250000Z"
    assert path.read_text().splitlines() == [
        "ac:isROIOf,ac:startTime,ac:endTime,ac:startTimestamp,ac:endTimestamp,ac:freqLow,ac:freqHigh,ac:mediaSpeed,"
        "dwc:verbatimIdentification,dwc:identifiedBy,Quality",
        f"a/x.wav,1.5,2.25,{clocks},1000,4000,1,Parus major,Ann,A",
        "a/x.wav,3,3,2023-05-10T05:30:03.000000Z,2023-05-10T05:30:03.000000Z,,,1,,,",
        "a/empty.wav,,,,,,,,,,",
    ]


def test_clock_times_are_empty_if_the_start_is_unknown(tmp_path):
    path = tmp_path / "t.csv"
    assert write(fixed_annotations(), path) == Counter()
    assert path.read_text().splitlines()[1].startswith("a/x.wav,1.5,2.25,,,1000,4000,1,")
    assert read(path).recordings == ()


@SLOW
@given(annotations())
def test_annotations_survive_a_round_trip_with_the_start_of_each_recording(tmp_path_factory, original):
    path = tmp_path_factory.mktemp("audubon") / "t.csv"
    assert write_annotations(original, path, "audubon-core") == Counter()
    back = read_annotations(path, "audubon-core")
    assert tidy(back.events) == tidy(original.events)
    assert same(back.reviewed, original.reviewed)
    for item in back.recordings:
        assert abs(item.start_utc - original.recordings[0].start_utc) <= timedelta(microseconds=2)


def test_another_speed_is_counted_and_a_clock_without_a_zone_gives_no_start(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "ac:isROIOf,ac:startTime,ac:endTime,ac:startTimestamp,ac:mediaSpeed\nx,1,2,2023-05-10T05:30:00,0.1\n"
    )
    result = read(path)
    assert result.problems == {SLOWED: 1}
    assert result.recordings == ()


def test_an_invalid_clock_time_is_rejected_with_its_line(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("ac:isROIOf,ac:startTime,ac:endTime,ac:startTimestamp\nx,1,2,yesterday\n")
    with pytest.raises(AnnotationError, match=r"line 2: 'yesterday' is not an ISO 8601 time"):
        read(path)


def test_a_clock_time_after_year_9999_is_empty(tmp_path):
    path = tmp_path / "t.csv"
    write(Annotations((Event("x", 0, 1e15),), recordings=(RecordingMetadata("x", start_utc=START),)), path)
    assert path.read_text().splitlines()[1] == "x,0,1000000000000000,2023-05-10T05:30:00.000000Z,,,,1,,none"
