import csv
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings

from mast.annotations import Annotations, RecordingMetadata, read_annotations, write_annotations
from mast.annotations.camtrap_dp import (
    NO_START_EVENT,
    NO_START_REVIEWED,
    NOT_ACOUSTIC,
    SCORE_OUTSIDE,
    UNKNOWN_MEDIA,
    read,
    write,
)
from mast.errors import AnnotationError
from mast.records import Event, ReviewedSpan
from tests.annotations.cases import annotations, fixed_annotations, milliseconds, same, tidy

START = datetime(2023, 5, 10, 5, 30, tzinfo=UTC)
WITH_START = tuple(
    RecordingMetadata(name, 60.0, 32_000, 1, 16, "medium", START, None, 120, "AM1")
    for name in ("a/x.wav", "a/empty.wav")
)


def table(folder, name):
    with (folder / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def validation_errors(folder):
    """Return the errors that frictionless reports for a data package."""
    import frictionless

    return frictionless.validate(str(folder / "datapackage.json")).flatten(
        ["rowNumber", "fieldName", "message"]
    )


def test_no_annotations_are_three_valid_headers(tmp_path):
    assert write(Annotations(), tmp_path) == Counter()
    assert validation_errors(tmp_path) == []
    assert read(tmp_path).events == ()


def test_a_fixed_package_is_written(tmp_path):
    assert write(replace(fixed_annotations(), recordings=WITH_START), tmp_path) == Counter()
    first, second, empty = table(tmp_path, "observations")
    assert first == {
        "observationID": "o1",
        "deploymentID": "AM1",
        "mediaID": "a/x.wav",
        "eventStart": "2023-05-10T07:30:01.500000+0200",
        "eventEnd": "2023-05-10T07:30:02.250000+0200",
        "observationLevel": "interval",
        "observationType": "animal",
        "scientificName": "Parus major",
        "classificationMethod": "human",
        "classifiedBy": "Ann",
        "classificationProbability": "",
        "frequencyLow": "1000",
        "frequencyHigh": "4000",
        "Quality": "A",
    }
    assert (second["frequencyLow"], second["scientificName"]) == ("", "")
    assert (empty["mediaID"], empty["observationType"], empty["eventEnd"]) == (
        "a/empty.wav",
        "blank",
        "2023-05-10T07:31:00.000000+0200",
    )
    (deployment,) = table(tmp_path, "deployments")
    assert deployment["deploymentEnd"] == "2023-05-10T07:31:00.000000+0200"
    medium = table(tmp_path, "media")[0]
    assert {
        key: medium[key] for key in ("samplingFrequency", "bitDepth", "gain", "channels", "mediaDuration")
    } == {
        "samplingFrequency": "32000",
        "bitDepth": "16",
        "gain": "medium",
        "channels": "1",
        "mediaDuration": "60",
    }
    assert validation_errors(tmp_path) == []


@settings(max_examples=25, deadline=None)
@given(annotations(seconds=milliseconds))
def test_annotations_survive_a_round_trip_to_the_microsecond(tmp_path_factory, original):
    folder = tmp_path_factory.mktemp("camtrap")
    assert write_annotations(original, folder, "camtrap-dp") == Counter()
    back = read_annotations(folder, "camtrap-dp")
    assert tidy(back.events) == tidy(original.events)
    assert same(back.reviewed, original.reviewed)
    metadata = [replace(item, start_local=None) for item in back.recordings]
    assert metadata == list(original.recordings)


@settings(max_examples=3, deadline=None)
@given(annotations(seconds=milliseconds))
def test_every_package_validates_with_frictionless(tmp_path_factory, original):
    folder = tmp_path_factory.mktemp("camtrap")
    write_annotations(original, folder, "camtrap-dp")
    assert validation_errors(folder) == []


def test_recordings_with_unknown_start_are_counted(tmp_path):
    original = replace(fixed_annotations(), recordings=WITH_START[1:])
    assert write(original, tmp_path) == {NO_START_EVENT: 2, NO_START_REVIEWED: 1}
    assert validation_errors(tmp_path) == []


def test_a_package_without_any_start_is_rejected(tmp_path):
    with pytest.raises(AnnotationError, match="needs the start time of recordings"):
        write(fixed_annotations(), tmp_path)


def test_a_score_outside_0_to_1_is_counted(tmp_path):
    original = Annotations((Event("a/x.wav", 0, 1, score=2.5, origin="model"),), recordings=WITH_START[:1])
    assert write(original, tmp_path) == {SCORE_OUTSIDE: 1}
    assert validation_errors(tmp_path) == []


def package(folder, observations, media="mediaID,timestamp\nm,2023-05-10T05:30:00Z\n"):
    (folder / "media.csv").write_text(media)
    (folder / "observations.csv").write_text(
        "mediaID,eventStart,eventEnd,observationLevel,observationType\n" + observations
    )
    return folder


def test_packages_of_other_programs_may_have_blank_spans_and_observations_without_a_time(tmp_path):
    rows = (
        "m,2023-05-10T05:30:02Z,2023-05-10T07:30:03.5+02:00,interval,animal\n"
        "m,2023-05-10T05:30:10Z,2023-05-10T05:30:20Z,interval,blank\n"
        "m,,,media,animal\n"
        "n,2023-05-10T05:30:02Z,2023-05-10T05:30:02Z,interval,animal\n"
    )
    result = read(package(tmp_path, rows) / "datapackage.json")
    assert result.events == (Event("m", 2.0, 3.5),)
    assert result.reviewed == (ReviewedSpan("m", 10.0, 20.0),)
    assert result.problems == {NOT_ACOUSTIC: 1, UNKNOWN_MEDIA: 1}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("m,noon,noon,interval,animal\n", "line 2: 'noon' is not an ISO 8601 time"),
        ("m,2023-05-10T05:30:02,2023-05-10T05:30:03,interval,animal\n", None),
    ],
)
def test_invalid_times_are_rejected_with_their_line(tmp_path, row, message):
    folder = package(tmp_path, row)
    if message:
        with pytest.raises(AnnotationError, match=message):
            read(folder)
    else:
        assert read(folder).events == (Event("m", 2.0, 3.0),)


def test_a_time_zone_in_one_table_only_is_rejected(tmp_path):
    media = "mediaID,timestamp\nm,2023-05-10T05:30:00\n"
    with pytest.raises(AnnotationError, match="must both state a time zone, or neither"):
        read(package(tmp_path, "m,2023-05-10T05:30:02Z,2023-05-10T05:30:03Z,interval,animal\n", media))


def test_an_event_after_year_9999_is_rejected(tmp_path):
    original = Annotations((Event("a/x.wav", 0, 1e15),), recordings=WITH_START)
    with pytest.raises(AnnotationError, match="is later than year 9999"):
        write(original, tmp_path)
