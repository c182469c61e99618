"""Annotation files as their authors wrote them, from the folder that MAST_DATA names (not part of this project)."""

import os
from collections import Counter
from pathlib import Path

import pytest

from mast.annotations import guess_format, match_recordings, read_annotations, write_annotations
from mast.annotations.raven import REPEATED
from mast.events import Reviewed

ROOT = os.environ.get("MAST_DATA")
pytestmark = pytest.mark.skipif(not ROOT, reason="MAST_DATA names no folder with real annotation files")
DATA = Path(ROOT or ".")
TABLES = DATA / "original-tables"
FILES = sorted(path for path in TABLES.rglob("*") if path.suffix in (".txt", ".json")) if ROOT else []


def box(event, end_s=float("inf")):
    limits = (event.start_s, min(event.end_s, end_s), event.low_hz, event.high_hz)
    return tuple(None if limit is None else round(limit, 6) for limit in limits)


def expected(source, name="annotations.csv"):
    """Boxes of a source's own summary, by recording."""
    boxes = {}
    for event in read_annotations(DATA / source / name, "csv").events:
        boxes.setdefault(event.recording_id, Counter())[box(event)] += 1
    return boxes


def found(tables, recording_ids, format_name="raven"):
    """Boxes of the original tables, by the names the summary gives its recordings."""
    matched = match_recordings(read_annotations(tables, format_name), recording_ids).annotations
    boxes = {}
    for event in matched.events:
        boxes.setdefault(event.recording_id, Counter())[box(event)] += 1
    return boxes


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_is_recognised_reads_and_survives_a_round_trip(path, tmp_path):
    annotations = read_annotations(path, guess_format(path))
    assert annotations.recording_ids()
    write_annotations(annotations, tmp_path / "t.csv", "csv")
    again = read_annotations(tmp_path / "t.csv", "csv")
    assert again.events == annotations.events
    assert set(again.reviewed) == set(annotations.reviewed)


def test_boobook_boxes_but_one_selection_of_no_length_which_the_summary_leaves_out():
    summary = expected("qut-boobook")
    positive = [path for path in (TABLES / "raven-qut-boobook").iterdir() if path.is_file()]
    boxes = {}
    for path in positive:
        boxes |= found(path, summary)
    extra = {name: boxes[name] - summary[name] for name in summary}
    assert all(not summary[name] - boxes[name] for name in summary)
    assert [start_s == end_s for group in extra.values() for start_s, end_s, _, _ in group] == [True]


def test_spans_without_boobooks():
    summary = expected("qut-boobook", "negative_segments.csv")
    boxes = found(TABLES / "raven-qut-boobook" / "negative", summary)
    assert boxes.keys() == summary.keys()
    extra = [box for name in summary for box in boxes[name] - summary[name]]
    assert all(not summary[name] - boxes[name] for name in summary)
    assert [low_hz == high_hz for _, _, low_hz, high_hz in extra] == [True]


def test_pitta_boxes_each_once_though_the_tables_repeat_them_for_two_views():
    summary = expected("qut-noisypitta")
    short = {name.rpartition("__")[2]: name for name in summary}
    assert len(short) == len(summary)
    boxes = found(TABLES / "raven-qut-noisypitta", short)
    assert {short[name]: group for name, group in boxes.items()} == summary
    tables = read_annotations(TABLES / "raven-qut-noisypitta", "raven")
    assert tables.problems[REPEATED] == len(tables.events)


def test_powdermill_boxes_of_the_first_ten_seconds():
    summary = expected("powdermill-snippet")
    (name,) = summary
    tables = read_annotations(
        TABLES / "raven-powdermill" / "Recording_1_Segment_07.Table.1.selections.txt", "raven"
    )
    first = Counter(box(event, 10.0) for event in tables.events if event.start_s < 10.0)
    assert first == summary[name]
    labels = {box(event, 10.0): event.label for event in tables.events}
    known = read_annotations(DATA / "powdermill-snippet" / "annotations.csv", "csv").events
    assert [labels[box(event)] for event in known] == [event.label for event in known]


def test_bat_boxes_and_reviewed_clips_of_a_whombat_project():
    summary = expected("whombat-bats")
    path = TABLES / "aoef-whombat" / "example_annotation_project.json"
    assert found(path, summary, format_name="aoef") == summary
    project = match_recordings(read_annotations(path, "aoef"), summary).annotations
    lines = (DATA / "whombat-bats" / "annotated_clips.csv").read_text().splitlines()[1:]
    durations = {item.recording_id: item.duration_s for item in project.recordings}
    clips = set()
    for line in lines:
        name, start, end = line.rsplit(",", 2)
        clips.add(Reviewed(name, float(start), None if float(end) >= durations[name] else float(end)))
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


def test_batdetect2_boxes_but_one_past_the_end_of_its_clip():
    summary = expected("batdetect2-example")
    boxes = found(TABLES / "batdetect2-json", summary, format_name="batdetect2")
    extra = [item for name in summary for item in boxes[name] - summary[name]]
    assert all(not summary[name] - boxes[name] for name in summary)
    assert [end_s > 0.5 for _, end_s, _, _ in extra] == [True]


def test_every_summary_reads_as_plain_csv():
    for path in sorted(DATA.glob("*/annotations.csv")):
        annotations = read_annotations(path, "csv")
        rows = len(path.read_text().splitlines()) - 1
        assert len(annotations.events) + annotations.problems.total() == rows, path
