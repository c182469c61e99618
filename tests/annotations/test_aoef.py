import json
from collections import Counter
from dataclasses import replace
from datetime import datetime
from uuid import uuid4

import pytest
from hypothesis import given

from mast.annotations import Annotations, RecordingMetadata, read_annotations, write_annotations
from mast.annotations.aoef.io import read, write
from mast.annotations.aoef.objects import NO_METADATA, NO_METADATA_REVIEWED
from mast.annotations.model import local_start
from mast.annotations.table_io import LOW_UNSET
from mast.errors import AnnotationError
from mast.records import Event, ReviewedSpan
from tests.annotations.cases import SLOW, annotations, fixed_annotations, same

METADATA = tuple(
    RecordingMetadata(name, 60.0, 32_000, 1, start_local=datetime(2023, 5, 10, 7, 30))
    for name in ("a/x.wav", "a/empty.wav")
)


def load(path):
    from soundevent import io

    return io.load(path)


def test_nothing_is_an_empty_dataset(tmp_path):
    path = tmp_path / "t.json"
    assert write(Annotations(), path) == Counter()
    assert load(path).recordings == []
    assert read(path).events == read(path).reviewed == read(path).recordings == ()


def test_recordings_alone_are_a_dataset(tmp_path):
    path = tmp_path / "t.json"
    assert write(Annotations(recordings=METADATA), path) == Counter()
    assert read(path).recordings == METADATA


def test_a_fixed_project_loads_with_soundevent(tmp_path):
    path = tmp_path / "t.json"
    original = replace(fixed_annotations(), recordings=METADATA)
    assert write(original, path) == Counter()
    project = load(path)
    assert [len(clip.sound_events) for clip in project.clip_annotations] == [2, 0]
    assert [badge.state.value for task in project.tasks for badge in task.status_badges] == [
        "completed",
        "completed",
    ]
    box, interval = project.clip_annotations[0].sound_events
    assert box.sound_event.geometry.coordinates == [1.5, 1000.0, 2.25, 4000.0]
    assert interval.sound_event.geometry.coordinates == [3.0, 3.0]
    assert [(tag.term.name, tag.value) for tag in box.tags] == [
        ("dwc:scientificName", "Parus major"),
        ("Quality", "A"),
    ]
    assert box.created_by.name == "Ann"
    assert read(path).events == original.events
    assert read(path).recordings == METADATA


def test_the_same_annotations_give_the_same_identifiers(tmp_path):
    original = replace(fixed_annotations(), recordings=METADATA)
    write(original, tmp_path / "1.json")
    write(original, tmp_path / "2.json")
    one, two = (json.loads((tmp_path / name).read_text())["data"] for name in ("1.json", "2.json"))
    assert [item["uuid"] for item in one["sound_events"]] == [item["uuid"] for item in two["sound_events"]]


@SLOW
@given(annotations())
def test_annotations_survive_a_round_trip(tmp_path_factory, original):
    path = tmp_path_factory.mktemp("aoef") / "t.json"
    assert write_annotations(original, path, "aoef") == Counter()
    back = read_annotations(path, "aoef")
    assert same(back.events, original.events)
    assert same(back.reviewed, original.reviewed)
    metadata = {item.recording_id: item for item in original.recordings}
    for item in back.recordings:
        assert item.start_local == local_start(metadata[item.recording_id])
    assert load(path)


@SLOW
@given(annotations(reviewed=False))
def test_detections_of_a_model_only_are_a_prediction_set(tmp_path_factory, original):
    path = tmp_path_factory.mktemp("aoef") / "t.json"
    model = [replace(event, origin="model", score=0.5, annotator=None) for event in original.events]
    predictions = replace(original, events=(*model, Event("q.wav", 0, 1, 2, 3, "a", 0.25, "pseudo")))
    assert write_annotations(predictions, path, "aoef") == Counter()
    assert type(load(path)).__name__ == "PredictionSet"
    assert same(read(path).events, predictions.events)


def test_recordings_without_duration_or_sample_rate_are_counted(tmp_path):
    original = replace(fixed_annotations(), recordings=METADATA[1:])
    assert write(original, tmp_path / "t.json") == {NO_METADATA: 2, NO_METADATA_REVIEWED: 1}
    with pytest.raises(AnnotationError, match="needs the duration and sample rate"):
        write(fixed_annotations(), tmp_path / "t.json")


def test_notes_come_back_as_notes(tmp_path):
    event = Event("a/x.wav", 0, 1, columns=(("notes", "faint\nsee also 3"),))
    write(Annotations((event,), recordings=METADATA), tmp_path / "t.json")
    (clip,) = load(tmp_path / "t.json").clip_annotations
    assert [note.message for note in clip.sound_events[0].notes] == ["faint", "see also 3"]
    assert read(tmp_path / "t.json").events == (event,)


def stored(tmp_path, *, kind="annotation_set", geometry=None, badges=(), **more):
    """Write a small collection as another program would write it."""
    recording, clip, sound, note = (str(uuid4()) for _ in range(4))
    shape = geometry or {"type": "BoundingBox", "coordinates": [1, 100, 2, 200]}
    content = {
        "uuid": str(uuid4()),
        "collection_type": kind,
        "name": "n",
        "tags": [{"id": 0, "key": "species", "value": "bat"}, {"id": 1, "key": "class", "value": "good"}],
        "recordings": [
            {
                "uuid": recording,
                "path": "x.wav",
                "duration": 9,
                "channels": 1,
                "samplerate": 8000,
                "tags": [0],
            }
            | {"time_expansion": 10}
        ],
        "clips": [{"uuid": clip, "recording": recording, "start_time": 0, "end_time": 3}],
        "sound_events": [
            {"uuid": sound, "recording": recording, "geometry": shape, "features": {"snr": 2.5}}
        ],
        "sound_event_annotations": [{"uuid": note, "sound_event": sound, "tags": [1, 0]}],
        "clip_annotations": [{"uuid": str(uuid4()), "clip": clip, "sound_events": [note], "tags": [0]}],
        "tasks": [
            {"uuid": str(uuid4()), "clip": clip, "status_badges": [{"state": state} for state in badges]}
        ],
    }
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"version": "1.1.0", "data": content | more}))
    return path


def test_tags_keep_their_keys_and_features_become_columns(tmp_path):
    result = read(stored(tmp_path))
    columns = (("class", "good"), ("snr", "2.5"))
    assert result.events == (Event("x.wav", 1, 2, 100, 200, "bat", columns=columns),)
    assert result.reviewed == (ReviewedSpan("x.wav", 0.0, 3.0),)
    assert set(result.problems.values()) == {1}


@pytest.mark.parametrize(
    ("badges", "done"),
    [((), False), (("assigned",), False), (("completed",), True), (("completed", "rejected"), False)],
)
def test_a_clip_of_a_project_is_reviewed_if_its_task_is_done(tmp_path, badges, done):
    result = read(stored(tmp_path, kind="annotation_project", badges=badges))
    assert bool(result.reviewed) == done
    assert len(result.events) == 1


@pytest.mark.parametrize(
    ("geometry", "box"),
    [
        ({"type": "TimeStamp", "coordinates": 1.5}, (1.5, 1.5, None, None)),
        ({"type": "TimeInterval", "coordinates": [1, 2]}, (1, 2, None, None)),
        ({"type": "Polygon", "coordinates": [[[1, 100], [3, 100], [2, 300]]]}, (1, 3, 100, 300)),
    ],
)
def test_other_shapes_become_times_or_their_bounding_box(tmp_path, geometry, box):
    result = read(stored(tmp_path, geometry=geometry))
    event = result.events[0]
    assert (event.start_s, event.end_s, event.low_hz, event.high_hz) == box
    assert result.problems["Polygon: imported as its bounding box"] == (geometry["type"] == "Polygon")


def test_broken_files_are_rejected_with_one_sentence(tmp_path):
    path = stored(tmp_path, sound_events=[])
    with pytest.raises(AnnotationError, match="refers to .*, which is not in the file"):
        read(path)
    path.write_text('{"data": {"collection_type": "annotation_set"}}')
    with pytest.raises(AnnotationError, match="not an AOEF file: data"):
        read(path)
    path.write_text("")
    with pytest.raises(AnnotationError, match="not an AOEF file"):
        read(path)
    tags = [{"id": 0, "key": "mast:origin", "value": "bat"}, {"id": 1, "key": "species", "value": "bat"}]
    with pytest.raises(AnnotationError, match="mast:origin is 'bat'; it must be expert, model or pseudo"):
        read(stored(tmp_path, tags=tags))


def test_a_box_below_zero_hz_starts_at_zero_hz(tmp_path):
    result = read(stored(tmp_path, geometry={"type": "BoundingBox", "coordinates": [1, -5, 2, 200]}))
    assert (result.events[0].low_hz, result.problems[LOW_UNSET]) == (0.0, 1)


def test_an_evaluation_is_rejected(tmp_path):
    path = tmp_path / "e.json"
    content = {"uuid": str(uuid4()), "collection_type": "evaluation", "evaluation_task": "t"}
    path.write_text(json.dumps({"version": "1.1.0", "data": content}))
    with pytest.raises(AnnotationError, match="an evaluation holds scores"):
        read(path)
