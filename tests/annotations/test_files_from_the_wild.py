"""Annotation files of other projects, from the folder MAST_DATA (not part of this repository)."""

import os
from collections import Counter
from pathlib import Path

import pytest

from mast.annotations import detect_format, match_recordings, read_annotations, write_annotations
from mast.annotations.raven import REPEATED
from mast.records import ReviewedSpan

ROOT = os.environ.get("MAST_DATA")
pytestmark = pytest.mark.skipif(not ROOT, reason="MAST_DATA names no folder with real annotation files")
DATA = Path(ROOT or ".")
TABLES = DATA / "original-tables"
FILES = sorted(path for path in TABLES.rglob("*") if path.suffix in (".txt", ".json")) if ROOT else []


def box(event, end_s=float("inf")):
    limits = (event.start_s, min(event.end_s, end_s), event.low_hz, event.high_hz)
    return tuple(None if limit is None else round(limit, 6) for limit in limits)


def summary_boxes(source, name="annotations.csv"):
    """Return the boxes of the summary of a source, by recording."""
    boxes = {}
    for event in read_annotations(DATA / source / name, "csv").events:
        boxes.setdefault(event.recording_id, Counter())[box(event)] += 1
    return boxes


def boxes_of(tables, recording_ids, format_name="raven"):
    """Return the boxes of the original tables, by the recording names of the summary."""
    matched = match_recordings(read_annotations(tables, format_name), recording_ids).annotations
    boxes = {}
    for event in matched.events:
        boxes.setdefault(event.recording_id, Counter())[box(event)] += 1
    return boxes


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_is_detected_and_survives_a_round_trip(path, tmp_path):
    annotations = read_annotations(path, detect_format(path))
    assert annotations.recording_ids()
    write_annotations(annotations, tmp_path / "t.csv", "csv")
    again = read_annotations(tmp_path / "t.csv", "csv")
    assert again.events == annotations.events
    assert set(again.reviewed) == set(annotations.reviewed)


def test_boobook_boxes_except_one_selection_of_zero_duration_that_the_summary_omits():
    summary = summary_boxes("qut-boobook")
    positive = [path for path in (TABLES / "raven-qut-boobook").iterdir() if path.is_file()]
    boxes = {}
    for path in positive:
        boxes |= boxes_of(path, summary)
    extra = {name: boxes[name] - summary[name] for name in summary}
    assert all(not summary[name] - boxes[name] for name in summary)
    assert [start_s == end_s for group in extra.values() for start_s, end_s, _, _ in group] == [True]


def test_spans_without_boobooks():
    summary = summary_boxes("qut-boobook", "negative_segments.csv")
    boxes = boxes_of(TABLES / "raven-qut-boobook" / "negative", summary)
    assert boxes.keys() == summary.keys()
    extra = [box for name in summary for box in boxes[name] - summary[name]]
    assert all(not summary[name] - boxes[name] for name in summary)
    assert [low_hz == high_hz for _, _, low_hz, high_hz in extra] == [True]


def test_pitta_boxes_once_each_although_the_tables_repeat_them_for_two_views():
    summary = summary_boxes("qut-noisypitta")
    short = {name.rpartition("__")[2]: name for name in summary}
    assert len(short) == len(summary)
    boxes = boxes_of(TABLES / "raven-qut-noisypitta", short)
    assert {short[name]: group for name, group in boxes.items()} == summary
    tables = read_annotations(TABLES / "raven-qut-noisypitta", "raven")
    assert tables.problems[REPEATED] == len(tables.events)


def test_powdermill_boxes_of_the_first_ten_seconds():
    summary = summary_boxes("powdermill-snippet")
    (name,) = summary
    tables = read_annotations(
        TABLES / "raven-powdermill" / "Recording_1_Segment_07.Table.1.selections.txt", "raven"
    )
    first = Counter(box(event, 10.0) for event in tables.events if event.start_s < 10.0)
    assert first == summary[name]
    labels = {box(event, 10.0): event.label for event in tables.events}
    summary_events = read_annotations(DATA / "powdermill-snippet" / "annotations.csv", "csv").events
    assert [labels[box(event)] for event in summary_events] == [event.label for event in summary_events]


def test_bat_boxes_and_reviewed_clips_of_a_whombat_project():
    summary = summary_boxes("whombat-bats")
    path = TABLES / "aoef-whombat" / "example_annotation_project.json"
    assert boxes_of(path, summary, format_name="aoef") == summary
    project = match_recordings(read_annotations(path, "aoef"), summary).annotations
    lines = (DATA / "whombat-bats" / "annotated_clips.csv").read_text().splitlines()[1:]
    durations = {item.recording_id: item.duration_s for item in project.recordings}
    clips = set()
    for line in lines:
        name, start, end = line.rsplit(",", 2)
        clips.add(ReviewedSpan(name, float(start), None if float(end) >= durations[name] else float(end)))
    assert set(project.reviewed) == clips


def test_a_whombat_model_run_holds_a_models_events_and_a_dataset_recordings_only():
    folder = TABLES / "aoef-whombat"
    run = read_annotations(folder / "example_model_run.json", "aoef")
    assert {event.origin for event in run.events} == {"model"}
    assert run.reviewed == ()
    dataset = read_annotations(folder / "example_dataset.json", "aoef")
    assert (len(dataset.recordings), dataset.events) == (10, ())
    evaluation = read_annotations(folder / "example_evaluation_set.json", "aoef")
    assert {event.recording_id for event in evaluation.events} <= {
        span.recording_id for span in evaluation.reviewed
    }


def test_batdetect2_boxes_except_one_beyond_the_end_of_its_clip():
    summary = summary_boxes("batdetect2-example")
    boxes = boxes_of(TABLES / "batdetect2-json", summary, format_name="batdetect2")
    extra = [item for name in summary for item in boxes[name] - summary[name]]
    assert all(not summary[name] - boxes[name] for name in summary)
    assert [end_s > 0.5 for _, end_s, _, _ in extra] == [True]


def test_every_summary_reads_as_plain_csv():
    for path in sorted(DATA.glob("*/annotations.csv")):
        annotations = read_annotations(path, "csv")
        rows = len(path.read_text().splitlines()) - 1
        assert len(annotations.events) + annotations.problems.total() == rows, path
