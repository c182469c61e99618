"""Review sets: detections of a run with their ids, annotations of a study, and only readable recordings."""

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mast.errors import ConfigError, StorageError
from mast.records import BOX_COLUMNS, Recording, event_id, write_table
from mast.review.event_table import with_event_ids
from mast.review.review_set import open_review_set
from mast.runs.results import DetectionResults
from tests.review.runs import BAT, ONE, QUIET, STARTS_S
from tests.runs.finished import event, recording, status_of, write_run


def test_a_folder_without_a_run_is_refused_with_a_message(tmp_path):
    with pytest.raises(StorageError, match="contains no run of mast detect"):
        open_review_set(str(tmp_path))


def test_a_run_without_finished_parts_is_refused_with_a_message(tmp_path):
    with pytest.raises(ConfigError, match="no recording has been processed yet"):
        open_review_set(write_run(tmp_path, [None]))


def test_readable_recordings_are_listed_in_their_order(review_set):
    assert list(review_set.rows) == [ONE, QUIET, BAT]
    assert review_set.recording("card/swamp/lost.wav") is None
    opened = review_set.recording(ONE)
    assert (opened.duration_s, opened.sample_rate_hz, opened.site) == (20.0, 16_000, "ridge")
    assert opened.location.endswith("card/ridge/one.wav")


def test_events_have_the_ids_of_all_tables(review_set):
    rows = review_set.events_of(ONE).to_pylist()
    assert [row["start_s"] for row in rows] == list(STARTS_S)
    assert rows[0]["event_id"] == event_id(ONE, 1.0, 1.5, 1000.0, 3000.0)
    assert review_set.event(rows[2]["event_id"])["start_s"] == 7.0
    assert review_set.event("unknown") is None
    assert len(review_set.events_of(QUIET)) == 0 and len(review_set.events_of(BAT)) == 1


def test_events_below_the_minimum_score_are_left_out(run):
    assert len(open_review_set(run, 0.45).events) == 3


def test_too_many_events_are_refused_with_a_message(run, monkeypatch):
    monkeypatch.setattr("mast.review.review_set.MAX_EVENTS", 3)
    with pytest.raises(ConfigError, match="5 events exceed the maximum of 3 for a review.*--min-score"):
        open_review_set(run)


def test_a_run_is_loaded_only_up_to_the_maximum(tmp_path, monkeypatch):
    items = [recording(f"{number}.WAV") for number in range(9)]
    parts = [
        [(item, status_of(item, 2), [event(item, 1.0, score=0.3), event(item, 2.0, score=0.7)])]
        for item in items
    ]
    run, read, parts_of = write_run(tmp_path, parts), [], DetectionResults.parts
    monkeypatch.setattr(
        DetectionResults,
        "parts",
        lambda *arguments: (read.append(part.number) or part for part in parts_of(*arguments)),
    )
    monkeypatch.setattr("mast.review.review_set.MAX_EVENTS", 5)
    for min_score, count in ((None, 18), (0.5, 9)):
        with pytest.raises(ConfigError, match=f"^{count} events exceed the maximum of 5 for a review"):
            open_review_set(run, min_score)
    assert read == [0, 1, 2, 0, 1, 2, 3, 4, 5]


def test_memory_for_event_ids_does_not_grow_with_the_number_of_events(monkeypatch):
    monkeypatch.setattr("mast.review.event_table.LOOKUP_BATCH", 500)

    def peak(count: int) -> int:
        numbers = np.arange(count, dtype=np.float64)
        columns = [
            pa.array(["card/1.WAV"]).take(pa.array(np.zeros(count, np.int64))),
            *[pa.array(numbers)] * 4,
        ]
        table = pa.table(columns, names=BOX_COLUMNS)
        tracemalloc.start()
        identified = with_event_ids(table)
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert identified["event_id"][-1].as_py() == event_id("card/1.WAV", *[count - 1.0] * 4)
        return peak_bytes

    small, large = peak(1000), peak(10_000)
    assert large < 1.5 * small


@pytest.fixture
def study(tmp_path):
    (tmp_path / "study.yaml").write_text("collections: {card: {root: card}}\n", "utf-8")
    return str(tmp_path / "study.yaml")


def test_a_study_without_a_scan_is_refused_with_a_message(study):
    with pytest.raises(ConfigError, match=r"Run mast scan .*study.yaml first"):
        open_review_set(study)


def test_a_study_shows_its_annotations(study, tmp_path):
    scanned = recording("ridge/one.wav")
    write_table([scanned], Recording, str(tmp_path / "work" / "recordings.parquet"))
    assert len(open_review_set(study).events) == 0
    (tmp_path / "boxes.csv").write_text(
        "recording,start_s,end_s,low_hz,high_hz,label\n"
        f"{ONE},3,4,1000,2000,owl\n{ONE},1,2,,,whole height\ncard/elsewhere.wav,1,2,,,owl\n",
        "utf-8",
    )
    Path(study).write_text(
        "collections: {card: {root: card}}\nannotations: [{path: boxes.csv, format: csv}]\nlabels: {animal: ['*']}\n",
        "utf-8",
    )
    rows = open_review_set(study).events_of(ONE).to_pylist()
    assert [(row["label"], row["low_hz"], row["high_hz"]) for row in rows] == [
        ("whole height", 0.0, 8000.0), ("owl", 1000.0, 2000.0),
    ]  # fmt: skip
    assert rows[1]["event_id"] == event_id(ONE, 3.0, 4.0, 1000.0, 2000.0)
    assert rows[0]["score"] is None and rows[0]["model"] is None and rows[0]["site"] == "ridge"
