import json
from collections import Counter

import pytest
from hypothesis import given

from mast.annotations import Annotations, RecordingMetadata, read_annotations, write_annotations
from mast.annotations.batdetect2 import EXPANDED, FILE_ISSUES, FILE_NOTES, NO_BAND, RESERVED, read, write
from mast.errors import AnnotationError
from mast.records import Event, ReviewedSpan
from tests.annotations.cases import DURATION_S, SLOW, annotations, same

DETECTION = {
    "class": "Myotis mystacinus",
    "class_prob": 0.55,
    "det_prob": 0.658,
    "start_time": 0.0225,
    "end_time": 0.028,
    "low_freq": 33203,
    "high_freq": 107492,
    "event": "Echolocation",
    "individual": "-1",
}


def written(tmp_path, content, name="x.wav.json"):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_an_annotated_file_without_detections_is_reviewed_without_events(tmp_path):
    result = read(written(tmp_path, {"annotated": True, "annotation": []}))
    assert result.events == ()
    assert result.reviewed == (ReviewedSpan("x.wav"),)


def test_no_files_are_an_empty_list(tmp_path):
    path = tmp_path / "all.json"
    assert write(Annotations(), path) == Counter()
    assert json.loads(path.read_text()) == []
    assert read(path).events == ()


def test_a_fixed_file_is_read(tmp_path):
    content = {
        "annotated": True,
        "annotation": [DETECTION],
        "duration": 0.5,
        "id": "y.wav",
        "issues": True,
        "notes": "look again",
        "time_exp": 10,
    }
    result = read(written(tmp_path, content))
    columns = (("class_prob", "0.55"), ("event", "Echolocation"))
    assert result.events == (
        Event("y.wav", 0.0225, 0.028, 33203, 107492, "Myotis mystacinus", 0.658, "expert", columns=columns),
    )
    assert result.recordings == (RecordingMetadata("y.wav", duration_s=0.5),)
    assert result.problems == {FILE_NOTES: 1, FILE_ISSUES: 1, EXPANDED: 1}
    write(result, tmp_path / "again.json")
    again = json.loads((tmp_path / "again.json").read_text())
    assert again["annotation"] == [DETECTION]
    assert again["class_name"] == "Myotis mystacinus"


def test_detections_in_a_file_without_annotations_have_origin_model(tmp_path):
    result = read(written(tmp_path, {"annotated": False, "annotation": [DETECTION]}))
    assert result.events[0].origin == "model"
    assert result.reviewed == ()


@SLOW
@given(annotations())
def test_events_with_frequencies_survive_a_round_trip_in_one_file_and_in_a_folder(tmp_path_factory, original):
    folder = tmp_path_factory.mktemp("batdetect2")
    boxes = [event for event in original.events if event.low_hz is not None]
    for target in (folder / "all.json", folder / "each"):
        assert write_annotations(original, target, "batdetect2") == +Counter(
            {NO_BAND: len(original.events) - len(boxes)}
        )
        back = read_annotations(target, "batdetect2")
        assert same(back.events, boxes)
        assert same(back.reviewed, original.reviewed)
        assert {item.duration_s for item in back.recordings} == {DURATION_S}


def test_free_columns_named_like_keys_are_counted_and_odd_values_stay_text(tmp_path):
    event = Event("x", 0, 1, 2, 3, columns=(("class", "lost"), ("class_prob", "high"), ("more", "1")))
    assert write(Annotations((event,)), tmp_path / "x.json") == {RESERVED: 1}
    assert read(tmp_path / "x.json").events[0].columns == (("class_prob", "high"), ("more", "1"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not valid JSON: Expecting value: line 1"),
        ("[" * 100_000, "not valid JSON"),
        ("{}", "a list called 'annotation'"),
        ("[3]", "a list called 'annotation'"),
        ({"annotation": [3]}, "annotation 1: must be an object"),
        ({"annotation": [{"start_time": 1}]}, "annotation 1: start_time or end_time is missing"),
        ({"annotation": [{"start_time": "x", "end_time": 1}]}, "annotation 1: start_s is 'x'"),
    ],
)
def test_a_file_that_is_not_batdetect2_json_is_rejected(tmp_path, content, message):
    with pytest.raises(AnnotationError, match=message):
        read(written(tmp_path, content))


def test_other_keys_of_any_type_are_stored_as_text(tmp_path):
    result = read(
        written(tmp_path, {"annotated": True, "annotation": [DETECTION | {"tags": ["a", 1], "none": None}]})
    )
    assert ("tags", '["a", 1]') in result.events[0].columns
