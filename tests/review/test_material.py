"""What is reviewed: a run's sounds by their names, a study's boxes, and only recordings that can be heard."""

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mast.detection.found import Found
from mast.errors import ConfigError, StorageError
from mast.events import BOX, Recording, event_id, write_table
from mast.review.material import open_material
from mast.review.sounds import with_names
from tests.detection.runs import event, heard, recording, write_run
from tests.review.runs import BAT, ONE, QUIET, STARTS_S


def test_a_folder_without_a_run_is_refused_in_words(tmp_path):
    with pytest.raises(StorageError, match="no run of mast detect is here"):
        open_material(str(tmp_path))


def test_a_run_of_which_nothing_is_done_yet_is_refused_in_words(tmp_path):
    with pytest.raises(ConfigError, match="no recording has been heard yet"):
        open_material(write_run(tmp_path, [None]))


def test_recordings_that_can_be_heard_are_there_in_their_order(material):
    assert list(material.rows) == [ONE, QUIET, BAT]
    assert material.recording("card/swamp/lost.wav") is None
    known = material.recording(ONE)
    assert (known.duration_s, known.sample_rate_hz, known.site) == (20.0, 16_000, "ridge")
    assert known.location.endswith("card/ridge/one.wav")


def test_sounds_have_the_names_that_every_table_tells(material):
    rows = material.sounds_of(ONE).to_pylist()
    assert [row["start_s"] for row in rows] == list(STARTS_S)
    assert rows[0]["event_id"] == event_id(ONE, 1.0, 1.5, 1000.0, 3000.0)
    assert material.sound(rows[2]["event_id"])["start_s"] == 7.0
    assert material.sound("no such") is None
    assert len(material.sounds_of(QUIET)) == 0 and len(material.sounds_of(BAT)) == 1


def test_sounds_that_score_less_are_left_out(run):
    assert len(open_material(run, 0.45).sounds) == 3


def test_more_sounds_than_fit_are_refused_in_words(run, monkeypatch):
    monkeypatch.setattr("mast.review.material.MOST_SOUNDS", 3)
    with pytest.raises(ConfigError, match="5 sounds are more than can be shown at once.*--min-score"):
        open_material(run)


def test_no_more_of_a_run_is_loaded_than_fits(tmp_path, monkeypatch):
    items = [recording(f"{number}.WAV") for number in range(9)]
    parts = [
        [(own, heard(own, 2), [event(own, 1.0, score=0.3), event(own, 2.0, score=0.7)])] for own in items
    ]
    run, read, parts_of = write_run(tmp_path, parts), [], Found.parts
    monkeypatch.setattr(
        Found, "parts", lambda *given: (read.append(part.number) or part for part in parts_of(*given))
    )
    monkeypatch.setattr("mast.review.material.MOST_SOUNDS", 5)
    for min_score, count in ((None, 18), (0.5, 9)):
        with pytest.raises(ConfigError, match=f"^{count} sounds are more than can be shown at once"):
            open_material(run, min_score)
    assert read == [0, 1, 2, 0, 1, 2, 3, 4, 5]


def test_naming_sounds_needs_no_more_memory_where_they_are_many(monkeypatch):
    monkeypatch.setattr("mast.review.sounds.NAMED_AT_ONCE", 500, raising=False)

    def peak(count: int) -> int:
        numbers = np.arange(count, dtype=np.float64)
        columns = [
            pa.array(["card/1.WAV"]).take(pa.array(np.zeros(count, np.int64))),
            *[pa.array(numbers)] * 4,
        ]
        table = pa.table(columns, names=BOX)
        tracemalloc.start()
        named = with_names(table)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert named["event_id"][-1].as_py() == event_id("card/1.WAV", *[count - 1.0] * 4)
        return most

    few, many = peak(1000), peak(10_000)
    assert many < 1.5 * few


@pytest.fixture
def study(tmp_path):
    (tmp_path / "study.yaml").write_text("collections: {card: {root: card}}\n", "utf-8")
    return str(tmp_path / "study.yaml")


def test_a_study_that_was_not_scanned_is_told_to_be(study):
    with pytest.raises(ConfigError, match=r"Run mast scan .*study.yaml first"):
        open_material(study)


def test_a_study_shows_its_experts_boxes(study, tmp_path):
    known = recording("ridge/one.wav")
    write_table([known], Recording, str(tmp_path / "work" / "recordings.parquet"))
    assert len(open_material(study).sounds) == 0
    (tmp_path / "boxes.csv").write_text(
        "recording,start_s,end_s,low_hz,high_hz,label\n"
        f"{ONE},3,4,1000,2000,owl\n{ONE},1,2,,,whole height\ncard/elsewhere.wav,1,2,,,owl\n",
        "utf-8",
    )
    Path(study).write_text(
        "collections: {card: {root: card}}\nannotations: [{path: boxes.csv, format: csv}]\nlabels: {animal: ['*']}\n",
        "utf-8",
    )
    rows = open_material(study).sounds_of(ONE).to_pylist()
    assert [(row["label"], row["low_hz"], row["high_hz"]) for row in rows] == [
        ("whole height", 0.0, 8000.0), ("owl", 1000.0, 2000.0),
    ]  # fmt: skip
    assert rows[1]["event_id"] == event_id(ONE, 3.0, 4.0, 1000.0, 2000.0)
    assert rows[0]["score"] is None and rows[0]["model"] is None and rows[0]["site"] == "ridge"
