"""From verdicts to labels: only fully reviewed spans are training data, without the time around unsure events."""

from __future__ import annotations

import csv
import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from mast.annotations import read_annotations
from mast.annotations.study_annotations import read_study_annotations
from mast.cli import app
from mast.config import AnnotationSource, Labels, load_study
from mast.errors import ConfigError
from mast.example_data import write_example
from mast.models.checkpoint import read_model_id
from mast.outputs.export import EXPORT_LAYOUTS
from mast.records import ReviewedSpan
from mast.review.event_table import run_events
from mast.review.export import export_reviewed
from mast.review.next_step import next_command
from mast.review.outcome import subtract_intervals, summarise_review
from mast.review.read_verdicts import read_verdicts
from mast.review.review_set import open_review_set
from mast.review.to_labels import write_labels
from mast.runs.results import open_results
from mast.storage import list_files
from mast.training.run_dir import ANNOTATIONS, run_folder, table_fingerprints
from tests.review.builders import about, decided_as, event_table, span, store, verdict
from tests.runs.archives import save_detector
from tests.runs.finished import START, event, night, recording, status_of, write_run


def test_without_verdicts_the_outcome_is_empty():
    outcome = summarise_review(event_table([]), [])
    assert (outcome.accepted, outcome.uncertain, outcome.reviewed, outcome.open) == ((), (), (), 0)


def test_unsure_and_open_events_leave_holes_in_the_reviewed_spans():
    table = event_table([{"start_s": at_s, "end_s": at_s + 1.0} for at_s in (10.0, 20.0, 30.0, 40.0, 90.0)])
    decided = decided_as(table, ["accepted", "unsure", "rejected"])
    outcome = summarise_review(table, [*decided.values(), span("card/1.WAV", 0.0, 60.0)])
    assert outcome.reviewed == tuple(
        ReviewedSpan("card/1.WAV", *interval) for interval in ((0.0, 20.0), (21.0, 40.0), (41.0, 60.0))
    )
    assert (len(outcome.accepted), len(outcome.uncertain), outcome.rejected, outcome.open) == (1, 1, 1, 1)
    assert outcome.outside == frozenset()


def test_accepted_events_outside_reviewed_spans_are_separate_and_an_undone_span_does_not_count():
    table = event_table([{"start_s": 10.0, "end_s": 11.0}])
    decided = decided_as(table, ["accepted"])
    outcome = summarise_review(table, [*decided.values(), span("card/1.WAV", 0.0, 60.0, state="open")])
    assert (outcome.outside, outcome.reviewed) == (frozenset(decided), ())


INTERVALS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)).map(lambda pair: (pair[0], sum(pair))))


@given(INTERVALS, INTERVALS)
@settings(max_examples=100)
def test_subtracting_intervals_keeps_exactly_the_times_in_a_span_and_in_no_hole(spans, holes):
    times = np.arange(0, 27, 0.5) + 0.25
    inside = [any(a < at < b for a, b in spans) and not any(a < at < b for a, b in holes) for at in times]
    remaining = subtract_intervals(spans, holes)
    assert [sum(a < at < b for a, b in remaining) for at in times] == [int(value) for value in inside]
    assert remaining == sorted(remaining)


# ---------------------------------------------------------------------------------------------- into a study


@pytest.fixture
def study_run(tmp_path, monkeypatch):
    """Write a study without labels at site B1; return a run over a recording of that site, and the recording."""
    write_example(tmp_path / "demo")
    for table in (tmp_path / "demo" / "boxes").rglob("*.txt"):
        if "B1" in str(table):
            table.unlink()
    monkeypatch.chdir(tmp_path)
    mast("init", "demo/card", "--annotations", "demo/boxes", "--site", "{site}/*", "--time-zone", "UTC")
    mast("scan", "study.yaml")
    name = next(path.name for path in sorted((tmp_path / "demo" / "card" / "B1").glob("*_213000.WAV")))
    recorded = recording(f"B1/{name}", site="B1", duration_s=30.0)
    part = [(recorded, status_of(recorded, 3), [event(recorded, at_s) for at_s in (2.0, 12.0, 25.0)])]
    return write_run(tmp_path / "work" / "events", [part], root=str(tmp_path / "demo" / "card")), recorded


def mast(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def write_review(run: str, recorded) -> list:
    rows = run_events(open_results(run)).to_pylist()
    verdicts = [
        about(rows[0], "accepted", label="frog"),
        about(rows[1], "rejected"),
        about(rows[2], "unsure"),
        verdict(
            "drawn-1", recording_id=recorded.recording_id, start_s=5.0, end_s=6.0, score=None, user="ben"
        ),
        span(recorded.recording_id, 0.0, 30.0),
    ]
    store(Path(run) / "review.sqlite", verdicts)
    return verdicts


def test_a_review_becomes_labels_of_its_study_with_one_command(study_run):
    run, recorded = study_run
    write_review(run, recorded)
    output = mast("apply-review", "study.yaml", run)
    assert (
        "2 events, 1 of them drawn by hand" in output and "1 event unsure: excluded from training" in output
    )
    table = pq.read_table("work/annotations.parquet").to_pylist()
    new = [row for row in table if row["recording_id"] == recorded.recording_id]
    assert [(row["start_s"], row["kind"], row["label"], row["annotator"]) for row in new] == [
        (2.0, "animal", "frog", "ana"),
        (5.0, "animal", None, "ben"),
        (25.0, "ignored", "unsure", "ana"),
    ]
    spans = [
        row
        for row in pq.read_table("work/reviewed.parquet").to_pylist()
        if row["recording_id"] == recorded.recording_id
    ]
    assert [(row["start_s"], row["end_s"]) for row in spans] == [(0.0, 25.0), (25.5, 30.0)]
    chunks = [
        row
        for row in pq.read_table("work/splits.parquet").to_pylist()
        if row["recording_id"] == recorded.recording_id
    ]
    assert chunks and all(
        row["split"] == "guard" for row in chunks if row["start_s"] < 25.5 < row["start_s"] + row["audio_s"]
    )
    assert {row["split"] for row in chunks if row["start_s"] + row["audio_s"] <= 25} <= {
        "train",
        "val",
        "test",
    }


def test_applying_a_review_again_replaces_its_labels_and_a_scan_keeps_them(study_run):
    run, recorded = study_run
    verdicts = write_review(run, recorded)
    study = load_study(Path("study.yaml"))
    first = write_labels(study, run)
    other = store(Path("other.sqlite"), [*verdicts, verdict("drawn-1", "rejected", version=2, score=None)])
    second = write_labels(study, run, other)
    assert first.location == second.location and len(second.outcome.accepted) == 1
    mast("scan", "study.yaml")
    labels = pq.read_table("work/annotations.parquet")["source"].to_pylist()
    assert sum(source == second.location for source in labels) == 2


def test_a_review_replaces_the_annotations_in_reviewed_spans_and_no_others(study_run):
    run, recorded = study_run
    write_review(run, recorded)
    Path("own.csv").write_text(
        "recording,start_s,end_s,low_hz,high_hz,label\n"
        f"{recorded.recording_id},2.1,2.6,1000,3000,frog\n"  # in a reviewed span
        f"{recorded.recording_id},25.1,25.4,1000,3000,frog\n",  # near an unsure event
        "utf-8",
    )
    sources = (AnnotationSource(path="own.csv", format="csv"),)
    study = load_study(Path("study.yaml")).model_copy(update={"annotations": sources, "labels": Labels()})
    before = read_study_annotations(study, [recorded.recording_id])
    assert [item.start_s for item in before.annotations] == [2.1, 25.1]
    write_labels(study, run)
    after = read_study_annotations(study, [recorded.recording_id])
    assert [(item.start_s, Path(item.source).name[:3]) for item in after.annotations] == [
        (25.1, "own"), (2.0, "001"), (5.0, "001"), (25.0, "001"),
    ]  # fmt: skip


def test_a_box_across_two_reviews_and_a_minute_reviewed_twice_have_one_label(study_run):
    run, recorded = study_run
    study = load_study(Path("study.yaml")).model_copy(update={"annotations": ()})
    across = verdict("d", recording_id=recorded.recording_id, start_s=9.5, end_s=10.25, score=None)
    again = verdict("e", recording_id=recorded.recording_id, start_s=3.0, end_s=4.0, score=None)
    rejected = [about(row, "rejected") for row in run_events(open_results(run)).to_pylist()]
    for name, spans in (("f0", [(0.0, 10.0)]), ("f1", [(10.0, 20.0), (2.0, 5.0)])):
        record = json.loads(Path(run, "run.json").read_text("utf-8"))
        Path(run, "run.json").write_text(json.dumps(record | {"fingerprint": name}), "utf-8")
        reviewed = [span(recorded.recording_id, *pair) for pair in spans]
        database = store(Path(f"{name}.sqlite"), [across, again, *rejected, *reviewed])
        write_labels(study, run, database)
    labels = read_study_annotations(study, [recorded.recording_id]).annotations
    assert sorted((item.start_s, Path(item.source).name[:3]) for item in labels) == [
        (3.0, "002"),
        (9.5, "002"),
    ]


def test_reviews_of_two_copies_of_a_run_do_not_replace_each_other(study_run):
    run, recorded = study_run
    study = load_study(Path("study.yaml")).model_copy(update={"annotations": ()})
    rejected = [about(row, "rejected") for row in run_events(open_results(run)).to_pylist()]
    for user, start_s in (("ana", 2.0), ("ben", 12.0)):
        accepted = verdict(
            user, recording_id=recorded.recording_id, start_s=start_s, end_s=start_s + 1, user=user
        )
        reviewed = span(recorded.recording_id, start_s - 1, start_s + 3)
        write_labels(study, run, store(Path(f"{user}.sqlite"), [accepted, reviewed, *rejected]))
    labels = read_study_annotations(study, [recorded.recording_id]).annotations
    assert sorted((item.start_s, item.annotator) for item in labels) == [(2.0, "ana"), (12.0, "ben")]


def test_accepted_events_in_no_reviewed_span_are_no_labels(study_run):
    run, _ = study_run
    rows = run_events(open_results(run)).to_pylist()
    database = store(Path("few.sqlite"), [about(rows[0], "accepted"), about(rows[1], "unsure")])
    written = write_labels(load_study(Path("study.yaml")), run, database)
    assert "2 events in no reviewed span: left out until the time around is reviewed" in written.summary()
    assert len(Path(written.location).read_text("utf-8").splitlines()) == 1  # only the header


def test_events_below_the_minimum_score_of_a_review_leave_no_hole(study_run):
    run, recorded = study_run
    database = store(Path("few.sqlite"), [span(recorded.recording_id, 0.0, 30.0)])
    study = load_study(Path("study.yaml"))
    written = write_labels(study, run, database)
    assert written.outcome.open == 3
    assert "If the review had --min-score, use the same value here" in written.summary()
    assert "0.5 min fully reviewed" in mast(
        "apply-review", "study.yaml", run, "--review-database", database, "--min-score", "0.6"
    )
    complete = write_labels(study, run, database, 0.6)
    assert complete.outcome.reviewed == (ReviewedSpan(recorded.recording_id, 0.0, 30.0),)
    refused = CliRunner().invoke(app, ["apply-review", "study.yaml", "--min-score", "0.6"])
    assert isinstance(refused.exception, ConfigError)


def test_labels_have_the_kinds_of_the_study_and_unknown_labels_are_animals(study_run):
    run, recorded = study_run
    write_review(run, recorded)
    study = load_study(Path("study.yaml")).model_copy(
        update={"labels": Labels(animal=("*",), noise=("frog",))}
    )
    write_labels(study, run)
    kinds = {
        item.label: item.kind for item in read_study_annotations(study, [recorded.recording_id]).annotations
    }
    assert {"frog": "noise", None: "animal", "unsure": "ignored"}.items() <= kinds.items()
    strict = study.model_copy(update={"labels": Labels(animal=("hoot",)), "annotations": ()})
    reviewed = read_study_annotations(strict, [recorded.recording_id])
    assert [item.kind for item in reviewed.annotations] == ["animal", "animal", "ignored"]


@pytest.fixture
def annotated_recording(study_run):
    """Add a table with three annotations of a recording to the study, one of them without frequencies."""
    _, recorded = study_run
    Path("own.csv").write_text(
        "recording,start_s,end_s,low_hz,high_hz,label\n"
        f"{recorded.recording_id},2,3,1000,3000,whistle\n{recorded.recording_id},6,7,,,whistle\n{recorded.recording_id},12,13,500,900,hoot\n",
        "utf-8",
    )
    text = Path("study.yaml").read_text("utf-8")
    Path("study.yaml").write_text(
        text.replace("annotations:\n", "annotations:\n  - {path: own.csv, format: csv}\n"), "utf-8"
    )
    mast("scan", "study.yaml")
    return recorded


def labels_in(recording_id: str) -> list[tuple]:
    rows = pq.read_table("work/annotations.parquet").to_pylist()
    return sorted(
        (row["start_s"], row["low_hz"], row["kind"], row["label"])
        for row in rows
        if row["recording_id"] == recording_id
    )


def test_a_review_of_a_study_corrects_its_annotations_and_keeps_the_others(annotated_recording):
    recorded = annotated_recording
    elsewhere = len(pq.read_table("work/annotations.parquet")) - 3
    review_set = open_review_set("study.yaml")
    frog, full_band, owl = review_set.events_of(recorded.recording_id).to_pylist()
    verdicts = [
        about(frog, "accepted", start_s=2.25, label="toad"),
        about(full_band, "accepted", label="whistle"),
        verdict("drawn-1", recording_id=recorded.recording_id, start_s=20.0, end_s=21.0, score=None),
        about(owl, "rejected"),
    ]
    store(Path("work/review.sqlite"), verdicts)
    assert next_command(load_study(Path("study.yaml")), "study.yaml") == "mast apply-review study.yaml"
    output = mast("apply-review", "study.yaml")
    assert "3 events, 1 of them drawn by hand" in output and "1 event rejected" in output
    after = [
        (2.25, 1000.0, "animal", "toad"), (6.0, None, "animal", "whistle"), (20.0, 1000.0, "animal", None),
    ]  # fmt: skip
    assert labels_in(recorded.recording_id) == after
    assert len(pq.read_table("work/annotations.parquet")) == elsewhere + 3
    again = open_review_set("study.yaml").events.to_pylist()
    assert [row["event_id"] for row in again] == [row["event_id"] for row in review_set.events.to_pylist()]
    mast("apply-review", "study.yaml")
    assert labels_in(recorded.recording_id) == after


def test_annotations_without_a_verdict_stay_and_unsure_ones_are_ignored(annotated_recording):
    recorded = annotated_recording
    owl = open_review_set("study.yaml").events_of(recorded.recording_id).to_pylist()[2]
    store(Path("work/review.sqlite"), [about(owl, "unsure", label="hoot"), verdict("gone")])
    output = mast("apply-review", "study.yaml")
    assert "2 events without a verdict in the same recordings: annotation kept unchanged" in output
    assert labels_in(recorded.recording_id) == [
        (2.0, 1000.0, "animal", "whistle"), (6.0, None, "animal", "whistle"), (12.0, 500.0, "ignored", "unsure"),
    ]  # fmt: skip
    spans = pq.read_table("work/reviewed.parquet").to_pylist()
    assert [(row["start_s"], row["end_s"]) for row in spans if row["recording_id"] == recorded.recording_id] == [
        (0.0, 12.0), (13.0, 30.0),
    ]  # fmt: skip


def test_a_study_without_annotations_is_labelled_in_review(study_run):
    _, recorded = study_run
    Path("study.yaml").write_text("collections: {card: {root: demo/card, time_zone: UTC}}\n", "utf-8")
    mast("scan", "study.yaml")
    mast("split", "study.yaml")
    study = load_study(Path("study.yaml"))
    Path(study.work_dir, "events", "run.json").unlink()
    assert next_command(study, "study.yaml") == "mast sample study.yaml --hours 1 --out to-label"
    drawn = verdict(
        "drawn-1", recording_id=recorded.recording_id, start_s=5.0, end_s=6.0, score=None, label="frog"
    )
    outside = verdict("drawn-2", recording_id="card/A1/none.wav", start_s=5.0, end_s=6.0, score=None)
    store(Path("work/review.sqlite"), [drawn, outside, span(recorded.recording_id, 0.0, 30.0)])
    output = mast("apply-review", "study.yaml")
    assert "1 event, 1 of them drawn by hand; 0.5 min fully reviewed" in output
    assert "1 event in no reviewed span: left out" in output
    assert labels_in(recorded.recording_id) == [(5.0, 1000.0, "animal", "frog")]
    assert next_command(study, "study.yaml") == "mast train study.yaml"


def test_the_next_command_follows_the_active_learning_loop(study_run):
    run, recorded = study_run
    mast("split", "study.yaml")
    study = load_study(Path("study.yaml"))
    Path(run, "run.json").touch()
    assert next_command(study, "study.yaml") == "mast train study.yaml"
    assert next_command(study, "my study.yaml") == "mast train 'my study.yaml'"
    write_review(run, recorded)
    assert next_command(study, "study.yaml") == f"mast apply-review study.yaml {run}"
    mast("apply-review", "study.yaml", run)
    assert next_command(study, "study.yaml") == "mast train study.yaml"
    model = write_training(study, "main")
    later = datetime.now(UTC).timestamp() + 10
    os.utime(model, (later, later))
    detect = next_command(study, "study.yaml")
    assert detect.startswith(
        f"mast detect study.yaml --model {Path(study.work_dir) / 'runs/train/main/model'} --out "
    )
    os.utime(Path(run, "run.json"), (later + 10, later + 10))
    assert next_command(study, "study.yaml") == f"mast review {run}"
    assert next_command(study.model_copy(update={"work_dir": "s3://bucket/work"}), "study.yaml") is None
    assert "Next: mast prepare study.yaml" in mast("status", "study.yaml")


def write_training(study, name: str, labels: str | None = "current") -> Path:
    """Write a finished training run with the fingerprint of its labels; return the description file of its model."""
    fingerprints = table_fingerprints(study, [ANNOTATIONS]) if labels == "current" else {ANNOTATIONS: labels}
    run = run_folder(study.work_dir, "train", name)
    run.open(fingerprints)
    run.model.mkdir()
    (run.model / "model.json").write_text("{}")
    return run.model / "model.json"


def test_only_new_labels_need_another_training(study_run):
    run, recorded = study_run
    mast("split", "study.yaml")
    study = load_study(Path("study.yaml"))
    write_training(study, "main")
    later = datetime.now(UTC).timestamp() + 10
    os.utime(Path(run, "run.json"), (later, later))
    assert next_command(study, "study.yaml") == f"mast review {run}"
    os.utime("work/runs/train/main/model/model.json", (0, 0))
    mast("scan", "study.yaml")  # the labels do not change
    assert next_command(study, "study.yaml") == f"mast review {run}"
    write_review(run, recorded)
    mast("apply-review", "study.yaml", run)
    assert next_command(study, "study.yaml") == "mast train study.yaml --run-name round-2"


def test_a_review_with_only_rejected_events_needs_another_training(study_run):
    run, recorded = study_run
    mast("split", "study.yaml")
    study = load_study(Path("study.yaml"))
    write_training(study, "main")
    os.utime("work/runs/train/main/config.yaml", (0, 0))
    rejected = [about(row, "rejected") for row in run_events(open_results(run)).to_pylist()]
    store(Path(run) / "review.sqlite", [*rejected, span(recorded.recording_id, 0.0, 30.0)])
    mast("apply-review", "study.yaml", run)
    assert next_command(study, "study.yaml") == "mast train study.yaml --run-name round-2"


def test_another_round_gets_a_free_name_and_a_stopped_round_resumes(study_run):
    mast("split", "study.yaml")
    study = load_study(Path("study.yaml"))
    for name in ("main", "round-3", "round-4"):
        write_training(study, name, "old")
    assert next_command(study, "study.yaml") == "mast train study.yaml --run-name round-5"
    run_folder(study.work_dir, "train", "round-5").open({ANNOTATIONS: "other"})
    run_folder(study.work_dir, "train", "round-6").open(table_fingerprints(study, [ANNOTATIONS]))
    assert next_command(study, "study.yaml") == "mast train study.yaml --run-name round-6"


def test_a_stopped_detection_resumes_with_its_model(study_run):
    run, recorded = study_run
    mast("split", "study.yaml")
    study = load_study(Path("study.yaml"))
    newest = write_training(study, "main")
    part = [(recorded, status_of(recorded), [])]
    for parts in ([None], [None, part, None]):
        shutil.rmtree(run)
        write_run(run, parts)
        later = datetime.now(UTC).timestamp() + 10
        os.utime(Path(run, "run.json"), (later, later))
        command = f"mast detect study.yaml --model {newest.parent} --out {run}"
        assert next_command(study, "study.yaml") == command
    record = json.loads(Path(run, "run.json").read_text("utf-8"))
    model = save_detector(Path(study.work_dir, "runs", "self-train", "old", "model"))
    record["settings"] |= {"model": read_model_id(model), "threshold": 0.01}
    Path(run, "run.json").write_text(json.dumps(record), "utf-8")
    os.utime(Path(run, "run.json"), (later, later))
    command = f"mast detect study.yaml --model {model} --out {run} --min-score 0.01"
    assert next_command(study, "study.yaml") == command


# ---------------------------------------------------------------------------------------------- into other formats


@pytest.fixture
def night_run(tmp_path):
    run = write_run(tmp_path / "found", night(), root="/cards")
    rows = run_events(open_results(run)).to_pylist()
    verdicts = [
        about(rows[0], "accepted", label="owl", start_s=1.25),
        about(rows[1], "rejected"),
        verdict(
            "drawn",
            recording_id="card/ridge/2.WAV",
            start_s=7.0,
            end_s=8.0,
            score=None,
            label="frog",
            user="ben",
        ),
        span("card/ridge/2.WAV", 0.0, 30.0),
    ]
    store(Path(run) / "review.sqlite", verdicts)
    return run


def test_an_export_of_a_review_has_the_accepted_events(night_run, tmp_path):
    out = tmp_path / "out"
    output = mast("export", night_run, "--reviewed", "--to", "csv", "--out", str(out))
    assert "2 events accepted, 1 of them drawn by hand\nLeft out: 1 rejected, 0 unsure" in output
    header, *rows = [line.split(",") for line in (out / "events.csv").read_text("utf-8").splitlines()]
    table = [dict(zip(header, row, strict=True)) for row in rows]
    assert [
        (row["recording"], row["start_s"], row["label"], row["annotator"], row["score"]) for row in table
    ] == [
        ("card/ridge/1.WAV", "1.25", "owl", "ana", "0.25"),
        ("card/ridge/2.WAV", "7", "frog", "ben", ""),
    ]
    assert table[0]["reviewed_s"] == "none" and table[1]["reviewed_s"] == "0..30"
    assert table[0]["start_local"] == f"{START:%Y-%m-%dT%H:%M}:01.250" and table[1]["site"] == "ridge"


def test_events_of_another_run_in_the_same_database_are_not_counted(night_run, tmp_path):
    other = verdict("drawn-9", recording_id="elsewhere/1.WAV", start_s=1.0, end_s=2.0, score=None)
    database = store(tmp_path / "both.sqlite", [*read_verdicts(str(Path(night_run, "review.sqlite"))), other])
    written = export_reviewed(night_run, "csv", str(tmp_path / "out"), location=database)
    assert "2 events accepted, 1 of them drawn by hand" in written.summary()
    assert len((tmp_path / "out" / "events.csv").read_text("utf-8").splitlines()) == 1 + 2


def test_an_export_with_unreviewed_events_has_the_other_detections_too(night_run, tmp_path):
    written = export_reviewed(night_run, "csv", str(tmp_path / "out"), include_unreviewed=True)
    assert written.unreviewed == 1 and "and 1 unreviewed" in written.summary()
    mast("export", night_run, "--to", "csv", "--out", str(tmp_path / "all"))
    (*reviewed, unreviewed), detected = (
        list(csv.DictReader((tmp_path / name / "events.csv").read_text("utf-8").splitlines()))
        for name in ("out", "all")
    )
    assert len(reviewed) == 2 and unreviewed["recording"] == "card/swamp/3.WAV"
    assert {name: unreviewed[name] for name in detected[-1]} == detected[
        -1
    ]  # same as in an export without a review
    high = export_reviewed(night_run, "csv", str(tmp_path / "few"), include_unreviewed=True, min_score=0.6)
    assert high.unreviewed == 0


def test_events_below_the_minimum_score_leave_no_hole_in_an_export(night_run, tmp_path):
    database = store(tmp_path / "few.sqlite", [span("card/swamp/3.WAV", 0.0, 12.0)])
    with_hole, complete = (
        export_reviewed(
            night_run, "csv", str(tmp_path / "out"), location=database, min_score=min_score
        ).outcome
        for min_score in (None, 0.6)
    )
    assert [(item.start_s, item.end_s) for item in with_hole.reviewed] == [(0.0, 3.0), (3.5, 12.0)]
    assert [(item.start_s, item.end_s) for item in complete.reviewed] == [(0.0, 12.0)]
    assert complete.open == 0


@pytest.mark.parametrize("to", ["raven", "audacity", "aoef", "audubon-core", "camtrap-dp"])
def test_every_format_can_store_a_review_and_lists_its_losses(night_run, tmp_path, to):
    written = export_reviewed(night_run, to, str(tmp_path / "out"))
    assert any((tmp_path / "out").rglob("*.*")) and f"Written: {written.out}" in written.summary()
    assert ("Not kept in" in written.summary()) == bool(written.losses)


@pytest.mark.parametrize("to", ["raven", "audacity"])
def test_an_event_that_is_rejected_later_is_in_no_table_of_the_next_export(night_run, tmp_path, to):
    mast("export", night_run, "--reviewed", "--to", to)
    folder = Path(night_run, f"{to}-reviewed")
    assert len(read_annotations(folder, to).events) == 2
    owl = run_events(open_results(night_run)).to_pylist()[0]
    verdicts = read_verdicts(str(Path(night_run, "review.sqlite")))
    later = store(tmp_path / "later.sqlite", [*verdicts, about(owl, "rejected", version=2)])
    output = mast("export", night_run, "--reviewed", "--to", to, "--review-database", later)
    assert "1 event accepted, 1 of them drawn by hand\nLeft out: 2 rejected" in output
    assert [event.start_s for event in read_annotations(folder, to).events] == [7.0]


@pytest.mark.parametrize("to", ["raven", "audacity", "csv", "aoef", "audubon-core"])
def test_an_export_can_have_a_file_for_each_recording(night_run, tmp_path, to):
    out = tmp_path / "out.txt"
    mast("export", night_run, "--reviewed", "--per-recording", "--to", to, "--out", str(out))
    ending = EXPORT_LAYOUTS[to].ending
    assert list_files(str(out)) == [f"card/ridge/{number}.WAV{ending}" for number in (1, 2)]
    one, two = (read_annotations(out / f"card/ridge/{number}.WAV{ending}", to).events for number in (1, 2))
    assert [event.start_s for event in (*one, *two)] == [1.25, 7.0]


def test_options_that_need_a_review_are_refused_without_it(night_run):
    refused = CliRunner().invoke(app, ["export", night_run, "--to", "csv", "--include-unreviewed"])
    assert isinstance(refused.exception, ConfigError)
