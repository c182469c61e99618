"""From verdicts to labels: only what was looked at completely is known, and what is unsure teaches nothing."""

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
from mast.annotations.study import read_expertise
from mast.cli import app
from mast.config import AnnotationSource, Labels, load_study
from mast.detection.export import SHAPES
from mast.detection.found import open_found
from mast.errors import ConfigError
from mast.events import Reviewed
from mast.example import write_example
from mast.models.checkpoint import known_identity
from mast.review.export import export_reviewed
from mast.review.labels import write_labels
from mast.review.material import open_material
from mast.review.next import next_in_round
from mast.review.reading import read_verdicts
from mast.review.sounds import sounds_of
from mast.review.taking import take, without
from mast.storage import files_below
from mast.training.run import ANNOTATIONS, run_folder, tables_of
from tests.detection.archives import save_detector
from tests.detection.runs import START, event, night, recording, write_run
from tests.detection.runs import heard as status_of
from tests.review.made import about, decided_as, sounds, span, store, verdict


def test_of_nothing_nothing_is_taken():
    taken = take(sounds([]), [])
    assert (taken.accepted, taken.unsure, taken.reviewed, taken.open) == ((), (), (), 0)


def test_an_unsure_and_an_open_sound_each_leave_a_hole_in_what_was_reviewed():
    table = sounds([{"start_s": at_s, "end_s": at_s + 1.0} for at_s in (10.0, 20.0, 30.0, 40.0, 90.0)])
    decided = decided_as(table, ["accepted", "unsure", "rejected"])
    taken = take(table, [*decided.values(), span("card/1.WAV", 0.0, 60.0)])
    assert taken.reviewed == tuple(
        Reviewed("card/1.WAV", *own) for own in ((0.0, 20.0), (21.0, 40.0), (41.0, 60.0))
    )
    assert (len(taken.accepted), len(taken.unsure), taken.rejected, taken.open) == (1, 1, 1, 1)
    assert taken.outside == frozenset()


def test_accepted_sounds_where_nobody_reviewed_are_counted_apart_and_an_undone_span_is_none():
    table = sounds([{"start_s": 10.0, "end_s": 11.0}])
    decided = decided_as(table, ["accepted"])
    taken = take(table, [*decided.values(), span("card/1.WAV", 0.0, 60.0, state="open")])
    assert (taken.outside, taken.reviewed) == (frozenset(decided), ())


STRETCHES = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)).map(lambda own: (own[0], sum(own))))


@given(STRETCHES, STRETCHES)
@settings(max_examples=100)
def test_what_is_left_of_spans_is_every_moment_in_a_span_and_in_no_hole(spans, holes):
    moments = np.arange(0, 27, 0.5) + 0.25
    inside = [any(a < at < b for a, b in spans) and not any(a < at < b for a, b in holes) for at in moments]
    left = without(spans, holes)
    assert [sum(a < at < b for a, b in left) for at in moments] == [int(own) for own in inside]
    assert left == sorted(left)


# ---------------------------------------------------------------------------------------------- into a study


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A study of the example card in which nobody has labelled site B1; and a run over a recording of that site."""
    write_example(tmp_path / "demo")
    for table in (tmp_path / "demo" / "boxes").rglob("*.txt"):
        if "B1" in str(table):
            table.unlink()
    monkeypatch.chdir(tmp_path)
    mast("init", "demo/card", "--boxes", "demo/boxes", "--site", "{site}/*", "--time-zone", "UTC")
    mast("scan", "study.yaml")
    name = next(path.name for path in sorted((tmp_path / "demo" / "card" / "B1").glob("*_213000.WAV")))
    own = recording(f"B1/{name}", site="B1", duration_s=30.0)
    part = [(own, status_of(own, 3), [event(own, at_s) for at_s in (2.0, 12.0, 25.0)])]
    return write_run(tmp_path / "work" / "events", [part], root=str(tmp_path / "demo" / "card")), own


def mast(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def reviewed_store(run: str, own, **changed) -> list:
    rows = sounds_of(open_found(run)).to_pylist()
    verdicts = [
        about(rows[0], "accepted", label="frog"),
        about(rows[1], "rejected"),
        about(rows[2], "unsure"),
        verdict("drawn-1", recording_id=own.recording_id, start_s=5.0, end_s=6.0, score=None, who="ben"),
        span(own.recording_id, 0.0, 30.0),
    ]
    store(Path(run) / "review.sqlite", verdicts)
    return verdicts


def test_a_review_becomes_labels_of_its_study_with_one_command(desk):
    run, own = desk
    reviewed_store(run, own)
    told = mast("labels", "study.yaml", run)
    assert "2 sounds, 1 of them drawn by hand" in told and "1 sounds unsure: nothing is learned" in told
    table = pq.read_table("work/annotations.parquet").to_pylist()
    new = [row for row in table if row["recording_id"] == own.recording_id]
    assert [(row["start_s"], row["kind"], row["label"], row["annotator"]) for row in new] == [
        (2.0, "animal", "frog", "ana"),
        (5.0, "animal", None, "ben"),
        (25.0, "ignored", "unsure", "ana"),
    ]
    spans = [
        row
        for row in pq.read_table("work/reviewed.parquet").to_pylist()
        if row["recording_id"] == own.recording_id
    ]
    assert [(row["start_s"], row["end_s"]) for row in spans] == [(0.0, 25.0), (25.5, 30.0)]
    chunks = [
        row
        for row in pq.read_table("work/splits.parquet").to_pylist()
        if row["recording_id"] == own.recording_id
    ]
    assert chunks and all(
        row["split"] == "guard" for row in chunks if row["start_s"] < 25.5 < row["start_s"] + row["filled_s"]
    )
    assert {row["split"] for row in chunks if row["start_s"] + row["filled_s"] <= 25} <= {
        "train",
        "val",
        "test",
    }


def test_taking_labels_again_replaces_them_and_a_scan_keeps_them(desk):
    run, own = desk
    verdicts = reviewed_store(run, own)
    study = load_study(Path("study.yaml"))
    first = write_labels(study, run)
    other = store(Path("other.sqlite"), [*verdicts, verdict("drawn-1", "rejected", version=2, score=None)])
    second = write_labels(study, run, other)
    assert first.location == second.location and len(second.taken.accepted) == 1
    mast("scan", "study.yaml")
    labels = pq.read_table("work/annotations.parquet")["source"].to_pylist()
    assert sum(source == second.location for source in labels) == 2


def test_a_review_takes_the_place_of_what_the_study_had_where_it_looked_and_of_nothing_else(desk):
    run, own = desk
    reviewed_store(run, own)
    Path("own.csv").write_text(
        "recording,start_s,end_s,low_hz,high_hz,label\n"
        f"{own.recording_id},2.1,2.6,1000,3000,frog\n"  # looked at again
        f"{own.recording_id},25.1,25.4,1000,3000,frog\n",  # where the reviewer was unsure
        "utf-8",
    )
    sources = (AnnotationSource(path="own.csv", format="csv"),)
    study = load_study(Path("study.yaml")).model_copy(update={"annotations": sources, "labels": Labels()})
    before = read_expertise(study, [own.recording_id])
    assert [item.start_s for item in before.annotations] == [2.1, 25.1]
    write_labels(study, run)
    after = read_expertise(study, [own.recording_id])
    assert [(item.start_s, Path(item.source).name[:3]) for item in after.annotations] == [
        (25.1, "own"), (2.0, "001"), (5.0, "001"), (25.0, "001"),
    ]  # fmt: skip


def test_a_box_across_the_edge_of_two_reviews_and_a_minute_reviewed_twice_are_there_once(desk):
    run, own = desk
    study = load_study(Path("study.yaml")).model_copy(update={"annotations": ()})
    across = verdict("d", recording_id=own.recording_id, start_s=9.5, end_s=10.25, score=None)
    again = verdict("e", recording_id=own.recording_id, start_s=3.0, end_s=4.0, score=None)
    quiet = [about(row, "rejected") for row in sounds_of(open_found(run)).to_pylist()]
    for name, spans in (("f0", [(0.0, 10.0)]), ("f1", [(10.0, 20.0), (2.0, 5.0)])):
        told = json.loads(Path(run, "run.json").read_text("utf-8"))
        Path(run, "run.json").write_text(json.dumps(told | {"fingerprint": name}), "utf-8")
        looked = [span(own.recording_id, *pair) for pair in spans]
        place = store(Path(f"{name}.sqlite"), [across, again, *quiet, *looked])
        write_labels(study, run, place)
    found = read_expertise(study, [own.recording_id]).annotations
    assert sorted((item.start_s, Path(item.source).name[:3]) for item in found) == [
        (3.0, "002"),
        (9.5, "002"),
    ]


def test_two_reviews_of_copies_of_a_run_do_not_take_each_others_place(desk):
    run, own = desk
    study = load_study(Path("study.yaml")).model_copy(update={"annotations": ()})
    quiet = [about(row, "rejected") for row in sounds_of(open_found(run)).to_pylist()]
    for who, start_s in (("ana", 2.0), ("ben", 12.0)):
        sound = verdict(who, recording_id=own.recording_id, start_s=start_s, end_s=start_s + 1, who=who)
        looked = span(own.recording_id, start_s - 1, start_s + 3)
        write_labels(study, run, store(Path(f"{who}.sqlite"), [sound, looked, *quiet]))
    found = read_expertise(study, [own.recording_id]).annotations
    assert sorted((item.start_s, item.annotator) for item in found) == [(2.0, "ana"), (12.0, "ben")]


def test_accepted_sounds_in_no_reviewed_span_are_no_labels(desk):
    run, _ = desk
    rows = sounds_of(open_found(run)).to_pylist()
    place = store(Path("few.sqlite"), [about(rows[0], "accepted"), about(rows[1], "unsure")])
    told = write_labels(load_study(Path("study.yaml")), run, place)
    assert "2 sounds in no reviewed span: left out until someone reviews around them" in told.summary()
    assert len(Path(told.location).read_text("utf-8").splitlines()) == 1  # the names of columns


def test_what_a_review_from_some_score_on_never_showed_leaves_no_hole(desk):
    run, own = desk
    looked = store(Path("few.sqlite"), [span(own.recording_id, 0.0, 30.0)])
    study = load_study(Path("study.yaml"))
    told = write_labels(study, run, looked)
    assert told.taken.open == 3 and "Was the review with --min-score? Give it here, too" in told.summary()
    assert "0.5 min reviewed from end to end" in mast(
        "labels", "study.yaml", run, "--verdicts", looked, "--min-score", "0.6"
    )
    whole = write_labels(study, run, looked, 0.6)
    assert whole.taken.reviewed == (Reviewed(own.recording_id, 0.0, 30.0),)
    refused = CliRunner().invoke(app, ["labels", "study.yaml", "--min-score", "0.6"])
    assert isinstance(refused.exception, ConfigError)


def test_a_label_means_what_the_study_says_and_what_it_does_not_know_is_an_animal(desk):
    run, own = desk
    reviewed_store(run, own)
    study = load_study(Path("study.yaml")).model_copy(
        update={"labels": Labels(animal=("*",), noise=("frog",))}
    )
    write_labels(study, run)
    kinds = {item.label: item.kind for item in read_expertise(study, [own.recording_id]).annotations}
    assert {"frog": "noise", None: "animal", "unsure": "ignored"}.items() <= kinds.items()
    strict = study.model_copy(update={"labels": Labels(animal=("hoot",)), "annotations": ()})
    told = read_expertise(strict, [own.recording_id])
    assert [item.kind for item in told.annotations] == ["animal", "animal", "ignored"]


@pytest.fixture
def table_of_experts(desk):
    """The study of the desk with three boxes in a table, one of them without frequencies, and a recording's rest open."""
    _, own = desk
    Path("own.csv").write_text(
        "recording,start_s,end_s,low_hz,high_hz,label\n"
        f"{own.recording_id},2,3,1000,3000,whistle\n{own.recording_id},6,7,,,whistle\n{own.recording_id},12,13,500,900,hoot\n",
        "utf-8",
    )
    text = Path("study.yaml").read_text("utf-8")
    Path("study.yaml").write_text(
        text.replace("annotations:\n", "annotations:\n  - {path: own.csv, format: csv}\n"), "utf-8"
    )
    mast("scan", "study.yaml")
    return own


def labels_in(recording_id: str) -> list[tuple]:
    rows = pq.read_table("work/annotations.parquet").to_pylist()
    return sorted(
        (row["start_s"], row["low_hz"], row["kind"], row["label"])
        for row in rows
        if row["recording_id"] == recording_id
    )


def test_a_study_reviewed_itself_has_its_boxes_corrected_and_the_rest_as_it_was(table_of_experts):
    own = table_of_experts
    elsewhere = len(pq.read_table("work/annotations.parquet")) - 3
    material = open_material("study.yaml")
    frog, whole, owl = material.sounds_of(own.recording_id).to_pylist()
    verdicts = [
        about(frog, "accepted", start_s=2.25, label="toad"),
        about(whole, "accepted", label="whistle"),
        verdict("drawn-1", recording_id=own.recording_id, start_s=20.0, end_s=21.0, score=None),
        about(owl, "rejected"),
    ]
    store(Path("work/review.sqlite"), verdicts)
    assert next_in_round(load_study(Path("study.yaml")), "study.yaml") == "mast labels study.yaml"
    told = mast("labels", "study.yaml")
    assert "3 sounds, 1 of them drawn by hand" in told and "1 sounds rejected" in told
    after = [
        (2.25, 1000.0, "animal", "toad"), (6.0, None, "animal", "whistle"), (20.0, 1000.0, "animal", None),
    ]  # fmt: skip
    assert labels_in(own.recording_id) == after
    assert len(pq.read_table("work/annotations.parquet")) == elsewhere + 3
    again = open_material("study.yaml").sounds.to_pylist()
    assert [row["event_id"] for row in again] == [row["event_id"] for row in material.sounds.to_pylist()]
    mast("labels", "study.yaml")
    assert labels_in(own.recording_id) == after


def test_what_nobody_decides_about_stays_and_what_nobody_can_tell_teaches_nothing(table_of_experts):
    own = table_of_experts
    owl = open_material("study.yaml").sounds_of(own.recording_id).to_pylist()[2]
    store(Path("work/review.sqlite"), [about(owl, "unsure", label="hoot"), verdict("gone")])
    told = mast("labels", "study.yaml")
    assert "2 sounds beside them without a verdict: they stay as the experts left them" in told
    assert labels_in(own.recording_id) == [
        (2.0, 1000.0, "animal", "whistle"), (6.0, None, "animal", "whistle"), (12.0, 500.0, "ignored", "unsure"),
    ]  # fmt: skip
    spans = pq.read_table("work/reviewed.parquet").to_pylist()
    assert [(row["start_s"], row["end_s"]) for row in spans if row["recording_id"] == own.recording_id] == [
        (0.0, 12.0), (13.0, 30.0),
    ]  # fmt: skip


def test_a_study_without_any_table_is_labelled_in_the_browser(desk):
    _, own = desk
    Path("study.yaml").write_text("collections: {card: {root: demo/card, time_zone: UTC}}\n", "utf-8")
    mast("scan", "study.yaml")
    mast("splits", "study.yaml")
    study = load_study(Path("study.yaml"))
    Path(study.work, "events", "run.json").unlink()
    assert next_in_round(study, "study.yaml") == "mast budget study.yaml --hours 1 --out to-label"
    drawn = verdict(
        "drawn-1", recording_id=own.recording_id, start_s=5.0, end_s=6.0, score=None, label="frog"
    )
    lone = verdict("drawn-2", recording_id="card/A1/none.wav", start_s=5.0, end_s=6.0, score=None)
    store(Path("work/review.sqlite"), [drawn, lone, span(own.recording_id, 0.0, 30.0)])
    told = mast("labels", "study.yaml")
    assert "1 sounds, 1 of them drawn by hand; 0.5 min reviewed from end to end" in told
    assert "1 sounds in no reviewed span: left out" in told
    assert labels_in(own.recording_id) == [(5.0, 1000.0, "animal", "frog")]
    assert next_in_round(study, "study.yaml") == "mast train study.yaml"


def test_status_leads_from_review_to_labels_to_training_and_round(desk):
    run, own = desk
    mast("splits", "study.yaml")
    study = load_study(Path("study.yaml"))
    Path(run, "run.json").touch()
    assert next_in_round(study, "study.yaml") == "mast train study.yaml"
    assert next_in_round(study, "my study.yaml") == "mast train 'my study.yaml'"
    reviewed_store(run, own)
    assert next_in_round(study, "study.yaml") == f"mast labels study.yaml {run}"
    mast("labels", "study.yaml", run)
    assert next_in_round(study, "study.yaml") == "mast train study.yaml"
    model = trained(study, "main")
    later = datetime.now(UTC).timestamp() + 10
    os.utime(model, (later, later))
    detect = next_in_round(study, "study.yaml")
    assert detect.startswith(
        f"mast detect study.yaml --model {Path(study.work) / 'runs/train/main/model'} --out "
    )
    os.utime(Path(run, "run.json"), (later + 10, later + 10))
    assert next_in_round(study, "study.yaml") == f"mast review {run}"
    assert next_in_round(study.model_copy(update={"work": "s3://bucket/work"}), "study.yaml") is None
    assert "Next: mast prepare study.yaml" in mast("status", "study.yaml")


def trained(study, name: str, labels: str | None = "those of now") -> Path:
    """A training that has ended, and what it learned from; gives the file that describes its model."""
    known = tables_of(study, [ANNOTATIONS]) if labels == "those of now" else {ANNOTATIONS: labels}
    run = run_folder(study.work, "train", name)
    run.open(known)
    run.model.mkdir()
    (run.model / "model.json").write_text("{}")
    return run.model / "model.json"


def test_only_other_labels_ask_for_another_training(desk):
    run, own = desk
    mast("splits", "study.yaml")
    study = load_study(Path("study.yaml"))
    trained(study, "main")
    later = datetime.now(UTC).timestamp() + 10
    os.utime(Path(run, "run.json"), (later, later))
    assert next_in_round(study, "study.yaml") == f"mast review {run}"
    os.utime("work/runs/train/main/model/model.json", (0, 0))
    mast("scan", "study.yaml")  # the same labels once more
    assert next_in_round(study, "study.yaml") == f"mast review {run}"
    reviewed_store(run, own)
    mast("labels", "study.yaml", run)
    assert next_in_round(study, "study.yaml") == "mast train study.yaml --name round-2"


def test_a_review_that_found_nothing_but_false_alarms_asks_for_another_training(desk):
    run, own = desk
    mast("splits", "study.yaml")
    study = load_study(Path("study.yaml"))
    trained(study, "main")
    os.utime("work/runs/train/main/config.yaml", (0, 0))
    rejected = [about(row, "rejected") for row in sounds_of(open_found(run)).to_pylist()]
    store(Path(run) / "review.sqlite", [*rejected, span(own.recording_id, 0.0, 30.0)])
    mast("labels", "study.yaml", run)
    assert next_in_round(study, "study.yaml") == "mast train study.yaml --name round-2"


def test_another_round_gets_a_name_that_is_free_and_one_that_was_stopped_goes_on(desk):
    mast("splits", "study.yaml")
    study = load_study(Path("study.yaml"))
    for name in ("main", "round-3", "round-4"):
        trained(study, name, "old")
    assert next_in_round(study, "study.yaml") == "mast train study.yaml --name round-5"
    run_folder(study.work, "train", "round-5").open({ANNOTATIONS: "other"})
    run_folder(study.work, "train", "round-6").open(tables_of(study, [ANNOTATIONS]))
    assert next_in_round(study, "study.yaml") == "mast train study.yaml --name round-6"


def test_a_detection_that_was_stopped_goes_on_with_its_own_model(desk):
    run, own = desk
    mast("splits", "study.yaml")
    study = load_study(Path("study.yaml"))
    newest = trained(study, "main")
    part = [(own, status_of(own), [])]
    for done in ([None], [None, part, None]):
        shutil.rmtree(run)
        write_run(run, done)
        later = datetime.now(UTC).timestamp() + 10
        os.utime(Path(run, "run.json"), (later, later))
        command = f"mast detect study.yaml --model {newest.parent} --out {run}"
        assert next_in_round(study, "study.yaml") == command
    told = json.loads(Path(run, "run.json").read_text("utf-8"))
    own_model = save_detector(Path(study.work, "runs", "selftrain", "old", "model"))
    told["settings"] |= {"model": known_identity(own_model), "threshold": 0.01}
    Path(run, "run.json").write_text(json.dumps(told), "utf-8")
    os.utime(Path(run, "run.json"), (later, later))
    command = f"mast detect study.yaml --model {own_model} --out {run} --min-score 0.01"
    assert next_in_round(study, "study.yaml") == command


# ---------------------------------------------------------------------------------------------- into other programs


@pytest.fixture
def night_run(tmp_path):
    run = write_run(tmp_path / "found", night(), root="/cards")
    rows = sounds_of(open_found(run)).to_pylist()
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
            who="ben",
        ),
        span("card/ridge/2.WAV", 0.0, 30.0),
    ]
    store(Path(run) / "review.sqlite", verdicts)
    return run


def test_an_export_of_a_review_has_what_people_stand_for(night_run, tmp_path):
    out = tmp_path / "out"
    told = mast("export", night_run, "--reviewed", "--to", "csv", "--out", str(out))
    assert "2 sounds accepted, 1 of them drawn by hand\nLeft out: 1 rejected, 0 unsure" in told
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


def test_sounds_of_another_run_in_the_same_database_are_not_counted_as_written(night_run, tmp_path):
    other = verdict("drawn-9", recording_id="elsewhere/1.WAV", start_s=1.0, end_s=2.0, score=None)
    both = store(tmp_path / "both.sqlite", [*read_verdicts(str(Path(night_run, "review.sqlite"))), other])
    written = export_reviewed(night_run, "csv", str(tmp_path / "out"), location=both)
    assert "2 sounds accepted, 1 of them drawn by hand" in written.summary()
    assert len((tmp_path / "out" / "events.csv").read_text("utf-8").splitlines()) == 1 + 2


def test_with_what_nobody_has_seen_it_has_the_models_sounds_as_well(night_run, tmp_path):
    written = export_reviewed(night_run, "csv", str(tmp_path / "out"), and_unseen=True)
    assert written.unseen == 1 and "and 1 that nobody has seen" in written.summary()
    mast("export", night_run, "--to", "csv", "--out", str(tmp_path / "all"))
    (*people, unseen), own = (
        list(csv.DictReader((tmp_path / name / "events.csv").read_text("utf-8").splitlines()))
        for name in ("out", "all")
    )
    assert len(people) == 2 and unseen["recording"] == "card/swamp/3.WAV"
    assert {name: unseen[name] for name in own[-1]} == own[-1]  # as it is exported without a review
    few = export_reviewed(night_run, "csv", str(tmp_path / "few"), and_unseen=True, min_score=0.6)
    assert few.unseen == 0


def test_what_scores_too_little_to_be_shown_leaves_no_hole_in_an_export_either(night_run, tmp_path):
    looked = store(tmp_path / "few.sqlite", [span("card/swamp/3.WAV", 0.0, 12.0)])
    holed, whole = (
        export_reviewed(night_run, "csv", str(tmp_path / "out"), location=looked, min_score=least).taken
        for least in (None, 0.6)
    )
    assert [(own.start_s, own.end_s) for own in holed.reviewed] == [(0.0, 3.0), (3.5, 12.0)]
    assert [(own.start_s, own.end_s) for own in whole.reviewed] == [(0.0, 12.0)] and whole.open == 0


@pytest.mark.parametrize("to", ["raven", "audacity", "aoef", "audubon-core", "camtrap-dp"])
def test_every_format_can_hold_a_review_and_says_what_it_cannot(night_run, tmp_path, to):
    written = export_reviewed(night_run, to, str(tmp_path / "out"))
    assert any((tmp_path / "out").rglob("*.*")) and f"Written: {written.out}" in written.summary()
    assert ("Not kept in" in written.summary()) == bool(written.losses)


@pytest.mark.parametrize("to", ["raven", "audacity"])
def test_a_sound_that_is_rejected_later_is_in_no_table_of_the_next_export(night_run, tmp_path, to):
    mast("export", night_run, "--reviewed", "--to", to)
    folder = Path(night_run, f"{to}-reviewed")
    assert len(read_annotations(folder, to).events) == 2
    owl = sounds_of(open_found(night_run)).to_pylist()[0]
    verdicts = read_verdicts(str(Path(night_run, "review.sqlite")))
    later = store(tmp_path / "later.sqlite", [*verdicts, about(owl, "rejected", version=2)])
    told = mast("export", night_run, "--reviewed", "--to", to, "--verdicts", later)
    assert "1 sounds accepted, 1 of them drawn by hand\nLeft out: 2 rejected" in told
    assert [event.start_s for event in read_annotations(folder, to).events] == [7.0]


@pytest.mark.parametrize("to", ["raven", "audacity", "csv", "aoef", "audubon-core"])
def test_a_review_can_have_a_file_for_each_recording(night_run, tmp_path, to):
    out = tmp_path / "out.txt"
    mast("export", night_run, "--reviewed", "--per-recording", "--to", to, "--out", str(out))
    ending = SHAPES[to].ending
    assert files_below(str(out)) == [f"card/ridge/{number}.WAV{ending}" for number in (1, 2)]
    one, two = (read_annotations(out / f"card/ridge/{number}.WAV{ending}", to).events for number in (1, 2))
    assert [event.start_s for event in (*one, *two)] == [1.25, 7.0]


def test_options_that_need_a_review_say_so(night_run):
    refused = CliRunner().invoke(app, ["export", night_run, "--to", "csv", "--and-unseen"])
    assert isinstance(refused.exception, ConfigError)
