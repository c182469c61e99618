"""Export to other programs: empty recordings and effort are included, and memory use is constant."""

import csv
import json
import os
import tracemalloc
from collections import Counter
from pathlib import Path

import frictionless
import pytest
from typer.testing import CliRunner

from mast.annotations import audacity, match_recordings, read_annotations
from mast.annotations.table_io import Columns
from mast.cli import app
from mast.errors import ConfigError, StorageError
from mast.outputs.export import EFFORT, EXPORT_LAYOUTS, export
from mast.storage import list_files
from tests.runs.archives import card, open_paths, process_missing
from tests.runs.finished import MODEL, event, night, read_raven, recording, status_of, write_run


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "found", night(), root="/cards")


def table(path) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("to", EXPORT_LAYOUTS)
def test_the_export_of_a_run_without_recordings_is_empty(tmp_path, to):
    exported = export(write_run(tmp_path, []), to)
    assert (exported.events, exported.recordings, exported.processed_s) == (0, 0, 0.0)
    assert table(tmp_path / to / EFFORT) == []


@pytest.mark.parametrize("to", EXPORT_LAYOUTS)
def test_every_format_reads_back_as_the_exported_events(run, tmp_path, to):
    exported = export(run, to, str(tmp_path / "out"))
    (tmp_path / "out" / EFFORT).unlink()
    single = {"csv": "events.csv", "audubon-core": "events.csv", "aoef": "events.json"}.get(to, "")
    recording_ids = [f"card/{name}.WAV" for name in ("ridge/1", "ridge/2", "swamp/3")]
    read = match_recordings(read_annotations(tmp_path / "out" / single, to), recording_ids).annotations
    boxes = {(item.recording_id, item.start_s, item.low_hz, item.high_hz) for item in read.events}
    high_hz = 8000.0 if to == "raven" else 8100.0  # Raven refuses frequencies above half the sample rate
    assert boxes == {
        ("card/ridge/1.WAV", 1.5, 1000.0, 3000.0),
        ("card/ridge/1.WAV", 20.0, 1000.0, high_hz),
        ("card/swamp/3.WAV", 3.0, 1000.0, 3000.0),
    }
    if to != "audacity":  # its tracks contain neither
        assert {item.score for item in read.events} == {0.25, 0.75, 0.5}
        assert {item.origin for item in read.events} == {"model"}
        assert read.reviewed == ()  # no annotator has reviewed anything
    assert (exported.events, exported.recordings, exported.unprocessed, exported.processed_s) == (
        3,
        3,
        1,
        132.0,
    )


def test_effort_has_a_row_for_every_recording(run, tmp_path):
    export(run, "csv", str(tmp_path / "out"))
    rows = table(tmp_path / "out" / EFFORT)
    assert [(row["recording"], row["effort_s"], row["events"], row["status"]) for row in rows] == [
        ("card/ridge/1.WAV", "60", "2", "ok"),
        ("card/ridge/2.WAV", "60", "0", "empty"),
        ("card/swamp/3.WAV", "12", "1", "quarantined"),
        ("card/swamp/4.WAV", "0", "0", "quarantined"),
    ]
    assert rows[0]["start_utc"] == "2024-05-11T21:30:00.000Z"
    assert rows[0]["start_local"] == "2024-05-11T23:30:00.000"
    assert rows[3]["reason"] == "the file has no content"


def test_csv_has_clock_times_site_and_model_in_every_row(run):
    export(run, "csv")
    row = table(Path(run) / "csv" / "events.csv")[0]
    assert row == {
        "recording": "card/ridge/1.WAV", "start_s": "1.5", "end_s": "2", "low_hz": "1000", "high_hz": "3000",
        "label": "", "score": "0.25", "site": "ridge", "start_utc": "2024-05-11T21:30:01.500Z",
        "start_local": "2024-05-11T23:30:01.500", "utc_offset_min": "120", "model": MODEL,
    }  # fmt: skip


def test_raven_gets_a_table_for_every_processed_recording(run):
    export(run, "raven")
    folder = Path(run) / "raven" / "card"
    rows = read_raven(
        folder / "ridge" / "1.WAV.Table.1.selections.txt", [("/cards/ridge/1.WAV", "60.0", 16_000, 1)]
    )
    assert [row["Score"] for row in rows] == ["0.25", "0.75"]
    assert rows[0]["start_local"] == "2024-05-11T23:30:01.500"
    empty = read_raven(folder / "ridge" / "2.WAV.Table.1.selections.txt", [])
    assert empty == []
    assert not (folder / "swamp" / "4.WAV.Table.1.selections.txt").exists()  # it was not processed
    assert read_annotations(folder, "raven").reviewed == ()


def test_a_combined_raven_table_counts_time_over_all_files_in_their_order(run, tmp_path):
    exported = export(run, "raven", str(tmp_path), combined=True)
    sequence = [
        ("/cards/ridge/1.WAV", "60.0", 16_000, 1),
        ("/cards/ridge/2.WAV", "60.0", 16_000, 1),
        ("/cards/swamp/3.WAV", "40.0", 16_000, 1),
    ]
    rows = read_raven(tmp_path / "events.Table.1.selections.txt", sequence)
    assert [row["Begin Time (s)"] for row in rows] == ["1.5", "20", "123"]
    assert exported.losses == {"frequency above half the sample rate: clipped to it": 1}


def test_audacity_shows_the_score_and_has_a_track_for_an_empty_recording(run):
    export(run, "audacity")
    folder = Path(run) / "audacity" / "card" / "ridge"
    assert (folder / "1.WAV.txt").read_text("utf-8").startswith("1.5\t2\t0.25\n\\\t1000\t3000\n")
    assert (folder / "2.WAV.txt").read_text("utf-8") == ""


def test_aoef_has_a_clip_for_processed_audio_and_names_the_model(run):
    export(run, "aoef")
    data = json.loads((Path(run) / "aoef" / "events.json").read_text("utf-8"))["data"]
    assert sorted(clip["end_time"] for clip in data["clips"]) == [12.0, 60.0, 60.0]
    assert data["collection_type"] == "prediction_set"
    assert data["description"] == f"MAST 9.9, model {MODEL}"


def test_camtrap_dp_is_a_valid_package_with_blanks_for_effort(run):
    exported = export(run, "camtrap-dp")
    folder = Path(run) / "camtrap-dp"
    checked = frictionless.validate(str(folder / "datapackage.json"))
    assert checked.valid, checked.flatten(["message"])
    rows = table(folder / "observations.csv")
    assert Counter(row["observationType"] for row in rows) == {"animal": 3, "blank": 1}
    assert rows[0]["eventStart"] == "2024-05-11T23:30:01.500000+0200"
    assert rows[0]["classifiedBy"] == f"MAST 9.9, model {MODEL}"
    assert exported.losses == {}


def test_camtrap_dp_counts_losses_of_recordings_without_a_clock(tmp_path):
    dated, undated, empty = recording("1.WAV"), recording("2.WAV", start=None), recording("3.WAV", start=None)
    part = [
        (dated, status_of(dated), []),
        (undated, status_of(undated, 1), [event(undated, 1.0)]),
        (empty, status_of(empty), []),
    ]
    losses = export(write_run(tmp_path, [part]), "camtrap-dp").losses
    assert sorted(losses.values()) == [1, 1]


def test_audubon_core_has_times_in_the_media_file_and_by_the_clock(run):
    export(run, "audubon-core")
    row = table(Path(run) / "audubon-core" / "events.csv")[0]
    assert (row["ac:startTime"], row["ac:endTime"], row["ac:freqLow"]) == ("1.5", "2", "1000")
    assert row["ac:startTimestamp"] == "2024-05-11T21:30:01.500000Z"
    assert row["dwc:identifiedBy"] == f"MAST 9.9, model {MODEL}"


@pytest.mark.parametrize("to", ["csv", "aoef", "audubon-core"])
def test_other_formats_support_a_file_for_each_recording(run, to):
    exported = export(run, to, combined=False)
    files = {path.name for path in (Path(run) / to / "card").rglob("*") if path.is_file()}
    assert files == {f"{name}.WAV{EXPORT_LAYOUTS[to].ending}" for name in (1, 2, 3)}
    assert exported.files == 3


def test_an_export_replaces_the_previous_export_and_no_other_file(run, tmp_path):
    folder = Path(run) / "raven"
    export(run, "raven")
    (folder / "notes.txt").write_text("mine", "utf-8")
    edited = folder / "card" / "swamp" / "3.WAV.Table.1.selections.txt"
    later_ns = edited.stat().st_mtime_ns + 1_000_000_000
    os.utime(edited, ns=(later_ns, later_ns))
    summary = export(run, "raven", combined=True).summary()
    assert list_files(str(folder)) == [
        "card/swamp/3.WAV.Table.1.selections.txt", EFFORT, "events.Table.1.selections.txt", "notes.txt",
    ]  # fmt: skip
    assert "1 edited table of an earlier export kept" in summary
    parts = ([(item, status_of(item), [])] for item in (recording("1.WAV"), recording("2.WAV")))
    for number, part in enumerate(parts):
        other = write_run(tmp_path / f"{number}", [part])
        manifest = json.loads(Path(other, "run.json").read_text("utf-8"))
        Path(other, "run.json").write_text(json.dumps(manifest | {"fingerprint": f"f{number}"}), "utf-8")
        export(other, "audacity", str(tmp_path / "both"))
    assert list_files(str(tmp_path / "both")) == ["card/1.WAV.txt", "card/2.WAV.txt", EFFORT]


def test_only_events_above_the_minimum_score_are_exported(run):
    exported = export(run, "csv", min_score=0.5)
    assert exported.events == 2
    assert [row["score"] for row in table(Path(run) / "csv" / "events.csv")] == ["0.75", "0.5"]
    assert export(run, "csv", min_score=0.7).events == 1
    assert table(Path(run) / "csv" / EFFORT)[2]["status"] == "quarantined"
    assert export(run, "csv", min_score=0.9).events == 0
    assert table(Path(run) / "csv" / EFFORT)[0]["status"] == "empty"


def test_unfinished_parts_are_reported(tmp_path):
    first, second = night()
    run = write_run(tmp_path, [None, first, None, second])
    exported = export(run, "csv")
    assert exported.unfinished == 2
    assert "2 parts of the run not finished" in exported.summary()
    assert exported.events == 3


def test_recordings_of_unfinished_parts_are_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr("mast.runs.results._BATCH_ROWS", 2)
    items = [recording(f"{number}.WAV") for number in range(9)]
    parts = [
        [(item, status_of(item, 1), [event(item, 1.0)]) for item in items[at : at + 3]] for at in (0, 3, 6)
    ]
    run = write_run(tmp_path, parts)
    (tmp_path / "status" / "part-000001.parquet").unlink()
    export(run, "csv")
    assert [row["recording"][5] for row in table(tmp_path / "csv" / EFFORT)] == list("012678")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "batdetect2"}, "mast convert"),
        ({"to": "audacity", "combined": True}, "contains only one recording"),
        ({"to": "camtrap-dp", "combined": False}, "one package"),
        ({"to": "csv", "min_score": 0.1}, "contains only events of score >= 0.2"),
    ],
)
def test_unsupported_options_are_refused(run, options, message):
    with pytest.raises(ConfigError, match=message):
        export(run, **options)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(StorageError, match="no run of mast detect"):
        export(str(tmp_path), "csv")
    (tmp_path / "run.json").write_text("{}", "utf-8")
    with pytest.raises(StorageError, match="was not written by MAST"):
        export(str(tmp_path), "csv")


def test_a_changed_table_of_recordings_is_refused(tmp_path):
    run = write_run(tmp_path / "found", night())
    write_run(tmp_path / "other", [])
    (tmp_path / "other" / "recordings.parquet").replace(tmp_path / "found" / "recordings.parquet")
    with pytest.raises(StorageError, match="Was it changed"):
        export(run, "csv")


def test_names_with_characters_that_files_cannot_have_get_different_files(tmp_path):
    items = [recording("a:b.WAV"), recording("a?b.WAV")]
    run = write_run(tmp_path, [[(item, status_of(item), [])] for item in items])
    assert export(run, "raven").files == 2
    assert len(list((tmp_path / "raven" / "card").iterdir())) == 2


def test_a_label_track_ignores_additional_columns(tmp_path):
    assert audacity.write_parts([], tmp_path / "x.txt", Columns(free=("site",))) == {}


@pytest.mark.parametrize("to", ["csv", "aoef"])
def test_memory_does_not_grow_with_the_number_of_parts(tmp_path, to):
    """Check that only one part is in memory: eight times as many parts need no more memory."""

    def peak_memory(parts: int) -> int:
        items = [recording(f"{number:03d}.WAV") for number in range(parts)]
        run = write_run(
            tmp_path / f"{parts}",
            [[(item, status_of(item, 50), [event(item, at / 2) for at in range(50)])] for item in items],
        )
        export(run, to, combined=True)  # imports, caches
        tracemalloc.start()
        export(run, to, combined=True)
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak_bytes

    small, large = peak_memory(3), peak_memory(24)
    assert large < 1.5 * small + 300_000


def test_mast_export_of_a_run_of_mast_detect(detector, short_parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = process_missing(
        open_paths(card(tmp_path / "card"), detector, tmp_path / "found", site="{site}/*", time_zone="UTC")
    ).out
    done = CliRunner().invoke(app, ["export", run, "--to", "raven"])
    assert done.exit_code == 0, done.output
    rows = []
    for path in sorted((tmp_path / "card").rglob("*.WAV")):
        name = f"{path.relative_to(tmp_path)}.Table.1.selections.txt"
        rows += read_raven(Path(run) / "raven" / name, [(str(path), "2", 16_000, 1)])
    assert f"{len(rows)} events in 6 recordings" in done.output and rows
    assert all(Path(row["Begin Path"]).is_file() for row in rows)


def test_export_from_and_to_an_object_store(bucket):
    run = write_run(f"{bucket}/found", night())
    assert export(run, "csv").events == 3
    assert len(read_annotations(f"{bucket}/found/csv/events.csv", "csv").events) == 3
    assert export(run, "csv", combined=False).files == 3
    assert "events.csv" not in list_files(f"{bucket}/found/csv")
